"""Entries of outcomes: the results of the writes that decisions wanted."""

from typing import Literal

from msgspec import Struct


class Outcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="outcome"):
    """The result of the write that decision `decision` wanted; only the first per decision counts.

    `applied` (the scale now shows `specReplicas`), `superseded` (a newer decision took its place), `stale` (time to
    live passed), `refused` (a guard said no: `error` says why), `failed` (the API said no: `error` is its text). Scale
    fields: the newest observation, where one was made.
    """

    decision: str
    name: str
    uid: str
    result: Literal["applied", "superseded", "stale", "refused", "failed"]
    error: str = ""
    spec_replicas: int | None = None
    status_replicas: int | None = None
    selector: str | None = None
    resource_version: str = ""
    attempts: int = 0

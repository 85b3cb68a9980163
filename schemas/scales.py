"""Entries of scale subresources, and the heartbeat of the observer that reads them."""

from msgspec import Struct


class Target(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A scale subresource of a namespace, by group, kind and name (the version plays no part)."""

    kind: str
    name: str
    group: str = ""


class ScaleSet(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="scaleSet"
):
    """What `/scale` of a target says, or (`error`) why it cannot be read, in the API server's words.

    `manager`: field manager that last wrote `spec.replicas`, where the API shows it; `managerTime` when.
    """

    target: Target
    error: str | None = None
    spec_replicas: int = 0
    status_replicas: int = 0
    selector: str = ""
    resource_version: str = ""
    uid: str = ""
    manager: str = ""
    manager_time: int = 0
    session: str = ""


class Heartbeat(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="heartbeat"
):
    """The observer session is alive and what it sent about this namespace still holds. Every 10 s per session and
    namespace.

    `watches`: what it watches (`pods`, `autoscalers`, `scales`); `problems`: watch → error, where a watch is down or
    forbidden.
    """

    session: str
    watches: list[str] = []
    problems: dict[str, str] = {}

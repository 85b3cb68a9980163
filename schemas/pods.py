"""Entries of pods: what a decision needs of them."""

from msgspec import Struct


class Container(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A container: its name and requests (quantity texts); `restartAlways` marks a sidecar init container."""

    name: str
    requests: dict[str, str] = {}
    restart_always: bool = False


class Pod(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision needs of a pod.

    `ready` is the status of the Ready condition (`True`, `False`, `Unknown`), None without one; `readyAt` its
    lastTransitionTime (None: zero time). `podRequests` are pod-level requests (None: not set).
    """

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    phase: str = "Running"
    start: int | None = None
    ready: str | None = None
    ready_at: int | None = None
    deleting: bool = False
    containers: list[Container] = []
    init_containers: list[Container] = []
    pod_requests: dict[str, str] | None = None
    overhead: dict[str, str] = {}
    owner: str = ""


class PodSet(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podSet"
):
    """A pod was created or changed."""

    pod: Pod
    session: str = ""


class PodDeleted(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podDeleted"
):
    """A pod is gone."""

    name: str
    session: str = ""


class PodList(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podList"):
    """A chunk of a full list of a namespace's pods; the last chunk (`chunk == chunks - 1`) removes the pods that no
    chunk of `listId` named.
    """

    list_id: str
    pods: list[Pod]
    chunk: int = 0
    chunks: int = 1
    session: str = ""

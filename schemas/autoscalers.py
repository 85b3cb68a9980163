"""Entries of HPAs: their objects, full lists of them, and commands about them."""

from typing import Any, Literal

from msgspec import Struct

Origin = Literal["cluster", "central"]
Mode = Literal["off", "shadow", "enforce"]


class AutoscalerSet(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerSet"
):
    """An HPA was created or changed. In the log `hpa` is a valid, defaulted autoscaling/v2 object (JSON); on the
    public topic any version.

    `origin` `central`: lives only in fleethpa; uid and generation are given by the fold. `mode` sets its mode with it
    (central only). `manager`: field manager that last wrote the spec in the cluster, where the API shows it;
    `managerTime` when. No decision depends on it. `renewed`: an observer says a central one again, before its record
    expires, for observers that start later; the fold passes it over, so it can undo nothing. An object with a field
    `ignored` is a stub of one that exceeds a limit (`schemas.fitting`).
    """

    hpa: dict[str, Any]
    origin: Origin = "cluster"
    mode: Mode | None = None
    author: str = ""
    reason: str = ""
    session: str = ""
    manager: str = ""
    manager_time: int = 0
    renewed: bool = False


class AutoscalerDeleted(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerDeleted"
):
    """An HPA was deleted; empty `uid`: the one with this name."""

    name: str
    uid: str = ""
    origin: Origin = "cluster"
    author: str = ""
    reason: str = ""
    session: str = ""


class AutoscalerList(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerList"
):
    """A chunk of a full list of a namespace's HPAs, as `PodList`; removes only what came from the cluster.

    `rivals`: other objects that drive a target in this namespace, such as KEDA ScaledObjects:
    `[{"kind","name","target":{"group","kind","name"}}]`.
    `managers`: name of an HPA of this chunk → `[manager, managerTime]`, as `AutoscalerSet` has them.
    """

    list_id: str
    hpas: list[dict[str, Any]]
    chunk: int = 0
    chunks: int = 1
    rivals: list[dict[str, Any]] = []
    session: str = ""
    managers: dict[str, tuple[str, int]] = {}


class Command(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="command"):
    """`mode`, `pause` or `resume`, for one HPA (`name`), a namespace (empty `name`), a cluster or everything.

    Of an HPA or a namespace its record names cluster and namespace; else the scope is `cluster` (`*`: every cluster),
    and ingest copies it into every partition. `pause` and `resume` are on `fleethpa.settings`, which never expires, and
    so is `mode` of clusters; `mode` of HPAs and namespaces is on `fleethpa.autoscalers`. `pauseKind`: `all`, or only
    `scaleUp` / `scaleDown`. `until`: when a pause ends by itself (0: never).
    """

    command: Literal["mode", "pause", "resume"]
    name: str = ""
    cluster: str = ""
    mode: Mode | None = None
    pause_kind: Literal["all", "scaleUp", "scaleDown"] = "all"
    until: int = 0
    author: str = ""
    reason: str = ""

    @property
    def is_about_pauses(self) -> bool:
        """Whether it makes or ends a pause."""
        return self.command != "mode"

"""What an agent must know beside decisions, as the router writes it to the topic of the agent."""

from typing import Any, Literal

from msgspec import Struct

from schemas.settings import SettingsSet

SNAPSHOT_TYPE = b"io.fleethpa.snapshot.v1"
"""Value of the header `ce_type` of an `AgentKnowledge` record; decisions have their own."""


class CentralHpa(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A central HPA of the cluster: its manifest, defaulted autoscaling/v2. `deleted`: it is gone."""

    namespace: str
    name: str
    hpa: dict[str, Any] = {}
    deleted: bool = False


class KnownPause(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pause that holds in the cluster: of one HPA, of a namespace (no `name`), or of all (neither); or (`override`)
    the `replicas` that a person wants of one HPA in place of what its metrics ask for, which stops nothing.

    `until`: when it ends by itself (Unix ms); 0: never.
    """

    kind: Literal["all", "scaleUp", "scaleDown", "override"] = "all"
    namespace: str = ""
    name: str = ""
    until: int = 0
    replicas: int = 0


class AgentKnowledge(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What an agent must know beside decisions: the settings of its cluster and its central HPAs.

    With `snapshot` (a name) it is one of `chunks` parts of the whole: once all have come, what none of them names is
    gone. Without, it is a change: HPAs are added, replaced or deleted. `settings`, where there are any, replace all
    those before: the merged settings of `*` and of the cluster. `pauses`, where it is not None, replaces those before:
    the stand-in keeps to them, and to overrides, while the hub is away. `time`: when it was written (ms, the writer's
    clock).
    """

    v: int
    cluster: str
    time: int
    snapshot: str = ""
    chunk: int = 0
    chunks: int = 1
    settings: list[SettingsSet] = []
    hpas: list[CentralHpa] = []
    pauses: list[KnownPause] | None = None

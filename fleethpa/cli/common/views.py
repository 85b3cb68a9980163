"""What read verbs show of an HPA, a cluster and the fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from schemas.autoscalers import Mode
from schemas.keys import HpaId
from schemas.settings import ClusterSettings
from streams.history.recorded import Recorded
from streams.state.moves import Fight, Move, fight_now
from streams.state.namespace import Namespace
from streams.state.rows import PartitionRow

SILENT_MS: Final = 30_000
"""A cluster of which nothing was heard for so long (log time) counts as not answering."""


@dataclass(frozen=True)
class HpaView:
    """One HPA as it stands now.

    `hpa`: the autoscaling/v2 object with its status. `last_decision`: id of its newest decision, empty before the
    first. `decision`: its newest evaluation, where a verb has read it. `paused` and `refused`: why nothing is written,
    empty where it would be.
    """

    id: HpaId
    hpa: dict[str, Any]
    mode: Mode
    origin: str
    partition: int
    last_decision: str = ""
    decision: Recorded | None = None
    paused: str = ""
    refused: str = ""
    author: str = ""
    reason: str = ""
    moves: tuple[Move, ...] = ()
    """The last changes of spec.replicas and who made them."""
    clock_ms: int = 0

    @property
    def fight(self) -> Fight | None:
        """Two writers that undo each other now, where there are."""
        return fight_now(self.moves, self.clock_ms)

    @property
    def at_max(self) -> bool:
        """Whether it has all the replicas that it may have, where it may have more than its least."""
        most, least = self.spec.get("maxReplicas", 0), self.spec.get("minReplicas", 1)
        return bool(most) and most != least and self.status.get("currentReplicas", 0) >= most

    @property
    def problems(self) -> list[str]:
        """What is wrong with it, in words; empty: nothing."""
        found = []
        if self.paused:
            found.append("paused")
        if self.refused:
            found.append("refused")
        conditions = {c.get("type"): c.get("status") for c in self.status.get("conditions") or []}
        found += [f"{name}=False" for name in ("AbleToScale", "ScalingActive") if conditions.get(name) == "False"]
        if self.at_max:
            found.append("at max")
        if self.fight is not None:
            found.append(f"fight: {' and '.join(self.fight.writers)}")
        return found

    @property
    def spec(self) -> dict[str, Any]:
        """The spec."""
        found: dict[str, Any] = self.hpa.get("spec") or {}
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The status."""
        found: dict[str, Any] = self.hpa.get("status") or {}
        return found

    @property
    def labels(self) -> dict[str, str]:
        """The HPA object's labels."""
        found: dict[str, str] = (self.hpa.get("metadata") or {}).get("labels") or {}
        return found


@dataclass
class ClusterView:
    """One cluster as the log knows it.

    `heard_ms`: when an observer was last heard (log time; None: never). `problems`: watch → its error.
    """

    name: str
    hpas: int = 0
    namespaces: int = 0
    modes: dict[str, int] = field(default_factory=dict)
    heard_ms: int | None = None
    clock_ms: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    paused: str = ""

    @property
    def silent(self) -> bool:
        """Whether its observer has gone silent."""
        return self.heard_ms is not None and self.clock_ms - self.heard_ms > SILENT_MS


@dataclass
class FleetState:
    """Everything that read verbs show."""

    hpas: dict[HpaId, HpaView] = field(default_factory=dict)
    clusters: dict[str, ClusterView] = field(default_factory=dict)
    namespaces: dict[tuple[str, str], Namespace] = field(default_factory=dict)
    settings: dict[str, ClusterSettings] = field(default_factory=dict)
    """As set: per cluster, and `*` for all."""
    partitions: dict[int, PartitionRow] = field(default_factory=dict)
    """The decider's newest checkpoint of each log partition."""
    forgotten: set[HpaId] = field(default_factory=set)
    """HPAs that were there once and have been deleted."""
    clock_ms: int = 0
    """Log time of the state."""
    end_ms: int = 0
    """Timestamp of the newest log record; later than `clock_ms` where the decider is far behind."""

    def rivals(self, cluster: str, namespace: str) -> list[dict[str, Any]]:
        """Other objects that drive targets there, such as KEDA ScaledObjects."""
        row = self.namespaces.get((cluster, namespace))
        return list(row.rivals) if row else []

"""What is asked of a search for a better spec, and what it found."""

from typing import Any, Literal

from msgspec import Struct

from schemas.keys import HpaId
from streams.analysis.podstartup import StartUp
from streams.analysis.scores import Scores

WORTH_RELIEF = 0.0005
"""Share of the time in overload from which it is worth paying for less: three quarters of a minute a day."""
COST_EVEN = 0.001
"""Differences in replica-hours up to this share are none."""
Objective = Literal["cost", "safety", "balanced"]


class RefusedError(Exception):
    """The recording cannot carry a proposal; says why and what to do."""


class Within(Struct, frozen=True, kw_only=True):
    """What a proposal must keep to, both ends included; None: open. Targets are percent of the request, or of the
    deployed target for a metric that is no utilization. Windows are those of scaleDown, in seconds. Tolerances, and
    the percentage of a scale-up policy, are those that a proposal adds.
    """

    target: tuple[float | None, float | None] = (None, None)
    min_replicas: tuple[float | None, float | None] = (None, None)
    max_replicas: tuple[float | None, float | None] = (None, None)
    window: tuple[float | None, float | None] = (None, None)
    tolerance: tuple[float | None, float | None] = (None, None)
    scale_up_percent: tuple[float | None, float | None] = (None, None)


class Side(Struct, frozen=True, kw_only=True, rename="camel"):
    """One spec over one part of the recording, in the closed loop."""

    replica_hours: float
    overload_share: float
    overload: float
    worst: float
    scale_events: int
    scores: Scores


class CurvePoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """One spec that was tried, on the first part, in the compact loop. Targets as in `Within`."""

    target: float
    min_replicas: int
    window_seconds: int
    replica_hours: float
    overload_share: float


class Tuning(Struct, frozen=True, kw_only=True):
    """What was found for one HPA. `spec`: the proposal, the deployed spec where none is better (`changed` False)."""

    hpa: HpaId
    objective: Objective
    since_ms: int
    until_ms: int
    split_ms: int
    evaluations: int
    deployed: dict[str, Any]
    spec: dict[str, Any]
    changed: bool
    why: str
    metric: str
    capacity: str
    cycle_ms: int | None
    start_up: StartUp
    chosen_on: tuple[Side, Side]
    """Deployed and proposed on the first part."""
    unseen: tuple[Side, Side]
    """Deployed and proposed on the rest."""
    curve: list[CurvePoint]
    deployed_point: CurvePoint
    proposed_point: CurvePoint
    bounds: list[str]
    tried: int
    withdrawn: int
    """Proposals that the closed loop did not confirm, on the part they were chosen on or on the rest."""

    @property
    def saved(self) -> float:
        """Replica-hours that the proposal saves on the unseen part."""
        return self.unseen[0].replica_hours - self.unseen[1].replica_hours

    @property
    def more_cost(self) -> float:
        """What the proposal costs more than the deployed spec over both parts, as a share; below 0: less."""
        was, own = (self.chosen_on[at].replica_hours + self.unseen[at].replica_hours for at in (0, 1))
        return own / was - 1 if was else 0.0

    @property
    def costs_more(self) -> bool:
        """Whether the proposal spares overload at more cost: objective safety only."""
        return self.changed and self.more_cost > COST_EVEN

    def overload_share(self, at: Literal[0, 1]) -> float:
        """Share of the time in overload over both parts: 0: deployed, 1: proposed."""
        seen, rest = self.split_ms - self.since_ms, self.until_ms - self.split_ms
        lacking = self.chosen_on[at].overload_share * seen + self.unseen[at].overload_share * rest
        return lacking / ((seen + rest) or 1)

"""Which of two specs is better for an objective, and which is safe enough to be proposed."""

from msgspec import Struct

from streams.analysis.tuning.recording import TunedPast
from streams.analysis.tuning.results import WORTH_RELIEF, Objective, Side
from streams.analysis.tuning.surrogate import SpecOutcome
from streams.analysis.tuning.tailrisk import as_safe
from streams.analysis.tuning.trials import TriedSpec, grown

LEAST_GAIN = 0.02
"""Share of the replica-hours that a proposal must save to be worth a change."""
_COST_SHARE, _COST_OVERLOAD = 0.005, 0.001
RELIEF = 0.5
"""Share of the deployed spec's overload that a proposal for safety may keep where it costs more."""
MOST_DEARER = 1.5
"""What such a proposal may cost at most, as a multiple of the deployed spec."""
_EVEN = 1e-9
_PRICE_OF_CHANGE = 0.005
"""What each rule of scale-up or tolerance that a spec changes must save at least, as a share of the replica-hours."""


class SpecJudge(Struct, frozen=True):
    """Compares specs with the deployed one, `base`."""

    world: TunedPast
    objective: Objective
    base: TriedSpec

    def allowed(self, tried: TriedSpec) -> bool:
        """Not more overload than the deployed spec has, as recorded and with the margin."""
        base = self.base
        if tried.allowed is None:
            as_safe_as = self.objective == "cost" or as_safe(tried.plain, base.plain)
            calm = as_safe_as and self._calm(tried.plain, base.plain)
            tried.allowed = calm and self._calm(grown(self.world, tried), grown(self.world, base))
        return tried.allowed

    def is_better(self, tried: TriedSpec) -> bool:
        """Whether it may be proposed, as far as the compact loop knows."""
        own, was = tried.plain, self.base.plain
        if self.objective == "safety":
            before = was.overload + grown(self.world, self.base).overload
            fewer = own.overload + grown(self.world, tried).overload < before * 0.95 - _EVEN
            return fewer and self.allowed(tried) and own.replica_hours <= was.replica_hours
        return self.allowed(tried) and own.replica_hours < was.replica_hours * (1 - LEAST_GAIN)

    def suffers(self) -> bool:
        """Whether the deployed spec was in overload long enough to justify a dearer spec with less overload."""
        return self.objective == "safety" and self.base.plain.overload_share >= WORTH_RELIEF

    def relieves(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        """Whether a spec spares at least half of the overload."""
        return own.overload_share <= was.overload_share * RELIEF and own.overload <= was.overload * RELIEF

    def is_dearer(self, tried: TriedSpec) -> bool:
        """Whether it costs more than the deployed spec."""
        return tried.plain.replica_hours > self.base.plain.replica_hours

    def is_relief(self, tried: TriedSpec) -> bool:
        """Whether it may be proposed for safety though it may cost more: not without limit."""
        own, was = tried.plain, self.base.plain
        affordable = own.replica_hours <= was.replica_hours * MOST_DEARER
        return self.suffers() and affordable and self.relieves(own, was) and self.allowed(tried)

    def price(self, tried: TriedSpec) -> tuple[float, ...]:
        """What a spec costs, what changes count for; lower is better."""
        hours = tried.plain.replica_hours * (1 + _PRICE_OF_CHANGE * tried.changes)
        return (hours, float(tried.plain.scale_events), tried.target, float(tried.window_s))

    def rank(self, tried: TriedSpec) -> tuple[float, ...]:
        """Lower is better."""
        if self.objective == "safety":
            return (tried.plain.overload + grown(self.world, tried).overload, *self.price(tried))
        return self.price(tried)

    def holds(self, own: Side, was: Side, *, dearer: bool = False) -> bool:
        """Whether the closed loop confirms, on some part: no more overload and, in hours, no more cost.

        Args:
            own: the spec.
            was: the deployed one.
            dearer: it may cost more, within the limit for relief.
        """
        limit = MOST_DEARER if dearer else 1 + _EVEN
        return self._calm(own, was) and own.replica_hours <= was.replica_hours * limit

    def _calm(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        share = _COST_SHARE if self.objective == "cost" else _EVEN
        overload = _COST_OVERLOAD if self.objective == "cost" else _EVEN
        return own.overload_share <= was.overload_share + share and own.overload <= was.overload + overload

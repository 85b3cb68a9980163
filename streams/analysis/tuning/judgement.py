"""Which of two specs is better for an objective, and which is safe enough to be proposed."""

from msgspec import Struct

from streams.analysis.tuning.recording import TunedPast
from streams.analysis.tuning.results import Objective, Side
from streams.analysis.tuning.surrogate import SpecOutcome
from streams.analysis.tuning.tailrisk import as_safe
from streams.analysis.tuning.trials import TriedSpec, grown

LEAST_GAIN = 0.02
"""Share of the replica-hours that a proposal must save to be worth a change."""
_COST_SHARE, _COST_OVERLOAD = 0.005, 0.001
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

    def rank(self, tried: TriedSpec) -> tuple[float, ...]:
        """Lower is better."""
        price = tried.plain.replica_hours * (1 + _PRICE_OF_CHANGE * tried.changes)
        hours = (price, float(tried.plain.scale_events), tried.target, float(tried.window_s))
        if self.objective == "safety":
            return (tried.plain.overload + grown(self.world, tried).overload, *hours)
        return hours

    def holds(self, own: Side, was: Side) -> bool:
        """Whether the closed loop confirms, on some part: no more overload and, in hours, no more cost."""
        return self._calm(own, was) and own.replica_hours <= was.replica_hours * (1 + _EVEN)

    def _calm(self, own: SpecOutcome | Side, was: SpecOutcome | Side) -> bool:
        share = _COST_SHARE if self.objective == "cost" else _EVEN
        overload = _COST_OVERLOAD if self.objective == "cost" else _EVEN
        return own.overload_share <= was.overload_share + share and own.overload <= was.overload + overload

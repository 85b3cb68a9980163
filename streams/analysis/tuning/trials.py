"""A spec tried in the compact loop over the first part of a recording."""

from typing import Any

from msgspec import Struct

from streams.analysis.candidate import candidate
from streams.analysis.tuning.recording import TunedPast
from streams.analysis.tuning.results import CurvePoint
from streams.analysis.tuning.surrogate import Knobs, SpecOutcome, play
from streams.analysis.tuning.tailrisk import block_ms


class TriedSpec(Struct):
    """A spec in the compact loop. `changes`: rules of scale-up and tolerances that it sets. `grown`: under more load;
    None: it was not asked for, as the load that was recorded is too much already.
    """

    spec: dict[str, Any]
    target: float
    window_s: int
    changes: int
    plain: SpecOutcome
    grown: SpecOutcome | None = None
    allowed: bool | None = None


def tried_spec(world: TunedPast, spec: dict[str, Any], target: float, window_s: int, changes: int = 0) -> TriedSpec:
    """Let a spec live through the recorded load."""
    return TriedSpec(spec, target, window_s, changes, _play(world, spec, target, 1.0))


def grown(world: TunedPast, tried: TriedSpec) -> SpecOutcome:
    """The spec under more load than was recorded."""
    if tried.grown is None:
        tried.grown = _play(world, tried.spec, tried.target, world.margin)
    return tried.grown


def _play(world: TunedPast, spec: dict[str, Any], target: float, growth: float) -> SpecOutcome:
    tried = candidate(world.hpa, spec)
    knobs = Knobs(tried.autoscaler, world.inputs[-1].settings, target / world.deployed_target)
    length_ms = block_ms(world.first.times_ms)
    return play(world.first, knobs, world.start_up.ms, world.capacity, growth, block_ms=length_ms)


def curve_point(tried: TriedSpec) -> CurvePoint:
    """Where a spec stands among the others."""
    return CurvePoint(
        target=tried.target,
        min_replicas=1 if tried.spec.get("minReplicas") is None else tried.spec["minReplicas"],
        window_seconds=tried.window_s,
        replica_hours=tried.plain.replica_hours,
        overload_share=tried.plain.overload_share,
    )

"""A better spec for one HPA from its own past: chosen on the first part of a recording, scored on the rest.

The search runs on a compact loop over the load (`surrogate.py`); what is reported comes from the closed loop, which
gives whole evaluations to the core. Overload is measured against the same capacity for every spec: 100 % of the request
for a utilization, else the highest load per pod that the recording shows to be usual. Nothing here is random: the same
recording gives the same proposal.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from schemas.keys import HpaId
from streams.analysis.candidate import Candidate, candidate
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.condensing import Condensed
from streams.analysis.loadcycle import cycle_ms
from streams.analysis.measures import Moment
from streams.analysis.scores import scores
from streams.analysis.tuning.recording import TunedPast, capacity_text, tuned_past
from streams.analysis.tuning.results import Objective, Side, Tuning, Within
from streams.analysis.tuning.search import SpecSearch
from streams.analysis.tuning.surrogate import SpecOutcome, outcome_of
from streams.analysis.tuning.tailrisk import as_safe, block_ms, carries_peaks, worst_reach
from streams.analysis.tuning.trials import curve_point
from streams.state.probe import EvaluationInputs

_NO_BETTER = "no spec that was tried is better within the objective"


class _Evidence(NamedTuple):
    """A spec in the closed loop: on the first part, on the rest, and on both with their blocks."""

    first: Side
    rest: Side
    whole: SpecOutcome


def tune(
    hpa: HpaId,
    recorded: Sequence[EvaluationInputs] | Condensed,
    objective: Objective = "balanced",
    within: Within | None = None,
) -> Tuning:
    """Search a spec for one HPA on its recorded evaluations, oldest first.

    Raises:
        RefusedError: the recording cannot carry a proposal.
    """
    world = tuned_past(hpa, recorded)
    search = SpecSearch(world, objective, within or Within())
    finalists = search.finalists()
    sides = _evidence(world, world.deployed)
    if objective != "cost" and not carries_peaks(sides.whole):
        world.bounds.append(
            f"the recorded peaks differ much: peaks of {worst_reach(sides.whole):.2f} times what the pods carry have "
            "to be expected under the deployed spec, and nothing is proposed that has to expect higher ones"
        )
    found, why = search.base, _NO_BETTER
    withdrawn = 0
    proposed = sides
    for tried in finalists:
        own = _evidence(world, candidate(hpa, tried.spec))
        dearer = search.judge.is_dearer(tried)
        if not search.judge.holds(own.first, sides.first, dearer=dearer):
            why = "what the search found did not hold in the closed loop on the part that it was chosen on"
        elif not search.judge.holds(own.rest, sides.rest, dearer=dearer):
            why = "what the search found was worse than the deployed spec on the part that it had not seen"
        elif dearer and not search.judge.relieves(own.first, sides.first):
            why = "what the search found costs more and did not spare half of the overload in the closed loop"
        elif objective != "cost" and not as_safe(own.whole, sides.whole):
            why = "what the search found has to expect higher peaks of load per pod than the deployed spec"
        else:
            found, proposed, why = tried, own, ""
            break
        withdrawn += 1
    last = world.inputs[-1]
    return Tuning(
        hpa=hpa,
        objective=objective,
        since_ms=world.inputs[0].now_ms,
        until_ms=last.now_ms,
        split_ms=world.inputs[world.split].now_ms,
        evaluations=len(world.inputs),
        deployed=world.deployed.spec,
        spec=found.spec,
        changed=found is not search.base,
        why=why,
        metric=world.deployed.autoscaler.metrics[world.index].name,
        capacity=capacity_text(world),
        cycle_ms=cycle_ms(world.series.times_ms, world.series.tuned),
        start_up=world.start_up,
        chosen_on=(sides.first, proposed.first),
        unseen=(sides.rest, proposed.rest),
        curve=search.curve(),
        deployed_point=curve_point(search.base),
        proposed_point=curve_point(found),
        bounds=world.bounds,
        tried=len(search.tried),
        withdrawn=withdrawn,
    )


def _evidence(world: TunedPast, tried: Candidate) -> _Evidence:
    """A spec in the closed loop over the whole recording."""
    moments = ClosedLoop(tried, world.start_up.ms).run(world.inputs)
    return _Evidence(
        first=_side(world, tried, moments, 0, world.split),
        rest=_side(world, tried, moments, world.split, len(moments)),
        whole=outcome_of(world.series, moments, world.capacity, block_ms(world.series.times_ms)),
    )


def _side(world: TunedPast, tried: Candidate, moments: list[Moment], begin: int, end: int) -> Side:
    """Load at the deployed target, capacity the same for every spec."""
    part = world.series.part(begin, end)
    own = moments[begin:end]
    made = outcome_of(part, own, world.capacity)
    least, most = tried.autoscaler.min_replicas, tried.autoscaler.max_replicas
    loads = [
        None if tuned is None else max(tuned, other or 0.0) / world.capacity
        for tuned, other in zip(part.tuned, part.others, strict=True)
    ]
    same = [structs.replace(moment, need=load) for moment, load in zip(own, loads, strict=True)]
    return Side(
        replica_hours=made.replica_hours,
        overload_share=made.overload_share,
        overload=made.overload,
        worst=made.worst,
        scale_events=made.scale_events,
        scores=scores(same, world.inputs[-1].period_ms, least, most, world.start_up.ms),
    )

"""How a group of HPAs fared after a change of their spec: measures over their recorded decisions, for `rollout`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from schemas.decisions import Decision
from schemas.keys import HpaId


class EvaluatedMoment(Struct, frozen=True, gc=False):
    """What one evaluation says of an HPA.

    `replicas`: what the target has from then on: what fleethpa wants to be written, else what there is. `proposal`:
    what the metrics ask for, within minReplicas and maxReplicas, before any window or policy; None: they could not be
    read.
    """

    time_ms: int
    before: int
    replicas: int
    proposal: int | None
    is_at_max: bool
    is_failing: bool


class WaveMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """Measures of a group of HPAs in a time; shares are percentages.

    `unevaluated`: HPAs without any evaluation in that time. `replicas_removed`: replicas that were taken away at the
    lowest moment of each HPA, of all that the group had. `recommended_removal`: the same for what the metrics asked
    for, which shows before a window lets it happen. `at_max`, `failing`: HPAs whose newest evaluation is kept by
    maxReplicas, or could not scale by its metrics. `scale_events`, `direction_flips`: per HPA.
    """

    hpas: int
    unevaluated: int
    replicas_removed: float
    recommended_removal: float
    at_max: float
    failing: float
    scale_events: float
    direction_flips: float


def moment_of(decision: Decision, time_ms: int) -> EvaluatedMoment:
    """Reduce an evaluation, as recorded, to what is measured."""
    wanted = decision.wants if decision.wants is not None else decision.current_replicas
    proposal = decision.raw_desired_replicas
    if proposal is not None and decision.max_replicas:
        proposal = min(max(proposal, decision.min_replicas), decision.max_replicas)
    return EvaluatedMoment(
        time_ms,
        decision.current_replicas,
        wanted,
        proposal,
        "MaxReplicas" in decision.constraints_applied,
        bool(decision.error) or _is_inactive(decision),
    )


def _is_inactive(decision: Decision) -> bool:
    """Whether the condition ScalingActive is False for another reason than that somebody set the target to 0."""
    conditions = (decision.status or {}).get("conditions") or ()
    return any(
        each["type"] == "ScalingActive" and each["status"] == "False" and each.get("reason") != "ScalingDisabled"
        for each in conditions
    )


def wave_measures(moments: Mapping[HpaId, Sequence[EvaluatedMoment]], replicas: Mapping[HpaId, int]) -> WaveMeasures:
    """Measure a group of HPAs. `replicas`: what each had at the beginning; it names the whole group."""
    series = [(count, moments.get(hpa) or ()) for hpa, count in replicas.items()]
    known = [(count, found) for count, found in series if found]
    had = sum(replicas.values())
    events = [_directions(found) for _, found in known]
    return WaveMeasures(
        hpas=len(replicas),
        unevaluated=len(series) - len(known),
        replicas_removed=_percent(
            sum(count - _lowest(count, (m.replicas for m in found)) for count, found in known), had
        ),
        recommended_removal=_percent(
            sum(count - _lowest(count, (m.proposal for m in found)) for count, found in known), had
        ),
        at_max=_percent(sum(found[-1].is_at_max for _, found in known), len(replicas)),
        failing=_percent(sum(found[-1].is_failing for _, found in known), len(replicas)),
        scale_events=sum(map(len, events)) / len(replicas) if replicas else 0.0,
        direction_flips=sum(a != b for each in events for a, b in pairwise(each)) / len(replicas) if replicas else 0.0,
    )


def condensed(found: Sequence[EvaluatedMoment]) -> list[EvaluatedMoment]:
    """Leave out the moments that no measure needs: what is left gives the same measures, also with later ones added.

    The first and the last, every change of the count, and where replicas and proposal were lowest.
    """
    if not found:
        return []
    proposed = [moment for moment in found if moment.proposal is not None]
    kept = [found[0], found[-1], min(found, key=lambda each: each.replicas)]
    kept += [min(proposed, key=lambda each: each.proposal or 0)] if proposed else []
    needed = set(map(id, kept))
    return [each for each in found if id(each) in needed or each.replicas != each.before]


def _lowest(count: int, found: Iterable[int | None]) -> int:
    return min([count, *(each for each in found if each is not None)])


def _directions(found: Sequence[EvaluatedMoment]) -> list[bool]:
    """The changes of the count that were wanted, in their order: up (True) or down."""
    return [moment.replicas > moment.before for moment in found if moment.replicas != moment.before]


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0

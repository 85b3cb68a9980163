"""Regret: what the decisions of a period cost against an oracle that knows the load, divided among its causes.

The oracle runs at each moment the pods that the load needs where each carries what a pod can carry (`load.py`), and
at least one. Two wholes are divided: replicas too many (what ran, less what the oracle runs), and ready pods too few,
as replicas and as time. Between the oracle's number and what really was lie the numbers of the decision that was in
force, one after the other: what the load needs at the target, what the metrics asked for, what the stabilization window
made of it, the policies and bounds, the pause, what was running, what was ready. Each cause answers for the part of the
way that its step adds and no step before it has covered. So the causes add up to the whole, in whole
replica-milliseconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from schemas.decisions import WITHIN_TOLERANCE
from schemas.keys import HpaId
from streams.analysis.answer import Answer, answer
from streams.analysis.closedloop import StartUp, StartUpClock
from streams.analysis.ideal import Capacities, at_capacity, capacities, ideal
from streams.analysis.load import MetricNeed, needs, serving_at
from streams.analysis.measures import Moment, oracle, spans_ms
from streams.analysis.podbase import PodBase, base_of
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs

Cause = Literal[
    "startUp",
    "target",
    "missingMetrics",
    "tolerance",
    "reaction",
    "window",
    "policy",
    "minReplicas",
    "maxReplicas",
    "pause",
    "guard",
    "otherWriters",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""In the order of the way from the oracle to what was."""
CARRIED_MS = 900_000
"""How long the last known load stands in for one that is not known."""
MILLI_REPLICA_HOUR_MS = 3_600
"""Replica-milliseconds in a thousandth of a replica-hour."""
_BOUNDS: dict[str, Cause] = {
    "TooManyReplicas": "maxReplicas",
    "TooFewReplicas": "minReplicas",
    "ScaleUpLimit": "policy",
    "ScaleDownLimit": "policy",
}
_GUARDS: dict[str, Cause] = {
    "Override": "pause",
    "Paused": "pause",
    "Frozen": "pause",
    "MaxStep": "guard",
    "Overflow": "guard",
}


class Level(Struct, frozen=True, gc=False):
    """A number of replicas on the way from the oracle to what was, and the cause that answers for it."""

    cause: Cause
    replicas: int


class RegretStep(Struct, frozen=True):
    """What one evaluation says about regret, without the rest of it.

    `replicas`: the count that it found; `ready`: pods that took load. `levels`: the numbers of its decision, from the
    metrics to the end, in force until the next evaluation. `high`: the upper end of its tolerance. `generation`: of its
    spec, whose metrics `needs` are.
    """

    time_ms: int
    period_ms: int
    replicas: int
    ready: int
    needs: tuple[MetricNeed, ...]
    levels: tuple[Level, ...]
    high: float
    generation: int = 0


class Parts(Struct, frozen=True, kw_only=True):
    """A whole and its parts by cause; the parts add up to the whole."""

    whole: int
    parts: dict[Cause, int]


class Regret(Struct, frozen=True, kw_only=True):
    """The regret of one HPA over a period.

    `too_many`, `too_few`: replica-milliseconds; `too_few_ms`: time with too few ready pods, each moment counted for the
    cause that answers for most of what was missing. `ran`, `oracle`: replica-milliseconds that ran, and that the oracle
    runs. `known_ms`: the time that is judged; of it `carried_ms` with the last load known before. `unknown_ms`: time
    that is not judged, for its load is not known.
    """

    hpa: HpaId
    since_ms: int
    until_ms: int
    known_ms: int
    carried_ms: int
    unknown_ms: int
    ran: int
    oracle: int
    too_many: Parts
    too_few: Parts
    too_few_ms: Parts
    start_up: StartUp


# --- one evaluation ---------------------------------------------------------------------------------------------------


class RegretReader:
    """Reads the evaluations of one HPA, oldest first, and keeps only what regret needs."""

    def __init__(self, hpa: HpaId) -> None:
        self.hpa = hpa
        self.steps: list[RegretStep] = []
        self.clock = StartUpClock()

    def add(self, inputs: EvaluationInputs) -> None:
        """Take in an evaluation; one at which the scale was unknown is left out."""
        scale = inputs.observation.scale
        if not isinstance(scale, Scale):
            return
        self.clock.see(inputs)
        pods, answers = inputs.observation.pods, inputs.observation.answers
        self.steps.append(
            RegretStep(
                time_ms=inputs.now_ms,
                period_ms=inputs.period_ms,
                replicas=scale.spec_replicas,
                ready=serving_at(answers, pods),
                needs=tuple(needs(inputs.autoscaler, answers, pods)),
                levels=levels(answer(inputs)),
                high=tolerance_band(inputs.autoscaler, inputs.settings)[1],
                generation=inputs.generation,
            )
        )

    def base(self) -> PodBase | None:
        """Return the metric whose total grows with the pods: what another count would have needed is not known then."""
        return base_of([each.needs for each in self.steps], self.steps[-1].high) if self.steps else None

    def regret(self) -> Regret | None:
        """Judge what was read; None: there was no evaluation with a known scale."""
        return regret(self.hpa, self.steps, self.clock.start_up()) if self.steps else None


def levels(made: Answer) -> tuple[Level, ...]:
    """The numbers of a decision, from what the metrics asked for to what it gave."""
    evaluation = made.evaluation
    found: list[Level] = []
    if evaluation.path == "metricsFailed":
        found.append(Level("missingMetrics", made.current))
    elif evaluation.path == "aboveMax":
        found.append(Level("maxReplicas", evaluation.desired_replicas or 0))
    elif evaluation.path == "belowMin":
        found.append(Level("minReplicas", evaluation.desired_replicas or 0))
    elif evaluation.normalization is not None:
        normal = evaluation.normalization
        found.append(Level(_asked_by(made), normal.desired))
        found.append(Level("window", normal.stabilized))
        found.append(Level(_BOUNDS.get(normal.bound, "policy"), normal.limited))
        if evaluation.raised_to_min:
            found.append(Level("minReplicas", evaluation.desired_replicas or 0))
    held = next((_GUARDS[each] for each in made.constraints if each in _GUARDS), None)
    if held is not None:
        found.append(Level(held, made.final))
    return tuple(found)


def _asked_by(made: Answer) -> Cause:
    """Why the metrics asked for what they did, where that is not what the load needs."""
    metrics = made.evaluation.metrics
    asking = [each.calculation for each in metrics if each.calculation is not None]
    if len(asking) < len(metrics):
        return "missingMetrics"
    leading = max(asking, key=lambda each: each.proposal, default=None)
    if leading is None:
        return "reaction"
    if leading.missing:
        return "missingMetrics"
    if leading.kept == WITHIN_TOLERANCE:
        return "tolerance"
    return "startUp" if leading.not_ready and leading.kept else "reaction"


# --- a period ---------------------------------------------------------------------------------------------------------


class _Judged(NamedTuple):
    """A step at which the load is known: what the oracle runs then (`need`), and who answers for what differs from it.

    `is_carried`: the load is that of an earlier step. The parts are replicas.
    """

    step: RegretStep
    span_ms: int
    need: int
    is_carried: bool
    too_many: list[tuple[Cause, int]]
    too_few: list[tuple[Cause, int]]


def regret(hpa: HpaId, steps: Sequence[RegretStep], start_up: StartUp) -> Regret:
    """Judge evaluations of one HPA, oldest first, at least one."""
    spans = spans_ms([each.time_ms for each in steps], steps[-1].period_ms)
    judged = list(_judged(steps, spans, start_up))
    known_ms = sum(each.span_ms for each in judged)
    return Regret(
        hpa=hpa,
        since_ms=steps[0].time_ms,
        until_ms=steps[-1].time_ms,
        known_ms=known_ms,
        carried_ms=sum(each.span_ms for each in judged if each.is_carried),
        unknown_ms=sum(spans) - known_ms,
        ran=sum(each.step.replicas * each.span_ms for each in judged),
        oracle=sum(each.need * each.span_ms for each in judged),
        too_many=_summed((cause, part * each.span_ms) for each in judged for cause, part in each.too_many),
        too_few=_summed((cause, part * each.span_ms) for each in judged for cause, part in each.too_few),
        too_few_ms=_summed((_main(each.too_few), each.span_ms) for each in judged if each.too_few),
        start_up=start_up,
    )


def _judged(steps: Sequence[RegretStep], spans: Sequence[int], start_up: StartUp) -> Iterator[_Judged]:
    loads = _loads(steps)
    full, at_target = (
        _moments(steps, loads, capacities((each.generation, each.needs, each.high) for each in steps)),
        _moments(steps, loads, {}),
    )
    now, early = ideal(each.need for each in full), oracle(full, 1, MAX_INT32, start_up.ms)
    wanted = oracle(at_target, 1, MAX_INT32, start_up.ms)
    in_force = steps[0].levels
    for index, (step, span_ms) in enumerate(zip(steps, spans, strict=True)):
        need = now[index]
        if need is not None:
            late, target = Level("startUp", early[index] or need), Level("target", wanted[index] or need)
            running = Level("otherWriters", step.replicas)
            too_many = divided(need, step.replicas, [late, target, *in_force]) if step.replicas > need else []
            too_few = divided(need, step.ready, [target, *in_force, running]) if step.ready < need else []
            yield _Judged(step, span_ms, need, loads[index] is not step, too_many, too_few)
        in_force = step.levels


def _summed(found: Iterable[tuple[Cause, int]]) -> Parts:
    parts = dict.fromkeys(CAUSES, 0)
    for cause, part in found:
        parts[cause] += part
    return Parts(whole=sum(parts.values()), parts=parts)


def divided(begin: int, end: int, way: Iterable[Level]) -> list[tuple[Cause, int]]:
    """Divide the way from the need (`begin`) to what was (`end`) among the levels between. Sums to their distance.

    What no level reaches is other writers' where more ran than was needed, and start-up's where less was ready: it was
    running.
    """
    nearer, sign = (min, 1) if end > begin else (max, -1)
    found: list[tuple[Cause, int]] = []
    reached = begin
    for level in [*way, Level("otherWriters" if sign > 0 else "startUp", end)]:
        upto = nearer(level.replicas, end)
        if (upto - reached) * sign > 0:
            found.append((level.cause, (upto - reached) * sign))
            reached = upto
    return found


def _main(parts: Sequence[tuple[Cause, int]]) -> Cause:
    """The cause of the largest part; of equal ones the first."""
    sums = Counter[Cause]()
    for cause, part in parts:
        sums[cause] += part
    return max(sums, key=lambda cause: (sums[cause], -CAUSES.index(cause)))


def _loads(steps: Sequence[RegretStep]) -> list[RegretStep | None]:
    """For each step, the step whose load counts: itself, or the last one before it with a known load; None: none."""
    found: list[RegretStep | None] = []
    last: RegretStep | None = None
    for step in steps:
        last = step if step.needs else last
        usable = step.replicas and last is not None and step.time_ms - last.time_ms <= CARRIED_MS
        found.append(last if usable else None)
    return found


def _moments(steps: Sequence[RegretStep], loads: Sequence[RegretStep | None], known: Capacities) -> list[Moment]:
    """The steps with the load in pods: at capacity where that is given, else at target."""
    return [
        Moment(
            step.time_ms,
            step.replicas,
            step.ready,
            None if seen is None else at_capacity(seen.needs, seen.generation, known),
            False,
        )
        for step, seen in zip(steps, loads, strict=True)
    ]


# --- what is printed --------------------------------------------------------------------------------------------------


def rounded(parts: Parts, unit: int) -> Parts:
    """A whole in units, rounded half up, and its parts in units that add up to it: the largest remainders go up."""
    whole = (2 * parts.whole + unit) // (2 * unit)
    down = {cause: part // unit for cause, part in parts.parts.items()}
    left = whole - sum(down.values())
    by_remainder = sorted(parts.parts, key=lambda cause: (-(parts.parts[cause] % unit), CAUSES.index(cause)))
    for cause in by_remainder[:left]:
        down[cause] += 1
    return Parts(whole=whole, parts=down)


def added(several: Iterable[Parts]) -> Parts:
    """The sum of several wholes, cause by cause."""
    listed = list(several)
    parts = {cause: sum(each.parts.get(cause, 0) for each in listed) for cause in CAUSES}
    return Parts(whole=sum(each.whole for each in listed), parts=parts)

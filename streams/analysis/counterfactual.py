"""What would have changed the answer of an evaluation: other metric values, or a limit less.

Everything found is checked on the core before it is given: the value named gives the new answer and the value one
milli nearer to the recorded one still gives the recorded answer. Varied are, in milli units:

- Resource, ContainerResource and Pods metrics: the total over the counted samples (those of running pods that count;
  samples of ignored, pending or not yet ready pods stay as they are), spread over the pods in the recorded proportion.
- Object metrics: the value. External metrics: the sum of the series.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from msgspec import Struct, structs

from schemas.constraints import ScalingSide, acts_on
from streams.analysis.answer import Answer, answer, lifted, with_answer, without
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, MetricSpec
from streams.hpa.evaluation import Calculation
from streams.hpa.grouping import is_unready
from streams.hpa.metrics import evaluate_metric, tolerance_band
from streams.hpa.observation import ExternalSamples, MetricReading, ObjectSample, PodSamples, Scale, pod_samples
from streams.state.inputs import EvaluationInputs


class Varied(Struct, frozen=True):
    """A metric's number at `index` of the spec. `what`: what exactly is varied, in words."""

    index: int
    spec: MetricSpec
    now: int
    what: str
    make: Callable[[int], MetricReading]

    def at(self, inputs: EvaluationInputs, value: int) -> EvaluationInputs:
        """The inputs with this number at `value`."""
        return with_answer(inputs, self.index, self.make(value))


def varied(inputs: EvaluationInputs, index: int) -> Varied | None:
    """Return what can be varied of the metric at `index`; None: it has no answer with a number."""
    spec = inputs.autoscaler.metrics[index]
    answers = inputs.observation.answers
    answer = answers[index] if index < len(answers) else None
    if isinstance(answer, ObjectSample):
        return Varied(index, spec, answer.value_milli, "the object's value", _of_object(answer))
    if isinstance(answer, ExternalSamples):
        text = "the sum of the series" if len(answer.values_milli) > 1 else "the value"
        return Varied(index, spec, sum(answer.values_milli), text, _of_external(answer))
    if isinstance(answer, PodSamples):
        return _of_pods(inputs, index, spec, answer)
    return None


def _of_object(answer: ObjectSample) -> Callable[[int], MetricReading]:
    return lambda value: structs.replace(answer, value_milli=value)


def _of_external(answer: ExternalSamples) -> Callable[[int], MetricReading]:
    return lambda value: structs.replace(answer, values_milli=(value,))


def _of_pods(inputs: EvaluationInputs, index: int, spec: MetricSpec, answer: PodSamples) -> Varied | None:
    names = counted(inputs, spec, answer)
    if not names:
        return None
    own = [answer.samples[name][0] for name in names]
    total = sum(own)

    def make(value: int) -> MetricReading:
        samples = dict(answer.samples)
        for name, milli in zip(names, spread(own, value), strict=True):
            samples[name] = (milli, *answer.samples[name][1:])
        return pod_samples(samples)

    pods = "pod" if len(names) == 1 else "pods"
    return Varied(index, spec, total, f"the total of the {len(names)} counted {pods}", make)


def total_of(inputs: EvaluationInputs, index: int, *, milli: int = 0, percent: int | None = None) -> int:
    """The varied number for a value as a status shows it: an average or a value in milli, or a percentage.

    A percentage is that of the counted pods' requests, rounded up so that truncating gives it back.
    """
    spec, answer = inputs.autoscaler.metrics[index], inputs.observation.answers[index]
    if not isinstance(answer, PodSamples):
        per_pod = spec.calculation in (kinds.OBJECT_PER_POD, kinds.EXTERNAL_PER_POD)
        scale = inputs.observation.scale
        return milli * scale.status_replicas if per_pod and isinstance(scale, Scale) else milli
    names = counted(inputs, spec, answer)
    if percent is None:
        return milli * len(names)
    rows = {pod.name: pod for pod in inputs.observation.pods.rows}
    requests = [rows[name].template.request(spec.resource, spec.container) for name in names]
    return -(-sum(each for each in requests if isinstance(each, int)) * percent // 100)


def counted(inputs: EvaluationInputs, spec: MetricSpec, answer: PodSamples) -> list[str]:
    """Name the pods whose samples make the metric's value, in the order of the answer."""
    pods, settings = inputs.observation.pods, inputs.settings
    active = {pod.name: pod for pod in pods.active}
    out = {pod.name for pod in (*pods.ignored, *pods.pending)}
    names = []
    for name, sample in answer.samples.items():
        pod = active.get(name)
        if pod is None:
            # A sample of a name that is no pod is averaged in, but has no request to be compared with.
            if name not in out and spec.calculation != kinds.UTILIZATION:
                names.append(name)
            continue
        young = spec.resource == "cpu" and is_unready(
            pod, sample, settings.cpu_initialization_period_ms, settings.initial_readiness_delay_ms, inputs.now_ms
        )
        if not young:
            names.append(name)
    return names


def spread(shares: list[int], total: int) -> list[int]:
    """Divide `total` in the proportion of `shares`, whole numbers that add up to it; evenly where all are 0."""
    share_sum = sum(shares)
    if not share_sum:
        shares, share_sum = [1] * len(shares), len(shares)
    parts = [share * total // share_sum for share in shares]
    for index in range(total - sum(parts)):
        parts[index % len(parts)] += 1
    return parts


LARGEST = 1 << 53
"""No metric value is searched beyond this: from here on doubles skip integers."""
SearchDirection = Literal["lower", "higher"]


class CounterfactualError(Exception):
    """A counterfactual does not flip where it says: a fault of the search, never shown as a result."""


class Flip(Struct, frozen=True, kw_only=True, rename="camel"):
    """A metric's nearest other value that changes the answer.

    `varied`: what was varied. `now`, `value`: its number as it was and at the flip, milli. `answer`: replicas then.
    `shown_now`, `shown`: the metric's value as its status shows it (percent where `percent`, else milli).
    """

    metric: int
    name: str
    direction: SearchDirection
    varied: str
    now: int
    value: int
    answer: int
    percent: bool
    shown_now: int
    shown: int


class Unmoved(Struct, frozen=True, kw_only=True, rename="camel"):
    """No value of the metric in this direction changes the answer. `searched`: as far as this (milli).

    `limits`: what holds the answer at the farthest value searched (of `constraintsApplied` those without which it would
    change, or else all that act in this direction); `failed`: names of the
    metrics that have no value there, for replicas do not go down while one is missing.
    """

    metric: int
    name: str
    direction: SearchDirection
    searched: int
    limits: list[str] = []
    failed: list[str] = []
    asks: Flip | None = None
    """Where a stabilization window holds the count: the nearest value at which the metrics ask for another one."""


class Without(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer without one limit that bound it. `how`: what was done to take it away."""

    limit: str
    answer: int
    how: str


class Release(Struct, frozen=True, kw_only=True, rename="camel"):
    """When what holds the count lets go (Unix ms), and the answer from then on if all else stays as it was."""

    at: int
    answer: int


class Counterfactuals(Struct, frozen=True, kw_only=True, rename="camel"):
    """All that would have changed the answer `final` (`current`: replicas before)."""

    current: int
    final: int
    flips: list[Flip]
    unmoved: list[Unmoved]
    without: list[Without]
    release: Release | None = None
    apart_from: str = ""
    """What was taken away first, in words, since beside it nothing changes the answer: `the pause`; `final` and all
    else is then without it.
    """


def counterfactuals(inputs: EvaluationInputs) -> Counterfactuals:
    """Search and check. Raises CounterfactualError: one that was found does not hold; nothing is given then."""
    apart_from = ""
    if inputs.mode == "enforce" and (unpaused := lifted(inputs, "Paused")) is not inputs:
        apart_from, inputs = "the pause", unpaused
    recorded = answer(inputs)
    flips: list[Flip] = []
    unmoved: list[Unmoved] = []
    if recorded.evaluation.path in ("metrics", "metricsFailed"):
        for each in _of_metrics(inputs, recorded):
            if isinstance(each, Flip):
                flips.append(each)
            else:
                unmoved.append(each)
    taken = [Without(limit=limit, answer=made.final, how=how) for limit, made, how in without(inputs, recorded)]
    return Counterfactuals(
        current=recorded.current,
        final=recorded.final,
        flips=flips,
        unmoved=unmoved,
        without=taken,
        release=_release(inputs, recorded),
        apart_from=apart_from,
    )


def _of_metrics(inputs: EvaluationInputs, recorded: Answer) -> Iterator[Flip | Unmoved]:
    for index in range(len(inputs.autoscaler.metrics)):
        number = varied(inputs, index)
        if number is None or not 0 <= number.now < LARGEST:
            continue
        search = _Search(inputs, number, recorded, _final)
        alone = _Search(inputs, number, recorded, partial(_asked, inputs.autoscaler))
        for direction in ("lower", "higher"):
            flip = search.flip(direction)
            if isinstance(flip, Unmoved) and "StabilizationWindow" in flip.limits:
                asks = alone.flip(direction)
                flip = structs.replace(flip, asks=asks if isinstance(asks, Flip) else None)
            yield flip


def _final(made: Answer) -> int:
    return made.final


def _asked(spec: Autoscaler, made: Answer) -> int:
    """Return what the metrics ask for, within the spec's bounds: before windows and all other limits."""
    proposal = made.final if made.evaluation.proposal is None else made.evaluation.proposal
    return min(max(proposal, spec.min_replicas), spec.max_replicas)


class _Search:
    """The nearest value of one number that changes the answer."""

    def __init__(
        self, inputs: EvaluationInputs, number: Varied, recorded: Answer, count: Callable[[Answer], int]
    ) -> None:
        self.inputs, self.number, self.final, self._count = inputs, number, count(recorded), count
        self._known: dict[int, int] = {}
        self._calculated: dict[int, Calculation | None] = {}

    def flip(self, direction: SearchDirection) -> Flip | Unmoved:
        """Go from edge to edge, between which the answer is monotone, until it has changed; halve there."""
        number = self.number
        edges = self._edges(direction)
        before = number.now
        for edge in edges:
            if self._answer(edge) != self.final:
                return self._checked(self._between(before, edge), direction)
            before = edge
        return self._unmoved(before, direction)

    def _unmoved(self, farthest: int, direction: SearchDirection) -> Unmoved:
        number, farthest_answer = self.number, answer(self.number.at(self.inputs, farthest))
        return Unmoved(
            metric=number.index,
            name=number.spec.name,
            direction=direction,
            searched=farthest,
            limits=self._holding(farthest, farthest_answer, direction),
            failed=[metric.spec.name for metric in farthest_answer.evaluation.metrics if metric.error],
        )

    def _holding(self, farthest: int, made: Answer, direction: SearchDirection) -> list[str]:
        """The limits that hold the answer in this direction at a value: those that do so alone, or else all."""
        side: ScalingSide = "down" if direction == "lower" else "up"
        acting = [limit for limit in made.constraints if limit != "Tolerance" and acts_on(limit, side)]
        moved = {
            limit
            for limit, other, _ in without(self.number.at(self.inputs, farthest), made)
            if other.final != made.final
        }
        return [limit for limit in acting if limit in moved] or acting

    def _between(self, same: int, other: int) -> int:
        """Find the value nearest to `same` where the answer is no longer the recorded one."""
        while abs(other - same) > 1:
            middle = (same + other) // 2
            if self._answer(middle) == self.final:
                same = middle
            else:
                other = middle
        return other

    def _checked(self, value: int, direction: SearchDirection) -> Flip:
        nearer = value + 1 if direction == "lower" else value - 1
        new, old = (self._count(answer(self.number.at(self.inputs, each))) for each in (value, nearer))
        if new == self.final or old != self.final:
            raise CounterfactualError(f"{self.number.spec.name}: {value} gives {new}, {nearer} gives {old}")
        now, then = self._shown(self.number.now), self._shown(value)
        return Flip(
            metric=self.number.index,
            name=self.number.spec.name,
            direction=direction,
            varied=self.number.what,
            now=self.number.now,
            value=value,
            answer=new,
            percent=self.number.spec.calculation == "utilization",
            shown_now=now,
            shown=then,
        )

    def _answer(self, value: int) -> int:
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._count(answer(self.number.at(self.inputs, value)))
        return known

    def _shown(self, value: int) -> int:
        calculation = self._calculation(value)
        return value if calculation is None else calculation.value

    def _calculation(self, value: int) -> Calculation | None:
        """The metric alone at a value: cheaper than the whole answer."""
        if value not in self._calculated:
            self._calculated[value] = self._calculate(value)
        return self._calculated[value]

    def _calculate(self, value: int) -> Calculation | None:
        inputs, number = self.inputs, self.number
        scale = inputs.observation.scale
        if not isinstance(scale, Scale):
            return None
        band = tolerance_band(inputs.autoscaler, inputs.settings)
        changed = number.make(value)
        pods = inputs.observation.pods
        return evaluate_metric(number.spec, changed, scale, pods, band, inputs.settings, inputs.now_ms).calculation

    # where the formula changes its branch

    def _edges(self, direction: SearchDirection) -> list[int]:
        """Values at which the formula may change its branch, outwards, and the end of the search."""
        end = 0 if direction == "lower" else self._farthest()
        start = self.number.now
        low, high = min(start, end), max(start, end)
        edges = {end}
        for test in self._branches():
            place = low + bisect_left(range(low, high + 1), True, key=test)
            edges |= {each for each in (place - 1, place, place + 1) if low <= each <= high}
        edges.discard(start)
        return sorted(edges, reverse=direction == "lower")

    def _farthest(self) -> int:
        """A value from which on more changes nothing: the metric asks for over twice the maximum, at a ratio over 8."""
        value = max(1, self.number.now, self.number.spec.target)
        enough = 2 * max(self.inputs.autoscaler.max_replicas, self.final) + 2
        while value < LARGEST // 2:
            calculation = self._calculation(value)
            if calculation is None or (calculation.ratio > 8.0 and calculation.proposal >= enough):
                break
            value *= 2
        return value

    def _branches(self) -> Iterator[Callable[[int], bool]]:
        """Tests that turn from false to true as the value grows: ratio and filled ratio past each edge of a band."""
        low, high = tolerance_band(self.inputs.autoscaler, self.inputs.settings)
        now = self._calculation(self.number.now)
        filled = now is None or now.missing or now.not_ready
        for edge in (low, 1.0, high):
            yield lambda value, edge=edge: self._ratio(value) >= edge  # type: ignore[misc]
            yield lambda value, edge=edge: self._ratio(value) > edge  # type: ignore[misc]
            for side in (-1, 1) if filled else ():
                yield lambda value, edge=edge, side=side: self._final(value, side) >= edge  # type: ignore[misc]
                yield lambda value, edge=edge, side=side: self._final(value, side) > edge  # type: ignore[misc]

    def _ratio(self, value: int) -> float:
        calculation = self._calculation(value)
        return 0.0 if calculation is None else calculation.ratio

    def _final(self, value: int, side: int) -> float:
        """The filled ratio as a function that grows over all values: that of one side of 1, endless beyond it."""
        calculation = self._calculation(value)
        if calculation is None or calculation.final_ratio is None:
            return self._ratio(value)
        if side < 0:
            return calculation.final_ratio if calculation.ratio < 1.0 else float("inf")
        return calculation.final_ratio if calculation.ratio > 1.0 else float("-inf")


def _release(inputs: EvaluationInputs, recorded: Answer) -> Release | None:
    """When the recommendation that holds the count no longer counts, and the answer then."""
    normalization = recorded.evaluation.normalization
    if (
        normalization is None
        or normalization.held_until_ms is None
        or "StabilizationWindow" not in recorded.constraints
    ):
        return None
    at = normalization.held_until_ms
    return Release(at=at, answer=answer(structs.replace(inputs, now_ms=at)).final)

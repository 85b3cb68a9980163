"""The load in recorded evaluations: what one pod carries as a multiple of a metric's target, a load's cycle, and
utilization that rose because the pods request less.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from schemas.decisions import Decision, MetricDecision
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, MetricSpec
from streams.hpa.observation import ExternalSamples, MetricReading, ObjectSample, PodRow, PodSamples, TargetPods

USUAL = 0.99
"""Share of the time for which a load per pod must have been carried or not reached, to count as usual."""


def capacity_of(spec: MetricSpec, ratios: Sequence[float], high: float) -> float:
    """Return what a pod carries at a metric, as a multiple of its target.

    For a utilization this is the request. For other metrics nothing says what a pod can carry but the recording: the
    load that it rarely exceeded. Never less than the upper end of the tolerance, which every HPA allows.

    Args:
        spec: the metric.
        ratios: recorded loads per pod, over the target.
        high: the highest ratio at which the HPA changes nothing.
    """
    return pod_capacity(spec.target if spec.calculation == kinds.UTILIZATION else None, ratios, high)


def pod_capacity(percent: int | None, ratios: Sequence[float], high: float) -> float:
    """Return the same for a target in percent of the request, or (None) for another one."""
    if percent is not None:
        return max(100 / percent, high)
    ordered = sorted(ratios)
    return max(high, ordered[int(len(ordered) * USUAL)] if ordered else high)


_BINS = 512
_LIKE = 0.4
"""Autocorrelation from which a load counts as periodic."""


def cycle_ms(times_ms: Sequence[int], load: Sequence[float | None]) -> int | None:
    """The shortest time after which the load resembles itself; None: it does not, within two thirds of the series.

    Whoever asks for two periods compares with the length of the series: a period beyond its half was seen once.
    """
    values = _binned(times_ms, load)
    if len(values) < 16:
        return None
    mean = sum(values) / len(values)
    apart = [value - mean for value in values]
    if sum(each * each for each in apart) <= 1e-12 * max(1.0, mean * mean) * len(apart):
        return None
    likenesses = [_likeness(apart, lag) for lag in range(len(apart) * 2 // 3)]
    dipped = next((lag for lag, value in enumerate(likenesses) if value < 0), None)
    if dipped is None:
        return None
    best = max(range(dipped, len(likenesses)), key=lambda lag: likenesses[lag])
    if likenesses[best] < _LIKE:
        return None
    # Multiples of a cycle resemble as much: the first summit that is nearly as high is the cycle.
    for lag in range(dipped + 1, best):
        if likenesses[lag] >= 0.85 * likenesses[best] and likenesses[lag - 1] <= likenesses[lag] >= likenesses[lag + 1]:
            best = lag
            break
    return round(best * (times_ms[-1] - times_ms[0]) / len(values))


def _likeness(apart: list[float], lag: int) -> float:
    one, other = apart[: len(apart) - lag], apart[lag:]
    scale = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return sum(a * b for a, b in zip(one, other, strict=True)) / scale if scale else 0.0


def _binned(times_ms: Sequence[int], load: Sequence[float | None]) -> list[float]:
    """Means over equal times; an empty bin repeats the one before."""
    if len(times_ms) < 2 or times_ms[-1] <= times_ms[0]:
        return []
    bins = min(_BINS, len(times_ms))
    begin_ms, length_ms = times_ms[0], times_ms[-1] - times_ms[0] + 1
    sums, counts = [0.0] * bins, [0] * bins
    for time_ms, value in zip(times_ms, load, strict=True):
        if value is not None:
            at = (time_ms - begin_ms) * bins // length_ms
            sums[at] += value
            counts[at] += 1
    means: list[float] = []
    for total, count in zip(sums, counts, strict=True):
        means.append(total / count if count else (means[-1] if means else 0.0))
    return means


_NO_SAMPLES: dict[str, tuple[int, int, int]] = {}


class MetricLoad(Struct, frozen=True, gc=False):
    """One metric's load. `total_milli`: over all pods that took load at `time_ms` (per-pod metrics), or the value of
    the object or of all series. `pods`: how many took it. `request_milli`: what one of them requests on average; 0: no
    request.
    """

    total_milli: float
    pods: int
    time_ms: int | None
    request_milli: float = 0.0
    window_ms: int = 0


class LoadSamples(PodSamples, frozen=True):
    """An answer of which only the load is kept; there are no samples."""

    load: MetricLoad


def serving(pod: PodRow, at_ms: int | None) -> bool:
    """Whether a pod took load at a moment: running, ready since before, not on its way out."""
    ready = pod.phase == "Running" and pod.ready == "True" and not pod.deleting
    return ready and (at_ms is None or pod.ready_at_ms <= at_ms)


def metric_load(spec: MetricSpec, answer: MetricReading | None, pods: TargetPods) -> MetricLoad | None:
    """Return a metric's load; None where it has no usable answer."""
    if isinstance(answer, LoadSamples):
        return answer.load
    if isinstance(answer, ObjectSample):
        return MetricLoad(answer.value_milli, pods.running_ready, answer.time_ms)
    if isinstance(answer, ExternalSamples):
        return MetricLoad(sum(answer.values_milli), pods.running_ready, answer.newest_ms)
    if isinstance(answer, PodSamples):
        return _of_pods(spec, answer, pods)
    return None


def _of_pods(spec: MetricSpec, answer: PodSamples, pods: TargetPods) -> MetricLoad | None:
    """Pods without a sample are taken to have the others' average."""
    took = [pod for pod in pods.active if serving(pod, answer.newest_ms)]
    seen = [pod for pod in took if pod.name in answer.samples]
    if not seen:
        return None
    average = sum(answer.samples[pod.name][0] for pod in seen) / len(seen)
    requests = [pod.template.request(spec.resource, spec.container) for pod in seen] if spec.resource else []
    known = [each for each in requests if isinstance(each, int)]
    window_ms = answer.samples[seen[0].name][2]
    request = sum(known) / len(known) if known else 0.0
    return MetricLoad(average * len(took), len(took), answer.newest_ms, request, window_ms)


def needed(spec: MetricSpec, load: MetricLoad) -> float | None:
    """How many pods carry the load at the spec's target; None: not known (no request)."""
    if spec.target <= 0:
        return None
    if spec.calculation == kinds.UTILIZATION:
        per_pod = load.request_milli * spec.target / 100
        return load.total_milli / per_pod if per_pod else None
    if spec.calculation in (kinds.OBJECT_VALUE, kinds.EXTERNAL_VALUE):
        # The formula itself takes such a value to be shared by the pods that were there.
        return load.total_milli / spec.target * load.pods
    return load.total_milli / spec.target


def load_samples(spec: MetricSpec, answer: PodSamples, pods: TargetPods) -> PodSamples:
    """The answer without its samples, for who asks for its load, its sum and its times; whole where it has no load."""
    load = metric_load(spec, answer, pods)
    if load is None:
        return answer
    return LoadSamples(_NO_SAMPLES, answer.total_milli, answer.oldest_ms, answer.newest_ms, load)


class MetricNeed(Struct, frozen=True, gc=False):
    """What one metric of a spec asks for at one evaluation.

    `index`: its place in the spec. `pods`: how many the load needs at the target. `ratio`: load per pod over the
    target; None: no pod took load. `time_ms`: when its newest sample was made.
    """

    index: int
    spec: MetricSpec
    pods: float
    ratio: float | None
    time_ms: int | None = None


def needs(autoscaler: Autoscaler, answers: Sequence[MetricReading | None], pods: TargetPods) -> list[MetricNeed]:
    """Return what each metric with a known load asks for, in the order of the spec."""
    of_metrics = []
    for index, (spec, answer) in enumerate(zip(autoscaler.metrics, answers, strict=False)):
        load = metric_load(spec, answer, pods)
        wanted = None if load is None else needed(spec, load)
        if load is not None and wanted is not None:
            of_metrics.append(MetricNeed(index, spec, wanted, wanted / load.pods if load.pods else None, load.time_ms))
    return of_metrics


def most_pods(needs: Sequence[MetricNeed]) -> float | None:
    """The pods that the most demanding metric needs; None where no metric says."""
    return max((each.pods for each in needs), default=None)


def need(autoscaler: Autoscaler, answers: Sequence[MetricReading | None], pods: TargetPods) -> float | None:
    """The pods that the most demanding metric needs; None where no metric says."""
    return most_pods(needs(autoscaler, answers, pods))


def serving_at(answers: Sequence[MetricReading | None], pods: TargetPods) -> int:
    """How many pods took load when the newest sample was made."""
    times = [answer.newest_ms for answer in answers if isinstance(answer, PodSamples | ExternalSamples)]
    times += [answer.time_ms for answer in answers if isinstance(answer, ObjectSample)]
    known = [each for each in times if each is not None]
    at_ms = max(known) if known else None
    return sum(serving(pod, at_ms) for pod in pods.active)


BACK_MS = 600_000
"""How far back an earlier evaluation is looked for: pods are resized one after the other."""


class LoweredRequest(Struct, frozen=True, kw_only=True):
    """What the pods of a target request and use on average (milli units), in an earlier evaluation and in this one.

    The requests follow from usage and percentage, which is recorded in whole percents: they are about right.
    """

    metric: str
    request_before: int
    request: int
    usage_before: int
    usage: int


def lowered_requests(earlier: Iterable[Decision], decision: Decision) -> list[LoweredRequest]:
    """The metrics of a decision whose utilization is higher than in an earlier one, and more so because of a lower
    request than because of a higher usage. Of several earlier ones, the one with the highest request counts.

    A request counts as lower only where the rounding of percentages cannot explain it.
    """
    by_path: dict[str, LoweredRequest] = {}
    past = list(earlier)
    for metric in decision.metrics:
        for before in past:
            for old in before.metrics:
                lowered = _lowered(old, metric) if (old.type, old.name) == (metric.type, metric.name) else None
                known = by_path.get(metric.name)
                if lowered is not None and (known is None or lowered.request_before > known.request_before):
                    by_path[metric.name] = lowered
    return list(by_path.values())


def _lowered(old: MetricDecision, new: MetricDecision) -> LoweredRequest | None:
    if not (old.value and old.utilization and new.value and new.utilization) or new.utilization <= old.utilization:
        return None
    # A percentage is cut to a whole number: of u percents it is u or more, and below u + 1.
    least_before = old.value * 100 // (old.utilization + 1)
    most_now = -(-new.value * 100 // new.utilization)
    if least_before * old.value <= most_now * new.value or most_now >= least_before:
        return None
    before, now = old.value * 100 // old.utilization, new.value * 100 // new.utilization
    return LoweredRequest(metric=new.name, request_before=before, request=now, usage_before=old.value, usage=new.value)

"""One number of a metric's answer that can be varied: what it is, what it was, and the inputs with another one.

- Resource, ContainerResource and Pods metrics: the total over the counted samples (those of running pods that count;
  samples of ignored, pending or not yet ready pods stay as they are), spread over the pods in the recorded proportion.
- Object metrics: the value. External metrics: the sum of the series.

All in milli units.
"""

from collections.abc import Callable

from msgspec import Struct, structs

from streams.analysis.answer import with_answer
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import MetricSpec
from streams.hpa.grouping import is_unready
from streams.hpa.observation import ExternalSamples, MetricReading, ObjectSample, PodSamples, Scale, pod_samples
from streams.state.probe import EvaluationInputs


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
    """Give what can be varied of the metric at `index`; None: it has no answer with a number."""
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
            pod,
            sample,
            settings.cpu_initialization_period_ms,
            settings.initial_readiness_delay_ms,
            inputs.now_ms,
        )
        if not young:
            names.append(name)
    return names


def spread(shares: list[int], total: int) -> list[int]:
    """Divide `total` in the proportion of `shares`, whole numbers that add up to it; evenly where all are 0."""
    whole = sum(shares)
    if not whole:
        shares, whole = [1] * len(shares), len(shares)
    parts = [share * total // whole for share in shares]
    for index in range(total - sum(parts)):
        parts[index % len(parts)] += 1
    return parts

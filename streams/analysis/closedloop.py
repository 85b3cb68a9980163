"""Closed loop: the candidate scales, and the recorded load is divided over the pods that it then has.

At every recorded evaluation: the total load that the recorded pods took, divided over the candidate's ready pods;
values of objects and external series as recorded (those with a `Value` target, which the formula takes to be shared by
the pods, in proportion). A write takes effect at once, a new pod takes load after the start-up time measured from the
recording, a removed one no longer does. Metrics are as old as in the recording.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from msgspec import Struct, structs

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from streams.analysis.answer import Answer, answer
from streams.analysis.candidate import Tried
from streams.analysis.load import MetricLoad, metric_load, most_pods, needed, needs, serving
from streams.analysis.measures import Moment
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import MetricSpec
from streams.hpa.evaluation import EMPTY_HISTORY, History, ScaleApplied
from streams.hpa.observation import (
    ExternalSamples,
    MetricReading,
    ObjectSample,
    Observation,
    PodRow,
    PodSamples,
    PodTemplate,
    Scale,
    TargetPods,
    pod_samples,
)
from streams.hpa.reconcile import complete
from streams.hpa.rules import Rules
from streams.state.inputs import EvaluationInputs

DEFAULT_MS = 30_000
_LONGEST_MS = 1_800_000


class StartUp(Struct, frozen=True, kw_only=True, rename="camel"):
    """From the start of a pod to when it takes load, and how that is known.

    `measured`: pods whose start was seen; 0: it was taken from pods that were there (`from start to ready`), or,
    without any, is the default.
    """

    ms: int
    measured: int
    how: str


class StartUpClock:
    """Measures while the evaluations of one HPA are read, oldest first."""

    def __init__(self) -> None:
        self._delays: dict[str, int] = {}
        self._own: dict[str, int] = {}
        self._known: set[str] | None = None

    def see(self, inputs: EvaluationInputs) -> None:
        """Add the pods of an evaluation."""
        pods = inputs.observation.pods
        if self._known is None:
            self._known = {pod.name for pod in pods.rows}
        for pod in pods.active:
            if pod.name not in self._own and serving(pod, None) and _is_first(pod):
                self._own[pod.name] = pod.ready_at_ms - (pod.start_ms or 0)
                if pod.name not in self._known:
                    self._delays[pod.name] = self._own[pod.name]

    def start_up(self) -> StartUp:
        delays, own = self._delays, self._own
        if delays:
            return StartUp(
                ms=round(median(delays.values())), measured=len(delays), how="median of the pods that started"
            )
        if own:
            return StartUp(ms=round(median(own.values())), measured=0, how="start to ready of the pods that were there")
        return StartUp(ms=DEFAULT_MS, measured=0, how="no pod's start is known: assumed")


def start_up(recorded: Iterable[EvaluationInputs]) -> StartUp:
    """Measure over one HPA's recording."""
    clock = StartUpClock()
    for inputs in recorded:
        clock.see(inputs)
    return clock.start_up()


def _is_first(pod: PodRow) -> bool:
    """Its readiness is known and plausibly its first: a pod that lost readiness long after its start is no evidence."""
    if pod.start_ms is None or pod.ready_at_ms == ZERO_TIME_MS:
        return False
    return 0 <= pod.ready_at_ms - pod.start_ms <= _LONGEST_MS


_EMPTY = PodTemplate(())
UNKNOWN = (
    "queues, latency and retries: load that the pods did not take is not seen, nor what slower pods would have changed",
    "work that a pod does without load (idle use, caches) is taken to be load and divided with it",
    "restarts, roll-outs, evictions and full nodes of the recording are not repeated",
    "a metric that depends on the replicas other than by sharing (a backlog, for one) is taken as recorded",
)
"""What the model cannot know."""


class _Pod(Struct):
    row: PodRow
    takes_load_ms: int


class ClosedLoop:
    """One run of a candidate over the recorded evaluations of one HPA.

    `base`: what each pod uses whether it carries load or not, over the target; of metrics that are averages of pods.
    """

    def __init__(self, tried: Tried | None, start_up_ms: int, base: float = 0.0) -> None:
        self.tried = tried
        self.base = base
        self.start_up_ms = start_up_ms
        self.pods: list[_Pod] = []
        self.replicas = 0
        self.born = 0
        self.history: History = EMPTY_HISTORY
        self.status: dict[str, Any] = {}
        self.template = _EMPTY
        self.newest: EvaluationInputs | None = None
        self.answered: Answer | None = None
        """The answer of the newest evaluation."""

    def run(self, recorded: Sequence[EvaluationInputs]) -> list[Moment]:
        """Go through the recording; evaluations at which the scale was unknown are left out."""
        return [self.step(inputs) for inputs in recorded if isinstance(inputs.observation.scale, Scale)]

    def step(self, recorded: EvaluationInputs) -> Moment:
        """Evaluate at one recorded evaluation, whose scale is known."""
        changed = recorded if self.tried is None else self.tried.on(recorded)
        if self.newest is None:
            self._begin_with(recorded)
        self.newest = recorded
        if recorded.observation.pods.active:
            self.template = recorded.observation.pods.active[-1].template
        seen = self._observe(changed)
        answered = self.answered = answer(
            structs.replace(changed, observation=seen, history=self.history, status=self.status, limits=recorded.limits)
        )
        evaluation = answered.evaluation
        self.history = evaluation.history
        moment = self._moment(changed)
        if evaluation.pending is None or answered.final == self.replicas:
            self.status = evaluation.result.status if evaluation.result is not None else self.status
            return moment
        pending = structs.replace(evaluation.pending, desired_replicas=answered.final)
        rules = recorded.settings.rules
        ended = complete(pending, self.status, self.history, ScaleApplied(), recorded.now_ms, rules=rules)
        self.history, self.status = ended.history, ended.status
        self._scale(answered.final, recorded.now_ms)
        return moment

    def _begin_with(self, recorded: EvaluationInputs) -> None:
        """Begin with what was there: pods, count, memory."""
        scale, pods = recorded.observation.scale, recorded.observation.pods
        assert isinstance(scale, Scale)
        self.history, self.status, self.replicas = recorded.history, recorded.status, scale.spec_replicas
        live = [pod for pod in pods.rows if pod not in pods.ignored]
        self.pods = [_Pod(pod, pod.ready_at_ms if serving(pod, None) else recorded.now_ms) for pod in live]
        self._scale(self.replicas, recorded.now_ms)

    # the pods

    def _scale(self, replicas: int, now_ms: int) -> None:
        self.replicas = replicas
        while len(self.pods) < replicas:
            self.born += 1
            ready_ms = now_ms + self.start_up_ms
            row = PodRow(f"candidate-{self.born}", self.template, start_ms=now_ms, ready="False", ready_at_ms=now_ms)
            self.pods.append(_Pod(row, ready_ms))
        # What is not ready goes first, then the youngest: as the ReplicaSet controller ranks them.
        ranked = sorted(self.pods, key=lambda pod: (pod.takes_load_ms > now_ms, pod.takes_load_ms), reverse=True)
        for pod in ranked[: len(self.pods) - replicas]:
            self.pods.remove(pod)

    def _rows(self, now_ms: int, rules: Rules) -> TargetPods:
        for pod in self.pods:
            if pod.row.ready != "True" and pod.takes_load_ms <= now_ms:
                pod.row = structs.replace(pod.row, ready="True", ready_at_ms=pod.takes_load_ms)
        return TargetPods(tuple(pod.row for pod in self.pods), rules)

    def _serving(self, at_ms: int | None, now_ms: int) -> list[str]:
        upto = now_ms if at_ms is None else min(at_ms, now_ms)
        return [pod.row.name for pod in self.pods if pod.takes_load_ms <= upto]

    # what it sees

    def _observe(self, changed: EvaluationInputs) -> Observation:
        scale, now_ms = changed.observation.scale, changed.now_ms
        assert isinstance(scale, Scale)
        own = Scale(self.replicas, len(self.pods), scale.selector)
        answers = tuple(
            self._answer(spec, given, changed.observation.pods, now_ms)
            for spec, given in zip(changed.autoscaler.metrics, changed.observation.answers, strict=False)
        )
        return Observation(own, self._rows(now_ms, changed.settings.rules), answers, changed.observation.ambiguous)

    def _answer(
        self, spec: MetricSpec, given: MetricReading | None, pods: TargetPods, now_ms: int
    ) -> MetricReading | None:
        load = metric_load(spec, given, pods)
        if load is None:
            return given
        names = self._serving(load.time_ms, now_ms)
        if isinstance(given, PodSamples):
            share = self._share(spec, load, len(names))
            busy = set(names)
            at_ms = load.time_ms or now_ms
            return pod_samples(
                {
                    pod.row.name: (round(share) if pod.row.name in busy else 0, at_ms, load.window_ms)
                    for pod in self.pods
                    if (pod.row.start_ms or 0) <= at_ms
                }
            )
        return self._shared(spec, given, load.pods, len(names))

    def _share(self, spec: MetricSpec, load: MetricLoad, count: int) -> float:
        """Return the usage of each of `count` pods."""
        if not self.base or (wanted := needed(spec, load)) is None or not wanted:
            return load.total_milli / max(1, count)
        own = self.base * load.total_milli / wanted  # what a pod uses at the target is the total over the pods needed
        return own + max(0.0, load.total_milli - own * load.pods) / max(1, count)

    def _shared(self, spec: MetricSpec, given: MetricReading | None, recorded: int, own: int) -> MetricReading | None:
        """A value that the formula takes to be shared by the pods, as it would be with this many."""
        if spec.calculation not in (kinds.OBJECT_VALUE, kinds.EXTERNAL_VALUE) or not own or not recorded:
            return given
        if isinstance(given, ObjectSample):
            return structs.replace(given, value_milli=round(given.value_milli * recorded / own))
        if isinstance(given, ExternalSamples):
            return structs.replace(given, values_milli=(round(sum(given.values_milli) * recorded / own),))
        return given

    # what is measured

    def _moment(self, changed: EvaluationInputs) -> Moment:
        autoscaler, seen = changed.autoscaler, changed.observation
        needed = needs(autoscaler, seen.answers, seen.pods)
        at_ms = max((each.time_ms or 0 for each in needed), default=0) or None
        ready = len(self._serving(at_ms, changed.now_ms))
        return Moment(changed.now_ms, self.replicas, ready, most_pods(needed), self.replicas >= autoscaler.max_replicas)

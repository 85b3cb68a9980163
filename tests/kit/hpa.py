"""Build the inputs of the decision algorithm in few words."""

from collections.abc import Mapping, Sequence
from typing import Any

from streams.hpa.autoscaler import ControllerSettings, MetricSpec, compile_autoscaler
from streams.hpa.calculator import bounds
from streams.hpa.evaluation import Calculation, Evaluation, History, ReconcileResult, ScaleApplied, ScaleOutcome
from streams.hpa.metrics import evaluate_metric
from streams.hpa.observation import (
    ContainerRequests,
    ExternalSamples,
    MetricFailure,
    MetricReading,
    Observation,
    PodRow,
    PodSamples,
    PodTemplate,
    Scale,
    TargetPods,
    pod_samples,
)
from streams.hpa.reconcile import complete, decide

Json = dict[str, Any]

NOW_MS = 1_700_000_000_000
SETTINGS = ControllerSettings()
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
SELECTOR = "app=x"

_STATES: dict[str, dict[str, Any]] = {
    "ready": {"ready": "True"},
    "unready": {"ready": "False", "start_ms": NOW_MS - 60_000, "ready_at_ms": NOW_MS - 60_000},
    "pending": {"phase": "Pending"},
    "failed": {"phase": "Failed"},
    "succeeded": {"phase": "Succeeded"},
    "deleting": {"deleting": True, "ready": "True"},
}


class Group:
    """`count` pods alike: usage in milli (None: no sample), state, cpu request in milli (None: none)."""

    def __init__(
        self, count: int, usage_milli: int | None, state: str = "ready", request_milli: int | None = 100
    ) -> None:
        self.count, self.usage_milli, self.state, self.request_milli = count, usage_milli, state, request_milli

    def template(self) -> PodTemplate:
        requests = {} if self.request_milli is None else {"cpu": f"{self.request_milli}m", "memory": "1Gi"}
        return PodTemplate([ContainerRequests("app", requests)])


def pod(name: str, template: PodTemplate, state: str = "ready", **changes: Any) -> PodRow:
    """A pod that has run for an hour, but for its state."""
    facts = {"start_ms": NOW_MS - 3_600_000, "ready_at_ms": NOW_MS - 3_590_000, **_STATES[state], **changes}
    return PodRow(name=name, template=template, **facts)


def world(*groups: Group, strays: Mapping[str, int] | None = None) -> tuple[TargetPods, PodSamples]:
    """Make pods p0, p1, … and one answer with a fresh sample of each that has one."""
    rows: list[PodRow] = []
    usages: dict[str, int] = dict(strays or {})
    for group in groups:
        template = group.template()
        for _ in range(group.count):
            name = f"p{len(rows)}"
            rows.append(pod(name, template, group.state))
            if group.usage_milli is not None:
                usages[name] = group.usage_milli
    return TargetPods(tuple(rows)), samples(usages)


def samples(usages: Mapping[str, int], time_ms: int = NOW_MS, window_ms: int = 30_000) -> PodSamples:
    return pod_samples({name: (milli, time_ms, window_ms) for name, milli in usages.items()})


def milli(value: int) -> str:
    return f"{value}m"


def resource(name: str = "cpu", *, percent: int | None = None, average: int | None = None, container: str = "") -> Json:
    target: Json = {"type": "Utilization", "averageUtilization": percent} if percent is not None else {}
    if average is not None:
        target = {"type": "AverageValue", "averageValue": milli(average)}
    if container:
        source = {"name": name, "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def pods_metric(average: int) -> Json:
    return {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"averageValue": milli(average)}}}


def _target(value: int | None, average: int | None) -> Json:
    if value is not None:
        return {"type": "Value", "value": milli(value)}
    return {"type": "AverageValue", "averageValue": milli(average or 0)}


def object_metric(*, value: int | None = None, average: int | None = None) -> Json:
    described = {"kind": "Service", "name": "svc", "apiVersion": "v1"}
    source = {"metric": {"name": "qps"}, "describedObject": described, "target": _target(value, average)}
    return {"type": "Object", "object": source}


def external_metric(*, value: int | None = None, average: int | None = None) -> Json:
    return {"type": "External", "external": {"metric": {"name": "queue"}, "target": _target(value, average)}}


def hpa(metrics: Sequence[Json], *, low: int = 1, high: int = 1000, behavior: Json | None = None) -> Json:
    """A defaulted HPA `shop/web` at generation 7."""
    spec: Json = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "minReplicas": low,
        "maxReplicas": high,
        "metrics": list(metrics),
    }
    if behavior is not None:
        spec["behavior"] = behavior
    return {"metadata": {"name": "web", "namespace": "shop", "generation": 7}, "spec": spec}


def policy(kind: str, value: int, period_s: int) -> Json:
    return {"type": kind, "value": value, "periodSeconds": period_s}


def behavior(up: Json | None = None, down: Json | None = None) -> Json:
    """A defaulted behavior; windows 0 unless given, so that only what a test names has an effect."""
    scale_up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy("Pods", 4, 15)]}
    scale_up["policies"] = [policy("Pods", 4, 15), policy("Percent", 100, 15)]
    scale_down = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy("Percent", 100, 15)]}
    return {"scaleUp": {**scale_up, **(up or {})}, "scaleDown": {**scale_down, **(down or {})}}


def spec_of(metric: Json) -> MetricSpec:
    return compile_autoscaler(hpa([metric])).metrics[0]


def calculate(
    metric: Json,
    answer: MetricReading,
    *,
    current: int,
    pods: TargetPods | None = None,
    reported: int | None = None,
    tolerance: tuple[float, float] = (0.1, 0.1),
    settings: ControllerSettings = SETTINGS,
) -> Calculation:
    """Calculate one metric. `tolerance`: (down, up). `reported`: status replicas of the scale.

    Raises:
        AssertionError: the metric failed; the message is its error.
    """
    scale = Scale(current, current if reported is None else reported, SELECTOR)
    made = evaluate_metric(spec_of(metric), answer, scale, pods or TargetPods(()), bounds(*tolerance), settings, NOW_MS)
    if made.calculation is None:
        raise AssertionError(made.error)
    return made.calculation


def replicas(rows: int, ready: int = 0) -> TargetPods:
    """`rows` pods, of which `ready` are running and ready."""
    template = Group(0, None).template()
    return TargetPods(tuple(pod(f"p{i}", template, "ready" if i < ready else "unready") for i in range(rows)))


class Controller:
    """An HPA with its status and memory, evaluated step by step."""

    def __init__(
        self,
        hpa_object: Json,
        *,
        recommendations: Sequence[tuple[int, int]] | None = None,
        ups: Sequence[tuple[int, int]] = (),
        downs: Sequence[tuple[int, int]] = (),
        status: Json | None = None,
        settings: ControllerSettings = SETTINGS,
    ) -> None:
        """Ages in the memory are in seconds before NOW_MS."""
        self.autoscaler = compile_autoscaler(hpa_object)
        self.status: Json = status or {"desiredReplicas": 0, "currentMetrics": None}
        self.settings = settings
        self.history = History(
            scale_up_events=tuple((n, NOW_MS - age * 1000, False) for n, age in ups),
            scale_down_events=tuple((n, NOW_MS - age * 1000, False) for n, age in downs),
        )
        if recommendations is not None:
            self.history = self.history.with_recommendations([(n, NOW_MS - age * 1000) for n, age in recommendations])

    def evaluate(
        self,
        current: int,
        *answers: MetricReading | None,
        pods: TargetPods | None = None,
        now_ms: int = NOW_MS,
        **observed: Any,
    ) -> Evaluation:
        """Evaluate; status and memory move on, except for what a wanted write decides."""
        scale = observed.pop("scale", Scale(current, current, SELECTOR))
        observation = Observation(scale, pods or replicas(max(current, 1), max(current, 1)), answers, **observed)
        made = decide(self.autoscaler, self.status, observation, self.history, self.settings, now_ms)
        self.history = made.history
        if made.result is not None:
            self._take(made.result)
        return made

    def sync(
        self, current: int, *answers: MetricReading | None, outcome: ScaleOutcome | None = None, **more: Any
    ) -> ReconcileResult:
        """Evaluate and, where a write is wanted, complete it (applied by default)."""
        now_ms = more.get("now_ms", NOW_MS)
        made = self.evaluate(current, *answers, **more)
        if made.result is not None:
            return made.result
        assert made.pending is not None
        done = complete(made.pending, self.status, self.history, outcome or ScaleApplied(), now_ms)
        self._take(done)
        return done

    def condition(self, kind: str) -> tuple[str, str] | None:
        """(status, reason) of a condition of the status."""
        found = [each for each in self.status.get("conditions", []) if each["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else None

    def _take(self, result: ReconcileResult) -> None:
        self.history = result.history
        self.status = result.status


def wanting(desired: int) -> ExternalSamples:
    """The answer with which `external_metric(average=1000)` proposes exactly `desired` (outside of tolerance)."""
    return ExternalSamples((desired * 1000,))


FAILED = MetricFailure("no metrics returned from resource metrics API")

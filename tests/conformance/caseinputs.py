"""Build the engine's inputs from the notation that the vector files share: pods, templates, metric answers."""

from typing import Any

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.kubernetes.selectors import parse_selector
from schemas.kubernetes.shape import Json
from streams.hpa.observation import (
    ContainerRequests,
    ExternalSamples,
    MetricFailure,
    MetricReading,
    ObjectSample,
    PodRow,
    PodTemplate,
    TargetPods,
    pod_samples,
)
from streams.hpa.rules import CURRENT, Rules, minor_of, rules_of

EPOCH_MS = 946_684_800_000
"""2000-01-01T00:00:00Z, where every scenario starts."""


def rules_of_case(case: Json) -> Rules:
    """Give the rules of the version that answered a case; a case without one was answered by v1.37."""
    return rules_of(minor_of(case["version"])) if "version" in case else CURRENT


def template(shape: Json) -> PodTemplate:
    """Compile a pod shape."""
    containers = [ContainerRequests(each["name"], each.get("requests") or {}) for each in shape.get("containers") or ()]
    init = [
        ContainerRequests(each["name"], each.get("requests") or {}, bool(each.get("restartAlways")))
        for each in shape.get("initContainers") or ()
    ]
    return PodTemplate(containers, init, shape.get("podRequests"), shape.get("overhead"))


class NamespacePods:
    """The pods of a scenario's namespace with their labels, selectable by selector text."""

    def __init__(self, pods: list[Json], templates: list[PodTemplate], labels: dict[str, str], rules: Rules) -> None:
        self._pods = [(_row(pod, templates), pod.get("labels", labels)) for pod in pods]
        self._rules = rules
        self._selected: dict[str, TargetPods] = {}

    def select(self, selector: str) -> TargetPods:
        """Give the pods that a selector in query-string form matches, in list order."""
        pods = self._selected.get(selector)
        if pods is None:
            parsed = parse_selector(selector)
            rows = tuple(row for row, labels in self._pods if parsed.matches(labels))
            pods = self._selected[selector] = TargetPods(rows, self._rules)
        return pods

    def labels_of(self, pods: TargetPods) -> list[dict[str, str]]:
        """Give the labels of each of `pods`."""
        names = {row.name for row in pods.rows}
        return [labels for row, labels in self._pods if row.name in names]


def _row(pod: Json, templates: list[PodTemplate]) -> PodRow:
    start, ready_at = pod.get("start"), pod.get("readyAt")
    return PodRow(
        name=pod["name"],
        template=templates[pod.get("template", 0)],
        phase=pod.get("phase", "Running"),
        start_ms=None if start is None else EPOCH_MS + start,
        ready=pod.get("ready"),
        ready_at_ms=ZERO_TIME_MS if ready_at is None else EPOCH_MS + ready_at,
        deleting=bool(pod.get("deleting")),
    )


def answer(metric: Json, metric_type: str) -> MetricReading | None:
    """Read one metric entry for a metric of this type; None where the metric is never asked for."""
    if "error" in metric:
        return MetricFailure(metric["error"])
    if not metric:
        return None
    time_ms = EPOCH_MS + metric.get("ts", 0)
    if metric_type == "External":
        return ExternalSamples(tuple(metric.get("values") or ()), time_ms, time_ms)
    if metric_type == "Object":
        return ObjectSample(metric.get("value", 0), time_ms)
    window_ms = metric.get("window", 0) * 1000
    pods = metric.get("pods") or {}
    return pod_samples({name: _sample(value, time_ms, window_ms) for name, value in pods.items()})


def _sample(value: Any, time_ms: int, window_ms: int) -> tuple[int, int, int]:
    if isinstance(value, list):
        return value[0], EPOCH_MS + value[1], value[2] * 1000
    return value, time_ms, window_ms

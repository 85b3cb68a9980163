"""The metrics APIs of a simulated cluster: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io.

Values come from the samples that the workloads' models took, at their times. A metrics fault makes the answers
late, frozen, partial, wrong or absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from fleethpa.simulator.faults import StatusError, not_served
from fleethpa.simulator.kubelet import Kubelet, Running
from fleethpa.simulator.model import SimulatedSeries, SimulatedUsage, UsageSample
from fleethpa.simulator.requests import label_matcher
from fleethpa.simulator.resources import metrics_entry
from fleethpa.simulator.store import SimClock, Store
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json

FAULTS: Final = ("error", "empty", "partial", "frozen", "lag", "fixed")


@dataclass(frozen=True, slots=True)
class MetricsFault:
    """How answers go wrong, for namespaces and metrics that match the glob patterns; CPU and memory are `resource`."""

    kind: str
    namespace: str = "*"
    metric: str = "*"
    status: int = 503
    message: str = "the server is currently unable to handle the request"
    value: float = 0.0
    """fixed: what every pod or object shows; for `resource` the CPU in millicores."""
    lag_s: float = 0.0
    """lag: samples are at least this old."""
    share: float = 0.5
    """partial: the share of pods that answers still hold, in name order."""
    since_ms: int = 0
    """frozen: no sample after this simulated time."""

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise ValueError(f"metrics fault {self.kind!r} is unknown: use one of {', '.join(FAULTS)}")


class SimulatedMetricsApi:
    """Answers metrics requests from the kubelet's models."""

    def __init__(self, kubelet: Kubelet, store: Store, clock: SimClock, *, sample_ms: int) -> None:
        self._kubelet, self._store, self._clock, self._sample_ms = kubelet, store, clock, sample_ms
        self.faults: list[MetricsFault] = []

    # -- discovery ---------------------------------------------------------------------------------------------------

    def entries(self, group: str) -> list[Json]:
        """Return the resource list entries of one of the three groups."""
        if group == "metrics.k8s.io":
            nodes = metrics_entry("nodes", "NodeMetrics", namespaced=False, verbs=("get", "list"))
            return [nodes, metrics_entry("pods", "PodMetrics", verbs=("get", "list"))]
        names = sorted(
            {(s.type, s.name, s.object_kind) for _, run in self._kubelet.workloads() for s in run.simulation.series}
        )
        if group == "external.metrics.k8s.io":
            return [metrics_entry(name, "ExternalMetricValueList") for kind, name, _ in names if kind == "External"]
        found = [
            (f"{_plural(described)}/{name}" if kind == "Object" else f"pods/{name}")
            for kind, name, described in names
            if kind != "External"
        ]
        return [metrics_entry(name, "MetricValueList") for name in found]

    # -- requests ----------------------------------------------------------------------------------------------------

    def answer(self, group: str, version: str, namespace: str, path: list[str], query: dict[str, str]) -> Json:
        """Answer a GET; `path` is what follows the namespace.

        Raises StatusError: A fault is set, or no such metric exists.
        """
        if group == "metrics.k8s.io":
            return self._resource(namespace, path, query)
        if group == "external.metrics.k8s.io":
            return self._external(namespace, path[0] if path else "", query)
        return self._custom(version, namespace, path, query)

    def _resource(self, namespace: str, path: list[str], query: dict[str, str]) -> Json:
        if path[:1] == ["nodes"]:
            return {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []}
        if path[:1] != ["pods"]:
            raise not_served()
        fault = self._fault(namespace, "resource")
        items = [
            self._pod_metrics(*found, fault) for found in self._pods(namespace, query.get("labelSelector", ""), fault)
        ]
        if len(path) == 1:
            return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        named = [item for item in items if item["metadata"]["name"] == path[1]]
        if not named:
            raise StatusError(404, f'podmetrics.metrics.k8s.io "{namespace}/{path[1]}" not found')
        return named[0]

    def _pod_metrics(self, pod: Json, sample: UsageSample, usage: SimulatedUsage, fault: MetricsFault | None) -> Json:
        names = [container["name"] for container in pod["spec"]["containers"]]
        cpu, memory = usage.cpu_milli, usage.memory_bytes
        if fault is not None and fault.kind == "fixed":
            cpu = int(fault.value)
        containers = [
            # The first container does the work; the others idle.
            {
                "name": name,
                "usage": {
                    "cpu": f"{cpu * 1_000_000 if n == 0 else 0}n",
                    "memory": f"{memory // 1024 if n == 0 else 0}Ki",
                },
            }
            for n, name in enumerate(names)
        ]
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
        return {
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": metadata | {"creationTimestamp": rfc3339_seconds(self._clock.now_ms())},
            "timestamp": rfc3339_seconds(sample.time_ms),
            "window": f"{self._sample_ms / 1000:g}s",
            "containers": containers,
        }

    def _custom(self, version: str, namespace: str, path: list[str], query: dict[str, str]) -> Json:
        if len(path) == 2 and path[0] == "metrics":
            path = ["namespaces", namespace, path[1]]
        if len(path) != 3:
            raise not_served()
        resource, name, metric = path
        fault = self._fault(namespace, metric)
        if resource == "pods":
            items = self._pod_values(version, namespace, metric, query.get("labelSelector", ""), fault)
        else:
            items = self._object_values(version, namespace, resource, name, metric, fault)
        known = any(
            s.name == metric and s.type != "External"
            for _, run in self._kubelet.workloads(namespace)
            for s in run.simulation.series
        )
        if not items and not known:
            raise StatusError(
                404, f"the server could not find the metric {metric} for {resource}{'' if name == '*' else ' ' + name}"
            )
        return {
            "kind": "MetricValueList",
            "apiVersion": f"custom.metrics.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }

    def _pod_values(
        self, version: str, namespace: str, metric: str, selector: str, fault: MetricsFault | None
    ) -> list[Json]:
        items = []
        for pod, sample, usage in self._pods(namespace, selector, fault, metric=metric):
            value = fault.value if fault is not None and fault.kind == "fixed" else usage.load
            described = {"kind": "Pod", "namespace": namespace, "name": pod["metadata"]["name"], "apiVersion": "/v1"}
            items.append(self._metric_value(version, described, metric, sample.time_ms, value))
        return items

    def _object_values(
        self, version: str, namespace: str, resource: str, name: str, metric: str, fault: MetricsFault | None
    ) -> list[Json]:
        if fault is not None and fault.kind == "empty":
            return []
        for series, run in self._series(namespace, "Object"):
            if (series.name, _plural(series.object_kind), series.object_name) == (metric, resource, name):
                sample = self._sample(run, fault)
                if sample is not None:
                    described = {"kind": series.object_kind, "namespace": namespace, "name": name, "apiVersion": "v1"}
                    value = self._signal(series, sample, fault)
                    return [self._metric_value(version, described, metric, sample.time_ms, value)]
        return []

    def _metric_value(self, version: str, described: Json, metric: str, time_ms: int, value: float) -> Json:
        named = {"metricName": metric} if version == "v1beta1" else {"metric": {"name": metric, "selector": None}}
        shown = {
            "timestamp": rfc3339_seconds(time_ms),
            "windowSeconds": self._sample_ms // 1000,
            "value": _quantity(value),
        }
        return {"describedObject": described} | named | shown

    def _external(self, namespace: str, metric: str, query: dict[str, str]) -> Json:
        fault = self._fault(namespace, metric)
        matches, items, known = label_matcher(query.get("labelSelector", "")), [], False
        for series, run in self._series(namespace, "External"):
            if series.name != metric:
                continue
            known = True
            sample = self._sample(run, fault)
            hidden = fault is not None and fault.kind == "empty"
            if sample is not None and not hidden and matches({"metadata": {"labels": series.labels}}):
                value = _quantity(self._signal(series, sample, fault))
                item = {
                    "metricName": metric,
                    "metricLabels": series.labels,
                    "timestamp": rfc3339_seconds(sample.time_ms),
                    "value": value,
                }
                items.append(item)
        if not known:
            raise StatusError(404, f"the server could not find the metric {metric}")
        version = "external.metrics.k8s.io/v1beta1"
        return {"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items}

    # -- samples and faults ------------------------------------------------------------------------------------------

    def _fault(self, namespace: str, metric: str) -> MetricsFault | None:
        """Return the fault that applies, the newest first; an error fault is raised here."""
        for fault in reversed(self.faults):
            if fnmatchcase(namespace, fault.namespace) and fnmatchcase(metric, fault.metric):
                if fault.kind == "error":
                    raise StatusError(fault.status, fault.message)
                return fault
        return None

    def _sample(self, run: Running, fault: MetricsFault | None) -> UsageSample | None:
        """Return the newest sample that the fault lets through."""
        newest_ms = self._clock.now_ms()
        if fault is not None and fault.kind == "lag":
            newest_ms -= int(fault.lag_s * 1000)
        elif fault is not None and fault.kind == "frozen":
            newest_ms = fault.since_ms
        return next((s for s in reversed(run.model.samples) if s.time_ms <= newest_ms), None)

    def _pods(
        self, namespace: str, selector: str, fault: MetricsFault | None, *, metric: str | None = None
    ) -> Iterator[tuple[Json, UsageSample, SimulatedUsage]]:
        """Go through the pods that the selector matches and the sample has, with the metric if one is named."""
        matches, found = label_matcher(selector), []
        for key, run in self._kubelet.workloads(namespace):
            if metric is not None and not any(s.name == metric and s.type == "Pods" for s in run.simulation.series):
                continue
            sample = self._sample(run, fault)
            for name, usage in sample.pods.items() if sample is not None else ():
                pod = self._store.get(("pods", key[1], name))
                if pod is not None and sample is not None and matches(pod):
                    found.append((pod, sample, usage))
        if fault is not None and fault.kind == "empty":
            return
        found.sort(key=lambda each: each[0]["metadata"]["name"])
        partial = fault is not None and fault.kind == "partial"
        yield from found[: int(len(found) * fault.share)] if fault is not None and partial else found

    def _series(self, namespace: str, kind: str) -> Iterator[tuple[SimulatedSeries, Running]]:
        for _, run in self._kubelet.workloads(namespace):
            for series in run.simulation.series:
                if series.type == kind:
                    yield series, run

    def _signal(self, series: SimulatedSeries, sample: UsageSample, fault: MetricsFault | None) -> float:
        if fault is not None and fault.kind == "fixed":
            return fault.value
        return sample.queue if series.signal == "queue" else sample.total_load


def _plural(kind: str) -> str:
    return f"{kind.lower()}es" if kind.lower().endswith("s") else f"{kind.lower()}s"


def _quantity(value: float) -> str:
    milli = round(value * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)

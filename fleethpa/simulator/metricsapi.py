"""The metrics APIs of a simulated cluster: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io.

Values come from the samples that the workloads' models took, at their times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleethpa.simulator.kubelet import Kubelet, Running
from fleethpa.simulator.model import SimulatedSeries, SimulatedUsage, UsageSample
from fleethpa.simulator.requests import Ask, StatusError, label_matcher, not_served
from fleethpa.simulator.resources import Store, entry
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json


@dataclass(frozen=True, slots=True)
class MetricsFault:
    """An error instead of an answer, for namespaces and metrics that match the glob patterns.

    CPU and memory are `resource`.
    """

    namespace: str = "*"
    metric: str = "*"
    status: int = 503
    message: str = "the server is currently unable to handle the request"


class SimulatedMetricsApi:
    """Answers metrics requests from the kubelet's models."""

    def __init__(self, kubelet: Kubelet, store: Store, now_ms: Callable[[], int], *, sample_ms: int) -> None:
        self._kubelet, self._store, self._now_ms, self._sample_ms = kubelet, store, now_ms, sample_ms
        self.faults: list[MetricsFault] = []

    def entries(self, group: str) -> list[Json]:
        """Return the resource list entries of one of the three groups."""
        if group == "metrics.k8s.io":
            return [entry("pods", "PodMetrics", verbs=("get", "list"))]
        known = {(s.type, s.name, s.object_kind) for _, run in self._kubelet.workloads() for s in run.simulation.series}
        if group == "external.metrics.k8s.io":
            return [entry(name, "ExternalMetricValueList") for kind, name, _ in sorted(known) if kind == "External"]
        plurals = [(plural(kind or "Pod"), name) for type_, name, kind in sorted(known) if type_ != "External"]
        return [entry(f"{plural}/{name}", "MetricValueList") for plural, name in plurals]

    def answer(self, ask: Ask) -> Json:
        """Answer a GET. Raises StatusError: a fault is set, or no such metric exists."""
        if ask.method != "GET":
            raise not_served()
        if ask.group == "metrics.k8s.io":
            return self._resource(ask)
        if ask.group == "external.metrics.k8s.io":
            return self._external(ask)
        return self._custom(ask)

    def _resource(self, ask: Ask) -> Json:
        if ask.path != ("pods",):
            raise not_served()
        self._check_faults(ask.namespace, "resource")
        items = [self._pod_metrics(*found) for found in self._pods(ask)]
        return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}

    def _pod_metrics(self, pod: Json, sample: UsageSample, usage: SimulatedUsage) -> Json:
        # The first container does the work; the others idle.
        used = {"cpu": f"{usage.cpu_milli * 1_000_000}n", "memory": f"{usage.memory_bytes // 1024}Ki"}
        idle = {"cpu": "0n", "memory": "0Ki"}
        names = [container["name"] for container in pod["spec"]["containers"]]
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
        return {
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": metadata | {"creationTimestamp": rfc3339_seconds(self._now_ms())},
            "timestamp": rfc3339_seconds(sample.time_ms),
            "window": f"{self._sample_ms / 1000:g}s",
            "containers": [{"name": name, "usage": idle if n else used} for n, name in enumerate(names)],
        }

    def _custom(self, ask: Ask) -> Json:
        """Answer for `pods/*/METRIC`, or for `PLURAL/NAME/METRIC` of another kind of object."""
        if len(ask.path) != 3:
            raise not_served()
        resource, name, metric = ask.path
        self._check_faults(ask.namespace, metric)
        if resource == "pods":
            values = [
                ("Pod", pod["metadata"]["name"], sample, usage.load)
                for pod, sample, usage in self._pods(ask, metric=metric)
            ]
        else:
            values = [
                (series.object_kind, name, sample, sample.total_load)
                for series, sample in self._series(ask.namespace, "Object", metric)
                if (plural(series.object_kind), series.object_name) == (resource, name) and sample is not None
            ]
        kind = "Pods" if resource == "pods" else "Object"
        if not values and not any(self._series(ask.namespace, kind, metric)):
            subject = resource if name == "*" else f"{resource} {name}"
            raise StatusError(404, f"the server could not find the metric {metric} for {subject}")
        items = [
            {
                "describedObject": {"kind": kind, "namespace": ask.namespace, "name": about, "apiVersion": "v1"},
                "metric": {"name": metric, "selector": None},
                "timestamp": rfc3339_seconds(sample.time_ms),
                "windowSeconds": self._sample_ms // 1000,
                "value": _quantity(value),
            }
            for kind, about, sample, value in values
        ]
        version = f"custom.metrics.k8s.io/{ask.version}"
        return {"kind": "MetricValueList", "apiVersion": version, "metadata": {}, "items": items}

    def _external(self, ask: Ask) -> Json:
        metric = ask.path[0]
        self._check_faults(ask.namespace, metric)
        known = list(self._series(ask.namespace, "External", metric))
        if not known:
            raise StatusError(404, f"the server could not find the metric {metric}")
        matches = label_matcher(ask.query.get("labelSelector", ""))
        items = [
            {
                "metricName": metric,
                "metricLabels": series.labels,
                "timestamp": rfc3339_seconds(sample.time_ms),
                "value": _quantity(sample.queue),
            }
            for series, sample in known
            if sample is not None and matches({"metadata": {"labels": series.labels}})
        ]
        version = "external.metrics.k8s.io/v1beta1"
        return {"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items}

    def _check_faults(self, namespace: str, metric: str) -> None:
        """Raise the first fault that applies."""
        for fault in self.faults:
            if fnmatchcase(namespace, fault.namespace) and fnmatchcase(metric, fault.metric):
                raise StatusError(fault.status, fault.message)

    def _pods(self, ask: Ask, *, metric: str = "") -> Iterator[tuple[Json, UsageSample, SimulatedUsage]]:
        """Go through the pods that the selector matches and the newest sample has, with the metric if one is named."""
        matches, found = label_matcher(ask.query.get("labelSelector", "")), []
        for key, run in self._kubelet.workloads(ask.namespace):
            sample = _newest(run)
            if sample is None or (metric and not any(_offers(s, "Pods", metric) for s in run.simulation.series)):
                continue
            for name, usage in sample.pods.items():
                pod = self._store.get(("pods", key[1], name))
                if pod is not None and matches(pod):
                    found.append((pod, sample, usage))
        yield from sorted(found, key=lambda each: each[0]["metadata"]["name"])

    def _series(self, namespace: str, kind: str, metric: str) -> Iterator[tuple[SimulatedSeries, UsageSample | None]]:
        for _, run in self._kubelet.workloads(namespace):
            for series in run.simulation.series:
                if _offers(series, kind, metric):
                    yield series, _newest(run)


def _newest(run: Running) -> UsageSample | None:
    return run.model.samples[-1] if run.model.samples else None


def _offers(series: SimulatedSeries, kind: str, metric: str) -> bool:
    return (series.type, series.name) == (kind, metric)


def plural(kind: str) -> str:
    """Return the plural by which custom.metrics.k8s.io names a kind of object."""
    return f"{kind.lower()}es" if kind.lower().endswith("s") else f"{kind.lower()}s"


def _quantity(value: float) -> str:
    milli = round(value * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)

"""A metrics backend behind the aggregator: metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io.

What the tests demand of an application is divided over its ready pods, so that an HPA comes to rest at the count that
the demand asks for.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from schemas.kubernetes.selectors import parse_selector
from tests.kubernetes.controlplane import METRICS_GROUPS
from tests.kubernetes.node import is_ready

Json = dict[str, Any]

WINDOW_S: Final = 10


@dataclass
class Demand:
    """What an application's pods share: CPU (millicores), memory (MiB) and the totals of its own metrics."""

    cpu_milli: int = 0
    memory_mib: int = 0
    pods: dict[str, int] = field(default_factory=dict)


class Backend:
    """Answers for one cluster; all values are whole numbers.

    `demands`: by namespace and label `app`. `objects`: by namespace, plural, object and metric. `external`: by
    namespace and metric.
    """

    def __init__(
        self, pods: Callable[[], Mapping[tuple[str, str], Json]], groups: Sequence[tuple[str, str]] = METRICS_GROUPS
    ) -> None:
        self._pods, self._groups = pods, groups
        self.demands: dict[tuple[str, str], Demand] = {}
        self.every = 1
        """Only every so many-th pod is in the answers."""
        self.objects: dict[tuple[str, str, str, str], int] = {}
        self.external: dict[tuple[str, str], int] = {}

    async def serve(self, port: int, certificate: Path, front_cafile: Path, ready: asyncio.Event) -> None:
        """Serve until cancelled, to the aggregator only: to who shows a certificate of its authority."""
        application = web.Application()
        application.router.add_get("/apis/{group}/{version}", self._resources)
        inside = "/apis/{group}/{version}/namespaces/{namespace}"
        application.router.add_get(f"{inside}/pods", self._pod_metrics)
        application.router.add_get(f"{inside}/{{metric}}", self._external)
        application.router.add_get(f"{inside}/{{resource}}/{{name}}/{{metric}}", self._custom)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(front_cafile)
        context.verify_mode = ssl.CERT_REQUIRED
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
            ready.set()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _resources(self, request: web.Request) -> web.Response:
        group, version = request.match_info["group"], request.match_info["version"]
        if (group, version) not in self._groups:
            return _refused(404, "the server could not find the requested resource")
        found = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        resources = [found] if group == "metrics.k8s.io" else []
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return web.json_response(body | {"resources": resources})

    async def _pod_metrics(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        items = [
            _usage(pod, demand, sharing)
            for pod, demand, sharing in self.ready(namespace, request.query.get("labelSelector", ""))
        ][:: self.every]
        return web.json_response(
            {
                "kind": "PodMetricsList",
                "apiVersion": f"metrics.k8s.io/{request.match_info['version']}",
                "metadata": {},
                "items": items,
            }
        )

    async def _custom(self, request: web.Request) -> web.Response:
        namespace, resource, name, metric = (
            request.match_info[part] for part in ("namespace", "resource", "name", "metric")
        )
        if resource == "pods":
            shared = [
                (pod, demand.pods[metric], sharing)
                for pod, demand, sharing in self.ready(namespace, request.query.get("labelSelector", ""))
                if metric in demand.pods
            ]
            items = [
                _value({"kind": "Pod", "apiVersion": "/v1", "name": pod["metadata"]["name"]}, namespace, metric, part)
                for pod, total, sharing in shared
                for part in [total * 1000 // sharing]
            ]
        else:
            value = self.objects.get((namespace, resource, name, metric))
            described = {"kind": resource, "apiVersion": "v1", "name": name}
            items = [] if value is None else [_value(described, namespace, metric, value * 1000)]
        if not items:
            return _refused(404, f"the server could not find the metric {metric} for {resource} {name}")
        body = {"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}}
        return web.json_response(body | {"items": items})

    async def _external(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        value = self.external.get((namespace, metric))
        if value is None:
            return _refused(404, f"the server could not find the metric {metric}")
        item = {"metricName": metric, "metricLabels": {}, "timestamp": _now(), "value": str(value)}
        body = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}}
        return web.json_response(body | {"items": [item]})

    def ready(self, namespace: str, selector: str) -> Iterator[tuple[Json, Demand, int]]:
        """Ready pods that match, by name: each with its application's demand, and how many pods share that."""
        wanted = parse_selector(selector)
        ready: dict[str, list[Json]] = {}
        for (where, _), pod in sorted(self._pods().items()):
            if where == namespace and is_ready(pod):
                ready.setdefault((pod["metadata"].get("labels") or {}).get("app", ""), []).append(pod)
        for application, pods in ready.items():
            demand = self.demands.get((namespace, application))
            if demand is not None:
                matching = [pod for pod in pods if wanted.matches(pod["metadata"].get("labels") or {})]
                yield from ((pod, demand, len(pods)) for pod in matching)


def _usage(pod: Json, demand: Demand, sharing: int) -> Json:
    """One PodMetrics: the first container does the work, the others idle."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    busy = {"cpu": f"{demand.cpu_milli // sharing}m", "memory": f"{demand.memory_mib // sharing}Mi"}
    idle = {"cpu": "1m", "memory": "1Mi"}
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    containers = [{"name": name, "usage": idle if number else busy} for number, name in enumerate(names)]
    return {"metadata": metadata, "timestamp": _now(), "window": f"{WINDOW_S}s", "containers": containers}


def _value(described: Json, namespace: str, metric: str, milli: int) -> Json:
    about = described | {"namespace": namespace}
    return {"describedObject": about, "metric": {"name": metric}, "timestamp": _now(), "value": f"{milli}m"}


def _refused(code: int, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return web.json_response(status | {"reason": "NotFound", "code": code}, status=code)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

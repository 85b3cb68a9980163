"""The API server of a simulated cluster: HTTP in, documents out; and the metrics APIs that it serves.

Metrics are those of metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io. Values come from the samples
that the models of the workloads took, at their times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import orjson
from aiohttp import web

from fleethpa.lab.simulator import resources
from fleethpa.lab.simulator.kubelet import Kubelet, Running
from fleethpa.lab.simulator.model import SimulatedSeries, SimulatedUsage, UsageSample
from fleethpa.lab.simulator.requests import (
    Ask,
    StatusError,
    label_matcher,
    not_served,
    parse,
    parse_body,
    patch_type,
    patched,
)
from fleethpa.lab.simulator.resources import ResourceType, Store, Watch, entry, table
from fleethpa.lab.simulator.writes import Writes, scale_of
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json

# --- metrics APIs -----------------------------------------------------------------------------------------------------


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
        items = [self._pod_metrics(*each) for each in self._pods(ask)]
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
            named = resource.partition(".")[0]  # behind it the group, of kinds that are not of the core
            values = [
                (series.object_kind, name, sample, sample.total_load)
                for series, sample in self._series(ask.namespace, "Object", metric)
                if (plural(series.object_kind), series.object_name) == (named, name) and sample is not None
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
        matches, usages = label_matcher(ask.query.get("labelSelector", "")), []
        for key, run in self._kubelet.workloads(ask.namespace):
            sample = _newest(run)
            if sample is None or (metric and not any(_offers(s, "Pods", metric) for s in run.simulation.series)):
                continue
            for name, usage in sample.pods.items():
                pod = self._store.get(("pods", key[1], name))
                if pod is not None and matches(pod):
                    usages.append((pod, sample, usage))
        yield from sorted(usages, key=lambda each: each[0]["metadata"]["name"])

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


# --- the server -------------------------------------------------------------------------------------------------------

HEALTH: Final = ("/healthz", "/livez", "/readyz")
OPEN: Final = (*HEALTH, "/version")
"""Paths that need no token."""
METRICS: Final = "/metrics"
USER: Final = "fleethpa"
"""Who the cluster's token belongs to."""


def document(path: str, kubernetes: str, metrics_entries: Callable[[str], list[Json]]) -> Json | str:
    """Return what a path that names no resource shows: health, version, discovery, OpenAPI.

    `kubernetes`: its version, such as `v1.37.1`. `metrics_entries` lists the metrics of a metrics API group. Raises
    StatusError: 404.
    """
    answer: Json | str | None = None
    match path.strip("/").split("/"):
        case [_] if path in HEALTH:
            answer = "ok"
        case ["version"]:
            major, minor, _ = kubernetes.removeprefix("v").split(".")
            version = f"{kubernetes}+simulated"
            answer = {"major": major, "minor": minor, "gitVersion": version, "platform": "linux/amd64"}
        case ["api"]:
            answer = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            # A metrics API without metrics is as good as not installed; kubectl takes an empty list for a failure.
            empty = [group for group in resources.METRICS_GROUPS if not metrics_entries(group)]
            answer = {"kind": "APIGroupList", "apiVersion": "v1", "groups": resources.groups(empty)}
        case ["api", version]:
            answer = resources.resource_list("", version)
        case ["apis", group]:
            answer = resources.group(group)
        case ["apis", group, version]:
            extra = metrics_entries(group) if group in resources.METRICS_GROUPS else []
            answer = resources.resource_list(group, version, extra)
        case ["openapi", "v3"]:
            answer = resources.openapi_index()
        case ["openapi", "v3", "api" | "apis", *group, version]:
            answer = resources.openapi("".join(group), version)
    if answer is None:
        raise not_served()
    return answer


def json(document: Json | str, code: int = 200) -> web.Response:
    """Return a document, or a plain text such as `ok`."""
    if isinstance(document, str):
        return web.Response(text=document, status=code)
    return web.Response(body=orjson.dumps(document), status=code, content_type="application/json")


def failure(error: StatusError) -> web.Response:
    """Return a Status."""
    response = json(error.status(), error.code)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def wants_table(request: web.Request) -> bool:
    """Whether the client asks for a server-side table."""
    return "as=Table" in request.headers.get("Accept", "")


def written_by(request: web.Request) -> str:
    """Return the User-Agent, by which a write without a field manager is recorded."""
    return request.headers.get("User-Agent", "")


class SimulatedApiServer:
    """Answers requests from the parts of one cluster.

    Tests replace `answer` to let requests fail, and `user`, `allows` and `check` to refuse them.
    """

    def __init__(
        self, store: Store, writes: Writes, metrics: SimulatedMetricsApi, now_ms: Callable[[], int], token: str
    ) -> None:
        self._store, self._writes, self._metrics, self.now_ms, self._token = store, writes, metrics, now_ms, token
        self.kubernetes = resources.VERSION
        """The version that it serves."""
        self.bookmark_s = 30.0
        self._transports: set[asyncio.BaseTransport] = set()

    def application(self) -> web.Application:
        """Return the aiohttp application; every path has the one handler."""
        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/{path:.*}", self.handle)
        return application

    def abort_connections(self) -> None:
        """Cut every connection that has a request under way."""
        for transport in list(self._transports):
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; failures become Status bodies."""
        transport = request.transport
        if transport is not None:
            self._transports.add(transport)
        try:
            return await self.answer(request)
        except StatusError as error:
            return failure(error)
        finally:
            if transport is not None:
                self._transports.discard(transport)

    def user(self, request: web.Request) -> str:
        """Return who sends a request. Raises StatusError: 401."""
        known = request.headers.get("Authorization") == f"Bearer {self._token}"
        if not known and request.path not in OPEN:
            raise StatusError(401, "Unauthorized")
        return USER

    def allows(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """Whether somebody may do something; `resource` is the plural with its subresource."""
        return True

    def may_read(self, path: str) -> bool:
        """Whether somebody may read a path that names no resource; the metrics of the server itself have none."""
        return path != METRICS

    def check(self, user: str, ask: Ask) -> None:
        """Refuse what is not allowed. Raises StatusError: 403."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the answer. Raises StatusError: the request fails."""
        user, ask = self.user(request), parse(request.method, request.path, request.query)
        if ask is None:
            return json(document(request.path, self.kubernetes, self._metrics.entries))
        if ask.group in resources.METRICS_GROUPS:
            self.check(user, ask)
            return json(self._metrics.answer(ask))
        resource = resources.by_path(ask.group, ask.version, ask.plural)
        if resource is None:
            raise not_served()
        if resource.plural == "selfsubjectaccessreviews":
            return await self._review(request, user)
        self.check(user, ask)
        if ask.verb == "watch":
            return await self.watch(request, ask, resource)
        if request.method == "GET":
            return self._read(request, ask, resource)
        return await self._write(request, ask, resource)

    def _read(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        if not ask.name:
            return self._list(request, ask, resource)
        stored = self._writes.read(resource, ask.namespace, ask.name)
        if ask.subresource == "scale" and resource.scale:
            return json(scale_of(resource, stored))
        if ask.subresource not in ("", "status"):
            raise not_served()
        return self._one(request, resource, stored)

    def _list(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        """Answer with all objects that match: ?limit= has no effect."""
        matches = ask.matcher()
        documents = [d for d in self._store.listing(resource.qualified, ask.namespace) if matches(d)]
        metadata: Json = {"resourceVersion": str(self._store.version)}
        if wants_table(request):
            return json(self._table(request, resource, documents, metadata))
        if resource.group != "example.com":
            # Items of built-in lists carry neither kind nor apiVersion.
            documents = [
                {k: v for k, v in document.items() if k not in ("kind", "apiVersion")} for document in documents
            ]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": metadata}
        return json(head | {"items": documents})

    async def _write(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        body = parse_body(request.content_type, await request.read())
        writer, place = ask.writer(written_by(request)), (resource, ask.namespace, ask.name)
        content_type = patch_type(request.headers.get("Content-Type", ""))
        match request.method, ask.subresource:
            case ("POST", "") if not ask.name:
                created = self._writes.create(resource, ask.namespace, body, writer)
                return self._one(request, resource, created, code=201)
            case ("PUT" | "PATCH" as method, "scale") if resource.scale:
                if method == "PATCH":
                    body = patched(scale_of(resource, self._writes.read(*place)), content_type, body)
                return json(self._writes.write_scale(*place, body, writer))
            case ("PUT", "" | "status") if ask.name:
                return self._one(request, resource, self._writes.update(*place, body, writer))
            case ("PATCH", "" | "status") if ask.name:
                return self._one(request, resource, self._writes.patch(*place, (content_type, body), writer))
            case ("DELETE", "") if ask.name:
                if writer.dry:
                    raise StatusError(400, "simulated clusters do not try a deletion: leave out the dry run")
                gone = self._writes.delete(*place, body.get("preconditions") or {})
                details = {"name": ask.name, "group": resource.group, "kind": resource.plural}
                details["uid"] = gone["metadata"]["uid"]
                head = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
                return json(head | {"status": "Success", "details": details})
            case (_, "" | "status" | "scale"):
                raise StatusError(405, "the server does not allow this method on the requested resource")
        raise not_served()

    async def _review(self, request: web.Request, user: str) -> web.Response:
        body = parse_body(request.content_type, await request.read())
        if path := ((body.get("spec") or {}).get("nonResourceAttributes") or {}).get("path"):
            return json(body | {"status": {"allowed": self.may_read(path)}}, 201)
        attributes = (body.get("spec") or {}).get("resourceAttributes") or {}
        sub = f"/{attributes['subresource']}" if attributes.get("subresource") else ""
        resource = f"{attributes.get('resource', '')}{sub}"
        allowed = self.allows(user, attributes.get("verb", ""), resource, attributes.get("namespace", ""))
        return json(body | {"status": {"allowed": allowed}}, 201)

    def _one(self, request: web.Request, resource: ResourceType, document: Json, *, code: int = 200) -> web.Response:
        if wants_table(request):
            metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
            document = self._table(request, resource, [document], metadata)
        return json(document, code)

    def _table(self, request: web.Request, resource: ResourceType, documents: list[Json], metadata: Json) -> Json:
        include = request.query.get("includeObject", "Metadata")
        return table(resource, documents, metadata, self.now_ms(), include)

    async def watch(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.StreamResponse:
        """Send events until the watch ends or the client leaves."""
        watch = Watch(self._store, ask, resource, bookmark_s=self.bookmark_s)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        show = self._shower(request, resource)
        try:
            await response.prepare(request)
            async for event in watch.events():
                await response.write(orjson.dumps(show(event)) + b"\n")
            await response.write_eof()
        except ConnectionResetError:
            return response  # the client has left
        finally:
            watch.close()
        return response

    def _shower(self, request: web.Request, resource: ResourceType) -> Callable[[Json], Json]:
        """Return what turns an event into its wire form; in a table only the first event names the columns."""
        seen = False

        def show(event: Json) -> Json:
            nonlocal seen
            if event["type"] in ("BOOKMARK", "ERROR") or not wants_table(request):
                return event
            metadata = {"resourceVersion": event["object"]["metadata"]["resourceVersion"]}
            shown = self._table(request, resource, [event["object"]], metadata)
            shown, seen = (shown | {"columnDefinitions": None}) if seen else shown, True
            return event | {"object": shown}

        return show

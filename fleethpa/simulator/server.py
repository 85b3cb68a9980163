"""The API server of a simulated cluster: HTTP in, documents out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import orjson
from aiohttp import web

from fleethpa.simulator import resources
from fleethpa.simulator.metricsapi import SimulatedMetricsApi
from fleethpa.simulator.requests import Ask, StatusError, not_served, parse, parse_body, patch_type, patched
from fleethpa.simulator.resources import ResourceType, Store, Watch, table
from fleethpa.simulator.writes import Writes, scale_of
from schemas.kubernetes.shape import Json

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
    found: Json | str | None = None
    match path.strip("/").split("/"):
        case [_] if path in HEALTH:
            found = "ok"
        case ["version"]:
            major, minor, _ = kubernetes.removeprefix("v").split(".")
            version = f"{kubernetes}+simulated"
            found = {"major": major, "minor": minor, "gitVersion": version, "platform": "linux/amd64"}
        case ["api"]:
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            # A metrics API without metrics is as good as not installed; kubectl takes an empty list for a failure.
            empty = [group for group in resources.METRICS_GROUPS if not metrics_entries(group)]
            found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": resources.groups(empty)}
        case ["api", version]:
            found = resources.resource_list("", version)
        case ["apis", group]:
            found = resources.group(group)
        case ["apis", group, version]:
            extra = metrics_entries(group) if group in resources.METRICS_GROUPS else []
            found = resources.resource_list(group, version, extra)
        case ["openapi", "v3"]:
            found = resources.openapi_index()
        case ["openapi", "v3", "api" | "apis", *group, version]:
            found = resources.openapi("".join(group), version)
    if found is None:
        raise not_served()
    return found


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
        found = self._writes.read(resource, ask.namespace, ask.name)
        if ask.subresource == "scale" and resource.scale:
            return json(scale_of(resource, found))
        if ask.subresource not in ("", "status"):
            raise not_served()
        return self._one(request, resource, found)

    def _list(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        """Answer with all objects that match: ?limit= has no effect."""
        matches = ask.matcher()
        found = [d for d in self._store.listing(resource.qualified, ask.namespace) if matches(d)]
        metadata: Json = {"resourceVersion": str(self._store.version)}
        if wants_table(request):
            return json(self._table(request, resource, found, metadata))
        if resource.group != "example.com":
            # Items of built-in lists carry neither kind nor apiVersion.
            found = [{k: v for k, v in document.items() if k not in ("kind", "apiVersion")} for document in found]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": metadata}
        return json(head | {"items": found})

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
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        sub = f"/{asked['subresource']}" if asked.get("subresource") else ""
        resource = f"{asked.get('resource', '')}{sub}"
        allowed = self.allows(user, asked.get("verb", ""), resource, asked.get("namespace", ""))
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

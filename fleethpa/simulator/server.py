"""The API server of a simulated cluster: HTTP in, documents out.

Paths of the API server that name no resource: health, version, discovery, OpenAPI.

Pieces of list requests and HTTP answers.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from fleethpa.simulator import requests as apirequests
from fleethpa.simulator import resources
from fleethpa.simulator import resources as tables
from fleethpa.simulator import store as watching
from fleethpa.simulator.faults import Fault, Faults, StatusError, TokenAccess, UnknownGroupError, not_served
from fleethpa.simulator.metricsapi import SimulatedMetricsApi
from fleethpa.simulator.requests import Ask, Matcher, field_matcher, label_matcher
from fleethpa.simulator.resources import ResourceType
from fleethpa.simulator.store import SimClock, Store
from fleethpa.simulator.writes import Writes, patched
from schemas.kubernetes.shape import Json

HEALTH: Final = ("/healthz", "/livez", "/readyz")
OPEN: Final = (*HEALTH, "/version")
"""Paths that need no token."""


def document(path: str, metrics_entries: Callable[[str], list[Json]]) -> Json | str:
    """Return what a path shows; `metrics_entries` lists the metrics of a metrics API group. Raises StatusError: 404."""
    parts = path.strip("/").split("/")
    found: Json | str | None = None
    if path in HEALTH:
        found = "ok"
    elif path == "/apis":
        # A metrics API without metrics is as good as not installed; kubectl takes an empty list for a failure.
        empty = [group for group in resources.METRICS_GROUPS if not metrics_entries(group)]
        found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": resources.groups(empty)}
    elif parts[0] in _FIXED and len(parts) == 1:
        found = _FIXED[parts[0]]()
    elif parts[0] == "apis" and len(parts) == 2:
        found = resources.group(parts[1])
    elif parts[0] == "apis":
        extra = metrics_entries(parts[1]) if parts[1] in resources.METRICS_GROUPS else []
        found = resources.resource_list(parts[1], parts[2], extra)
    elif parts[0] == "api" and len(parts) == 2:
        found = resources.resource_list("", parts[1])
    elif parts[:2] == ["openapi", "v3"]:
        found = _openapi(parts[2:])
    if found is None and parts[0] == "apis" and not resources.has_group(parts[1]):
        raise UnknownGroupError
    if found is None:
        raise not_served()
    return found


def _version() -> Json:
    major, minor, _ = resources.VERSION.removeprefix("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": f"{resources.VERSION}+simulated", "platform": "linux/amd64"}


def _core() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


_FIXED: dict[str, Callable[[], Json]] = {"version": _version, "api": _core}


def _openapi(parts: list[str]) -> Json | None:
    if not parts:
        return resources.openapi_index()
    if parts[0] == "api" and len(parts) == 2:
        return resources.openapi("", parts[1])
    return resources.openapi(parts[1], parts[2]) if len(parts) == 3 else None


def json(document: Json | str, code: int = 200) -> web.Response:
    """Return a document, or a plain text such as `ok`."""
    if isinstance(document, str):
        return web.Response(text=document, status=code)
    return web.Response(body=orjson.dumps(document), status=code, content_type="application/json")


def failure(error: StatusError) -> web.Response:
    """Return a Status, or where no API group is asked the router's plain text."""
    if isinstance(error, UnknownGroupError):
        return web.Response(text=f"{error.message}\n", status=error.code)
    response = json(error.status(), error.code)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def wants_table(request: web.Request) -> bool:
    """Whether the client asks for a server-side table."""
    return "as=Table" in request.headers.get("Accept", "")


def matcher(ask: Ask) -> Matcher:
    """Return the test that the request's selectors make. Raises StatusError: 400."""
    labels = label_matcher(ask.query.get("labelSelector", ""))
    fields = field_matcher(ask.query.get("fieldSelector", ""))
    name = ask.name
    return lambda d: labels(d) and fields(d) and name in ("", d["metadata"]["name"])


def page(found: list[Json], ask: Ask, version: int) -> tuple[list[Json], Json]:
    """Return the part of a list that ?limit= and ?continue= ask for, and the list's metadata.

    Raises StatusError: 410, the token is not one of ours.
    """
    limit, start = int(ask.query.get("limit") or 0), 0
    if token := ask.query.get("continue"):
        version, start = _read_token(token)
    metadata: Json = {"resourceVersion": str(version)}
    if limit and start + limit < len(found):
        metadata["continue"] = base64.urlsafe_b64encode(f"{version}:{start + limit}".encode()).decode()
        metadata["remainingItemCount"] = len(found) - start - limit
        return found[start : start + limit], metadata
    return found[start:], metadata


def _read_token(token: str) -> tuple[int, int]:
    try:
        version, _, start = base64.urlsafe_b64decode(token).decode().partition(":")
        return int(version), int(start)
    except ValueError as error:
        raise StatusError(410, "The provided continue parameter is too old or was not made by this server") from error


@dataclass(frozen=True, slots=True)
class Audit:
    """One answered request; watches are recorded when they begin."""

    time_ms: int
    user: str
    manager: str
    verb: str
    path: str
    code: int


class SimulatedApiServer:
    """Answers requests from the parts of one cluster."""

    def __init__(
        self, store: Store, writes: Writes, metrics: SimulatedMetricsApi, clock: SimClock, access: TokenAccess
    ) -> None:
        self._store, self._writes, self._metrics, self._clock, self._access = store, writes, metrics, clock, access
        self.faults = Faults()
        self.audit: deque[Audit] = deque(maxlen=10_000)
        self.bookmark_s = 30.0
        self.waiting = 0
        """Requests that hang on a fault now."""
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

    # -- one request -------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; failures become Status bodies."""
        transport = request.transport
        if transport is not None:
            self._transports.add(transport)
        try:
            return await self._with_faults(request)
        except StatusError as error:
            self._record(request, error.code)
            return failure(error)
        finally:
            if transport is not None:
                self._transports.discard(transport)

    async def _with_faults(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.take(request.method, request.path_qs)
        if fault is None:
            return await self._answer(request)
        await asyncio.sleep(fault.delay_ms / 1000)  # simulated latency
        if fault.action == "hang":
            await self._hang(fault)
        if fault.action in ("hang", "none"):
            return await self._answer(request)
        if fault.after:
            await self._answer(request)
        return await self._fail(request, fault)

    async def _fail(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.action == "status":
            raise StatusError(fault.status, fault.message, retry_after_s=fault.retry_after_s)
        if request.transport is not None and isinstance(request.transport, asyncio.WriteTransport):
            request.transport.abort()
        return web.Response(status=503)

    async def _hang(self, fault: Fault) -> None:
        self.waiting += 1
        try:
            await self.faults.removal(fault.number)
        finally:
            self.waiting -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = "system:anonymous" if request.path in OPEN else self._access.user(request.headers)
        ask = apirequests.parse(request.method, request.path, request.query)
        if ask is None:
            return json(document(request.path, self._metrics.entries))
        if ask.group in resources.METRICS_GROUPS:
            self._access.check(user, ask.verb, ask.resource, ask.group, ask.namespace, ask.name)
            found = self._metrics.answer(ask.group, ask.version, ask.namespace, list(ask.path), dict(ask.query))
            self._record(request, 200, user)
            return json(found)
        resource = resources.by_path(ask.group, ask.version, ask.plural)
        if resource is None:
            raise not_served() if resources.has_group(ask.group) else UnknownGroupError
        if resource.plural == "selfsubjectaccessreviews":
            return await self._review(request, user)
        self._access.check(user, ask.verb, ask.resource, ask.group, ask.namespace, ask.name)
        if ask.verb == "watch":
            return await self._watch(request, ask, resource, user)
        answer = await self._resource(request, ask, resource)
        self._record(request, answer.status, user)
        return answer

    def _record(self, request: web.Request, code: int, user: str = "") -> None:
        ask = apirequests.parse(request.method, request.path, request.query)
        manager = request.query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]
        verb = ask.verb if ask else "get"
        self.audit.append(Audit(self._clock.now_ms(), user, manager, verb, request.path_qs, code))

    # -- resources ---------------------------------------------------------------------------------------------------

    async def _resource(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        if request.method == "GET":
            return self._read(request, ask, resource)
        body = apirequests.parse_body(request.content_type, await request.read())
        if request.method == "DELETE":
            return self._delete(ask, resource, body)
        if ask.subresource == "scale" and resource.scale:
            return json(self._write_scale(request, ask, resource, body))
        if ask.subresource not in ("", "status"):
            raise not_served()
        writer = apirequests.writer_of(ask, request.headers.get("User-Agent", ""))
        place = (resource, ask.namespace, ask.name)
        if request.method == "POST" and not ask.name:
            created = self._writes.create(resource, ask.namespace, body, writer, dry=ask.dry)
            return self._one(request, resource, created, code=201)
        if request.method == "PUT":
            return self._one(request, resource, self._writes.update(*place, body, writer, dry=ask.dry))
        if request.method == "PATCH":
            change = (apirequests.patch_type(request.headers.get("Content-Type", "")), body)
            force = ask.query.get("force") == "true"
            return self._one(request, resource, self._writes.patch(*place, change, writer, dry=ask.dry, force=force))
        raise StatusError(405, "the server does not allow this method on the requested resource")

    def _read(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        if not ask.name:
            return self._list(request, ask, resource)
        document = self._writes.read(resource, ask.namespace, ask.name)
        if ask.subresource == "scale" and resource.scale:
            return json(self._writes.scale_of(resource, document))
        if ask.subresource not in ("", "status"):
            raise not_served()
        return self._one(request, resource, document)

    def _write_scale(self, request: web.Request, ask: Ask, resource: ResourceType, body: Any) -> Json:
        writer = apirequests.writer_of(ask, request.headers.get("User-Agent", ""))
        if request.method == "PATCH":
            current = self._writes.scale_of(resource, self._writes.read(resource, ask.namespace, ask.name))
            body = patched(current, apirequests.patch_type(request.headers.get("Content-Type", "")), body)
        return self._writes.write_scale(resource, ask.namespace, ask.name, body, writer, dry=ask.dry)

    def _one(self, request: web.Request, resource: ResourceType, document: Json, *, code: int = 200) -> web.Response:
        document = self._writes.outgoing(resource, document)
        if wants_table(request):
            metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
            return json(self._table(request, resource, [document], metadata), code)
        return json(document, code)

    def _table(self, request: web.Request, resource: ResourceType, documents: list[Json], metadata: Json) -> Json:
        include = request.query.get("includeObject", "Metadata")
        return tables.table(resource, documents, metadata, self._clock.now_ms(), include)

    def _list(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        matches = matcher(ask)
        found = [d for d in self._store.listing(resource.stored_as, ask.namespace) if matches(d)]
        found, metadata = page(found, ask, self._store.version)
        shown = [self._writes.outgoing(resource, document) for document in found]
        if wants_table(request):
            return json(self._table(request, resource, shown, metadata))
        if resource.group != "example.com":
            # Items of built-in lists carry neither kind nor apiVersion.
            shown = [{k: v for k, v in document.items() if k not in ("kind", "apiVersion")} for document in shown]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": metadata}
        return json(head | {"items": shown})

    def _delete(self, ask: Ask, resource: ResourceType, body: Any) -> web.Response:
        preconditions = body.get("preconditions") or {}
        if ask.name:
            gone = self._writes.delete(resource, ask.namespace, ask.name, preconditions, dry=ask.dry)
            details = {
                "name": ask.name,
                "group": resource.group,
                "kind": resource.plural,
                "uid": gone["metadata"]["uid"],
            }
            return json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
        matches = matcher(ask)
        for document in self._store.listing(resource.stored_as, ask.namespace):
            if matches(document):
                metadata = document["metadata"]
                self._writes.delete(resource, metadata.get("namespace", ""), metadata["name"], {}, dry=ask.dry)
        return json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    async def _review(self, request: web.Request, user: str) -> web.Response:
        body = apirequests.parse_body(request.content_type, await request.read())
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        sub = f"/{asked['subresource']}" if asked.get("subresource") else ""
        resource = f"{asked.get('resource', '')}{sub}"
        allowed = self._access.allows(user, asked.get("verb", ""), resource, asked.get("namespace", ""))
        return json(body | {"status": {"allowed": allowed}}, 201)

    # -- watches -----------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request, ask: Ask, resource: ResourceType, user: str) -> web.StreamResponse:
        watch = watching.Watch(self._store, ask, resource, matcher(ask), bookmark_s=self.bookmark_s)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        show = self._shower(request, resource)
        self._record(request, 200, user)
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
            if event["type"] in ("BOOKMARK", "ERROR"):
                return event
            document = self._writes.outgoing(resource, event["object"])
            if wants_table(request):
                metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
                document = self._table(request, resource, [document], metadata)
                document, seen = (document | {"columnDefinitions": None}) if seen else document, True
            return event | {"object": document}

        return show

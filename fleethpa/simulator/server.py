"""The API server of a simulated cluster: HTTP in, documents out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from fleethpa.simulator import apidiscovery, apirequests, resources, responses, tables, watching
from fleethpa.simulator.apifaults import Fault, Faults, TokenAccess
from fleethpa.simulator.apirequests import Ask
from fleethpa.simulator.apistatus import StatusError, UnknownGroupError, not_served
from fleethpa.simulator.apiwrites import Writes, patched
from fleethpa.simulator.clock import SimClock
from fleethpa.simulator.metricsapi import SimulatedMetricsApi
from fleethpa.simulator.objectstore import Store
from fleethpa.simulator.resources import ResourceType
from schemas.kubernetes.jsontypes import Json


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
            return responses.failure(error)
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
        user = "system:anonymous" if request.path in apidiscovery.OPEN else self._access.user(request.headers)
        ask = apirequests.parse(request.method, request.path, request.query)
        if ask is None:
            return responses.json(apidiscovery.document(request.path, self._metrics.entries))
        if ask.group in resources.METRICS_GROUPS:
            self._access.check(user, ask.verb, ask.resource, ask.group, ask.namespace, ask.name)
            found = self._metrics.answer(ask.group, ask.version, ask.namespace, list(ask.path), dict(ask.query))
            self._record(request, 200, user)
            return responses.json(found)
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
            return responses.json(self._write_scale(request, ask, resource, body))
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
            return responses.json(self._writes.scale_of(resource, document))
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
        if responses.wants_table(request):
            metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
            return responses.json(self._table(request, resource, [document], metadata), code)
        return responses.json(document, code)

    def _table(self, request: web.Request, resource: ResourceType, documents: list[Json], metadata: Json) -> Json:
        include = request.query.get("includeObject", "Metadata")
        return tables.table(resource, documents, metadata, self._clock.now_ms(), include)

    def _list(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.Response:
        matches = responses.matcher(ask)
        found = [d for d in self._store.listing(resource.stored_as, ask.namespace) if matches(d)]
        found, metadata = responses.page(found, ask, self._store.version)
        shown = [self._writes.outgoing(resource, document) for document in found]
        if responses.wants_table(request):
            return responses.json(self._table(request, resource, shown, metadata))
        if resource.group != "example.com":
            # Items of built-in lists carry neither kind nor apiVersion.
            shown = [{k: v for k, v in document.items() if k not in ("kind", "apiVersion")} for document in shown]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.group_version, "metadata": metadata}
        return responses.json(head | {"items": shown})

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
            return responses.json(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            )
        matches = responses.matcher(ask)
        for document in self._store.listing(resource.stored_as, ask.namespace):
            if matches(document):
                metadata = document["metadata"]
                self._writes.delete(resource, metadata.get("namespace", ""), metadata["name"], {}, dry=ask.dry)
        return responses.json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    async def _review(self, request: web.Request, user: str) -> web.Response:
        body = apirequests.parse_body(request.content_type, await request.read())
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        sub = f"/{asked['subresource']}" if asked.get("subresource") else ""
        resource = f"{asked.get('resource', '')}{sub}"
        allowed = self._access.allows(user, asked.get("verb", ""), resource, asked.get("namespace", ""))
        return responses.json(body | {"status": {"allowed": allowed}}, 201)

    # -- watches -----------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request, ask: Ask, resource: ResourceType, user: str) -> web.StreamResponse:
        watch = watching.Watch(self._store, ask, resource, responses.matcher(ask), bookmark_s=self.bookmark_s)
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
            if responses.wants_table(request):
                metadata = {"resourceVersion": document["metadata"]["resourceVersion"]}
                document = self._table(request, resource, [document], metadata)
                document, seen = (document | {"columnDefinitions": None}) if seen else document, True
            return event | {"object": document}

        return show

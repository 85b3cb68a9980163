"""Simulated clusters whose API server records requests, and fails or refuses them as a test asks."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aiohttp import web

from fleethpa.lab.simulator.cluster import SimulatedCluster
from fleethpa.lab.simulator.requests import Ask, StatusError, expired, parse
from fleethpa.lab.simulator.resources import ResourceType, Store
from fleethpa.lab.simulator.server import METRICS, OPEN, USER, SimulatedApiServer, SimulatedMetricsApi, json, written_by
from fleethpa.lab.simulator.writes import Writes


@dataclass(slots=True)
class Fault:
    """A fault for the requests whose method and path match; the newest matching one applies."""

    path: str = ".*"
    """Regular expression, searched in the path with its query."""
    method: str = ".*"
    action: str = "status"
    """status: answer with it; hang: wait until the fault is removed, then answer; drop: cut the connection."""
    status: int = 503
    message: str = "simulated fault"
    retry_after_s: int = 0
    after: bool = False
    """Do the request first, then fail: the client cannot know that its write has happened."""
    remaining: int | None = None
    """Requests that it still hits; None = all."""
    number: int = 0

    def matches(self, method: str, path: str) -> bool:
        """Whether the fault is for this request."""
        return bool(re.fullmatch(self.method, method) and re.search(self.path, path)) and self.remaining != 0


class Faults:
    """The faults of one API server."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    def add(self, fault: Fault) -> int:
        """Install a fault and return its number."""
        fault.number = next(self._numbers)
        self._faults[fault.number] = fault
        return fault.number

    def remove(self, number: int | None = None) -> None:
        """Remove one fault, or all."""
        if number is None:
            self._faults.clear()
        else:
            self._faults.pop(number, None)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault that hits this request and count it."""
        fault = next((each for each in reversed(self._faults.values()) if each.matches(method, path)), None)
        if fault is not None and fault.remaining is not None:
            fault.remaining -= 1
        return fault

    async def removal(self, number: int) -> None:
        """Wait until a fault is gone."""
        while number in self._faults:
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class Denial:
    """Requests that role-based access control refuses; the fields are glob patterns."""

    namespace: str = "*"
    resource: str = "*"
    """The plural, with subresource: deployments/scale."""
    verb: str = "*"
    user: str = "*"


@dataclass(frozen=True, slots=True)
class Audit:
    """One answered request; watches are recorded when they begin."""

    user: str
    manager: str
    verb: str
    path: str
    code: int


class FaultyApiServer(SimulatedApiServer):
    """An API server with faults, denials and an audit log."""

    def __init__(
        self, store: Store, writes: Writes, metrics: SimulatedMetricsApi, now_ms: Callable[[], int], token: str
    ) -> None:
        super().__init__(store, writes, metrics, now_ms, token)
        self.tokens = {token: USER}
        """User by token."""
        self.gates: dict[str, bool] | None = None
        """The feature gates that its metrics show; None: no client may read the metrics."""
        self.faults = Faults()
        self.denials: list[Denial] = []
        self.audit: deque[Audit] = deque(maxlen=10_000)
        self.waiting = 0
        """Requests that hang on a fault now."""

    def user(self, request: web.Request) -> str:
        if request.path in OPEN:
            return USER
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise StatusError(401, "Unauthorized")
        return self.tokens[token]

    def allows(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        request = (namespace, resource, verb, user)
        patterns = [(d.namespace, d.resource, d.verb, d.user) for d in self.denials]
        return not any(all(map(fnmatchcase, request, pattern)) for pattern in patterns)

    def may_read(self, path: str) -> bool:
        return path != METRICS or self.gates is not None

    def check(self, user: str, ask: Ask) -> None:
        if not self.allows(user, ask.verb, ask.resource, ask.namespace):
            raise _forbidden(user, ask)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.take(request.method, request.path_qs)
        try:
            if fault is not None and fault.action == "hang":
                await self._hang(fault)
            if fault is None or fault.action == "hang":
                return await self._audited(request)
            if fault.after:
                await self._audited(request)
            if fault.action == "status":
                raise StatusError(fault.status, fault.message, retry_after_s=fault.retry_after_s)
        except StatusError as error:
            self._record(request, error.code, "")
            raise
        if isinstance(request.transport, asyncio.WriteTransport):
            request.transport.abort()
        return web.Response(status=503)

    async def _hang(self, fault: Fault) -> None:
        self.waiting += 1
        try:
            await self.faults.removal(fault.number)
        finally:
            self.waiting -= 1

    async def _audited(self, request: web.Request) -> web.StreamResponse:
        response = self._own_metrics(request) if request.path == METRICS else await super().answer(request)
        ask = parse(request.method, request.path, request.query)
        if ask is not None and ask.verb != "watch":
            self._record(request, response.status, self.user(request))
        return response

    def _own_metrics(self, request: web.Request) -> web.Response:
        """The metrics of the API server itself."""
        if self.gates is None:
            raise StatusError(403, f'forbidden: User "{self.user(request)}" cannot get path "{METRICS}"')
        lines = [
            f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {int(on)}' for name, on in self.gates.items()
        ]
        return json("\n".join(["# TYPE kubernetes_feature_enabled gauge", *lines, ""]))

    async def watch(self, request: web.Request, ask: Ask, resource: ResourceType) -> web.StreamResponse:
        self._record(request, 200, self.user(request))
        return await super().watch(request, ask, resource)

    def _record(self, request: web.Request, code: int, user: str) -> None:
        ask = parse(request.method, request.path, request.query)
        manager = request.query.get("fieldManager") or written_by(request).partition("/")[0]
        self.audit.append(Audit(user, manager, ask.verb if ask else "get", request.path_qs, code))


def _forbidden(user: str, ask: Ask) -> StatusError:
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    what = f'cannot {ask.verb} resource "{ask.resource}" in API group "{ask.group}" {where}'
    subject = (f"{ask.plural}.{ask.group}" if ask.group else ask.plural) + (f' "{ask.name}"' if ask.name else "")
    details = ({"name": ask.name} if ask.name else {}) | ({"group": ask.group} if ask.group else {})
    message = f'{subject} is forbidden: User "{user}" {what}'
    return StatusError(403, message, details=details | {"kind": ask.plural})


class FaultyCluster(SimulatedCluster):
    """A simulated cluster in which a test causes trouble."""

    api_server = FaultyApiServer
    api: FaultyApiServer

    def add_fault(self, fault: Fault) -> int:
        """Let requests fail and return the fault's number."""
        return self.api.faults.add(fault)

    def clear_faults(self, number: int | None = None) -> None:
        """Remove one fault, or all of them."""
        self.api.faults.remove(number)

    def deny(self, denials: Iterable[Denial]) -> None:
        """Replace what access control refuses; none = everything is allowed."""
        self.api.denials = list(denials)

    def expire_watches(self) -> None:
        """Forget the history and end open watches with 410, as when a watch has fallen too far behind."""
        self.store.compact()
        self.store.end_watches(expired(self.store.version - 1, self.store.version))

    async def restart_from_backup(self) -> None:
        """Restart the API server as after a restore of etcd: low resource versions, and no history."""
        await self.stop_api(abort=True)
        store = self.store
        namespaces = ["", *(each["metadata"]["name"] for each in store.listing("namespaces"))]
        store.version = 1
        for key in [key for namespace in namespaces for key in store.keys_in(namespace)]:
            found = store.get(key)
            assert found is not None
            store.put(key, found)
        store.compact()
        await self.start_api()


class ManualCluster(FaultyCluster):
    """A cluster whose time moves only when a test moves it."""

    def __init__(self, name: str, start_ms: int, *, sample_ms: int = 5_000) -> None:
        self._time_ms = start_ms
        super().__init__(name, sample_ms=sample_ms, now_ms=lambda: self._time_ms)

    def advance(self, seconds: float) -> None:
        """Move time and let everything happen that falls into it."""
        self._time_ms += int(seconds * 1000)
        self.kubelet.sync()


def audit_of(cluster: SimulatedCluster) -> list[Audit]:
    """The newest requests that a faulty cluster has answered."""
    assert isinstance(cluster, FaultyCluster)
    return list(cluster.api.audit)


def cluster_uid(cluster: SimulatedCluster) -> str:
    """The UID of a cluster, as settings may state it."""
    found = cluster.store.get(("namespaces", "", "kube-system"))
    assert found is not None
    return str(found["metadata"]["uid"])

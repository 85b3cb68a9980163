"""Ask a cluster's metrics APIs, one namespace at a time and on its phase of the period."""

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from reconciler.clusters.answers import ApiError, ClusterError, NoAnswerError
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.nativehpas import Discovery, UnknownKindError
from reconciler.core import metricanswers
from reconciler.core.metricanswers import PodMetricsList, apart_ms, next_poll_ms
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.troubles import ReadProblem, Troubles, problem_of
from runtime.log import Clock
from runtime.slots import FairSlots
from schemas.answers import MetricAnswer, Query
from schemas.kubernetes.apirules import ApiRules
from schemas.partitioning import murmur2

LONGEST_WAIT_S = 5.0
"""So soon it is noticed that the clock was put back."""

Work = Callable[[str], Awaitable[None]]
Period = Callable[[str], int]
"""How often a kind of work is done for a namespace, in milliseconds."""


class Phases:
    """When a process asks and reports: in a small fleet for many namespaces of all its clusters at one moment.

    `process`: its name. Each process has phases of its own, so that what reaches the hub from many agents is spread.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._hpas: dict[str, dict[str, int]] = {}
        self._total = 0

    def count(self, cluster: str, namespace: str, hpas: int) -> None:
        """Record how many HPAs a namespace has."""
        counts = self._hpas.setdefault(cluster, {})
        self._total += hpas - counts.pop(namespace, 0)
        if hpas:
            counts[namespace] = hpas

    def forget(self, cluster: str) -> None:
        """Record that a cluster is no longer observed."""
        self._total -= sum(self._hpas.pop(cluster, {}).values())

    def next_ms(self, key: str, period_ms: int, now_ms: int) -> int:
        """The first moment after `now_ms` that lies on the phase of a `cluster/namespace`, or of another key."""
        apart = apart_ms(self._total, period_ms)
        shift_ms = murmur2(self._process.encode()) % apart
        return next_poll_ms(key, period_ms, now_ms - shift_ms, apart) + shift_ms

    def until_report_ms(self, period_ms: int, now_ms: int) -> int:
        """How long to wait with the next report of the process, which is on the phase of all its reports: what it
        reports of several clusters then shares requests and records. At least a tenth of a period, at most 1.1.
        """
        wait_ms = self.next_ms(self._process, period_ms, now_ms) - now_ms
        return wait_ms if 10 * wait_ms >= period_ms else wait_ms + period_ms


class Timetable:
    """Runs each kind of work for each namespace once per period, until the namespace is taken off."""

    def __init__(self, cluster: str, clock: Clock, phases: Phases) -> None:
        self._cluster, self._clock, self._phases = cluster, clock, phases
        self._kinds: dict[str, tuple[Work, Period]] = {}
        self._due: list[tuple[int, str, str]] = []
        self._namespaces: set[str] = set()
        self._hastened: set[str] = set()
        """Those whose periods may have become shorter since their work was planned."""
        self._changed = asyncio.Event()

    def add_kind(self, kind: str, work: Work, period_ms: Period) -> None:
        """Name a kind of work; before the first namespace."""
        self._kinds[kind] = (work, period_ms)

    def add(self, namespace: str, *, at_once: tuple[str, ...] = ()) -> None:
        """Begin with a namespace (nothing, if it is on already); kinds in `at_once` also run now."""
        if namespace in self._namespaces:
            return
        self._namespaces.add(namespace)
        now = self._clock()
        for kind in self._kinds:
            heapq.heappush(self._due, (now if kind in at_once else self._next(kind, namespace, now), kind, namespace))
        self._changed.set()

    def hasten(self, namespaces: Iterable[str]) -> None:
        """Plan the work for namespaces again whose periods may have become shorter: none waits for a longer one."""
        self._hastened.update(namespaces)
        self._changed.set()

    def __len__(self) -> int:
        """How many namespaces are on."""
        return len(self._namespaces)

    def has(self, namespace: str) -> bool:
        """Whether the namespace is on."""
        return namespace in self._namespaces

    def remove(self, namespace: str) -> None:
        """End with a namespace."""
        self._namespaces.discard(namespace)
        self._due = [entry for entry in self._due if entry[2] != namespace]
        heapq.heapify(self._due)

    async def run(self) -> None:
        """Run until cancelled. Work is awaited in turn: it hands over and returns soon."""
        before = self._clock()
        while True:
            self._changed.clear()
            now = self._clock()
            if now < before:  # it was set back, and nothing may wait until it has caught up
                self._hastened = self._namespaces.copy()
            if self._hastened:
                self._plan_anew(self._hastened, now)
                self._hastened = set()
            before = now
            while self._due and self._due[0][0] <= now:
                _, kind, namespace = heapq.heappop(self._due)
                heapq.heappush(self._due, (self._next(kind, namespace, now), kind, namespace))
                await self._kinds[kind][0](namespace)
            await self._until_due()

    def _plan_anew(self, namespaces: Collection[str], now_ms: int) -> None:
        """Plan again what is due later than by the present periods and the present time."""
        self._due = [
            (min(due_ms, self._next(kind, namespace, now_ms)) if namespace in namespaces else due_ms, kind, namespace)
            for due_ms, kind, namespace in self._due
        ]
        heapq.heapify(self._due)

    def _next(self, kind: str, namespace: str, now_ms: int) -> int:
        return self._phases.next_ms(f"{self._cluster}/{namespace}", self._kinds[kind][1](namespace), now_ms)

    async def _until_due(self) -> None:
        wait_s = min(LONGEST_WAIT_S, max(0.0, (self._due[0][0] - self._clock()) / 1000)) if self._due else None
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return


log = logging.getLogger(__name__)

NO_CUSTOM_API = "no custom metrics API (custom.metrics.k8s.io) registered"
METRICS_APIS = ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")
_GROUPS = {"resource": METRICS_APIS[0], "pods": METRICS_APIS[1], "object": METRICS_APIS[1], "external": METRICS_APIS[2]}
_NO_SUCH_API = "the server could not find the requested resource"
"""The answer of an API server that does not serve the API at all. Source: apimachinery `NewGenericServerResponse`."""
_VERSION_KNOWN_S = 60.0
_UNDERSTOOD = ("v1beta2", "v1beta1")


class MetricsPoller:
    """Answers to questions, errors of the APIs included. What an API cannot do is noted by its group.

    Where the API server itself cannot be reached, a question gets no answer: that is the observer's own outage, one
    trouble of the cluster, and no error of a metric. The decider uses the answer before, for two sync periods.
    `answers`: whether the API server answers other requests now. `rules`: of its version, as far as it is known.
    """

    def __init__(
        self,
        client: ClusterClient,
        discovery: Discovery,
        *,
        metrics: ObserverMetrics,
        troubles: Troubles,
        timeout_s: float,
        at_once: int,
        answers: Callable[[], Awaitable[bool]],
        rules: Callable[[], ApiRules],
    ) -> None:
        self._client, self._discovery, self._metrics, self._troubles = client, discovery, metrics, troubles
        self._timeout_s, self._answers, self._rules = timeout_s, answers, rules
        self._slots = {group: FairSlots[str](at_once) for group in METRICS_APIS}
        """An API that hangs takes no slot of another one, and one namespace not more than a share of each."""
        self._hung = HungQuestions(timeout_s)
        self._custom_version: tuple[float, str] = (0.0, "")
        self._resource_version: tuple[float, str] = (0.0, "")
        """Until when (monotonic) this version of metrics.k8s.io is asked."""

    async def ask(self, namespace: str, asked: Sequence[Query]) -> list[MetricAnswer]:
        """Answer the questions of a namespace, in their order; those that never reached the API server are left out."""
        resource = [query for query in asked if query.api == "resource"]
        others = [query for query in asked if query.api != "resource"]
        self._hung.keep(namespace, others)
        received = _Received()
        asking = [self._resource(namespace, resource, received)]
        asking += [self._one(namespace, query, received) for query in others]
        groups = await asyncio.gather(*asking) if others else [await asking[0]]
        answers = [metricanswers.within_limits(answer) for group in groups for answer in group]
        self._metrics.answered(self._client.name, answers)
        self._record_received(namespace, received)
        return answers

    def forget(self, namespace: str) -> None:
        """The namespace has no HPAs any more."""
        self._hung.keep(namespace, ())

    def _record_received(self, namespace: str, received: "_Received") -> None:
        for group in METRICS_APIS:
            if group in received.problems:
                self._troubles.record(group, namespace, received.problems[group])
            elif group not in received.unasked:
                self._troubles.forget(group, namespace)

    async def _resource(self, namespace: str, asked: list[Query], received: "_Received") -> list[MetricAnswer]:
        if not asked:
            return []
        try:
            if len(asked) > 1:
                usages = await self._pod_metrics(namespace)
                received.answered("resource")
                if metricanswers.has_labels(usages):
                    return metricanswers.split_usages(asked, usages, saturating=self._rules().quantities_saturate)
        except (ClusterError, *_NOT_UNDERSTOOD) as error:
            return await self._failed(asked, error, received)
        return [answer for query in asked for answer in await self._one(namespace, query, received)]

    async def _one(self, namespace: str, query: Query, received: "_Received") -> list[MetricAnswer]:
        if (before := self._hung.pausing(namespace, query)) is not None:
            return [metricanswers.failed(query, before)]
        asking = _Asking()
        try:
            saturating = self._rules().quantities_saturate
            if query.api == "resource":
                usages = await self._pod_metrics(namespace, query.selector)
                answer = metricanswers.fill_usages(query, usages, saturating=saturating)
            else:
                body = await self._get(namespace, query.api, await self._path(namespace, query), asking)
                answer = metricanswers.fill(query, body, saturating=saturating)
        except (ClusterError, *_NOT_UNDERSTOOD) as error:
            answers = await self._failed([query], error, received)
            if answers:
                self._hung.failed(namespace, query, asking.took_s(), _text(error))
            return answers
        self._hung.answered(namespace, query)
        received.answered(query.api)
        return [answer]

    async def _failed(self, asked: Sequence[Query], error: Exception, received: "_Received") -> list[MetricAnswer]:
        """The error as the answer to all of the questions; no answer where they never reached the API server."""
        if await self._is_our_outage(error):
            received.unasked.add(_GROUPS[asked[0].api])
            return []
        received.failed(asked[0], error)
        return [metricanswers.failed(query, _text(error)) for query in asked]

    async def _is_our_outage(self, error: Exception) -> bool:
        """Whether the API server could not be reached, as opposed to an API behind it that hangs or fails."""
        if not isinstance(error, NoAnswerError):
            return False
        is_answering = await self._answers()  # also to note the trouble of the cluster
        return not (error.was_connected and is_answering)

    async def _path(self, namespace: str, query: Query) -> str:
        if query.api == "external":
            return metricanswers.external_path(query, namespace)
        version = await self._version()
        if query.api == "pods" or query.group_kind == "Namespace":
            return metricanswers.custom_path(query, namespace, version)
        resource = await self._discovery.of_metric(query.group_kind)
        return metricanswers.custom_path(query, namespace, version, resource.qualified)

    async def _version(self) -> str:
        until, version = self._custom_version
        if time.monotonic() >= until:
            served = await self._discovery.versions("custom.metrics.k8s.io")
            version = next((name for name in _UNDERSTOOD if name in served), "")
            self._custom_version = (time.monotonic() + _VERSION_KNOWN_S, version)
        if not version:
            raise ClusterError(NO_CUSTOM_API)
        return version

    async def _pod_metrics(self, namespace: str, selector: str = "") -> PodMetricsList:
        """Ask metrics.k8s.io: v1beta1, as the controllers of all versions do, and v1 where only that is served."""

        async def ask(version: str) -> PodMetricsList:
            path = metricanswers.resource_path(namespace, selector, version)
            async with self._slot(namespace, "resource"):
                return await self._client.get_as(PodMetricsList, path, timeout_s=self._timeout_s)

        until, version = self._resource_version
        is_known = time.monotonic() < until
        if is_known and version == "v1":
            return await ask(version)
        try:
            return await ask("v1beta1")
        except ClusterError as error:
            if is_known or not error.is_missing:
                raise
            served = await self._discovery.versions("metrics.k8s.io")
            version = "v1" if "v1" in served and "v1beta1" not in served else "v1beta1"
            self._resource_version = (time.monotonic() + _VERSION_KNOWN_S, version)
            if version == "v1beta1":
                raise
        return await ask(version)

    async def _get(self, namespace: str, api: str, path: str, asking: "_Asking") -> dict[str, Any]:
        async with self._slot(namespace, api):
            asking.begins()
            return await self._client.get_patiently(path, timeout_s=self._timeout_s)

    @asynccontextmanager
    async def _slot(self, namespace: str, api: str) -> AsyncIterator[None]:
        """A slot of an API. Raises ClusterError: it does not come before a question would have timed out."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await stack.enter_async_context(self._slots[_GROUPS[api]].turn(namespace))
            except TimeoutError as error:
                others = f"other questions of namespace {namespace} to {_GROUPS[api]} have not been answered"
                raise ClusterError(f"not asked within {self._timeout_s:g} s: {others}") from error
            yield


class _Asking:
    """When the request of a question was sent."""

    def __init__(self) -> None:
        self._begun_s: float | None = None

    def begins(self) -> None:
        self._begun_s = time.monotonic()

    def took_s(self) -> float:
        return 0.0 if self._begun_s is None else time.monotonic() - self._begun_s


HUNG_SHARE: Final = 0.8
"""A question that fails after so much of its time hung."""
FIRST_PAUSE_S: Final = 15.0
LONGEST_PAUSE_S: Final = 120.0


class HungQuestions:
    """Questions that hung are asked again after a pause, which is twice as long each time; their answer until then is
    the error that they had.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hung_s, self._clock = HUNG_SHARE * timeout_s, clock
        self._known: dict[str, dict[_Question, tuple[float, float, str]]] = {}
        """Namespace → question → the last pause, when it ends, and the error."""

    def pausing(self, namespace: str, query: Query) -> str | None:
        """Return the error of a question that is not asked now; None: it may be asked."""
        _, until_s, error = self._known.get(namespace, _NO_QUESTIONS).get(_question(query), (0.0, 0.0, ""))
        return error if self._clock() < until_s else None

    def failed(self, namespace: str, query: Query, took_s: float, error: str) -> None:
        """A question failed, so long after it was sent."""
        if took_s < self._hung_s:
            self.answered(namespace, query)
            return
        known = self._known.setdefault(namespace, {})
        before_s = known[_question(query)][0] if _question(query) in known else 0.0
        pause_s = min(2 * before_s, LONGEST_PAUSE_S) if before_s else FIRST_PAUSE_S
        known[_question(query)] = pause_s, self._clock() + pause_s, error

    def answered(self, namespace: str, query: Query) -> None:
        """A question was answered in time."""
        self._known.get(namespace, {}).pop(_question(query), None)

    def keep(self, namespace: str, asked: Sequence[Query]) -> None:
        """Forget the questions of a namespace that are not asked any more."""
        if namespace in self._known:
            there = {_question(query) for query in asked}
            left = {each: known for each, known in self._known.pop(namespace).items() if each in there}
            if left:
                self._known[namespace] = left


_Question = tuple[str, ...]
_NO_QUESTIONS: Final[Mapping[_Question, tuple[float, float, str]]] = {}


def _question(query: Query) -> _Question:
    return query.api, query.selector, query.metric, query.metric_selector, query.group_kind, query.object


class _Received:
    """What one poll showed of each metrics API: one usable answer is enough."""

    def __init__(self) -> None:
        self.problems: dict[str, ReadProblem | None] = {}
        self.unasked: set[str] = set()
        """Groups of which a question never reached the API server."""

    def answered(self, api: str) -> None:
        self.problems[_GROUPS[api]] = None

    def failed(self, query: Query, error: Exception) -> None:
        if isinstance(error.__cause__, UnknownKindError):
            return  # the API was not asked: the HPA names an object of a kind that does not exist
        group = _GROUPS[query.api]
        problem = _problem(error, group)
        if problem is None:
            self.problems[group] = None
        else:
            self.problems.setdefault(group, problem)


def _problem(error: Exception, group: str) -> ReadProblem | None:
    """The API's problem; None where it works and only has no such metric or object."""
    if not isinstance(error, ClusterError):
        return ReadProblem("failing", _text(error))
    is_about_the_metric = isinstance(error, ApiError) and error.status in (400, 404, 422)
    if is_about_the_metric and not str(error).startswith(_NO_SUCH_API):
        return None
    return problem_of(error, f"list pods.{group}" if group == METRICS_APIS[0] else f"get *.{group}")


_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""Errors of a body that does not match the API."""


def _text(error: Exception) -> str:
    if isinstance(error, ClusterError):
        return str(error)
    return f"the answer cannot be read: {type(error).__name__}: {error}"

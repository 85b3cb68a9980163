"""List and watch against a client of the test's own: what is asked for, how often, and after which pause."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reconciler.clusters.answers import ApiError, ClusterError, ListPage, UnreachableError
from reconciler.core.objects import pod_body
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.reflector import ForbiddenError, Listener, Mirror, Reflector, Watching, WatchLimits
from reconciler.observer.troubles import ReadProblem
from tests.patience import PATIENCE_S

EXPIRED = ApiError(410, "too old resource version", reason="Expired")
FORBIDDEN = ApiError(403, "pods is forbidden", reason="Forbidden")
Json = dict[str, Any]


class Server:
    """A client whose answers are scripted: an error is raised, else lists are empty and watches tell one bookmark.

    `pages` and `events` are answered first. `expiring`: so many watches end as too old after their bookmark.
    """

    name = "east"

    def __init__(self, *, lists: Any = (), watches: Any = (), expiring: int = 0) -> None:
        self.lists, self.watches, self.expiring = list(lists), list(watches), expiring
        self.pages: list[Json] = []
        self.events: list[Json] = []
        self.asked: list[str] = []
        self.forbidden = self.everywhere = False
        self.end_watches = asyncio.Event()
        self.opened = asyncio.Event()

    async def get(self, path: str, *, timeout_s: float = 5.0) -> Json:
        self.asked.append(f"list {path.partition('?')[0]}")
        self._check(path, self.lists)
        return self.pages.pop(0) if self.pages else {"metadata": {"resourceVersion": "8"}, "items": []}

    async def get_page(self, path: str, *, timeout_s: float = 5.0) -> ListPage:
        found = await self.get(path)
        return ListPage(found.get("metadata") or {}, iter(found.get("items") or ()))

    async def watch(
        self, path: str, *, silence_s: float, opened: Callable[[], None] = lambda: None, read: Any = None
    ) -> AsyncIterator[Json]:
        self.asked.append(f"watch {path.partition('?')[0]}")
        self._check(path, self.watches)
        opened()
        if self.events:
            yield self.events.pop(0)
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
        if self.expiring:
            self.expiring -= 1
            raise EXPIRED
        self.opened.set()
        await self.end_watches.wait()

    def _check(self, path: str, script: list[ClusterError]) -> None:
        if self.forbidden and (self.everywhere or "/namespaces/" not in path):
            raise FORBIDDEN
        if script:
            raise script.pop(0)


class ReceivedReports:
    """A listener that keeps what it receives."""

    def __init__(self) -> None:
        self.lists: list[str] = []
        self.problems: dict[str, str] = {}
        self.rights: tuple[str, ...] = ()

    @property
    def listener(self) -> Listener:
        return Listener(self.listed, self.changed, self.problem, self.kept)

    def kept(self, item: Json) -> Json:
        return item

    async def listed(self, namespace: str, items: list[Json]) -> None:
        self.lists.append(namespace)

    async def changed(self, kind: str, item: Json) -> None: ...

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        self.problems.pop(namespace, None)
        if problem is not None:
            self.problems[namespace], self.rights = problem.text, problem.rights


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; none of them takes time."""
    made: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        made.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    return made


def watching(server: Server, limits: WatchLimits | None = None, held: set[str] | None = None) -> Watching:
    metrics = ObserverMetrics(CollectorRegistry())
    return Watching(server, metrics, limits or WatchLimits(), set() if held is None else held)  # type: ignore[arg-type]


def reflect(server: Server, received: ReceivedReports, namespace: str = "shop") -> Reflector:
    return Reflector(watching(server), "/api/v1/pods", received.listener, namespace)


async def until(condition: Callable[[], bool], work: Any) -> None:
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition() and not task.done():
                await asyncio.sleep(0)
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_list_whose_next_page_has_expired_is_asked_for_whole_at_once(pauses: list[float]) -> None:
    server, received = Server(), ReceivedReports()
    asked: list[str] = []
    first: Json = {"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [{"a": 1}]}

    async def page(path: str, *, timeout_s: float = 5.0) -> ListPage:
        asked.append(path.partition("?")[2])
        if "continue" in path:
            raise EXPIRED
        whole: Json = {"metadata": {"resourceVersion": "9"}, "items": [{"b": 1}, {"c": 1}]}
        found = first if "limit" in path else whole
        return ListPage(found["metadata"], iter(found["items"]))

    server.get_page = page  # type: ignore[method-assign]
    items: list[Any] = []

    async def listed(_: str, given: list[Any]) -> None:
        items.extend(given)

    listener = replace(received.listener, listed=listed)
    await until(server.opened.is_set, Reflector(watching(server), "/api/v1/pods", listener, "shop").run())
    assert (asked, items) == (["limit=500", "limit=500&continue=t", ""], [{"b": 1}, {"c": 1}])
    assert [each for each in pauses if each] == []


async def test_watches_that_are_too_old_again_and_again_are_a_problem_until_one_shows_something(
    pauses: list[float],
) -> None:
    server, received = Server(watches=[EXPIRED] * 3), ReceivedReports()
    reflector = reflect(server, received)
    seen: list[tuple[int, bool]] = []
    problem = received.problem

    def noted(namespace: str, given: ReadProblem | None) -> None:
        problem(namespace, given)
        seen.append((3 - len(server.watches), bool(received.problems)))

    reflector._listener = replace(reflector._listener, problem=noted)
    await until(server.opened.is_set, reflector.run())
    # One or two of them follow from what a server forgets; after the third the list is no sign that it is well.
    assert [is_one for expired, is_one in seen if expired < 3] == [False] * 3
    assert next(is_one for expired, is_one in seen if expired == 3), seen
    assert received.problems == {}, "it is watched again"


async def test_a_server_whose_watches_are_always_too_old_is_not_asked_for_lists_without_a_pause(
    pauses: list[float],
) -> None:
    server, received = Server(watches=[EXPIRED] * 5), ReceivedReports()
    await until(server.opened.is_set, reflect(server, received).run())
    assert [pause for pause in pauses if pause] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert server.asked.count("list /api/v1/pods") == 6
    assert not received.problems


async def test_a_watch_that_expires_after_events_lists_again_at_once(pauses: list[float]) -> None:
    server, received = Server(expiring=1), ReceivedReports()
    await until(server.opened.is_set, reflect(server, received).run())
    assert not [pause for pause in pauses if pause]
    assert received.lists == ["shop", "shop"]


@pytest.mark.parametrize(
    ("retry_after_ms", "pause_s"),
    [
        pytest.param(7_000, 7.0, id="as long as the server asks"),
        pytest.param(100, 0.5, id="not shorter than our own pause"),
        pytest.param(86_400_000, 300.0, id="a day is nonsense"),
        pytest.param(None, 0.5, id="the server asks for nothing"),
    ],
)
async def test_a_server_that_throttles_is_left_alone_for_as_long_as_it_asks(
    pauses: list[float], retry_after_ms: int | None, pause_s: float
) -> None:
    throttled = ApiError(429, "too many requests", retry_after_ms=retry_after_ms)
    server, received = Server(lists=[throttled]), ReceivedReports()
    await until(server.opened.is_set, reflect(server, received).run())
    assert [pause for pause in pauses if pause] == [pause_s]


@pytest.mark.parametrize(
    ("error", "longest_s"),
    [
        pytest.param(UnreachableError("connection refused"), 5.0, id="it does not answer at all"),
        pytest.param(ApiError(500, "etcd is overloaded"), 30.0, id="it answers with errors"),
    ],
)
async def test_an_api_server_that_does_not_answer_is_asked_again_within_seconds(
    pauses: list[float], error: ClusterError, longest_s: float
) -> None:
    server, received = Server(lists=[error] * 10), ReceivedReports()
    await until(server.opened.is_set, reflect(server, received).run())
    assert max(pauses) == longest_s
    assert [pause for pause in pauses if pause][:4] == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("lists_anew", "lists"), [pytest.param(True, 2, id="listed anew"), pytest.param(False, 1, id="watched on")]
)
async def test_an_api_server_that_is_back_is_listed_anew_where_that_costs_little(
    pauses: list[float], lists_anew: bool, lists: int
) -> None:
    server, received = Server(watches=[UnreachableError("connection refused")]), ReceivedReports()
    shared = replace(watching(server), lists_anew=lists_anew)
    await until(server.opened.is_set, Reflector(shared, "/api/v1/pods", received.listener, "shop").run())
    assert len(received.lists) == lists


@pytest.mark.parametrize(
    ("versions", "lists"),
    [
        pytest.param(["9", "9"], 1, id="nothing was restored, and it is watched on"),
        pytest.param(["6", "6"], 2, id="its data was restored from an earlier day"),
        pytest.param(["6", "9"], 1, id="one of several API servers was behind"),
        pytest.param(["x", "x"], 1, id="versions that cannot be compared"),
    ],
)
async def test_an_open_watch_is_listed_anew_where_the_api_server_has_an_older_version_than_was_seen(
    pauses: list[float], versions: list[str], lists: int
) -> None:
    server, received = Server(), ReceivedReports()
    server.pages = [{"metadata": {"resourceVersion": each}, "items": []} for each in ("7", *versions)]
    at_once = watching(server, WatchLimits(check_s=0.0))
    await until(lambda: len(server.asked) > 6, Reflector(at_once, "/api/v1/pods", received.listener, "shop").run())
    assert len(received.lists) == lists


async def test_a_watch_that_begins_again_is_no_problem_any_more_though_nothing_happens(pauses: list[float]) -> None:
    server, received = Server(watches=[ApiError(500, "not now")]), ReceivedReports()

    async def quiet(path: str, *, opened: Callable[[], None], **_: Any) -> AsyncIterator[Json]:
        if server.watches:
            raise server.watches.pop()
        assert received.problems == {"shop": "not now"}
        opened()
        server.opened.set()
        await asyncio.Event().wait()
        yield {}

    server.watch = quiet  # type: ignore[method-assign, assignment]
    await until(server.opened.is_set, reflect(server, received).run())
    assert not received.problems


class Pods(ReceivedReports):
    """A listener that reads pods."""

    def kept(self, item: Json) -> Json:
        pod_body(item)
        return item

    async def changed(self, kind: str, item: Json) -> None:
        pod_body(item)

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        if problem is not None:
            self.reported.append(problem.text)
        super().problem(namespace, problem)

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[str] = []


@pytest.mark.parametrize(
    ("pages", "events"),
    [
        pytest.param([{"metadata": {"resourceVersion": "7"}, "items": [{"kind": "Pod"}]}], [], id="an item unnamed"),
        pytest.param([{"metadata": {"resourceVersion": "7"}, "items": ["x"]}], [], id="an item that is a text"),
        pytest.param([{"metadata": {"resourceVersion": "7"}, "items": 7}], [], id="a number of items"),
        pytest.param([{"metadata": {}, "items": []}], [], id="a list without a version"),
        pytest.param([{"metadata": [], "items": []}], [], id="a list whose metadata is a list"),
        pytest.param(
            [
                {
                    "metadata": {"resourceVersion": "7"},
                    "items": [{"metadata": {"name": "a"}, "status": {"conditions": 3}}],
                }
            ],
            [],
            id="conditions that are a number",
        ),
        pytest.param([], [{"type": "ADDED", "object": {"kind": "Pod"}}], id="an event of a pod unnamed"),
        pytest.param([], [{"type": "BOOKMARK", "object": {"metadata": None}}], id="a bookmark without a version"),
        pytest.param([], [{"type": "ADDED"}], id="an event without its object"),
    ],
)
async def test_an_object_of_a_shape_that_no_api_server_gives_is_a_trouble_of_its_cluster(
    pauses: list[float], pages: list[Json], events: list[Json]
) -> None:
    server, received = Server(), Pods()
    server.pages, server.events = pages, events
    await until(server.opened.is_set, reflect(server, received).run())
    assert len(received.reported) == 1
    assert received.reported[0].startswith("an object below /api/v1/pods cannot be read: ")
    assert not received.problems, "the next list could be read"
    assert [pause for pause in pauses if pause] == [0.5]


def path_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"


def mirrored(
    server: Server, received: ReceivedReports, seen: list[str], limits: WatchLimits, held: set[str] | None = None
) -> Mirror:
    async def namespaces() -> list[str]:
        return list(seen)

    around = watching(server, limits, held)
    return Mirror(around, path_of, received.listener, namespaces=(), seen_namespaces=namespaces)


QUICK = WatchLimits(blind_s=0.01, looks_s=(0.01,))


async def test_a_cluster_that_was_forbidden_for_a_moment_is_watched_as_a_whole_again() -> None:
    server, received = Server(), ReceivedReports()
    server.forbidden = True
    seen = ["shop", "vault"]
    task = asyncio.ensure_future(mirrored(server, received, seen, QUICK).run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while sorted(received.lists) != ["shop", "vault"]:
                await asyncio.sleep(0.005)
            seen.append("new")
            while "new" not in received.lists:
                await asyncio.sleep(0.005)
            assert "" not in received.lists
            assert not received.problems, "each namespace that can be seen counts for itself"
            received.problems["shop"] = "trouble of its own"
            server.forbidden = False
            while "" not in received.lists:
                await asyncio.sleep(0.005)
        assert not received.problems, "the whole cluster's watch counts for all"
        alive = [each for each in asyncio.all_tasks() if "Reflector.run" in repr(each) and not each.cancelling()]
        assert not alive, "the watches of single namespaces have ended"
    finally:
        task.cancel()


async def test_while_nothing_can_be_seen_it_is_looked_again_every_two_seconds_else_soon_once_a_minute(
    pauses: list[float],
) -> None:
    server, received, held = Server(), ReceivedReports(), set[str]()
    server.forbidden = server.everywhere = True
    limits = WatchLimits()
    work = mirrored(server, received, ["shop"], limits, held).run()
    await until(lambda: server.asked.count("list /api/v1/namespaces/shop/pods") == 20, work)
    # Each look is one of the whole cluster and one of the namespace; the pauses between them are the blind one.
    assert set(pauses) - {0} == {limits.blind_s}
    assert server.asked.count("list /api/v1/pods") in (20, 21)
    assert received.problems == {"": "pods is forbidden", "shop": "pods is forbidden"}
    assert received.rights == ("list pods", "watch pods")
    pauses.clear()
    server.asked.clear()
    held.add("/apis/autoscaling/v2/horizontalpodautoscalers")
    await until(
        lambda: server.asked.count("list /api/v1/namespaces/shop/pods") == 5,
        mirrored(server, received, ["shop"], limits, held).run(),
    )
    looked_for_s = sum(pause for pause in pauses if pause)
    assert 2 + 6 + 60 + 60 <= looked_for_s < 2 + 6 + 3 * 60


async def test_a_namespace_that_becomes_forbidden_is_a_problem_until_it_is_allowed_again() -> None:
    server, received = Server(), ReceivedReports()
    server.forbidden = True
    task = asyncio.ensure_future(mirrored(server, received, ["shop"], QUICK).run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await server.opened.wait()
            assert not received.problems
            server.everywhere = True
            server.end_watches.set()
            while received.problems.keys() != {"", "shop"}:
                await asyncio.sleep(0.005)
            server.everywhere = False
            while received.problems:
                await asyncio.sleep(0.005)
    finally:
        task.cancel()


async def test_an_open_watch_ends_when_its_right_is_revoked_but_not_for_one_stray_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reconciler.observer.reflector.CONFIRM_S", 0.0)
    server, received, held = Server(), ReceivedReports(), set[str]()
    around = watching(server, WatchLimits(check_s=0.01), held)
    reflector = Reflector(around, "/api/v1/pods", received.listener)
    task = asyncio.ensure_future(reflector.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await server.opened.wait()
            server.lists = [FORBIDDEN]  # one of several API servers that has just begun
            while server.lists or len(server.asked) < 10:
                await asyncio.sleep(0.005)
            assert not task.done()
            assert held
            server.forbidden = True
            with pytest.raises(ForbiddenError, match="pods is forbidden"):
                await task
        assert not held
    finally:
        task.cancel()

"""List and watch against a client of the test's own: what is asked for, how often, and after which pause."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reconciler.apply.telemetry import ObserverMetrics
from reconciler.clusters.clustererrors import ApiError, ClusterError
from reconciler.observer.reflector import Limits, Reflector, mirror

EXPIRED = ApiError(410, "too old resource version", reason="Expired")
FORBIDDEN = ApiError(403, "pods is forbidden", reason="Forbidden")
Json = dict[str, Any]


class Server:
    """A client whose answers are scripted: an error is raised, else lists are empty and watches tell one bookmark.

    `expiring`: so many watches end as too old after their bookmark.
    """

    name = "east"

    def __init__(self, *, lists: Any = (), watches: Any = (), expiring: int = 0) -> None:
        self.lists, self.watches, self.expiring = list(lists), list(watches), expiring
        self.asked: list[str] = []
        self.forbidden = False
        self.opened = asyncio.Event()

    async def get(self, path: str, *, timeout_s: float = 5.0) -> Json:
        self.asked.append(f"list {path.partition('?')[0]}")
        self._check(path, self.lists)
        return {"metadata": {"resourceVersion": "7"}, "items": []}

    get_object = get

    async def watch(
        self, path: str, *, silence_s: float, opened: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Json]:
        self.asked.append(f"watch {path.partition('?')[0]}")
        self._check(path, self.watches)
        opened()
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
        if self.expiring:
            self.expiring -= 1
            raise EXPIRED
        self.opened.set()
        await asyncio.Event().wait()

    def _check(self, path: str, script: list[ClusterError]) -> None:
        if self.forbidden and "/namespaces/" not in path:
            raise FORBIDDEN
        if script:
            raise script.pop(0)


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.lists: list[str] = []
        self.problems: dict[str, str] = {}

    async def listed(self, namespace: str, items: list[Json]) -> None:
        self.lists.append(namespace)

    async def changed(self, kind: str, item: Json) -> None: ...

    def problem(self, namespace: str, text: str | None) -> None:
        self.problems.pop(namespace, None)
        if text is not None:
            self.problems[namespace] = text


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


def reflect(server: Server, heard: Heard, namespace: str = "shop") -> Reflector:
    metrics = ObserverMetrics(CollectorRegistry())
    return Reflector(server, "/api/v1/pods", heard, metrics=metrics, namespace=namespace)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool], work: Any) -> None:
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(5):
            while not condition() and not task.done():
                await asyncio.sleep(0)
        if task.done():
            task.result()
    finally:
        task.cancel()


async def test_a_server_whose_watches_are_always_too_old_is_not_asked_for_lists_without_a_pause(
    pauses: list[float],
) -> None:
    server, heard = Server(watches=[EXPIRED] * 5), Heard()
    await until(server.opened.is_set, reflect(server, heard).run())
    assert [pause for pause in pauses if pause] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert server.asked.count("list /api/v1/pods") == 6
    assert not heard.problems


async def test_a_watch_that_expires_after_events_lists_again_at_once(pauses: list[float]) -> None:
    server, heard = Server(expiring=1), Heard()
    await until(server.opened.is_set, reflect(server, heard).run())
    assert not [pause for pause in pauses if pause]
    assert heard.lists == ["shop", "shop"]


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
    server, heard = Server(lists=[throttled]), Heard()
    await until(server.opened.is_set, reflect(server, heard).run())
    assert [pause for pause in pauses if pause] == [pause_s]


async def test_a_watch_that_begins_again_is_no_problem_any_more_though_nothing_happens(pauses: list[float]) -> None:
    server, heard = Server(watches=[ApiError(500, "not now")]), Heard()

    async def quiet(path: str, *, silence_s: float, opened: Callable[[], None]) -> AsyncIterator[Json]:
        if server.watches:
            raise server.watches.pop()
        assert heard.problems == {"shop": "not now"}
        opened()
        server.opened.set()
        await asyncio.Event().wait()
        yield {}

    server.watch = quiet  # type: ignore[method-assign, assignment]
    await until(server.opened.is_set, reflect(server, heard).run())
    assert not heard.problems


async def test_a_cluster_that_was_forbidden_for_a_moment_is_watched_as_a_whole_again() -> None:
    server, heard = Server(), Heard()
    server.forbidden = True
    seen = ["shop", "vault"]

    async def namespaces() -> list[str]:
        return list(seen)

    def path(namespace: str) -> str:
        return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"

    work = mirror(
        server,  # type: ignore[arg-type]
        path,
        heard,
        namespaces=(),
        seen_namespaces=namespaces,
        metrics=ObserverMetrics(CollectorRegistry()),
        limits=Limits(),
        retry_s=0.01,
    )
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(5):
            while sorted(heard.lists) != ["shop", "vault"]:
                await asyncio.sleep(0.005)
            seen.append("new")
            while "new" not in heard.lists:
                await asyncio.sleep(0.005)
            assert "" not in heard.lists
            heard.problems["shop"] = "trouble of its own"
            server.forbidden = False
            while "" not in heard.lists:
                await asyncio.sleep(0.005)
        assert not heard.problems, "the whole cluster's watch speaks for all"
        alive = [each for each in asyncio.all_tasks() if "Reflector.run" in repr(each) and not each.cancelling()]
        assert not alive, "the watches of single namespaces have ended"
    finally:
        task.cancel()

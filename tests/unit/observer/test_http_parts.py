"""What a polled source that asks over HTTP is built of, without a Prometheus: its file, its client, shared results."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web
from msgspec import convert

from reconciler.clusters.answers import UnreadableError
from reconciler.observer.httpclient import HttpClient, first_words
from reconciler.observer.httpconnections import FilePart, HttpPart, http_connection, placed
from reconciler.observer.sharedresults import SharedResults
from schemas.limits import Limit

PERIOD_MS = 15_000
NOW_MS = 1_790_000_000_000
SHORT = Limit("one answer of a queue", 10, "bytes", "observer", "the answer is an error")


class Queue(HttpPart, frozen=True, kw_only=True):
    """A part as the file of such a source has it: with a field of its own, which is a path."""

    names: str = ""


class File(FilePart, frozen=True):
    queues: dict[str, Queue]


@asynccontextmanager
async def served(body: str, seen: list[str]) -> AsyncIterator[str]:
    """The address of a server that wants the token `t`; `seen`: takes the paths that it was asked for."""

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(text=body, status=200 if request.headers.get("Authorization") == "Bearer t" else 401)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_server_is_asked_as_its_file_says_once_per_period_and_query(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    seen: list[str] = []
    async with served("7", seen) as url:
        file = convert({"queues": {"orders": {"url": url, "bearerTokenFile": "token", "names": "names"}}}, File)
        part = placed(file.queues["orders"], str(tmp_path), "names")
        assert part.names == str(tmp_path / "names")
        client = HttpClient(http_connection(part, "queues.orders"), SHORT)
        shared = SharedResults(
            lambda name, of: client.ask("GET", f"{url}/{name}", of), lambda: NOW_MS, lambda namespace: 15_000
        )
        both = await asyncio.gather(shared.result("orders", "shop"), shared.result("orders", "till"))
        other = await shared.result("mails", "shop")
        await shared.close()
        await client.close()
    assert [*both, other] == [(200, b"7")] * 3
    assert sorted(seen) == ["/mails", "/orders"]


async def test_a_refusal_is_returned_and_a_longer_answer_than_the_source_takes_is_an_error() -> None:
    async with served("12345678901", []) as url:
        short = HttpClient(http_connection(Queue(url=url), "queue"), SHORT)
        with pytest.raises(UnreadableError, match="more than 10 bytes"):
            await short.ask("GET", f"{url}/orders", "shop")
        await short.close()
    async with served(" no\n way", []) as url:
        client = HttpClient(http_connection(Queue(url=url), "queue"), SHORT)
        assert first_words(*await client.ask("GET", f"{url}/orders", "shop")) == "HTTP status 401: no way"
        await client.close()


@pytest.mark.parametrize(
    ("later_ms", "period_ms", "asked"),
    [
        pytest.param(0, PERIOD_MS, 1, id="theSamePeriod"),
        pytest.param(PERIOD_MS, PERIOD_MS, 2, id="thePeriodIsOver"),
        pytest.param(-2 * PERIOD_MS, PERIOD_MS, 2, id="theClockWasSetBack"),
        pytest.param(10, 5, 2, id="periodsHaveBecomeShorter"),
    ],
)
async def test_a_result_is_shared_for_a_period(later_ms: int, period_ms: int, asked: int) -> None:
    count: Counter[str] = Counter()
    now = {"ms": NOW_MS, "period": PERIOD_MS}

    async def ask(text: str, namespace: str) -> int:
        count[text] += 1
        return count[text]

    shared = SharedResults(ask, lambda: now["ms"], lambda namespace: now["period"])
    assert await shared.result("q", "shop") == 1
    now.update(ms=NOW_MS + later_ms, period=period_ms)
    assert await shared.result("q", "till") == asked
    await shared.close()


async def test_a_result_is_as_fresh_as_the_period_of_who_asks() -> None:
    asked: list[int] = []
    now = {"ms": NOW_MS}

    async def ask(text: str, namespace: str) -> int:
        asked.append(now["ms"] - NOW_MS)
        return now["ms"] - NOW_MS

    shared = SharedResults(ask, lambda: now["ms"], {"short": 5_000, "long": 15_000}.__getitem__)
    for step_ms in range(0, 60_000, 1_000):
        now["ms"] = NOW_MS + step_ms
        assert step_ms - await shared.result("q", "long") < 15_000
        assert step_ms - await shared.result("q", "short") < 5_000
    assert [b - a for a, b in pairwise(asked[1:])] == [5_000] * (len(asked) - 2), "once per period of the shorter"
    await shared.close()


async def test_a_shorter_period_of_others_takes_no_result_away_that_is_still_shared() -> None:
    asked: Counter[str] = Counter()
    now = {"ms": NOW_MS}

    async def ask(text: str, namespace: str) -> None:
        asked[text] += 1

    shared = SharedResults(ask, lambda: now["ms"], {"short": 5_000, "long": 15_000}.__getitem__)
    for step_ms in range(0, 60_000, 1_000):
        now["ms"] = NOW_MS + step_ms
        await shared.result("of short", "short")
        await shared.result("of long", "long")
    assert (asked["of short"], asked["of long"]) in ((12, 4), (12, 5), (13, 4), (13, 5))
    await shared.close()


async def test_an_error_is_shared_too() -> None:
    count: Counter[str] = Counter()

    async def ask(text: str, namespace: str) -> int:
        count[text] += 1
        raise UnreadableError("no number")

    shared = SharedResults(ask, lambda: NOW_MS, lambda namespace: PERIOD_MS)
    for namespace in ("shop", "till"):
        with pytest.raises(UnreadableError, match="no number"):
            await shared.result("q", namespace)
    assert count == {"q": 1}
    await shared.close()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"url": "http://me:secret@host"}, "queue.url: must hold no password"),
        ({"timeout": "1m1s"}, "queue.timeout: 61000 ms is not from 1 to 60000"),
        ({"headers": {"Host": "other"}}, "queue.headers: 'Host' cannot be set here"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        http_connection(convert({"url": "http://host"} | changes, Queue), "queue")

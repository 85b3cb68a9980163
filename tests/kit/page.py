"""The page over a fleet in memory, asked without a browser."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from fleethpa.frame.configuration import Config
from fleethpa.frame.listening import names_of
from fleethpa.page.guarding import Guard
from fleethpa.page.livereader import LiveReader
from fleethpa.page.server import PageServer
from streams.archive.layout import ArchivedRecord
from tests.kit.cli import Fleet, FleetPast

LOCAL = Guard(names_of("127.0.0.1", ()))


class GrowingPast(FleetPast):
    """The past of a fleet in memory to which more is added while it is open."""

    def __init__(self, fleet: Fleet, at_ms: int | None) -> None:
        super().__init__(fleet, at_ms, live=True)
        self._fleet = fleet

    def stretches(self, topic: str, partition: int, first: int = 0) -> AsyncGenerator[Sequence[ArchivedRecord], None]:
        return self._fleet.past(self.at_ms).stretches(topic, partition, first)

    def backwards(
        self, topic: str, partition: int, upto_ms: int | None = None
    ) -> AsyncGenerator[list[ArchivedRecord], None]:
        return self._fleet.past(self.at_ms).backwards(topic, partition, upto_ms)

    async def last_ms(self, partition: int) -> int:
        return self._fleet.now_ms


def over(fleet: Fleet, monkeypatch: Any) -> None:
    """Let every reading be one of the fleet in memory."""

    @asynccontextmanager
    async def opened(source: str, config: Any, at_ms: int | None = None) -> AsyncIterator[GrowingPast]:
        yield GrowingPast(fleet, at_ms)

    monkeypatch.setattr("fleethpa.page.livereader.open_past", opened)


@asynccontextmanager
async def browsing(guard: Guard = LOCAL) -> AsyncIterator[TestClient[Any, Any]]:
    """A client of a page that reads what `over` gave."""
    server = PageServer(LiveReader("kafka", Config(brokers="memory:1")), guard, {}, "memory:1")
    async with TestClient(TestServer(server.app())) as client:
        yield client


class Shown(HTMLParser):
    """What a view says: all text, the elements that there are, and the cells of its tables by column."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: dict[str, list[str]] = {}
        self._column = ""
        self.feed(html)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self._column = dict(attrs).get("data-column") or ""
            if self._column:
                self.cells.setdefault(self._column, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._column = ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._column:
            self.cells[self._column][-1] += data.strip()

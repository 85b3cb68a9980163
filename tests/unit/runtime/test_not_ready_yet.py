"""A process that is not ready says what it waits for, instead of being silent."""

from __future__ import annotations

import asyncio
import logging

import pytest

from runtime.process import PartHealth
from tests.patience import PATIENCE_S


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: asyncio.Queue[logging.LogRecord] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put_nowait(record)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> _Lines:
    handler = _Lines()
    logger = logging.getLogger("runtime.process")
    monkeypatch.setattr("runtime.process.WAITS_SAID_S", 0.01)
    monkeypatch.setattr(logger, "handlers", [handler])
    return handler


async def test_what_is_waited_for_is_said_until_the_process_is_ready(lines: _Lines) -> None:
    health, ended = PartHealth("looked", "lease"), asyncio.Event()
    health.unready("looked", "the log is being read")
    health.record("brokers", "a:1 does not answer")
    running = asyncio.create_task(health.accompany(_until(ended), lambda _: ended.set()))

    first = await asyncio.wait_for(lines.records.get(), PATIENCE_S)
    health.ready("lease")
    second = await asyncio.wait_for(lines.records.get(), PATIENCE_S)
    health.ready("looked")
    await asyncio.wait_for(running, PATIENCE_S)

    assert (first.levelname, first.getMessage()) == ("WARNING", "not ready yet")
    assert vars(first)["waits_for"] == {"looked": "the log is being read", "lease": "starting"}
    assert vars(first)["problems"] == {"brokers": "a:1 does not answer"}
    assert vars(second)["waits_for"] == {"looked": "the log is being read"}
    assert lines.records.empty()


async def test_one_that_is_soon_ready_says_nothing(lines: _Lines) -> None:
    health, ended = PartHealth("looked"), asyncio.Event()
    health.ready("looked")
    await asyncio.wait_for(health.accompany(_until(ended), lambda _: ended.set()), PATIENCE_S)
    assert lines.records.empty()


async def _until(ended: asyncio.Event) -> None:
    await ended.wait()

"""What bounds the commands that browsers start: how many at a time, how long, and what is kept of their messages."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleethpa.frame.errors import CommandError
from fleethpa.page import runs as page_runs
from fleethpa.page.runs import MOST_RUNS, Run, Runs


async def test_of_many_runs_that_are_asked_for_at_once_only_as_many_start_as_may() -> None:
    runs = Runs({})
    try:
        asked = [runs.start(f"browser {number}", "audit", ["version"]) for number in range(8)]
        refused = [each for each in await asyncio.gather(*asked, return_exceptions=True) if each is not None]
        assert {type(each) for each in refused} == {CommandError}
        assert len(refused) == 8 - MOST_RUNS
        assert sum(runs.of(f"browser {number}", "audit") is not None for number in range(8)) == MOST_RUNS
    finally:
        await runs.close()


async def test_of_two_runs_that_one_browser_asks_for_at_once_one_starts() -> None:
    runs = Runs({})
    try:
        asked = [runs.start("browser", "audit", ["version"]) for _ in range(2)]
        refused = [each for each in await asyncio.gather(*asked, return_exceptions=True) if each is not None]
        assert [str(each) for each in refused] == ["a run of this browser is still running"]
    finally:
        await runs.close()


async def test_a_start_that_fails_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({})
    try:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        for number in range(MOST_RUNS):
            with pytest.raises(FileNotFoundError):
                await runs.start(f"browser {number}", "audit", ["version"])
        monkeypatch.undo()
        await runs.start("browser", "audit", ["version"])
    finally:
        await runs.close()


@asynccontextmanager
async def running(folder: Path, script: str) -> AsyncIterator[Run]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stderr=asyncio.subprocess.PIPE)
    try:
        yield Run(folder, script, time.monotonic(), process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_long_line_of_messages_ends_neither_the_watch_nor_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_runs, "LONGEST_S", 1.0)
    script = "import sys, time; print('x' * 300_000 + '\u20ac' * 100_000, end='', file=sys.stderr); time.sleep(60)"
    async with running(tmp_path, script) as run:
        await page_runs._watch(run)
        assert run.too_long
        assert run.ended
        assert set(run.messages) == {"\u20ac"}

"""Commands that browsers start (`/audit`, `/try`, `/upgrade`), as processes with their reports.

Each runs in a process of its own, so it can be cancelled and prints what a terminal would show. A browser sees its own
runs only.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import shutil
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fleethpa.frame.errors import OPTIONS, usage
from fleethpa.frame.sources import PROGRESS_LINES

MOST_RUNS: Final = 2
"""Runs at a time, of all browsers together."""
LONGEST_S: Final = 600.0
MANIFEST: Final = "hpa.yaml"
BUNDLE: Final = "bundle.tar"
KEPT: Final = 20
"""Finished runs that are kept, of all browsers together."""
_KEPT_TEXT: Final = 4_000
_PIECE_BYTES: Final = 65_536
_PERCENT: Final = re.compile(r"(\d+)% ")


@dataclass
class Run:
    """A command that a browser has started.

    `command`: the same for a terminal. `messages`: the end of its stderr. `until_ms`: the end of the record when it
    began, where it verifies the whole of it; 0: it does not.
    """

    folder: Path
    command: str
    began_s: float
    process: asyncio.subprocess.Process
    until_ms: int = 0
    messages: str = ""
    cancelled: bool = False
    too_long: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has come to an end."""
        return self.process.returncode is not None

    @property
    def succeeded(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.process.returncode == 0

    @property
    def took_s(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began_s

    @property
    def report(self) -> Path | None:
        """The HTML report, if one was written."""
        path = self.folder / "report.html"
        return path if self.ended and path.exists() else None

    @property
    def printed(self) -> str:
        """What it printed to stdout."""
        return (self.folder / "stdout").read_text(encoding="utf-8", errors="replace")[-_KEPT_TEXT:]

    @property
    def line(self) -> str:
        """The newest line of its stderr."""
        return next((line for line in reversed(self.messages.splitlines()) if line.strip()), "")

    @property
    def percent(self) -> int | None:
        """How much is done; None: its newest line does not say."""
        found = _PERCENT.match(self.line)
        return int(found[1]) if found else None


class Runs:
    """The runs of all browsers: at most one at a time for each browser and kind (`try`, `audit`, `upgrade`)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._runs: OrderedDict[tuple[str, str], Run] = OrderedDict()
        self._watching: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._starting: set[tuple[str, str]] = set()
        """Runs that have a place and no process yet."""

    def of(self, browser: str, kind: str) -> Run | None:
        """The newest run of a browser."""
        return self._runs.get((browser, kind))

    def check_room(self, browser: str, kind: str) -> None:
        """Check that another run may begin.

        Raises CommandError: one of this browser is still running, or too many of all browsers are.
        """
        running = self._runs.get((browser, kind))
        if (browser, kind) in self._starting or (running is not None and not running.ended):
            raise usage("a run of this browser is still running", cause="Cancel it, or wait for its end.")
        if len(self._starting) + sum(not run.ended for run in self._runs.values()) >= MOST_RUNS:
            raise usage(f"{MOST_RUNS} runs are running already", cause="Try again when one has ended.")

    @property
    def verified_ms(self) -> int:
        """Until when the whole record was verified by a run that is still known; 0: none has."""
        return max((run.until_ms for run in self._runs.values() if run.succeeded), default=0)

    async def start(
        self, browser: str, kind: str, words: Sequence[str], *, file: str = "", report: bool = False, until_ms: int = 0
    ) -> None:
        """Start a fleethpa command.

        Args:
            words: the command; MANIFEST in it becomes a file with the text `file`, BUNDLE the file that it writes.
            report: it also writes an HTML report.
            until_ms: as in `Run`.

        Raises:
            CommandError: as `check_room`.
        """
        self.check_room(browser, kind)
        key = browser, kind
        folder = Path(tempfile.mkdtemp(prefix="fleethpa-page-"))
        self._starting.add(key)  # before anything is awaited: others may ask meanwhile
        try:
            run = await self._started(words, folder, file, report)
            run.until_ms = until_ms
        except BaseException:  # raised again; a cancellation leaves no folder behind, either
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self._starting.discard(key)
        former = self._runs.pop(key, None), self._watching.pop(key, None)
        self._runs[key], self._watching[key] = run, asyncio.create_task(_watch(run))
        await _dispose(*former)
        while len(self._runs) > KEPT:
            await self._forget(next(key for key, each in self._runs.items() if each.ended))

    async def _started(self, words: Sequence[str], folder: Path, file: str, report: bool) -> Run:
        given = [*words]
        for name, flag in OPTIONS.items():
            if value := self._options.get(name):
                given += [flag, str(value)]
        (folder / MANIFEST).write_text(file, encoding="utf-8")
        run = [str(folder / word) if word in (MANIFEST, BUNDLE) else word for word in given]
        if report:
            run.append(f"--html={folder / 'report.html'}")
        with (folder / "stdout").open("wb") as stdout:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "fleethpa", *run),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {PROGRESS_LINES: "1"},
            )
        return Run(folder, f"fleethpa {' '.join(given)}", time.monotonic(), process)

    async def bundle(self, browser: str, words: Sequence[str]) -> bytes:
        """Run a command that writes a bundle, to its end, and return the bundle.

        Raises CommandError: as `check_room`, or what the command says.
        """
        key = browser, "bundle"
        await self.start(*key, [*words, "--quiet", "--out", BUNDLE])
        run, watching = self._runs[key], self._watching[key]
        try:
            await asyncio.wait([watching])
            if run.succeeded:
                return (run.folder / BUNDLE).read_bytes()
            if run.too_long:
                raise usage(f"it takes longer than {LONGEST_S:.0f} s", cause="Choose a shorter span.")
            what, *cause = run.messages.strip().splitlines() or ["the bundle could not be written"]
            raise usage(what.removeprefix("Error: "), cause="\n".join(line.strip() for line in cause))
        finally:
            await self._forget(key)

    async def cancel(self, browser: str, kind: str) -> None:
        """End the run of a browser."""
        run = self._runs.get((browser, kind))
        if run is not None and not run.ended:
            run.cancelled = True
            await _end(run)

    async def close(self) -> None:
        """End and forget everything."""
        for key in list(self._runs):
            await self._forget(key)

    async def _forget(self, key: tuple[str, str]) -> None:
        await _dispose(self._runs.pop(key, None), self._watching.pop(key, None))


async def _dispose(run: Run | None, task: asyncio.Task[None] | None) -> None:
    if run is not None:
        await _end(run)
        shutil.rmtree(run.folder, ignore_errors=True)
    if task is not None:
        await asyncio.gather(task, return_exceptions=True)


async def _watch(run: Run) -> None:
    """Take what a run writes to stderr, and end it when it takes too long."""
    assert run.process.stderr is not None
    text = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        async with asyncio.timeout(LONGEST_S):
            # In pieces: a reader of lines fails at one that is longer than its buffer.
            while piece := await run.process.stderr.read(_PIECE_BYTES):
                run.messages = (run.messages + text.decode(piece))[-_KEPT_TEXT:]
            await run.process.wait()
    except TimeoutError:
        run.too_long = True
        await _end(run)


async def _end(run: Run) -> None:
    if run.ended:
        return
    with suppress(ProcessLookupError):
        run.process.terminate()
    try:
        async with asyncio.timeout(5):
            await run.process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            run.process.kill()
        await run.process.wait()

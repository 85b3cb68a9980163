"""Another spec on the recorded past: the page runs `fleethpa backtest` and shows its report.

The command runs in a process of its own, so that it can be cancelled and what it says is what a terminal would show.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fleethpa.cli.common.failures import CommandError, usage
from fleethpa.cli.common.manifestfiles import check_hpa, read_input
from fleethpa.cli.common.nextsteps import OPTIONS
from fleethpa.cli.common.revisionlog import manifest_of
from fleethpa.cli.output.formats import to_yaml
from fleethpa.cli.output.times import parse_duration_ms
from schemas.keys import HpaId

MOST_RUNS: Final = 2
"""Runs at a time, of all browsers together."""
LONGEST_S: Final = 600.0
KEPT: Final = 20
"""Finished runs that are kept, of all browsers together."""
MODELS: Final = ("closed", "open")
_SAID: Final = 4_000


@dataclass
class Run:
    """A backtest of one browser. `command`: the same for a terminal. `said`: what it wrote to stderr."""

    folder: Path
    command: str
    began_s: float
    process: asyncio.subprocess.Process
    said: str = ""
    cancelled: bool = False
    too_long: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has come to an end."""
        return self.process.returncode is not None

    @property
    def took_s(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began_s

    @property
    def report(self) -> Path | None:
        """The report, where one was written."""
        path = self.folder / "report.html"
        return path if self.ended and path.exists() else None

    @property
    def line(self) -> str:
        """The newest line that it said."""
        return next((line for line in reversed(self.said.splitlines()) if line.strip()), "")


class Trials:
    """The runs of all browsers, at most one at a time for each."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._watching: dict[str, asyncio.Task[None]] = {}

    def of(self, browser: str) -> Run | None:
        """The newest run of a browser."""
        return self._runs.get(browser)

    async def start(self, browser: str, hpa: HpaId, text: str, since: str, model: str) -> None:
        """Check a manifest and try it.

        Raises:
            CommandError: it is not valid, too many runs go on, or the window cannot be read.
        """
        running = self._runs.get(browser)
        if running is not None and not running.ended:
            raise usage("a run of this browser goes on", cause="Cancel it, or wait for its end.")
        if sum(not run.ended for run in self._runs.values()) >= MOST_RUNS:
            raise usage(f"{MOST_RUNS} runs of others go on", cause="Try again when one has ended.")
        if model not in MODELS:
            raise usage(f"there is no model {model!r}", cause=f"The models are {', '.join(MODELS)}.")
        parse_duration_ms(since, "since")
        folder = Path(tempfile.mkdtemp(prefix="fleethpa-try-"))
        try:
            candidate = _checked(hpa, text, folder)
            run = await self._started(hpa, candidate, since, model, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        await self._forget(browser)
        self._runs[browser] = run
        self._watching[browser] = asyncio.create_task(_watch(run))
        while len(self._runs) > KEPT:
            await self._forget(next(iter(self._runs)))

    async def _started(self, hpa: HpaId, candidate: Path, since: str, model: str, folder: Path) -> Run:
        words = ["backtest", "-f", str(candidate), "-C", hpa.cluster, f"--since={since}", f"--model={model}"]
        for name, flag in OPTIONS.items():
            if value := self._options.get(name):
                words += [flag, str(value)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "fleethpa", *words, f"--html={folder / 'report.html'}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        said = " ".join(word.replace(str(candidate), "hpa.yaml") for word in words)
        return Run(folder, f"fleethpa {said}", time.monotonic(), process)

    async def cancel(self, browser: str) -> None:
        """End the run of a browser."""
        run = self._runs.get(browser)
        if run is not None and not run.ended:
            run.cancelled = True
            await _end(run)

    async def close(self) -> None:
        """End and forget everything."""
        for browser in list(self._runs):
            await self._forget(browser)

    async def _forget(self, browser: str) -> None:
        run, task = self._runs.pop(browser, None), self._watching.pop(browser, None)
        if run is not None:
            await _end(run)
            shutil.rmtree(run.folder, ignore_errors=True)
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)


def candidate_text(hpa: HpaId, spec: dict[str, Any]) -> str:
    """The recorded spec as a manifest to edit."""
    return to_yaml(manifest_of(hpa, spec))


def _checked(hpa: HpaId, text: str, folder: Path) -> Path:
    """Write a manifest where the command reads it.

    Raises:
        CommandError: it is not one valid HPA of this name.
    """
    path = folder / "hpa.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        read = read_input((str(path),), "strict")
    except CommandError as error:
        raise usage(error.what.replace(str(path), "the manifest"), cause=error.cause) from error
    found = [check_hpa(manifest, hpa.namespace) for manifest in read.hpas]
    if len(found) != 1:
        raise usage(f"the manifest holds {len(found)} HPAs", cause="One is tried at a time.")
    body, errors = found[0]
    if errors:
        raise usage("the HPA is invalid", cause="\n".join(errors))
    named = (body["metadata"].get("namespace"), body["metadata"].get("name"))
    if named != (hpa.namespace, hpa.name):
        raise usage(f"the manifest is of {'/'.join(map(str, named))}", cause=f"It is tried on the past of {hpa}.")
    return path


async def _watch(run: Run) -> None:
    """Take what a run says, and end it when it takes too long."""
    assert run.process.stderr is not None
    try:
        async with asyncio.timeout(LONGEST_S):
            while line := await run.process.stderr.readline():
                run.said = (run.said + line.decode(errors="replace"))[-_SAID:]
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
        await asyncio.wait_for(run.process.wait(), 5)
    except TimeoutError:
        with suppress(ProcessLookupError):
            run.process.kill()
        await run.process.wait()

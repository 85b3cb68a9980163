"""Tuning of many HPAs within limits: read some at a time, search on all cores, keep results to resume a run."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fleethpa.frame.errors import CommandError, unreadable_text, usage
from fleethpa.tuning.specsearch import Objective, RefusedError, Tuning, Within
from fleethpa.tuning.specsearch import tune as search
from schemas.keys import HpaId
from streams.analysis.backtest import Condensed
from streams.history.evaluations import readers_by_hpa
from streams.history.parallel import Faults
from streams.history.past import Past

_FIELDS: Final = {"target": "target", "minReplicas": "min_replicas", "window": "window"}
_NOT_SEARCHED: Final = {
    "maxReplicas": "maxReplicas=30",
    "tolerance": "scaleUp.tolerance=0.05",
    "scaleUpPercent": "scaleUp.policies=300%/15s",
}
"""What was searched once -> how `backtest` tries it."""
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?|({_NUMBER})", re.ASCII)


def parse_within(text: str | None) -> Within:
    """Read `target=40..80,minReplicas=2..`; an end that is left out is open, a single number is both ends.

    Raises CommandError: an unknown field, or not a range (exit 2).
    """
    ranges: dict[str, tuple[float | None, float | None]] = {}
    for part in (text or "").split(",") if text else ():
        name, _, value = part.strip().partition("=")
        if name in _NOT_SEARCHED:
            raise usage(
                f"--within {part.strip()!r}: tune no longer changes {name}",
                next_step=f"fleethpa backtest NAME --set {_NOT_SEARCHED[name]}",
            )
        if name not in _FIELDS:
            raise _wrong(part, f"Fields are {', '.join(_FIELDS)}.")
        if _FIELDS[name] in ranges:
            raise _wrong(part, f"{name} is given twice.")
        match = _RANGE.fullmatch(value)
        if match is None or value == "..":
            raise _wrong(part, "A range is 40..80, 40.., ..80, or one number.")
        low, high, only = (None if end is None else float(end) for end in match.groups())
        ends = (only, only) if only is not None else (low, high)
        if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
            raise _wrong(part, "The first number is above the second.")
        ranges[_FIELDS[name]] = ends
    return Within(**ranges)


def _wrong(part: str, cause: str) -> CommandError:
    return usage(
        f"--within {part.strip()!r} cannot be read",
        cause=cause,
        next_step="--within 'target=40..80,minReplicas=2..,window=60..600'",
    )


_BAR: Final = 20
SMALL: Final = 10_000
"""Evaluations, of all HPAs together, up to which searches are over before processes for them have started."""


class TuneFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What the search gave for one HPA: a tuning, or why there can be none."""

    hpa: HpaId
    found: Tuning | None = None
    refused: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the search: with the same of it and the same log the same is found."""

    since_ms: int
    until_ms: int
    objective: Objective
    within: Within


class _Task(NamedTuple):
    recorded: Condensed
    objective: Objective
    within: Within


def finding_for(task: _Task) -> TuneFinding | Faults:
    """Search for one HPA; runs in a process of its own."""
    hpa, faults = task.recorded.hpa, Faults()
    with faults.of(hpa):
        try:
            return TuneFinding(hpa=hpa, found=search(hpa, task.recorded, task.objective, task.within))
        except RefusedError as error:
            return TuneFinding(hpa=hpa, refused=str(error))
    return faults


# --- what was found before --------------------------------------------------------------------------------------------


class Kept:
    """What was found. With a `path` a run can be resumed: the file has what was asked in its first line, and a finding
    in each other, written as soon as it is known. A line that was cut off when a run was killed is found again.
    """

    def __init__(self, path: Path | None, asked: Asked) -> None:
        """Load what the file holds; `asked` is then what was asked when it was begun.

        Raises CommandError: the file cannot be used (exit 2).
        """
        self.path, self.known, self.asked = path, dict[HpaId, TuneFinding](), asked
        if path is not None:
            self._resume(path)

    def _resume(self, path: Path) -> None:
        try:
            if path.exists() and not path.is_file():  # a device may have no end
                raise usage(f"--resume {path} is not a file", next_step="name a file; it is made")
            text = path.read_bytes() if path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1].splitlines()
            if not text:
                path.write_bytes(msgspec.json.encode(self.asked) + b"\n")
                return
            # Without a line end it is somebody else's file: it must not be written over.
            before = msgspec.json.decode(whole[0] if whole else b"", type=Asked)
            self.known = {
                each.hpa: each for each in (msgspec.json.decode(line, type=TuneFinding) for line in whole[1:])
            }
            if len(text) != sum(len(line) + 1 for line in whole):
                path.write_bytes(b"".join(line + b"\n" for line in whole))
        except OSError as error:
            raise usage(
                f"--resume {path} cannot be used",
                cause=unreadable_text(error),
                next_step="name a file in a folder that exists; it is made",
            ) from error
        except msgspec.MsgspecError as error:
            raise usage(
                f"--resume {path} is not a file of this command, or of another release",
                cause=str(error),
                next_step="name another file; it is made",
            ) from error
        if (before.objective, before.within) != (self.asked.objective, self.asked.within):
            raise usage(
                f"--resume {path} was begun with another --objective or --within",
                cause="Findings of two objectives are not compared.",
                next_step="name another file; it is made",
            )
        self.asked = before

    def add(self, finding: TuneFinding) -> None:
        """Keep a finding."""
        self.known[finding.hpa] = finding
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(finding) + b"\n")


# --- the run ----------------------------------------------------------------------------------------------------------


class Progress:
    """How far a run has come."""

    def __init__(self, total: int, before: int) -> None:
        self.total, self.before, self.done = total, before, before

    def text(self, seconds: float) -> str:
        """A bar, and how long the rest will take; empty for a single HPA."""
        if self.total < 2:
            return ""
        filled = _BAR * self.done // self.total
        bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] tuned {self.done} of {self.total} HPAs"
        own = self.done - self.before
        if not own or self.done == self.total:
            return bar
        left_s = seconds / own * (self.total - self.done)
        return f"{bar}, about {left_s / 60:.0f} min left" if left_s >= 90 else f"{bar}, about {left_s:.0f} s left"


async def run(past: Past, hpas: Iterable[HpaId], kept: Kept, progress: Progress, jobs: int) -> Faults:
    """Tune HPAs and keep what is found; those that are kept already are not read. Returns the faults, which are not."""
    faults = Faults()
    wanted = {hpa for hpa in hpas if hpa not in kept.known}
    if not wanted:
        return faults
    # Processes start with the first search that is given to them.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        async with aclosing(_findings(past, wanted, kept.asked, pool, jobs, faults)) as findings:
            async for finding in findings:
                if isinstance(finding, Faults):
                    faults |= finding
                else:
                    kept.add(finding)
                progress.done += 1
    return faults


async def _recordings(past: Past, wanted: set[HpaId], asked: Asked, faults: Faults) -> AsyncGenerator[Condensed, None]:
    """The recordings one by one. What was given is let go of here; its key stays, as it shows that the HPA was read."""
    window = asked.since_ms, asked.until_ms
    async with aclosing(readers_by_hpa(past, wanted, window, Condensed, faults=faults)) as parts:
        async for part in parts:
            for hpa in list(part):
                recorded, part[hpa] = part[hpa], Condensed(hpa)
                if hpa not in faults:
                    yield recorded


async def _findings(
    past: Past, wanted: set[HpaId], asked: Asked, pool: Executor, jobs: int, faults: Faults
) -> AsyncGenerator[TuneFinding | Faults, None]:
    """Findings as they come. No more recordings wait for a core than there are cores: memory stays bounded."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Future[TuneFinding | Faults]] = set()
    try:
        async with aclosing(_recordings(past, wanted, asked, faults)) as recordings:
            async for recorded in recordings:
                while len(running) > jobs:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        yield each.result()
                alone = len(wanted) == 1 or len(wanted) * len(recorded) <= SMALL
                task = _Task(recorded, asked.objective, asked.within)
                running.add(loop.run_in_executor(None if alone else pool, finding_for, task))
        for next_one in asyncio.as_completed(running):
            yield await next_one
    finally:
        for each in running:
            each.cancel()

"""Run files of cases through the engine on all cores, and report per file what is equal and what is not."""

import gzip
import multiprocessing
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from schemas.kubernetes.shape import Json
from streams.hpa.rules import Rules
from tests.conformance import recordedsyncs
from tests.conformance.api import API_CHECKS, EXPLANATIONS
from tests.conformance.compare import AnswerDifference, broken
from tests.conformance.filekinds import API_KINDS, CHECKS, RECORDING, SPLIT_CHECKS, STANDALONE, kind_of
from tests.conformance.vectorerrors import InputError, MissingFileError, UnknownFileKindError

CHUNKS_PER_JOB = 8
"""Chunks are small enough that a slow one does not leave the other cores idle."""


class Shown(Struct, frozen=True):
    """A difference that is printed: which case, where, and both values."""

    case: str
    path: str
    upstream: Any
    ours: Any


class FileReport(Struct, frozen=True, kw_only=True):
    """What came of one file. `equal` + `different` + the explained ones are `cases`."""

    file: str
    kind: str
    cases: int
    equal: int
    different: int
    ticks_per_second: float
    """Evaluations (for other kinds: cases) per second of wall clock, over all jobs."""
    writes: int
    """Of the different ones, those in which other replicas are written."""
    as_another: bool
    """The file was answered with the rules of another version than the recorded one."""
    explained: dict[str, int]
    """Differences that upstream itself leaves to chance, by class."""
    first: tuple[Shown, ...] = ()


class ConformanceReport(Struct, frozen=True):
    """All files."""

    files: tuple[FileReport, ...]

    @property
    def different(self) -> int:
        """Count the cases that differ without an explanation."""
        return sum(file.different for file in self.files)


class _Part(Struct, frozen=True):
    """What came of some cases of a file."""

    cases: int
    ticks: int
    different: int
    writes: int
    explained: dict[str, int]
    first: tuple[Shown, ...]


_Chunk = tuple[int, list[bytes]]
"""(number of the first line, lines)"""
_Apply = Callable[[Callable[[_Chunk], _Part], Iterable[_Chunk]], Iterable[_Part]]


def run(
    files: Sequence[Path],
    jobs: int | None = None,
    limit: int | None = None,
    show: int = 10,
    rules: Rules | None = None,
    members: int = 1,
) -> ConformanceReport:
    """Check files.

    Args:
        files: vector files of any kind, or syncs of a recording.
        jobs: processes; None: one per core.
        limit: at most so many cases of each file.
        show: keep so many first differences per file.
        rules: answer recordings with these; None: with those of the version that was recorded.
        members: split the pods of every case over so many clusters, and decide on what their reports add up to.

    Raises:
        MissingFileError: a file does not exist.
        InputError: a file cannot be read, or holds nothing that is known.
    """
    jobs = jobs or os.cpu_count() or 1
    with ExitStack() as stack:
        apply: _Apply = map
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            apply = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context)).map
        return ConformanceReport(
            tuple(_check_file(Path(file), jobs, limit, show, apply, rules, members) for file in files)
        )


def _check_file(
    path: Path, jobs: int, limit: int | None, show: int, apply: _Apply, rules: Rules | None, members: int
) -> FileReport:
    started = time.perf_counter()
    lines = _lines(path)
    kind = _kind(path, lines)
    if members > 1 and kind not in SPLIT_CHECKS:
        raise InputError(f"{path}: cases of kind {kind} have no pods to split; give files of {', '.join(SPLIT_CHECKS)}")
    if kind == RECORDING:
        parts = [_check_recording(path, limit, show, rules)]
    elif kind in STANDALONE:
        chunks = _chunks(lines[:limit], jobs * CHUNKS_PER_JOB)
        parts = list(apply(partial(_check_chunk, str(path), kind, show, members), chunks))
    else:
        parts = [_check_api(path, kind, lines, limit, show)]
    cases, different = sum(part.cases for part in parts), sum(part.different for part in parts)
    explained: Counter[str] = Counter()
    for part in parts:
        explained.update(part.explained)
    seconds = max(time.perf_counter() - started, 1e-9)
    return FileReport(
        file=str(path),
        kind=kind,
        cases=cases,
        equal=cases - different - explained.total(),
        different=different,
        writes=sum(part.writes for part in parts),
        as_another=rules is not None,
        ticks_per_second=round(sum(part.ticks for part in parts) / seconds, 1),
        explained=dict(sorted(explained.items())),
        first=tuple(islice((shown for part in parts for shown in part.first), show)),
    )


def _lines(path: Path) -> list[bytes]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: is not whole gzip: {error}") from error
    return [line for line in text.split(b"\n") if line.strip()]


def _kind(path: Path, lines: list[bytes]) -> str:
    if not lines:
        raise UnknownFileKindError(f"{path}: is empty")
    first, *rest = [_decode(path, number, line) for number, line in enumerate(lines[:2], 1)]
    try:
        return kind_of(first, rest[0] if rest else None)
    except UnknownFileKindError as error:
        raise UnknownFileKindError(f"{path}: {error}") from error


def _decode(path: Path | str, number: int, line: bytes) -> Json:
    try:
        case = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: line {number} is not JSON: {error}: {line[:60]!r}") from error
    if not isinstance(case, dict):
        raise InputError(f"{path}: line {number} is not a JSON object: {line[:60]!r}")
    return case


def _chunks(lines: list[bytes], count: int) -> Iterator[_Chunk]:
    size = max(1, -(-len(lines) // count))
    for start in range(0, len(lines), size):
        yield start + 1, lines[start : start + size]


def _check_chunk(path: str, kind: str, show: int, members: int, chunk: _Chunk) -> _Part:
    """Check cases that stand alone; runs in a process of its own."""
    ticks, found = 0, []
    explained: Counter[str] = Counter()
    for number, line in enumerate(chunk[1], chunk[0]):
        case = _decode(path, number, line)
        try:
            each_ticks, differences, reason = _check_case(kind, case, members)
        # An engine that breaks on a case differs from upstream there; the other cases still count.
        except Exception as error:
            each_ticks, differences, reason = 0, [broken(error)], None
        ticks += each_ticks
        if reason is not None:
            explained[reason] += 1
        found.append((_name(case, number), differences))
    return _part(ticks, found, dict(explained), show)


def _check_case(kind: str, case: Json, members: int) -> tuple[int, list[AnswerDifference], str | None]:
    """Give ticks, unexplained differences, and the class of what is explained."""
    if kind in SPLIT_CHECKS:
        return *next(SPLIT_CHECKS[kind]([case], members)), None
    if kind in CHECKS:
        return *next(CHECKS[kind]([case])), None

    differences = next(API_CHECKS[kind]([case]))
    reason = EXPLANATIONS[kind](case) if differences and kind in EXPLANATIONS else None
    return 1, ([] if reason else differences), reason


def _check_recording(path: Path, limit: int | None, show: int, rules: Rules | None) -> _Part:
    explained: Counter[str] = Counter()
    found: list[tuple[str, list[AnswerDifference]]] = []
    for reason, differences in recordedsyncs.check(path, limit, rules):
        if reason is not None:
            explained[reason] += 1
        found.append((path.name, differences))
    return _part(len(found), found, dict(explained), show)


def _check_api(path: Path, kind: str, lines: list[bytes], limit: int | None, show: int) -> _Part:
    """Check an API kind whose lines refer to each other, in one go."""
    if kind not in API_KINDS or kind not in API_CHECKS:
        raise UnknownFileKindError(f"{path}: cases of kind {kind} cannot be checked")
    cases = [_decode(path, number, line) for number, line in enumerate(lines, 1)]
    if limit is not None:
        cases = cases[: limit + (kind == "selectors")]
    names = [_name(case, number) for number, case in enumerate(cases, 1) if "labelSets" not in case]
    found = list(zip(names, API_CHECKS[kind](cases), strict=True))
    return _part(len(found), found, {}, show)


def _part(ticks: int, found: list[tuple[str, list[AnswerDifference]]], explained: dict[str, int], show: int) -> _Part:
    different = [(name, differences) for name, differences in found if differences]
    first = tuple(Shown(name, *difference) for name, differences in different[:show] for difference in differences[:3])
    writes = sum(any(path.endswith((".write", ".scaledTo")) for path, *_ in each) for _, each in different)
    return _Part(len(found), ticks, len(different), writes, explained, first[:show])


def _name(case: Json, number: int) -> str:
    name = case.get("id")
    return name if isinstance(name, str) and name else f"line {number}"

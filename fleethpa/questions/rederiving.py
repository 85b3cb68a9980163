"""Recorded decisions derived again from the log, and compared: what `replay` and `audit verify` answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec
import orjson

from fleethpa.fleet.decisions import window as window_of
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.frame.options import gathered
from fleethpa.frame.session import Session
from fleethpa.frame.sources import jobs_for, log_length, progress, talking
from fleethpa.show.formats import one
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted
from runtime.log import clean
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from streams.archive.layout import ArchiveError
from streams.archive.signing import Heads
from streams.history.parallel import ReplayPool
from streams.history.past import Past
from streams.history.replay import Report
from streams.history.verify import verify as verify_archive
from streams.history.verify import verify_partition

_SHOWN: Final = 10
"""Differences that a terminal shows."""


class AskedSpan(NamedTuple):
    """`--since`, `--until` and `--jobs` as they are typed."""

    since: str | None = None
    until: str | None = None
    jobs: int | None = None


span_options: Final = gathered(
    "span",
    AskedSpan,
    click.option(
        "--since", metavar="24h|TIME", help="Start at this time; an archive is read from the snapshot before it."
    ),
    click.option("--until", metavar="2h|TIME", help="End at this time."),
    click.option("--jobs", type=click.IntRange(1), help="Number of processes [default: one per core]."),
)
"""The function gets one argument `span`."""


class Comparison(NamedTuple):
    """The decisions to compare: those of one HPA (None: all) in a span of time, and of all signed `heads`.

    `faults`: what is known to be wrong before anything is compared.
    """

    past: Past
    span: AskedSpan
    hpa: HpaId | None = None
    heads: Sequence[Heads] = ()
    faults: tuple[str, ...] = ()


def compare(session: Session, asked: Comparison, output: str, *, engine_diff: bool = False) -> int:
    """Derive the decisions again, print what differs, and return the exit code: 1 if anything does.

    Raises CommandError: the window is empty (exit 2), or nothing was decided in it (exit 4).
    """
    past, heads, (since, until, jobs) = asked.past, list(asked.heads), asked.span
    # Without a window nothing is read before what is to be verified.
    window = window_of(since, until, session.now_ms()) if since or until else (None, None)
    since_ms, until_ms = window
    if since_ms is not None and since_ms > session.now_ms():
        raise usage("--since is later than the newest record", cause="The window is empty.")
    pool = ReplayPool(verify_partition, jobs or jobs_for(past))

    async def work() -> tuple[list[Report], str]:
        await session.reach(past)
        async with talking(session.config.servers):
            try:
                async with progress(session, "verifying", pool, await log_length(past, since_ms)):
                    reports = verify_archive(past, since_ms, heads, pool, until_ms=until_ms, hpa=asked.hpa)
                    return [report async for report in reports], ""
            except ArchiveError as error:
                return [], str(error)

    began = time.monotonic()
    reports, fault = session.run(work())
    took_s = time.monotonic() - began
    reports.sort(key=lambda report: report.partition)
    hpa = str(asked.hpa) if asked.hpa is not None else None
    document = _document(past, reports, heads, [*asked.faults, *([fault] if fault else [])], window, hpa)
    if not (document["decisions"] or document["faults"]) and (hpa or until_ms is not None):
        raise _nothing(hpa, window)
    if output == "table":
        session.lines(_text(document, took_s, engine_diff).splitlines())
    else:
        session.out(one("AuditReport", document, output))
    return OK if document["ok"] else ANSWER_IS_NO


def _document(
    past: Past,
    reports: list[Report],
    heads: list[Heads],
    faults: list[str],
    window: tuple[int | None, int | None],
    hpa: str | None,
) -> dict[str, Any]:
    faults = [*faults, *(report.fault for report in reports if report.fault)]
    divergences = sorted((d for report in reports for d in report.divergences), key=lambda d: (d.time_ms, d.id))
    since, until = (None if at_ms is None else rfc3339(at_ms) for at_ms in window)
    summed = ("decisions", "identical", "diverged", "duplicates", "segments", "snapshots")
    return {
        "ok": not faults and all(not report.diverged for report in reports),
        "source": past.name,
        "hpa": hpa,
        "since": since,
        "until": until,
        **{name: sum(getattr(report, name) for report in reports) for name in summed},
        "logRecords": sum(report.log_records for report in reports),
        "checkpoints": len(heads),
        "signedUntil": rfc3339(heads[-1].time_ms) if heads and heads[-1].time_ms else None,
        "engine": ENGINE,
        "engines": sorted({report.engine for report in reports if report.engine}),
        "engineChanges": [
            {"partition": report.partition, "offset": offset, "engine": engine}
            for report in reports
            for offset, engine in report.engine_changes
        ],
        "recordedBy": _added(report.engines for report in reports),
        "firstDifferences": _added(report.paths for report in reports),
        "divergences": [
            {name: value for name, value in msgspec.to_builtins(each).items() if name != "timeMs"}
            | {"time": rfc3339(each.time_ms)}
            for each in divergences
        ],
        "faults": faults,
        "partitions": [
            {name: value for name, value in msgspec.to_builtins(report).items() if name != "divergences"}
            for report in reports
        ],
    }


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _text(found: dict[str, Any], took_s: float, engine_diff: bool) -> str:
    speed = f"{found['decisions'] / took_s:,.0f}/s" if took_s > 0 else "-"
    lines = [
        f"verified {found['decisions']:,} decisions of {found['logRecords']:,} log records from {found['source']} "
        f"in {took_s:.1f}s ({speed})"
    ]
    if found["ok"]:
        lines += _checked(found)
    else:
        lines.append(f"{found['identical']:,} identical, {found['diverged']:,} DIVERGED")
        for each in found["divergences"][:_SHOWN]:
            lines += _divergence_lines(each, found["engine"])
        if found["diverged"] > _SHOWN:
            lines.append(f"… and {found['diverged'] - _SHOWN:,} more; -o json has the first of each partition")
        lines += [f"FAULT  {fault}" for fault in found["faults"]]
        lines += [f"not verified  {_unverified(each)}" for each in found["partitions"] if each["fault"]]
    if engine_diff:
        by = ", ".join(f"engine {engine}: {count:,}" for engine, count in found["recordedBy"].items())
        lines.append(f"recorded by   {by}; recomputed with engine {found['engine']}")
        lines += [f"differs first {path}: {count:,}" for path, count in found["firstDifferences"].items()]
    return "\n".join(map(clean, [*lines, *(["OK"] if found["ok"] else [])]))


def _unverified(partition: dict[str, Any]) -> str:
    """Return which part of a log partition was not verified because of a fault, at which its verification ended."""
    number, last = partition["partition"], partition["lastLogOffset"]
    return f"log partition {number}{f' from offset {last} on' if partition['logRecords'] else ': nothing of it'}"


def _checked(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was checked, and nothing was wrong with."""
    yield f"recomputed    {found['decisions']:,} identical to the byte; numbers, chain, log hashes, ids, keys, headers"
    changes = found["engineChanges"]
    places = ", ".join(f"{each['engine']} from log {each['partition']}@{each['offset']} on" for each in changes)
    yield f"engine        {', '.join(map(str, found['engines'])) or '-'}{f'; {places}' if places else ', no change'}"
    yield f"duplicates    {found['duplicates']} copies collapsed"
    if found["segments"]:
        yield f"archive       {counted(found['segments'], 'closed segment')}, {counted(found['snapshots'], 'snapshot')}"
    if found["checkpoints"]:
        yield f"checkpoints   {found['checkpoints']} signed, up to {found['signedUntil'] or '-'}"
    if starts := [each for each in found["partitions"] if each["start"] >= 0]:
        yield f"start         from snapshots in {counted(len(starts), 'partition')}: nothing older was checked"


def _divergence_lines(each: dict[str, Any], engine: int) -> list[str]:
    more = f" (and {each['fields'] - 1} more fields)" if each["fields"] > 1 else ""
    shown = [orjson.dumps(each[name]).decode() for name in ("recorded", "recomputed")]
    counts = [
        each[name] if each[name] is not None else "nothing" for name in ("recordedReplicas", "recomputedReplicas")
    ]
    lines = [
        f"{each['id']}  {each['hpa']}  {each['time']}  recorded {counts[0]}, recomputed {counts[1]}",
        f"  first difference: {each['path']}: recorded {shown[0]}, recomputed {shown[1]}{more}",
    ]
    if each["engine"] != engine:
        lines.append(f"  recorded by engine {each['engine']}, recomputed with {engine}")
    return lines


def _nothing(hpa: str | None, window: tuple[int | None, int | None]) -> CommandError:
    who = f" of {hpa}" if hpa else ""
    if window == (None, None):
        return not_found(f"no decision{who}", next_step="fleethpa get hpa -A")
    span = " to ".join(rfc3339(at) if at is not None else "…" for at in window)
    return not_found(f"no decision{who} in the window {span}", next_step="fleethpa decisions -A")

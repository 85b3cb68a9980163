"""`fleethpa replay`: recorded decisions re-derived from the log; identical, or the first divergence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
import orjson

from fleethpa.cli.common.brokerconnection import connecting
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.cli.common.filters import window as window_of
from fleethpa.cli.common.progressline import progress
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.sources import jobs_for
from fleethpa.cli.output.formats import one
from fleethpa.cli.output.times import rfc3339
from runtime.jsonlog import clean
from schemas.decisions import ENGINE
from schemas.keys import parse_hpa_id, partition_for
from streams.archive.segments import ArchiveError
from streams.history.parallel import ReplayPool
from streams.history.rerun import ReplayTask, replay_partition

if TYPE_CHECKING:
    from schemas.keys import HpaId
    from streams.history.past import Past
    from streams.history.rerun import ReplayReport

_SHOWN: Final = 10


@click.command()
@click.option("--hpa", metavar="CLUSTER/NAMESPACE/NAME", help="Only decisions of this HPA.")
@click.option("--since", metavar="2h|TIME", help="Start at this time; an archive is read from the snapshot before it.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option(
    "--engine-diff",
    is_flag=True,
    help="Count the differences by what differs first and by the engine that recorded it.",
)
@click.option("--jobs", type=click.IntRange(1), help="Number of processes [default: one per core].")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def replay(
    session: Session,
    hpa: str | None,
    since: str | None,
    until: str | None,
    engine_diff: bool,
    jobs: int | None,
    output: str,
) -> int:
    """Re-derive recorded decisions from the log; exit 1 and show the first difference if one differs."""
    past, wanted = session.unopened_past(checked=False), _hpa(hpa)
    window = window_of(since, until, session.now_ms())
    began = time.monotonic()
    reports = _reports(session, past, window, wanted, jobs)
    found = _document(past.name, reports, window, hpa)
    if found["fault"]:
        step = f"fleethpa audit verify --from {session.source}"
        raise usage(f"replay cannot continue: {found['fault']}", next_step=step)
    if not found["evaluations"]:
        raise _nothing(hpa, window)
    session.out(
        _text(found, time.monotonic() - began, engine_diff) if output == "table" else one("ReplayReport", found, output)
    )
    return OK if found["ok"] else ANSWER_IS_NO


def _reports(
    session: Session, past: Past, window: tuple[int | None, int | None], wanted: HpaId | None, jobs: int | None
) -> list[ReplayReport]:
    pool = ReplayPool(replay_partition, jobs or jobs_for(past))

    async def work() -> list[ReplayReport]:
        async with connecting(session.config.servers), progress(session, "replaying", pool):
            numbers = _partitions(await past.partitions(), wanted)
            return [report async for report in pool.run([ReplayTask(past, n, *window, wanted) for n in numbers])]

    try:
        return sorted(session.run(work()), key=lambda report: report.partition)
    except ArchiveError as error:
        raise usage(str(error), next_step=f"fleethpa audit verify --from {session.source}") from error


def _hpa(text: str | None) -> HpaId | None:
    try:
        return parse_hpa_id(text) if text else None
    except ValueError as error:
        raise usage(f"--hpa {text!r} is not the name of an HPA", cause=str(error)) from error


def _partitions(count: int, hpa: HpaId | None) -> list[int]:
    return list(range(count)) if hpa is None else [partition_for(hpa.namespace_key, count)]


def _nothing(hpa: str | None, window: tuple[int | None, int | None]) -> CommandError:
    span = " to ".join(rfc3339(at) if at is not None else "…" for at in window)
    if window != (None, None):
        return not_found(
            f"no decision{f' of {hpa}' if hpa else ''} in the window {span}", next_step="fleethpa decisions -A"
        )
    if hpa:
        return not_found(f"no decision of {hpa}", next_step="fleethpa get hpa -A")
    return not_found("there is no decision yet")


def _document(
    source: str, reports: list[Any], window: tuple[int | None, int | None], hpa: str | None
) -> dict[str, Any]:

    divergences = sorted((d for report in reports for d in report.divergences), key=lambda d: (d.time_ms, d.id))
    return {
        "ok": not any(report.diverged or report.fault for report in reports),
        "source": source,
        "hpa": hpa,
        "since": None if window[0] is None else rfc3339(window[0]),
        "until": None if window[1] is None else rfc3339(window[1]),
        "engine": ENGINE,
        "logRecords": sum(report.log_records for report in reports),
        "evaluations": sum(report.evaluations for report in reports),
        "identical": sum(report.identical for report in reports),
        "diverged": sum(report.diverged for report in reports),
        "unrecorded": sum(report.unrecorded for report in reports),
        "recordedBy": _added(report.engines for report in reports),
        "firstDifferences": _added(report.paths for report in reports),
        "divergences": [_divergence(msgspec.to_builtins(d)) for d in divergences],
        "fault": next((_fault(report) for report in reports if report.fault), ""),
    }


def _fault(report: Any) -> str:
    """What stopped a partition; the text of a damaged file or record of an archive names its place itself."""
    place = f"log partition {report.partition}"
    return str(report.fault) if place in report.fault or ".seg" in report.fault else f"{place}: {report.fault}"


def _divergence(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"time": rfc3339(body.pop("timeMs"))}


def _added(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _text(found: dict[str, Any], took_s: float, engine_diff: bool) -> str:
    speed = f"{found['evaluations'] / took_s:,.0f}/s" if took_s else "-"
    lines = [f"replayed {found['evaluations']:,} decisions from {found['source']} in {took_s:.1f}s ({speed})"]
    if found["ok"]:
        lines.append(f"{found['identical']:,} identical")
    else:
        lines.append(f"{found['identical']:,} identical, {found['diverged']:,} DIVERGED")
        for each in found["divergences"][:_SHOWN]:
            lines += _divergence_lines(each, found["engine"])
        if found["diverged"] > _SHOWN:
            lines.append(f"… and {found['diverged'] - _SHOWN:,} more; -o json has the first of each partition")
    if found["unrecorded"]:
        lines.append(f"{found['unrecorded']:,} follow from the log beyond the newest recorded decision")
    if engine_diff:
        by = ", ".join(f"engine {engine}: {count:,}" for engine, count in found["recordedBy"].items())
        lines.append(f"recorded by   {by}; replayed with engine {found['engine']}")
        lines += [f"differs first {path}: {count:,}" for path, count in found["firstDifferences"].items()]
    return "\n".join(map(clean, lines))


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
        lines.append(f"  recorded by engine {each['engine']}, replayed with {engine}")
    return lines

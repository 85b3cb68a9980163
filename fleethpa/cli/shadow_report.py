"""`fleethpa shadow-report`: fleethpa in shadow beside native controllers, decision by decision; also of FleetHPAs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, chosen_some, selection_options
from fleethpa.fleet.shards import AskedShard, asked_of, by_partitions, shard_options
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.questions.fleetshadow import shadow_report_of_fleet_hpas
from fleethpa.show.formats import Listing
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences, report_lines, verdict
from fleethpa.show.text import Column, rfc3339
from fleethpa.show.words import percent
from schemas.keys import HpaId
from streams.analysis.shadowreport import ShadowReport
from streams.analysis.shadowreport import shadow_report as compare
from streams.history.evaluations import events_by_hpa
from streams.history.parallel import Faults, reported
from streams.history.past import Past

_SHOWN: Final = 10


@click.command("shadow-report")
@selection_options()
@period_options("1d")
@click.option("--differences", type=click.IntRange(min=0), default=_SHOWN, help="Number of differences to show.")
@shard_options()
@output_option(formats=("table", "wide", "name", "json", "yaml", "jsonl"))
@command_options(reads=True)
def shadow_report(
    session: Session, selection: Selection, period: AskedPeriod, differences: int, asked_shard: AskedShard, output: str
) -> int:
    """Compare fleethpa in shadow with what the cluster's own controller did; exit 0 only if all are ready to enforce.

    Every difference is classified and explained: timing (the two evaluate at other moments), metric (the native
    controller had other values), limit (a limit held back one of the two), settings (the native controller has another
    setting, which the verdict names), semantics (nothing explains it: report it).
    Of a FleetHPA in shadow (@fleet/NAMESPACE/NAME), total and division are compared with the HPAs of its clusters.
    Partitions are read on all cores. --shard 3/8 --parts DIR does one of eight parts; --parts DIR alone puts them
    together, and reads nothing else.
    """
    faults = Faults()
    if asked_shard.merges:
        reports = sorted(asked_shard.merged(ShadowReport)[1], key=lambda each: each.hpa)
        if not reports:
            raise _none_in_shadow(selection)
    else:
        window = period.window(session.now_ms())
        if selection.names_fleet_hpas:
            return shadow_report_of_fleet_hpas(session, selection, window, output, faults)
        reports = session.run(_reports(session, selection, window, asked_shard, faults))
        if asked_shard.shard is not None:
            asked_shard.write(session, faults, asked_of("shadow-report", selection, window), reports, ShadowReport)
            return session.failed(faults)
    if reports and output == "table":
        session.lines(report_lines(_report(reports, differences), color=session.color))
    elif reports:
        session.listing(_listing(reports), output)
    return session.failed(faults) or (OK if all(each.ready for each in reports) else ANSWER_IS_NO)


class _ShadowTask(NamedTuple):
    """HPAs of one log partition to report on, in a time."""

    past: Past
    hpas: frozenset[HpaId]
    window: tuple[int, int]


async def shadow_reports(task: _ShadowTask) -> tuple[list[ShadowReport], Faults]:
    """Compare some HPAs of a log partition; those that were not in shadow beside a native controller are left out."""
    reports, faults = list[ShadowReport](), Faults()
    async with aclosing(events_by_hpa(task.past, set(task.hpas), task.window, native=True)) as parts:
        async for events in parts:
            reported(0, sum(map(len, events.values())))
            for hpa in events:
                with faults.of(hpa):
                    if (comparison := compare(hpa, events[hpa])) is not None:
                        reports.append(comparison)
    return reports, faults


async def _reports(
    session: Session, selection: Selection, window: tuple[int, int], shard: AskedShard, faults: Faults
) -> list[ShadowReport]:
    async with session.past() as past:
        views = shard.kept(chosen_some(await read_state(past), selection))
        tasks = [_ShadowTask(past, hpas, window) for hpas in by_partitions(views)]
        parts = await by_partition(session, past, shadow_reports, tasks)
    by_hpa = {each.hpa: each for part, _ in parts for each in part}
    faults |= Faults.of_parts(parts)
    reports = [by_hpa[view.id] for view in views if view.id in by_hpa]
    fleet_hpas = sorted({view.fleet_hpa or view.id for view in views if view.is_of_fleet})
    if fleet_hpas and reports:
        session.note(f"note: FleetHPAs are compared by themselves: fleethpa shadow-report {fleet_hpas[0]}")
    if not reports and not faults and shard.shard is None:
        raise _none_in_shadow(selection, fleet_hpas)
    return reports


def _none_in_shadow(selection: Selection, fleet_hpas: Sequence[HpaId] = ()) -> CommandError:
    return not_found(
        f"no HPA of {selection} ran in shadow beside a native controller in this window",
        cause="The report compares HPAs of member clusters that fleethpa runs in mode shadow.",
        next_step=f"fleethpa shadow-report {fleet_hpas[0]}" if fleet_hpas else "fleethpa get hpa -A",
    )


def _report(reports: list[ShadowReport], shown: int) -> QuestionReport:
    ready = sum(each.ready for each in reports)
    text = f"{ready:,} of {len(reports):,} HPAs are ready to enforce"
    unscaled = sum(each.ready and not each.rescales_agreed for each in reports)
    if unscaled:
        text += f"; {unscaled} of them by metric values alone: no rescale shows how fleethpa would scale them"
    sections = [verdict(f"{text}."), *(_section(each, shown) for each in reports)]
    return QuestionReport("Shadow report", "ShadowReportList", {}, sections)


def _section(report: ShadowReport, shown: int) -> Section:
    """One HPA. `shown`: how many of its differences are shown, the newest."""
    answer = "READY to enforce" if report.ready else "NOT READY to enforce"
    rows = [
        (
            rfc3339(each.time),
            f"{each.current} → {each.native}",
            f"{each.current} → {each.fleethpa}",
            each.kind,
            each.why,
        )
        for each in report.differences[-shown:]
    ]
    return Section(
        str(report.hpa),
        f"{rfc3339(report.since)} … {rfc3339(report.until)}",
        [
            Sentences([f"{answer}: {'; '.join(report.reasons)}"], "green" if report.ready else "red"),
            Sentences(
                [
                    f"agreed on {report.agreed:,} of {report.decisions:,} decisions ({percent(report.agreement)}); "
                    f"{report.rescales_agreed} of {report.rescales} native rescales (given the same samples); "
                    f"{report.skipped} not comparable{_left_out(report)}; {report.reproduced} native statuses with "
                    "the values of a known sample",
                    f"differences: {_counts(report)}",
                    *([f"not seen: {'; '.join(report.not_seen)}"] if report.not_seen else []),
                ]
            ),
            Grid([("TIME", "NATIVE", "FLEETHPA", "CLASS", "WHY"), *(rows if shown else [])]),
        ],
    )


def _left_out(report: ShadowReport) -> str:
    count = report.left_out
    return f" ({count} while fleethpa's window was younger than it is long)" if count else ""


def _counts(report: ShadowReport) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in report.counts.items())


def _listing(reports: list[ShadowReport]) -> Listing[ShadowReport]:
    columns: tuple[Column[ShadowReport], ...] = (
        Column("NAMESPACE", lambda r: r.hpa.namespace),
        Column("NAME", lambda r: r.hpa.name),
        Column("CLUSTER", lambda r: r.hpa.cluster),
        Column("DECISIONS", lambda r: str(r.decisions)),
        Column("AGREEMENT", lambda r: percent(r.agreement, 2)),
        Column("RESCALES", lambda r: f"{r.rescales_agreed}/{r.rescales}"),
        Column("DIFFERENCES", _counts),
        Column("READY", lambda r: "yes" if r.ready else "no"),
        Column("WHY", lambda r: "; ".join(r.reasons)),
        Column("NOT SEEN", lambda r: "; ".join(r.not_seen) or "-"),
    )
    return Listing(
        kind="ShadowReport",
        items=reports,
        columns=columns,
        document=_document,
        name=lambda report: f"shadow-report/{report.hpa}",
        style=lambda report: "green" if report.ready else "red",
    )


def _document(report: ShadowReport) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    document.pop("hpa")
    document["since"], document["until"] = rfc3339(report.since), rfc3339(report.until)
    document["differences"] = [each | {"time": rfc3339(each["time"])} for each in document["differences"]]
    return report.hpa._asdict() | document | {"agreement": round(report.agreement, 6)}

"""`fleethpa shadow-report`: fleethpa in shadow beside native controllers, decision by decision; also of FleetHPAs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, chosen, chosen_some, selection_options
from fleethpa.fleet.shards import AskedShard, asked_of, by_partitions, shard_options
from fleethpa.fleet.state import has_own, read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.show.formats import Listing
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences, report_lines, verdict
from fleethpa.show.text import Column, rfc3339
from fleethpa.show.words import counted
from schemas.keys import FLEET, HpaId
from streams.analysis.fleethpas import FleetHpaSeen, FleetHpaShadowReport, fleet_hpa_shadow, seen_of
from streams.analysis.shadowreport import ShadowReport
from streams.analysis.shadowreport import shadow_report as compare
from streams.history.evaluations import events_by_hpa
from streams.history.parallel import Faults, reported
from streams.history.past import Past

# --- FleetHPAs --------------------------------------------------------------------------------------------------------


async def fleet_hpa_reports(
    past: Past, state: FleetState, views: Sequence[HpaView], window: tuple[int, int], faults: Faults
) -> list[tuple[HpaId, FleetHpaShadowReport]]:
    """Compare FleetHPAs with the HPAs that their clusters have. `faults`: takes those of fleethpa.

    Raises CommandError: one was not in shadow (exit 4).
    """
    seen: dict[HpaId, list[FleetHpaSeen]] = {view.id: [] for view in views}
    for number in sorted({view.partition for view in views}):
        async with aclosing(past.decisions(number, *window, seen.__contains__)) as decisions:
            async for recorded in decisions:
                with faults.of(recorded.hpa):
                    if (each := seen_of(recorded)) is not None:
                        seen[recorded.hpa].append(each)
    reports = []
    for view in views:
        if view.id not in faults:
            with faults.of(view.id, CommandError):
                reports.append((view.id, _fleet_hpa_report(state, view, seen[view.id])))
    return reports


def _fleet_hpa_report(state: FleetState, view: HpaView, seen: Sequence[FleetHpaSeen]) -> FleetHpaShadowReport:
    if not seen:
        raise not_found(
            f"{view.id} was not decided on in shadow in this window",
            cause="The report compares a FleetHPA in shadow with the HPAs that its clusters have.",
            next_step=f"fleethpa decisions {view.id} --since 30d, to see when it was in which mode",
        )
    names = [] if view.fleet is None else [each.name for each in view.fleet.clusters]
    return fleet_hpa_shadow(seen, [name for name in names if not has_own(state, view.id, name)])


def report_on_fleet_hpas(reports: Sequence[tuple[HpaId, FleetHpaShadowReport]]) -> QuestionReport:
    """The report, one verdict for each first."""
    items = [_fleet_hpa_document(hpa, report) for hpa, report in reports]
    verdicts = [verdict(_verdict(hpa, each), "green" if each.ready else "red") for hpa, each in reports]
    sections = [*verdicts, *[_fleet_hpa_section(hpa, each) for hpa, each in reports]]
    return QuestionReport("Shadow report", "WholeShadowReportList", {"items": items}, sections)


def _verdict(hpa: HpaId, report: FleetHpaShadowReport) -> str:
    if not report.ready:
        return f"NOT READY: {hpa}: {'; '.join(report.reasons)}."
    moved = [
        f"{each.cluster} {each.native_now} → {each.share_now}"
        for each in report.members
        if each.share_now != each.native_now
    ]
    share = report.agreed / report.compared
    return (
        f"READY: the total of {hpa} was that of the HPAs of {counted(len(report.members), 'cluster')} in {share:.1%} "
        f"of {counted(report.compared, 'evaluation')}, at most {report.most_below} below and {report.most_above} "
        f"above; enforced now it would change {', '.join(moved) if moved else 'nothing'}."
    )


def _fleet_hpa_section(hpa: HpaId, report: FleetHpaShadowReport) -> Section:
    rows = [("CLUSTER", "OWN HPA: MEAN", "SHARE: MEAN", "OWN HPA NOW", "SHARE NOW")]
    for each in report.members:
        means = f"{each.native_mean:.1f}", f"{each.share_mean:.1f}"
        rows.append((each.cluster, *means, str(each.native_now), str(each.share_now)))
    facts = [
        f"{counted(report.evaluations, 'evaluation')}, {report.undecided} of them without all clusters; "
        f"equal totals in {report.agreed}, fewer by more than rounding in {report.fewer}"
    ]
    if report.ready:
        names = ",".join([each.cluster for each in report.members])
        facts.append(f"Next: fleethpa adopt {hpa} -C {names} --dry-run")
    return Section(
        str(hpa), f"{rfc3339(report.since)} … {rfc3339(report.until)}", [Sentences(facts), Grid(rows, numbers=True)]
    )


def _fleet_hpa_document(hpa: HpaId, report: FleetHpaShadowReport) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    document["since"], document["until"] = rfc3339(report.since), rfc3339(report.until)
    return {"namespace": hpa.namespace, "name": hpa.name, "ready": report.ready} | document


# --- the verb ---------------------------------------------------------------------------------------------------------

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
        if any(ref.cluster == FLEET for ref in selection.refs):
            return _of_fleet_hpas(session, selection, window, output, faults)
        reports = session.run(_reports(session, selection, window, asked_shard, faults))
        if asked_shard.shard is not None:
            asked_shard.write(session, faults, asked_of("shadow-report", selection, window), reports, ShadowReport)
            return session.failed(faults)
    if reports and output == "table":
        session.lines(report_lines(_report(reports, differences), color=session.color))
    elif reports:
        session.listing(_listing(reports), output)
    return session.failed(faults) or (OK if all(each.ready for each in reports) else ANSWER_IS_NO)


def _of_fleet_hpas(session: Session, selection: Selection, window: tuple[int, int], output: str, faults: Faults) -> int:
    """Report on FleetHPAs. Raises CommandError: others are named beside them, or a format that has no rows for them."""
    if any(ref.cluster != FLEET for ref in selection.refs):
        raise usage("a FleetHPA is compared by itself", next_step=f"fleethpa shadow-report {FLEET}/NAMESPACE/NAME")
    if output not in ("table", "json", "yaml"):
        raise usage(f"the report of a FleetHPA has no {output}", next_step="-o json")

    async def work() -> list[tuple[HpaId, FleetHpaShadowReport]]:
        async with session.past() as past:
            state = await read_state(past)
            return await fleet_hpa_reports(past, state, chosen(state, selection), window, faults)

    reports = session.run(work())
    if reports:
        session.publish(report_on_fleet_hpas(reports), output)
    return session.failed(faults) or (OK if all(report.ready for _, report in reports) else ANSWER_IS_NO)


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
    text = f"{ready} of {len(reports)} HPAs are ready to enforce"
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
                    f"agreed on {report.agreed:,} of {report.decisions:,} decisions ({report.agreement:.1%}); "
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
        Column("AGREEMENT", lambda r: f"{r.agreement:.2%}"),
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

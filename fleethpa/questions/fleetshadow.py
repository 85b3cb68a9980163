"""The form of `fleethpa shadow-report` that is about FleetHPAs: one autoscaler beside the HPAs of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from fleethpa.fleet.finding import Selection, chosen
from fleethpa.fleet.state import has_own, read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.frame.session import Session
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted, percent
from schemas.keys import FLEET, HpaId
from streams.analysis.fleethpas import FleetHpaSeen, FleetHpaShadowReport, fleet_hpa_shadow, seen_of
from streams.history.parallel import Faults
from streams.history.past import Past


def shadow_report_of_fleet_hpas(
    session: Session, selection: Selection, window: tuple[int, int], output: str, faults: Faults
) -> int:
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
        f"READY: the total of {hpa} was that of the HPAs of {counted(len(report.members), 'cluster')} in "
        f"{percent(share)} of {counted(report.compared, 'evaluation')}, at most {report.most_below} below and "
        f"{report.most_above} above; enforced now it would change {', '.join(moved) if moved else 'nothing'}."
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

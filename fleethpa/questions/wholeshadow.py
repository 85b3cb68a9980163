"""The shadow report of FleetHPAs: which are meant, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from fleethpa.fleet.state import has_own
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, not_found
from fleethpa.show.report import Grid, QuestionReport, Section, Sentences, verdict
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted
from schemas.keys import HpaId
from streams.analysis.wholes import WholeSeen, WholeShadowReport, seen_of, whole_shadow
from streams.history.parallel import Faults
from streams.history.past import Past


async def whole_reports(
    past: Past, state: FleetState, views: Sequence[HpaView], window: tuple[int, int], faults: Faults
) -> list[tuple[HpaId, WholeShadowReport]]:
    """Compare FleetHPAs with the HPAs that their clusters have. `faults`: takes those of fleethpa.

    Raises CommandError: one was not in shadow (exit 4).
    """
    seen: dict[HpaId, list[WholeSeen]] = {view.id: [] for view in views}
    for number in sorted({view.partition for view in views}):
        async with aclosing(past.decisions(number, *window, seen.__contains__)) as decisions:
            async for recorded in decisions:
                with faults.of(recorded.hpa):
                    if (each := seen_of(recorded)) is not None:
                        seen[recorded.hpa].append(each)
    made = []
    for view in views:
        if view.id not in faults:
            with faults.of(view.id, CommandError):
                made.append((view.id, _report(state, view, seen[view.id])))
    return made


def _report(state: FleetState, view: HpaView, seen: Sequence[WholeSeen]) -> WholeShadowReport:
    if not seen:
        raise not_found(
            f"{view.id} was not decided on in shadow in this window",
            cause="The report compares a FleetHPA in shadow with the HPAs that its clusters have.",
            next_step=f"fleethpa decisions {view.id} --since 30d, to see when it was in which mode",
        )
    names = [] if view.fleet is None else [each.name for each in view.fleet.clusters]
    return whole_shadow(seen, [name for name in names if not has_own(state, view.id, name)])


def whole_report(found: Sequence[tuple[HpaId, WholeShadowReport]]) -> QuestionReport:
    """The report, one verdict for each first."""
    items = [_document(hpa, report) for hpa, report in found]
    verdicts = [verdict(_verdict(hpa, each), "green" if each.ready else "red") for hpa, each in found]
    sections = [*verdicts, *[_section(hpa, each) for hpa, each in found]]
    return QuestionReport("Shadow report", "WholeShadowReportList", {"items": items}, sections)


def _verdict(hpa: HpaId, report: WholeShadowReport) -> str:
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


def _section(hpa: HpaId, report: WholeShadowReport) -> Section:
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


def _document(hpa: HpaId, report: WholeShadowReport) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(report)
    made["since"], made["until"] = rfc3339(report.since), rfc3339(report.until)
    return {"namespace": hpa.namespace, "name": hpa.name, "ready": report.ready} | made

"""`fleethpa upgrade-preview`: which decisions another version of Kubernetes would have made otherwise, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import click

from fleethpa.changes.lintrules import version_named
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, not_evaluated, selection_options
from fleethpa.fleet.shards import by_partitions
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK
from fleethpa.frame.options import ConditionMeasure, html_option, output_option, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import by_partition
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted
from streams.analysis.upgradepreview import SEVERAL, Preview, PreviewTask, previews
from streams.history.parallel import Faults
from streams.hpa.rules import NEWEST_IS, RELEASED, RULES, Rules, minor_of

_MEASURES: Final = {"changed": ConditionMeasure("changed")}


@click.command("upgrade-preview")
@selection_options()
@click.option("--to", required=True, metavar="1.NN", help="The version of Kubernetes to compare with.")
@click.option("--gates", metavar="NAME=true,…", help="Feature gates of its controller manager.")
@period_options("7d")
@click.option("--fail-if", metavar="changed>N", help="Exit 1 if so many HPAs would be scaled otherwise.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def upgrade_preview(
    session: Session,
    selection: Selection,
    to: str,
    gates: str | None,
    period: AskedPeriod,
    fail_if: str | None,
    html: str | None,
    output: str,
) -> int:
    """Show which decisions would have been different after an upgrade of Kubernetes, and because of which change.

    Decides each recorded evaluation again with the rules of the other version. Reads the log or an archive and writes
    nothing.
    """
    version = version_named("--to", to, gates)
    gate = None if fail_if is None else parse_fail_if(fail_if, _MEASURES)
    window = period.window(session.now_ms())
    hpa_previews, faults = session.run(_previews(session, selection, window, version.rules))
    if hpa_previews:
        session.publish(report(hpa_previews, version.name), output, html=html)
    nothing, counts = SimpleNamespace(changed=0), SimpleNamespace(changed=changed(hpa_previews))
    return session.failed(faults) or (ANSWER_IS_NO if gate is not None and gate.holds(nothing, counts) else OK)


async def _previews(
    session: Session, selection: Selection, window: tuple[int, int], rules: Rules
) -> tuple[list[Preview], Faults]:
    async with session.past() as past:
        views = alone(chosen_some(await read_state(past), selection), "upgrade-preview", session.note)
        parts = await by_partition(
            session, past, previews, [PreviewTask(past, hpas, window, rules) for hpas in by_partitions(views)]
        )
    by_hpa = {hpa: preview for part, _ in parts for hpa, preview in part.items()}
    faults = Faults.of_parts(parts)
    hpa_previews = [each for view in views if (each := by_hpa.get(view.id)) is not None and each.evaluations]
    if not hpa_previews and not faults:
        raise not_evaluated(f"no evaluation of {selection} in this window")
    return hpa_previews, faults


_NOTES: Final = (
    "Each recorded evaluation was decided again with the inputs that it had. After the first different write the "
    "recorded load no longer is the one that the other version would have seen: what follows is a hint only.",
    "Texts of conditions, statuses and events are not compared; a metrics answer keeps the form that it was read in.",
)


def changed(previews: Sequence[Preview]) -> int:
    """Count the HPAs with a decision that differs."""
    return sum(each.first is not None for each in previews)


def report(previews: Sequence[Preview], to: str) -> QuestionReport:
    """The report of some HPAs: those with a different decision first, then what concerns the others."""
    ordered = sorted(previews, key=lambda each: (each.first is None, not each.findings, str(each.hpa)))
    sections = [
        Section(f"Upgrade to Kubernetes {to}", parts=[Sentences(_verdict(previews, to))]),
        Section(parts=[_by_rule(previews)]),
        Section("First different decision of each HPA", parts=[_first(ordered)]),
        Section("What concerns HPAs whatever their load", parts=[_findings(ordered)]),
    ]
    document = {"to": to, "changed": changed(previews), "items": [_item(each) for each in ordered]}
    shown = [each for each in sections if any(not isinstance(part, Grid) or part.rows[1:] for part in each.parts)]
    return QuestionReport("Upgrade preview", "UpgradePreview", document, shown, closing=[Notes("Limits:", _NOTES)])


def _verdict(previews: Sequence[Preview], to: str) -> list[str]:
    evaluations = sum(each.evaluations for each in previews)
    hpas, looked = counted(len(previews), "HPA"), counted(evaluations, "evaluation")
    differ = changed(previews)
    texts = [
        f"{differ} of {hpas} would have been scaled otherwise ({looked})."
        if differ
        else f"No decision would have been different ({looked} of {hpas})."
    ]
    if minor_of(to) > RELEASED:
        texts.append(f"Kubernetes {to} is not released: these are the changes of {NEWEST_IS}, and more may come.")
    return texts


def _by_rule(previews: Sequence[Preview]) -> Grid:
    hpas: Counter[str] = Counter(rule for each in previews for rule in each.applied)
    times: Counter[str] = Counter()
    for each in previews:
        times.update(each.applied)
    rows = [
        (str(hpas[rule]), str(times[rule]), _since(rule), sentence(rule), _link(rule))
        for rule, _ in times.most_common()
    ]
    return Grid([("HPAS", "EVALUATIONS", "SINCE", "CHANGE", "UPSTREAM"), *rows], "by change")


def _first(previews: Sequence[Preview]) -> Grid:
    rows = [
        (
            str(each.hpa),
            rfc3339(first.time_ms),
            f"{first.current} → {first.recorded}",
            f"{first.current} → {first.other}",
            sentence(first.rule),
        )
        for each in previews
        if (first := each.first) is not None
    ]
    return Grid([("HPA", "TIME", "DECIDED", "WOULD BE", "BECAUSE"), *rows])


def _findings(previews: Sequence[Preview]) -> Grid:
    rows = [
        (str(each.hpa), _since(finding.rule), finding.text, sentence(finding.rule))
        for each in previews
        for finding in each.findings
    ]
    return Grid([("HPA", "SINCE", "FOUND", "CHANGE"), *rows])


def sentence(rule: str) -> str:
    """Return what changed, in one sentence."""
    return "several changes together" if rule == SEVERAL else RULES[rule].change


def _since(rule: str) -> str:
    return "-" if rule == SEVERAL else f"1.{RULES[rule].since}"


def _link(rule: str) -> str:
    return "-" if rule == SEVERAL else RULES[rule].link


def _item(preview: Preview) -> dict[str, Any]:
    first = preview.first
    return {
        "hpa": str(preview.hpa),
        "evaluations": preview.evaluations,
        "first": None
        if first is None
        else {
            "decision": first.decision,
            "time": rfc3339(first.time_ms),
            "currentReplicas": first.current,
            "decided": first.recorded,
            "wouldBe": first.other,
            **_rule(first.rule),
        },
        "applied": [{**_rule(rule), "evaluations": count} for rule, count in preview.applied.items()],
        "findings": [{**_rule(finding.rule), "found": finding.text} for finding in preview.findings],
    }


def _rule(rule: str) -> dict[str, str]:
    return {"rule": rule, "since": _since(rule), "change": sentence(rule), "upstream": _link(rule)}

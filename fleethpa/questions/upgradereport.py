"""The report of `upgrade-preview`: which decisions another version of Kubernetes would have made otherwise, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted
from streams.analysis.upgrade import SEVERAL
from streams.hpa.rules import RELEASED, RULES, minor_of

if TYPE_CHECKING:
    from streams.analysis.upgrade import Preview

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
    shown = [each for each in sections if any(_has_content(part) for part in each.parts)]
    return QuestionReport("Upgrade preview", "UpgradePreview", document, shown, closing=[Notes("Limits:", _NOTES)])


def _has_content(part: object) -> bool:
    return not isinstance(part, Grid) or len(part.rows) > 1


def _verdict(previews: Sequence[Preview], to: str) -> list[str]:
    evaluations = sum(each.evaluations for each in previews)
    looked = f"{counted(evaluations, 'evaluation')} of {counted(len(previews), 'HPA')}"
    differ = changed(previews)
    texts = [
        f"{differ} of {counted(len(previews), 'HPA')} would have been scaled otherwise ({evaluations} evaluations)."
        if differ
        else f"No decision would have been different ({looked})."
    ]
    if minor_of(to) > RELEASED:
        texts.append(f"Kubernetes {to} is not released: these are the changes that are merged for it.")
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
    """What changed, in one sentence."""
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

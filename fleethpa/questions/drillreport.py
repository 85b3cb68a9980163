"""The report of a fleet drill, as text and as a document. What its figures rest on is in `ASSUMED`."""

from collections.abc import Sequence
from typing import Final

import msgspec

from fleethpa.questions.backtestreport import minutes
from fleethpa.questions.drillresults import Drilled, DrillNeed, DrillUnknown
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339, span
from fleethpa.show.words import counted, listed
from streams.across.capacity import FORGETS_MS

ASSUMED: Final = (
    "the load of an HPA is the ratio of each of its metrics times the pods that it is of, the largest counts; pods "
    "without a sample, or not ready, count as the controller counts them. All metrics grow by the factor alike",
    "an HPA of one cluster does not move: the load of those in the cluster that is away goes nowhere",
    "no load of a FleetHPA is lost: what its cluster that is away carried goes to the others as the decider divides, "
    "by weights, bounds and whenAway. With Spill, a row is about the time after the spill",
    "HPAs of a CapacityGroup want what their metrics ask for within their bounds, or their share; windows, policies, "
    f"brakes, pauses and modes hold nothing back. What the cluster that is away had counts for {span(FORGETS_MS)}, as "
    "for any HPA that is silent. It is checked once a minute",
    "specs, settings, prices, labels and annotations are those of the end of the time; of an HPA whose spec changed, "
    "only what came after counts. Nodes are short only where pods have waited for one",
)
"""The assumptions of the figures."""
_SHOWN: Final = 20
"""Rows of the table; machine formats have all."""

_HEAD: Final = ("WHO", "ASKS FOR", "MAY HAVE", "MISSING", "FOR", "WHY", "ASSUMED")


def report(drilled: Drilled, away: str, factor: float, window: tuple[int, int]) -> QuestionReport:
    """Return the report of a drill."""
    since, until = rfc3339(window[0]), rfc3339(window[1] - 1)
    rows = [_HEAD, *[_row(each) for each in drilled.needs[:_SHOWN]]]
    left = len(drilled.needs) - len(rows) + 1
    more = [Sentences([f"{counted(left, 'further row')}: -o json has all"])] if left else []
    document = {
        "away": away,
        "factor": factor,
        "since": since,
        "until": until,
        "known": drilled.known,
        "items": [msgspec.to_builtins(each) for each in drilled.needs],
        "untilSpill": [msgspec.to_builtins(each) for each in drilled.delays],
        "unknown": [msgspec.to_builtins(each) for each in drilled.unknown],
        "gone": drilled.gone,
        "assumed": list(ASSUMED),
    }
    sections = [
        verdict(_verdict(drilled, away, factor)),
        Section("Recorded load", f"{since} … {until}", [Grid(rows), *more]),
    ]
    if drilled.delays:
        texts = _first([f"{each.name}: {each.missing} replicas, for {each.seconds}s" for each in drilled.delays])
        sections.append(Section(parts=[Notes("These have room after the spill (whenAway), but none before:", texts)]))
    if drilled.gone:
        names = listed(drilled.gone)
        text = f"HPAs of {away} alone, whose load is in no figure: {names}"
        sections.append(Section(parts=[Sentences([text])]))
    if drilled.unknown:
        texts = _first([_unknown_text(each) for each in drilled.unknown])
        sections.append(Section(parts=[Notes("The demand of these is not known, and not guessed:", texts)]))
    notes = Notes("The figures are estimates, and rest on this:", ASSUMED)
    return QuestionReport("Fleet drill", "FleetDrill", document, sections, closing=[notes])


def _first(texts: Sequence[str]) -> list[str]:
    hidden = len(texts) - _SHOWN
    return [*texts[:_SHOWN], *([f"{hidden} more: -o json has all"] if hidden > 0 else [])]


def _row(each: DrillNeed) -> tuple[str, ...]:
    name = f"CapacityGroup {each.name}" if each.kind == "CapacityGroup" else each.name
    amounts = (each.asks, each.may_have, each.missing)
    unit = "" if each.unit == "replicas" else f" {each.unit}"
    shown = [f"{amount:g}{unit}" for amount in amounts]
    lasting = f"{minutes(each.minutes)} of {minutes(each.known_minutes)}"
    return (name, *shown, lasting, each.why, each.assumed)


def _unknown_text(each: DrillUnknown) -> str:
    return f"{each.name}: {each.why}" if each.is_whole else f"{each.name}, for {minutes(each.minutes)}: {each.why}"


def _verdict(drilled: Drilled, away: str, factor: float) -> str:
    load = "the recorded load" if factor == 1.0 else f"{factor:g} times the recorded load"
    begin = f"Without {away}, at {load}"
    gone = ""
    if drilled.gone:
        are = "is" if len(drilled.gone) == 1 else "are"
        gone = f"; {counted(len(drilled.gone), 'HPA')} of {away} alone {are} away with it"
    if drilled.needs:
        have = "has" if len(drilled.needs) == 1 else "have"
        return f"{begin}, {len(drilled.needs)} of {drilled.known} {have} no room{gone}."
    if not drilled.known:
        return f"{begin}, nothing is known of anybody's room: no demand outside {away} is known."
    whole = sum(each.is_whole for each in drilled.unknown)
    rest = f"; of {whole} the demand is not known" if whole else ""
    return f"{begin}, all {drilled.known} whose demand is known have room{rest}{gone}."

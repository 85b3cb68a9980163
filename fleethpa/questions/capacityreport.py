"""The report of `capacity test`: how often a ceiling would have held additions back, of whom, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fleethpa.questions.backtestreport import minutes
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted

if TYPE_CHECKING:
    from streams.analysis.capacityruns import CapacityTest

_UNKNOWN: Final = (
    "what a load that is held back would have asked for later: HPAs want what was decided as recorded",
    "the weight of a replica: all count alike",
    "what HPAs wanted that are no longer there: they are not counted",
)


def report(name: str, result: CapacityTest) -> QuestionReport:
    """The report of one ceiling."""
    rows = [
        (
            each.hpa,
            str(each.priority),
            str(each.times),
            minutes(each.minutes),
            minutes(each.longest_minutes),
            str(each.most_missing),
            f"{each.missing_replica_hours:,.2f}",
        )
        for each in result.held
    ]
    head = ("HPA", "PRIORITY", "TIMES", "HELD BACK", "LONGEST", "MISSING AT MOST", "REPLICA-HOURS")
    about = f"{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {counted(result.hpas, 'HPA')}"
    document = {
        "name": name,
        "limit": {"replicas": result.limit},
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "hpas": result.hpas,
        "peak": {"replicas": result.peak, "time": rfc3339(result.peak_ms)},
        "above": result.above,
        "times": result.times,
        "minutes": result.minutes,
        "longestMinutes": result.longest_minutes,
        "held": msgspec.to_builtins(result.held),
    }
    section = Section(f"CapacityGroup {name}", about, [Sentences(_verdict(result)), Grid([head, *rows])])
    return QuestionReport(
        "Capacity test", "CapacityReport", document, [section], closing=[Notes("This cannot know:", _UNKNOWN)]
    )


def _verdict(result: CapacityTest) -> list[str]:
    limit = f"A limit of {counted(result.limit, 'replica')}"
    peak = f"the most that was wanted at once is {result.peak:,}, at {rfc3339(result.peak_ms)}"
    if not result.held:
        texts = [f"{limit} would never have held anything back: {peak}."]
    else:
        texts = [
            f"{limit} would have held back {len(result.held)} of {counted(result.hpas, 'HPA')}: "
            f"{counted(result.times, 'time')}, {minutes(result.minutes)} in all.",
            f"The longest time was {minutes(result.longest_minutes)}, from {rfc3339(result.longest_since_ms)} on.",
            f"A limit of {result.peak:,} would have held nothing back: {peak}.",
        ]
    if result.above:
        texts.append(
            f"There were up to {result.above:,} replicas, above the limit: nothing is scaled down for a ceiling."
        )
    return texts

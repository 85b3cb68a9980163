"""The report of backtests: each HPA as recorded against its candidate, the model, and what that cannot know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fleethpa.fleet.decisionfinding import short_id
from fleethpa.fleet.views import priced
from fleethpa.show.report import Chart, Curve, Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339, span
from fleethpa.show.words import counted, percent, relative_change
from schemas.constraints import words_of
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.measures import Measures, Moment, Scores, by_hours, total

if TYPE_CHECKING:
    from streams.analysis.answer import DecisionBounds, SpecDifference
    from streams.analysis.backtest import Backtest


MODELS: Final = {
    "open": "open loop: samples, pods and scale stay as recorded; the candidate's recommendations have no effect",
    "closed": "closed loop: the recorded total load divided over the candidate's pods",
}
OPEN_UNKNOWN: Final = (
    "what its own replicas would have changed: the load per pod stays the recorded one",
    "load over replicas is counted as if every wanted replica took load at once",
)
_FAR: Final = 1e6
_LEAST_HOURS: Final = 0.005
"""Replica-hours that are none, as they are written."""
_LEAST_SHARE: Final = 0.01
"""Of the replica-hours: by how much a model may miss what was recorded without a word of it in the verdict."""
ComparedRow = tuple[str, str, str, str]


class Reported(NamedTuple):
    """A backtest, and what the candidate changes in the deployed spec."""

    result: Backtest
    changes: Sequence[str]


# --- the measures -----------------------------------------------------------------------------------------------------


def minutes(value: float) -> str:
    """Minutes as a span."""
    return span(round(value * 60) * 1000) or "0s"


def _hours(value: float) -> str:
    return f"{value:,.2f}"


def _count(value: float) -> str:
    return f"{value:.0f}"


def _ratio(value: float) -> str:
    """An overload; endless where there was load and no pod."""
    return f"{value:.2f}" if value < _FAR else "no pod"


def _relative(before: float, after: float) -> str:
    return relative_change(before, after) or "-"


def _difference(before: float, after: float) -> str:
    return f"{after - before:+.2f}" if max(before, after) < _FAR else "-"


def _points(before: float, after: float) -> str:
    return f"{(after - before) * 100:+.1f} points"


def _signed(text: Callable[[float], str]) -> Callable[[float, float], str]:
    """The difference as `text` writes an amount; 0 has no unit."""
    return lambda before, after: (
        f"{'+' if after > before else '-'}{text(abs(after - before))}" if after != before else "0"
    )


class _Measure(NamedTuple):
    name: str
    field: str
    text: Callable[[float], str]
    change: Callable[[float, float], str]

    def row(self, before: Any, after: Any) -> list[ComparedRow]:
        """Recorded, candidate and change; no row where one of the two is not known."""
        one, other = getattr(before, self.field), getattr(after, self.field)
        if one is None or other is None:
            return []
        return [(self.name, self.text(one), self.text(other), self.change(one, other))]


_HEAD: Final[ComparedRow] = ("", "recorded", "candidate", "change")
_MEASURES: Final = (
    _Measure("replica-hours", "replica_hours", _hours, _relative),
    _Measure("time above target", "above_target_minutes", minutes, _signed(minutes)),
    _Measure("worst overload (ratio)", "worst_overload", _ratio, _difference),
    _Measure("time at maxReplicas", "at_max_minutes", minutes, _signed(minutes)),
    _Measure("scale events", "scale_events", _count, _signed(_count)),
)
"""What is asked first; the rest is shown with `-o wide`."""
_MORE_MEASURES: Final = (_Measure("direction flips", "direction_flips", _count, _signed(_count)),)
_AT_DEPLOYED_TARGET: Final = _Measure("time above the deployed target", *_MEASURES[1][1:])
_SCORES: Final = (
    _Measure("under-provisioning accuracy", "under_accuracy", percent, _points),
    _Measure("over-provisioning accuracy", "over_accuracy", percent, _points),
    _Measure("under-provisioned time share", "under_share", percent, _points),
    _Measure("over-provisioned time share", "over_share", percent, _points),
    _Measure("instability", "instability", percent, _points),
    _Measure("adaptations per hour", "adaptations_per_hour", _hours, _difference),
    _Measure("slack", "slack", percent, _points),
    _Measure("replica-hours of the ideal autoscaler", "ideal_replica_hours", _hours, _difference),
    _Measure("replica-hours / ideal", "ideal_ratio", _hours, _difference),
    _Measure("replica-hours above the ideal", "too_many_replica_hours", _hours, _difference),
    _Measure("replica-hours below the ideal", "too_few_replica_hours", _hours, _difference),
    _Measure("time below the ideal", "too_few_share", percent, _points),
)
"""The scores of the literature."""


def measured(before: Measures, after: Measures, head: ComparedRow) -> Grid:
    """The measures of two series beside each other; `head`: what the columns are."""
    shown = (*_MEASURES, *_MORE_MEASURES)
    return Grid([head, *(row for each in shown for row in each.row(before, after))], numbers=True)


def _compared(
    measures: tuple[Measures, Measures],
    scores: tuple[Scores, Scores],
    at_deployed_target: Measures | None = None,
    *,
    wide: bool,
) -> Grid:
    rows = [row for each in _MEASURES for row in each.row(*measures)]
    if at_deployed_target is not None:
        rows += _AT_DEPLOYED_TARGET.row(measures[0], at_deployed_target)
    if wide:
        rows += [row for each in _MORE_MEASURES for row in each.row(*measures)]
        rows += [row for each in _SCORES for row in each.row(*scores)]
    return Grid([_HEAD, *rows], numbers=True)


# --- one HPA ----------------------------------------------------------------------------------------------------------


def section(reported: Reported, *, wide: bool = False) -> Section:
    """Return what is reported of one HPA; `wide`: with all measures and scores."""
    result = reported.result
    measures, scores = (result.recorded, result.candidate), (result.recorded_scores, result.candidate_scores)
    bounds = decisions_between(result.decisions)
    return Section(
        str(result.hpa),
        f"{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {result.evaluations:,} evaluations",
        [
            Sentences(
                [
                    f"candidate: {', '.join(reported.changes) or 'nothing: it is the deployed spec'}",
                    f"model: {MODELS[result.model]}",
                    *_model_facts(result),
                    *([f"recorded decisions: {bounds}"] if bounds else []),
                    _first_difference(result),
                ]
            ),
            _compared(measures, scores, result.candidate_at_recorded_target, wide=wide),
            _chart(result),
            Sentences([f"note: {text}" for text in notes(result)]),
        ],
    )


def _model_facts(result: Backtest) -> list[str]:
    """Return what the model assumes, and how well it does."""
    if result.model == "open":
        share = result.agreed / result.evaluations * 100
        return [
            f"the candidate answers {result.agreed:,} of {result.evaluations:,} evaluations as recorded "
            f"({share:.1f}%): the same proposal of each metric, limits and replicas"
        ]
    facts = []
    if result.start_up is not None:
        seen = f", {result.start_up.measured} seen" if result.start_up.measured else ""
        facts.append(f"pods take load after {result.start_up.ms / 1000:.0f}s ({result.start_up.how}{seen})")
    if result.deployed is not None:
        hours = (result.deployed.replica_hours / result.recorded.replica_hours - 1) * 100
        above = result.deployed.above_target_minutes - result.recorded.above_target_minutes
        facts.append(
            f"self-check: the deployed spec in this model gives {hours:+.1f}% replica-hours, "
            f"{above:+.1f} min above target"
        )
    return facts


def decisions_between(bounds: DecisionBounds) -> str:
    """The decisions that bound what was tried, by the short form of their IDs; empty: the first is not recorded."""
    first, last = bounds.first, bounds.last
    if not first or first == last:
        return short_id(first) if first else ""
    return f"{short_id(first)} … {short_id(last) if last else '(the last is not recorded yet)'}"


def _first_difference(result: Backtest) -> str:
    return first_difference(result.first, "the deployed spec", "the candidate")


def first_difference(first: SpecDifference | None, base: str, changed: str) -> str:
    """The first evaluation at which two specs differ, in a sentence that calls them `base` and `changed`."""
    if first is None:
        return "at no evaluation do the two want other replicas"
    named = f" (decision {short_id(first.decision)})" if first.decision else ""
    return (
        f"first difference at {rfc3339(first.time)}{named}, with {counted(first.current, 'replica')}: "
        f"{base} wants {first.base} ({_because(first.base_asked, first.base_held)}), "
        f"{changed} {first.changed} ({_because(first.changed_asked, first.changed_held)})"
    )


def _because(asked: int | None, held: Sequence[str]) -> str:
    metrics = "its metrics gave nothing" if asked is None else f"its metrics ask for {asked}"
    return f"{metrics}; {', '.join(map(words_of, held))}" if held else metrics


def notes(result: Backtest) -> list[str]:
    """Return what to keep in mind about this result, beside what the model can never know."""
    stated = []
    recorded = result.recorded
    if recorded.at_max_minutes and recorded.worst_overload > 1:
        stated.append(
            f"the recording was at maxReplicas for {minutes(recorded.at_max_minutes)}, overloaded at times: pods at "
            "their limit take less load than there was, so what a higher maximum would need is underestimated"
        )
    if recorded.unknown_minutes:
        stated.append(f"the load is not known for {minutes(recorded.unknown_minutes)}: metrics were missing")
    if result.edits:
        stated.append(f"the deployed spec was edited {result.edits} times in this window")
    if result.start_up is not None and not result.start_up.measured:
        stated.append(
            f"no pod started in this window: its start-up of {result.start_up.ms / 1000:.0f}s is {result.start_up.how}"
        )
    return stated


def _chart(result: Backtest) -> Chart:
    """Replicas over time: recorded, candidate, and how many pods the load needs at the deployed target."""
    recorded = [(each.time_ms, each.replicas) for each in result.recorded_moments]
    candidate = [(each.time_ms, each.replicas) for each in result.candidate_moments]
    need = [(each.time_ms, each.need) for each in result.recorded_moments if each.need is not None]
    most = max((count for _, count in (*recorded, *candidate)), default=1)
    return Chart(
        "Replicas",
        f"replicas over time of {result.hpa}",
        (
            Curve("recorded", "recorded", recorded),
            Curve("candidate", "candidate", candidate),
            Curve("pods that the load needs at target", "need", need, (3, 3)),
        ),
        result.since_ms,
        result.until_ms,
        # A need far beyond what ran would make the lines flat.
        max(1.0, most, *(min(value, 2.0 * most) for _, value in need)),
    )


def _decisions(result: Backtest) -> dict[str, str]:
    other = "" if result.first is None else result.first.decision
    return {"first": result.decisions.first, "last": result.decisions.last, "firstDifferent": other}


def _document(reported: Reported) -> dict[str, Any]:
    result = reported.result
    fields: dict[str, Any] = result.hpa._asdict() | {
        "model": result.model,
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "evaluations": result.evaluations,
        "decisions": {name: id_ for name, id_ in _decisions(result).items() if id_},
        "firstDifference": _first_difference(result),
        "recorded": result.recorded,
        "candidate": result.candidate,
        "recordedScores": result.recorded_scores,
        "candidateScores": result.candidate_scores,
        "changes": list(reported.changes),
        "notes": notes(result),
        "unknown": _unknown(result.model),
    }
    if result.candidate_at_recorded_target is not None:
        fields["candidateAtRecordedTarget"] = result.candidate_at_recorded_target
    if result.candidate_scores_at_recorded_target is not None:
        fields["candidateScoresAtRecordedTarget"] = result.candidate_scores_at_recorded_target
    if result.model == "open":
        fields["agreed"] = result.agreed
    else:
        fields |= {"startUp": result.start_up, "selfCheck": result.deployed}
    document: dict[str, Any] = msgspec.to_builtins(fields)
    return document | moments(result.recorded_moments, result.candidate_moments)


def moments(recorded: Sequence[Moment], candidate: Sequence[Moment]) -> dict[str, Any]:
    """The replicas over time, for machine formats."""
    points = [
        {"time": was.time_ms, "recorded": was.replicas, "candidate": own.replicas, "need": was.need}
        for was, own in zip(recorded, candidate, strict=True)
    ]
    return {"series": points}


def failures(failed: Sequence[str]) -> list[Section]:
    """The conditions of `--fail-if` that are met."""
    return [Section(parts=[Sentences([f"FAILED: {text}" for text in failed], "red")])] if failed else []


# --- the whole --------------------------------------------------------------------------------------------------------


def _unknown(model: str) -> Sequence[str]:
    return UNKNOWN if model == "closed" else OPEN_UNKNOWN


def in_a_sentence(reports: Sequence[Reported], price: Decimal | None = None) -> str:
    """Return what the candidate would have cost or saved, and what that would have done to the time above the
    target.
    """
    was, own = total(each.result.recorded for each in reports), total(each.result.candidate for each in reports)
    changes = list(dict.fromkeys(", ".join(each.changes) for each in reports))
    what = (changes[0] or "The deployed spec") if len(changes) == 1 else "The candidates"
    what += f", for {len(reports)} HPAs," if len(reports) > 1 else ""
    hours = own.replica_hours - was.replica_hours
    if abs(hours) < _LEAST_HOURS:
        cost = "would have cost the same replica-hours"
    else:
        money = "" if price is None else f"; {priced(abs(hours), price):,.2f} at {price}/h"
        share = _relative(was.replica_hours, own.replica_hours)
        cost = f"would have cost {abs(hours):,.2f} replica-hours {'more' if hours > 0 else 'less'} ({share}{money})"
    before, after = minutes(was.above_target_minutes), minutes(own.above_target_minutes)
    above = f"stays {before}" if before == after else f"goes from {before} to {after}"
    # Pods at their limit show no more load than they took: what a higher maximum would have needed is not known.
    at_max = any(each.result.recorded.at_max_minutes and each.result.recorded.worst_overload > 1 for each in reports)
    why = "; demand beyond maxReplicas is not known" if at_max else ""
    edits = sum(each.result.edits for each in reports)
    edited = f"; the deployed spec was edited {counted(edits, 'time')} meanwhile: part of this is due to that"
    return f"{what} {cost}; time above target {above}{why}{_of_the_model(reports, was, own)}{edited if edits else ''}."


def _of_the_model(reports: Sequence[Reported], was: Measures, own: Measures) -> str:
    """How much the model gives otherwise than was recorded without any change; empty where that is little.

    A pause, an override or missing metrics are in what was recorded, and not in the model.
    """
    results = [each.result for each in reports if each.result.deployed is not None]
    if len(results) < len(reports):
        return ""
    same = total(each.deployed for each in results if each.deployed is not None)
    if abs(same.replica_hours - was.replica_hours) < max(_LEAST_HOURS, _LEAST_SHARE * was.replica_hours):
        return ""
    gives = f"the model gives the deployed spec {_relative(was.replica_hours, same.replica_hours)}, too"
    return f"; {gives}: {own.replica_hours - same.replica_hours:+.2f} replica-hours are due to the change"


def report(
    reports: Sequence[Reported], failed: Sequence[str], price: Decimal | None = None, *, wide: bool = False
) -> QuestionReport:
    """The report of some HPAs. `failed`: the conditions of `--fail-if` that are met; `price`: of a replica-hour;
    `wide`: with all measures and scores.
    """
    results = [each.result for each in reports]
    summary = failures(failed)
    if len(results) > 1:
        measures = total(each.recorded for each in results), total(each.candidate for each in results)
        scores = by_hours([r.recorded_scores for r in results]), by_hours([r.candidate_scores for r in results])
        summary.insert(0, Section(f"all {len(results)} HPAs", parts=[_compared(measures, scores, wide=wide)]))
    return QuestionReport(
        "Backtest",
        "BacktestList",
        {"items": [_document(each) for each in reports], "failed": list(failed)},
        [verdict(in_a_sentence(reports, price)), *(section(each, wide=wide) for each in reports)],
        summary,
        [Notes("This model cannot know:", _unknown(results[0].model))],
    )

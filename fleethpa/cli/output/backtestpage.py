"""A backtest as text and as a document: recorded against candidate, the model, and what it cannot know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fleethpa.cli.output.stepplot import step_plot
from fleethpa.cli.output.times import rfc3339, span
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.measures import total
from streams.analysis.scores import by_hours

if TYPE_CHECKING:
    from streams.analysis.hpabacktest import Backtest
    from streams.analysis.measures import Measures
    from streams.analysis.scores import Scores

MODELS: Final = {
    "open": "open loop: samples, pods and scale stay as recorded; the candidate's recommendations have no effect",
    "closed": "closed loop: the recorded total load divided over the candidate's pods",
}
OPEN_UNKNOWN: Final = (
    "what its own replicas would have changed: the load per pod stays the recorded one",
    "load over replicas is counted as if every wanted replica took load at once",
)
_FAR: Final = 1e6


def minutes(value: float) -> str:
    """Minutes as a span."""
    return span(round(value * 60) * 1000) or "0s"


def ratio(value: float) -> str:
    """An overload; endless where there was load and no pod."""
    return f"{value:.2f}" if value < _FAR else "no pod"


_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("replica-hours", "replica_hours", lambda value: f"{value:,.2f}"),
    ("time above target", "above_target_minutes", minutes),
    ("worst overload (ratio)", "worst_overload", ratio),
    ("time at maxReplicas", "at_max_minutes", minutes),
    ("scale events", "scale_events", lambda value: f"{value:.0f}"),
    ("direction flips", "direction_flips", lambda value: f"{value:.0f}"),
)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


_SCORES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("under-provisioning accuracy", "under_accuracy", _percent),
    ("over-provisioning accuracy", "over_accuracy", _percent),
    ("under-provisioned time share", "under_share", _percent),
    ("over-provisioned time share", "over_share", _percent),
    ("instability", "instability", _percent),
    ("adaptations per hour", "adaptations_per_hour", lambda value: f"{value:.2f}"),
    ("slack", "slack", _percent),
    ("replica-hours of an oracle", "oracle_replica_hours", lambda value: f"{value:,.2f}"),
    ("  with start-up delay", "oracle_with_start_up_replica_hours", lambda value: f"{value:,.2f}"),
)


def score_rows(recorded: Scores, candidate: Scores) -> list[tuple[str, ...]]:
    """Rows of the scores of the literature, to follow `table_rows`; the change of a share is in points."""
    rows: list[tuple[str, ...]] = []
    for name, field, text in _SCORES:
        before, after = float(getattr(recorded, field)), float(getattr(candidate, field))
        moved = f"{(after - before) * 100:+.1f} points" if text is _percent else f"{after - before:+.2f}"
        rows.append((name, text(before), text(after), moved))
    before_ratio, after_ratio = recorded.oracle_ratio, candidate.oracle_ratio
    if before_ratio is not None and after_ratio is not None:
        moved = f"{after_ratio - before_ratio:+.2f}"
        rows.append(("replica-hours / oracle's", f"{before_ratio:.2f}", f"{after_ratio:.2f}", moved))
    return rows


def rows_of(result: Backtest) -> list[tuple[str, ...]]:
    """The whole comparison of one HPA: measures, then scores; text and HTML show the same rows."""
    rows = table_rows(result.recorded, result.candidate, result.candidate_at_recorded_target)
    return rows + score_rows(result.recorded_scores, result.candidate_scores)


def table_rows(recorded: Measures, candidate: Measures, at_recorded: Measures | None = None) -> list[tuple[str, ...]]:
    """The rows of the comparison: name, recorded, candidate, change."""
    rows: list[tuple[str, ...]] = [("", "recorded", "candidate", "change")]
    for name, field, text in _ROWS:
        before, after = float(getattr(recorded, field)), float(getattr(candidate, field))
        rows.append((name, text(before), text(after), change(field, before, after, text)))
        if field == "above_target_minutes" and at_recorded is not None:
            own = at_recorded.above_target_minutes
            rows.append(("  at the deployed target", text(before), text(own), change(field, before, own, text)))
    return rows


def change(field: str, before: float, after: float, text: Callable[[float], str]) -> str:
    """The change: relative for replica-hours, else the difference."""
    if field == "replica_hours":
        return f"{(after / before - 1) * 100:+.1f} %" if before else "-"
    if field == "worst_overload":
        return f"{after - before:+.2f}" if max(before, after) < _FAR else "-"
    sign = "+" if after > before else "-" if after < before else ""
    return f"{sign}{text(abs(after - before))}" if sign else "0"


class Reported(NamedTuple):
    """A backtest with what its report says beside the numbers.

    `changes`: what the candidate changes in the deployed spec. `notes`: what to keep in mind about this result.
    """

    result: Backtest
    changes: Sequence[str]
    notes: Sequence[str]


def page(reported: Reported, *, plot: bool, width: int) -> list[str]:
    """The text of one HPA."""
    result = reported.result
    lines = [
        f"{result.hpa}   {rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {result.evaluations:,} evaluations",
        *facts(reported),
        *_aligned(rows_of(result)),
    ]
    if plot:
        lines += ["", *_plot(result, width)]
    return [*lines, *[f"note: {text}" for text in reported.notes]]


def facts(reported: Reported) -> list[str]:
    """What was changed, the model, and what it assumes and how well it does, as every report states them."""
    changed = ", ".join(reported.changes) or "nothing: it is the deployed spec"
    model = MODELS[reported.result.model]
    return [f"candidate: {changed}", f"model: {model}", *_model_facts(reported.result)]


def _model_facts(result: Backtest) -> list[str]:
    if result.model == "open":
        share = result.agreed / result.evaluations * 100
        return [
            f"the candidate answers {result.agreed:,} of {result.evaluations:,} evaluations as recorded ({share:.1f} %)"
        ]
    facts = []
    if result.start_up is not None:
        seen = f", {result.start_up.measured} seen" if result.start_up.measured else ""
        facts.append(f"pods take load after {result.start_up.ms / 1000:.0f}s ({result.start_up.how}{seen})")
    if result.deployed is not None:
        hours = (result.deployed.replica_hours / result.recorded.replica_hours - 1) * 100
        above = result.deployed.above_target_minutes - result.recorded.above_target_minutes
        facts.append(
            f"self-check: the deployed spec in this model gives {hours:+.1f} % replica-hours, "
            f"{above:+.1f} min above target"
        )
    return facts


def _plot(result: Backtest, width: int) -> list[str]:
    first = [(moment.time_ms, moment.replicas) for moment in result.recorded_moments]
    second = [(moment.time_ms, moment.replicas) for moment in result.candidate_moments]
    return step_plot(first, second, ("recorded", "candidate"), width=width)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}".rstrip()
        for row in rows
    ]


def unknown(model: str) -> Sequence[str]:
    """What the model cannot know."""
    return UNKNOWN if model == "closed" else OPEN_UNKNOWN


def caution(model: str) -> list[str]:
    """The closing lines of every report."""
    return ["This model cannot know:", *[f"  - {text}" for text in unknown(model)]]


def totals(results: Sequence[Backtest]) -> list[tuple[str, ...]]:
    """The rows of all HPAs together; none where there is only one."""
    if len(results) < 2:
        return []
    rows = table_rows(total(r.recorded for r in results), total(r.candidate for r in results))
    recorded, candidate = [r.recorded_scores for r in results], [r.candidate_scores for r in results]
    return rows + score_rows(by_hours(recorded), by_hours(candidate))


def summary(results: Sequence[Backtest], failed: Sequence[str]) -> list[str]:
    """All HPAs together, where there are several, and the gate."""
    rows = totals(results)
    lines = [f"all {len(results)} HPAs", *_aligned(rows), ""] if rows else []
    return lines + [f"FAILED: {text}" for text in failed]


def document(reported: Reported) -> dict[str, Any]:
    """One HPA for machine formats."""
    result = reported.result
    made: dict[str, Any] = {
        "cluster": result.hpa.cluster,
        "namespace": result.hpa.namespace,
        "name": result.hpa.name,
        "model": result.model,
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "evaluations": result.evaluations,
        "recorded": msgspec.to_builtins(result.recorded),
        "candidate": msgspec.to_builtins(result.candidate),
        "recordedScores": msgspec.to_builtins(result.recorded_scores),
        "candidateScores": msgspec.to_builtins(result.candidate_scores),
        "changes": list(reported.changes),
        "notes": list(reported.notes),
        "unknown": list(unknown(result.model)),
    }
    if result.candidate_at_recorded_target is not None:
        made["candidateAtRecordedTarget"] = msgspec.to_builtins(result.candidate_at_recorded_target)
    if result.candidate_scores_at_recorded_target is not None:
        made["candidateScoresAtRecordedTarget"] = msgspec.to_builtins(result.candidate_scores_at_recorded_target)
    if result.model == "open":
        made["agreed"] = result.agreed
    else:
        made["startUp"] = msgspec.to_builtins(result.start_up)
        made["selfCheck"] = msgspec.to_builtins(result.deployed)
    made["series"] = [
        {"time": was.time_ms, "recorded": was.replicas, "candidate": own.replicas, "need": was.need}
        for was, own in zip(result.recorded_moments, result.candidate_moments, strict=True)
    ]
    return made

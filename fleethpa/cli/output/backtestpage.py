"""A backtest as text and as a document: recorded against candidate, the model, and what it cannot know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from fleethpa.cli.output.stepplot import step_plot
from fleethpa.cli.output.times import rfc3339, span

if TYPE_CHECKING:
    from streams.analysis.hpabacktest import Backtest
    from streams.analysis.measures import Measures

MODELS: Final = {
    "open": "open loop: recorded samples, pods and scale as they were; the candidate only says what it would want",
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


def page(result: Backtest, said: Sequence[str], *, plot: bool, width: int) -> list[str]:
    """The text of one HPA."""
    lines = [
        f"{result.hpa}   {rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {result.evaluations:,} evaluations",
        f"model: {MODELS[result.model]}",
        *_model_facts(result),
        *_aligned(table_rows(result.recorded, result.candidate, result.candidate_at_recorded_target)),
    ]
    if plot:
        lines += ["", *_plot(result, width)]
    return [*lines, *[f"note: {text}" for text in said]]


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
    from streams.analysis.closedloop import UNKNOWN

    return UNKNOWN if model == "closed" else OPEN_UNKNOWN


def caution(model: str) -> list[str]:
    """The closing lines of every report."""
    return ["This model cannot know:", *[f"  - {text}" for text in unknown(model)]]


def summary(results: Sequence[Backtest], failed: Sequence[str]) -> list[str]:
    """All HPAs together, where there are several, and the gate."""
    from streams.analysis.measures import total

    lines = []
    if len(results) > 1:
        both = (total(r.recorded for r in results), total(r.candidate for r in results))
        lines += [f"all {len(results)} HPAs", *_aligned(table_rows(*both)), ""]
    return lines + [f"FAILED: {text}" for text in failed]


def document(result: Backtest, said: Sequence[str]) -> dict[str, Any]:
    """One HPA for machine formats."""
    import msgspec

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
        "notes": list(said),
        "unknown": list(unknown(result.model)),
    }
    if result.candidate_at_recorded_target is not None:
        made["candidateAtRecordedTarget"] = msgspec.to_builtins(result.candidate_at_recorded_target)
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

"""The numbers of an HPA's charts, read off its decisions: replicas as steps, each metric beside its target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from fleethpa.show import words
from fleethpa.show.report import MOST_POINTS, thinned
from schemas.decisions import DecisionOutline, MetricOutline
from streams.history.recorded import Recorded
from streams.state.moves import moved

Number = float | int | None
GAP_MS: Final = 180_000
"""Without an evaluation for this long, and for three times the usual distance, the line has a gap."""


class MetricLine(Struct, kw_only=True, rename="camel"):
    """A metric: its values and targets at the chart's times, in `unit` (`%`, or empty: as the metric has it)."""

    name: str
    unit: str
    values: list[Number]
    targets: list[Number]


class Mark(Struct, kw_only=True, rename="camel"):
    """Something that happened at a time (seconds): `kind` is `spec`, `command`, `restart`, `hand` or `write`."""

    time: float
    kind: str
    text: str


class ChartSeries(Struct, kw_only=True, rename="camel"):
    """Lines over `times` (seconds since 1970); None is a gap. All replicas are counts."""

    times: list[float]
    wanted: list[Number]
    spec: list[Number]
    ready: list[Number]
    least: list[Number]
    most: list[Number]
    metrics: list[MetricLine]
    marks: list[Mark]


def evaluations(decisions: Iterable[Recorded]) -> list[Recorded]:
    """The decisions that are evaluations."""
    return [each for each in decisions if each.head.kind == "evaluation"]


def series(decisions: Sequence[Recorded], marks: Iterable[Mark] = ()) -> ChartSeries:
    """Lines of one HPA's evaluations, which are in order of time; every move of replicas and bounds is kept."""
    found = thinned(evaluations(decisions), MOST_POINTS, key=_replicas)
    gap_ms = _gap_ms(found)
    points: list[tuple[float, DecisionOutline | None]] = []
    """The second part is None where a gap begins."""
    for before, recorded in zip([None, *found], found, strict=False):
        if before is not None and recorded.time_ms - before.time_ms > gap_ms:
            points.append(((before.time_ms + 1) / 1000, None))
        points.append((recorded.time_ms / 1000, recorded.outline))

    def line(value: Callable[[DecisionOutline], Number]) -> list[Number]:
        return [None if decision is None else value(decision) for _, decision in points]

    return ChartSeries(
        times=[time_s for time_s, _ in points],
        wanted=line(lambda d: d.final_desired_replicas if words.scale_is_known(d) else None),
        spec=line(lambda d: d.current_replicas if words.scale_is_known(d) else None),
        ready=line(lambda d: max((metric.pods_used for metric in d.metrics), default=0) or None),
        least=line(lambda d: d.min_replicas),
        most=line(lambda d: d.max_replicas),
        metrics=_metric_lines([decision for _, decision in points]),
        marks=list(marks),
    )


def _replicas(recorded: Recorded) -> tuple[int, ...]:
    facts = recorded.facts
    return (facts.final_desired_replicas, facts.current_replicas, facts.min_replicas, facts.max_replicas)


def _gap_ms(found: Sequence[Recorded]) -> float:
    if len(found) < 3:
        return GAP_MS
    distances = sorted(after.time_ms - before.time_ms for before, after in pairwise(found))
    return max(GAP_MS, 3 * distances[(len(distances) - 1) // 2])


def _metric_lines(decisions: Sequence[DecisionOutline | None]) -> list[MetricLine]:
    """A line for each metric that occurs, in the order in which they come."""
    metrics = [
        {words.short_name(m): m for m in decision.metrics} if decision is not None else {} for decision in decisions
    ]
    found = []
    for name in dict.fromkeys(name for each in metrics for name in each):
        own = [each.get(name) for each in metrics]
        unit = "%" if any(metric is not None and metric.target_utilization for metric in own) else ""
        found.append(
            MetricLine(
                name=name,
                unit=unit,
                values=[None if metric is None else _value(metric, unit) for metric in own],
                targets=[None if metric is None else _target(metric, unit) for metric in own],
            )
        )
    return found


def spec_marks(decisions: Sequence[Recorded]) -> list[Mark]:
    """Where another generation of the spec comes into force, and where a pause begins or ends to hold a change."""
    found = []
    for before, after in pairwise(evaluations(decisions)):
        one, other = before.facts, after.facts
        if one is other:
            continue
        if (one.uid, one.generation, one.spec_hash) != (other.uid, other.generation, other.spec_hash):
            by = f" by {other.author}" if other.author else ""
            found.append(Mark(time=after.time_ms / 1000, kind="spec", text=f"revision {other.generation}{by}"))
        if bool(one.paused) != bool(other.paused):
            text = other.paused or "resumed"
            found.append(Mark(time=after.time_ms / 1000, kind="command", text=text))
    return found


def restart_marks(decisions: Iterable[Recorded]) -> list[Mark]:
    """Where windows and scale events were cleared, with the reason: as if the controller had been started again."""
    return [
        Mark(time=each.time_ms / 1000, kind="restart", text=f"windows cleared: {why}")
        for each in decisions
        if (why := each.facts.observed.get("restart"))
    ]


def hand_marks(decisions: Iterable[Recorded]) -> list[Mark]:
    """Who wrote the replicas, as each evaluation saw it."""
    found = []
    for recorded in decisions:
        if change := recorded.facts.observed.get("change"):
            move = moved(recorded.time_ms, change)
            text = f"{move.before} → {move.after} by {move.writer}"
            found.append(
                Mark(time=move.time_ms / 1000, kind="write" if change["by"] == "decision" else "hand", text=text)
            )
    return found


def _value(metric: MetricOutline, unit: str) -> Number:
    if metric.error:
        return None
    if unit == "%":
        return metric.utilization
    impossible = metric.value is None or metric.value <= words.SMALLEST_MILLI
    return None if impossible else (metric.value or 0) / 1000


def _target(metric: MetricOutline, unit: str) -> Number:
    if unit == "%":
        return metric.target_utilization
    return None if metric.target is None else metric.target / 1000

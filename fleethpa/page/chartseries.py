"""The numbers of an HPA's charts, read off its decisions: replicas as steps, each metric beside its target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from fleethpa.show import words
from schemas.decisions import DecisionOutline, MetricOutline
from streams.history.recorded import Recorded
from streams.state.moves import moved

Number = float | int | None
GAP_MS: Final = 180_000
"""Without an evaluation for this long, and for three times the usual distance, the line has a gap."""
MOST_POINTS: Final = 4_000
"""Points of a line that are sent; of more, those are kept at which a line moves, then every so many."""


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
    """Lines of one HPA's evaluations, which are in order of time."""
    found = thinned(evaluations(decisions))
    gap_ms = _gap_ms(found)
    made = ChartSeries(
        times=[], wanted=[], spec=[], ready=[], least=[], most=[], metrics=_lines(found), marks=list(marks)
    )
    before: int | None = None
    for recorded in found:
        if before is not None and recorded.time_ms - before > gap_ms:
            _take(made, (before + 1) / 1000, None)
        _take(made, recorded.time_ms / 1000, recorded.outline)
        before = recorded.time_ms
    return made


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


def thinned(found: Sequence[Recorded]) -> Sequence[Recorded]:
    """At most about `MOST_POINTS`: every point at which replicas or bounds move, and of the others one in so many."""
    if len(found) <= MOST_POINTS:
        return found
    every = -(-len(found) // MOST_POINTS)
    kept, before = [], None
    for number, recorded in enumerate(found):
        decision = recorded.facts
        now = (decision.final_desired_replicas, decision.current_replicas, decision.min_replicas, decision.max_replicas)
        if now != before or number % every == 0 or number == len(found) - 1:
            kept.append(recorded)
        before = now
    return kept


def _gap_ms(found: Sequence[Recorded]) -> float:
    if len(found) < 3:
        return GAP_MS
    distances = sorted(after.time_ms - before.time_ms for before, after in pairwise(found))
    return max(GAP_MS, 3 * distances[(len(distances) - 1) // 2])


def _lines(found: Sequence[Recorded]) -> list[MetricLine]:
    names: dict[str, MetricLine] = {}
    for recorded in found:
        for metric in recorded.outline.metrics:
            names.setdefault(_line(metric), MetricLine(name=_line(metric), unit="", values=[], targets=[]))
    for line in names.values():
        if any(m.target_utilization for r in found for m in r.outline.metrics if _line(m) == line.name):
            line.unit = "%"
    return list(names.values())


def _line(metric: MetricOutline) -> str:
    return words.short_name(metric)


def _take(made: ChartSeries, time_s: float, decision: DecisionOutline | None) -> None:
    """Add a point; without a decision it is a gap."""
    made.times.append(time_s)
    known = decision is not None and words.scale_is_known(decision)
    made.wanted.append(decision.final_desired_replicas if decision is not None and known else None)
    made.spec.append(decision.current_replicas if decision is not None and known else None)
    made.ready.append(_ready(decision) if decision is not None else None)
    made.least.append(decision.min_replicas if decision is not None else None)
    made.most.append(decision.max_replicas if decision is not None else None)
    metrics = {_line(metric): metric for metric in decision.metrics} if decision is not None else {}
    for line in made.metrics:
        metric = metrics.get(line.name)
        line.values.append(_value(metric, line.unit) if metric is not None else None)
        line.targets.append(_target(metric, line.unit) if metric is not None else None)


def _ready(decision: DecisionOutline) -> Number:
    counts = [metric.pods_used for metric in decision.metrics if metric.pods_used]
    return max(counts) if counts else None


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


def document(made: ChartSeries) -> dict[str, Any]:
    """Lines as the charts read them."""
    found: dict[str, Any] = msgspec.to_builtins(made)
    return found

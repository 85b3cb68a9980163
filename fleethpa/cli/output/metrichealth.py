"""How every metric of a decision is: where it comes from, how old it is, what it was used for, what is wrong."""

from __future__ import annotations

from fleethpa.cli.output import words
from fleethpa.cli.output.errortexts import cause
from fleethpa.cli.output.times import age
from schemas.decisions import Decision

MetricHealth = tuple[str, str, str, str, str]


def metric_health(decision: Decision, now_ms: int) -> list[MetricHealth]:
    """Name, source position, age of the newest sample at `now_ms`, pods used and note of each metric, in spec order."""
    rows = []
    for index, metric in enumerate(decision.metrics):
        source = decision.input.sources[index] if index < len(decision.input.sources) else ""
        newest = f"{age(max(0, now_ms - metric.newest))} ago" if metric.newest is not None else "-"
        note = cause(metric.error) if metric.error else words.note(metric.note)
        rows.append((words.short_name(metric), source or "-", newest, str(metric.pods_used), note or "-"))
    return rows

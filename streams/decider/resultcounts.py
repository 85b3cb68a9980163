"""Counts of published decisions for Prometheus: how many of which kind, and how old their samples were."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram

from schemas.decisionheaders import cluster_of, is_short
from streams.state.ledger import DecisionRecord

LAG_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0)
ACTIONS = {"ScaleUp": "scale_up", "ScaleDown": "scale_down", "None": "none"}
"""Upstream's words for a direction."""


class _Metric(Struct, frozen=True, gc=False):
    newest: int | None = None


class _Outcome(Struct, frozen=True, gc=False):
    result: str = ""


class _Seen(Struct, frozen=True, rename="camel"):
    """The fields of a full or a short record that are counted."""

    mode: str = "shadow"
    direction: str = "None"
    reason: str = ""
    constraints_applied: list[str] = []
    metrics: list[_Metric] = []
    newest: list[int | None] = []
    outcome: _Outcome | None = None


class EvaluationResult(Struct, frozen=True, gc=False):
    """Labels of a decision."""

    action: str = "none"
    reason: str = ""
    limited_by: str = ""
    mode: str = ""


_SELECTOR = re.compile(r"\((&LabelSelector\{.*\}|nil)\)")
_SEEN = msgspec.json.Decoder(_Seen)


def kind_of(decision: DecisionRecord) -> str:
    """`completion`, or the form of an evaluation's record: `full` or `short`."""
    if decision.id.endswith("-c"):
        return "completion"
    return "short" if is_short(decision.headers) else "full"


class Results:
    """Counts decisions. A short record is counted as the full one that it repeats, if that was made here."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "fleethpa_decisions",
            "Decisions published",
            ["kind", "action", "reason", "limited_by", "mode"],
            registry=registry,
        )
        self._writes = Counter(
            "fleethpa_writes_ended",
            "Wanted writes that have ended, by outcome; `timeout`: none came back, as where nobody serves the cluster",
            ["cluster", "result"],
            registry=registry,
        )
        self._lag = Histogram(
            "fleethpa_decision_lag_seconds",
            "From the newest sample that an evaluation used to its record on the decisions topic",
            buckets=LAG_SECONDS,
            registry=registry,
        )
        self._full: dict[bytes, EvaluationResult] = {}
        self._results: dict[EvaluationResult, EvaluationResult] = {}

    def count(self, decision: DecisionRecord, now_s: float | None = None) -> str:
        """Count one published decision; gives its kind."""
        kind, seen = kind_of(decision), _SEEN.decode(decision.value)
        subject = dict(decision.headers)["ce_subject"]
        result = self._full.get(subject, EvaluationResult()) if kind == "short" else _result(seen)
        if kind == "full":
            # Results are few: each HPA's own texts of them would take a quarter of a kilobyte.
            self._full[subject] = self._results.setdefault(result, result)
        self._decisions.labels(kind, result.action, result.reason, result.limited_by, result.mode).inc()
        if seen.outcome is not None:
            self._writes.labels(cluster_of(decision.headers), seen.outcome.result).inc()
        if kind != "completion":
            newest = _newest(seen.newest if kind == "short" else [metric.newest for metric in seen.metrics])
            if newest is not None:
                self._lag.observe(max(0.0, (time.time() if now_s is None else now_s) - newest / 1000))
        return kind


def _result(seen: _Seen) -> EvaluationResult:
    # The selector of a metric says little, is long, and would make a series of its own.
    reason = _SELECTOR.sub("", seen.reason)
    return EvaluationResult(ACTIONS.get(seen.direction, "none"), reason, ",".join(seen.constraints_applied), seen.mode)


def _newest(times: Iterable[int | None]) -> int | None:
    return max((time_ms for time_ms in times if time_ms is not None), default=None)

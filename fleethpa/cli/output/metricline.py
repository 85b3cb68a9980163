"""One metric of an explanation: its numbers, so that whoever reads them can calculate the proposal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fleethpa.cli.output import words
from fleethpa.cli.output.amounts import alike
from fleethpa.cli.output.errortexts import one_line
from fleethpa.cli.output.times import span
from schemas.decisions import Decision, MetricDecision
from schemas.kubernetes.gotimes import parse_time_ms


def metric_line(decision: Decision, metric: MetricDecision, winner: bool) -> str:
    """Value and target, the product that is rounded up, what was judged, and of which samples."""
    if metric.error:
        return f"{metric.reason or 'failed'}: {one_line(metric.error)}"
    parts = [_formula(decision, metric), _judgement(metric), _samples(decision, metric), "◀ winner" if winner else ""]
    return "   ".join(part for part in parts if part)


def _formula(decision: Decision, metric: MetricDecision) -> str:
    quotient = _quotient(metric)
    if not quotient:
        return ""
    if not metric.ratio:
        return quotient
    ratio = float(metric.ratio)
    return f"{quotient} = {ratio:.3f}   {_rounding(decision, metric, ratio)}"


def _quotient(metric: MetricDecision) -> str:
    """Value and target in one notation; empty where one is not known."""
    if metric.target_utilization is not None and metric.utilization is not None:
        return f"{metric.utilization}%/{metric.target_utilization}%"
    if metric.value is None or metric.target is None:
        return ""
    return "/".join(alike((metric.value, metric.target), words.short_name(metric)))


def _rounding(decision: Decision, metric: MetricDecision, ratio: float) -> str:
    """The product that the proposal is rounded up from; empty where the record does not hold all that went into it."""
    for text, exact in _products(decision, metric, ratio):
        if metric.proposal is not None and metric.proposal - 1 < exact <= metric.proposal + 1e-9:
            return f"ceil({text} = {_shown_up_to(exact, metric.proposal)})"
    return ""


def _products(decision: Decision, metric: MetricDecision, ratio: float) -> Iterator[tuple[str, float]]:
    """Pods times ratio: of the pods counted, or of those that the scale reports."""
    used, missing = metric.pods_used, metric.pods_missing
    if missing and ratio < 1:
        # On the way down a pod without a sample counts as at target, or as using all that it requests.
        target = metric.target_utilization
        full = max(100, target) / target if target else 1.0
        text = f"{used} × {ratio:.3f} + {missing} missing × {full:.3f}"  # noqa: RUF001  # the sign of a product
        yield text, used * ratio + missing * full
        return
    reported = int(decision.observed.get("statusReplicas", 0))
    for count in (used, used + metric.pods_not_ready + missing, reported, decision.current_replicas):
        if count:
            yield f"{count} × {ratio:.3f}", count * ratio  # noqa: RUF001


def _shown_up_to(exact: float, proposal: int) -> str:
    """A product with two decimals, or as many as show that rounding it up gives the proposal."""
    texts = (f"{exact:.{digits}f}" for digits in range(2, 16))
    return next((text for text in texts if math.ceil(float(text)) == proposal), f"{exact:.2f}")


def _judgement(metric: MetricDecision) -> str:
    if metric.note == "withinTolerance":
        counting = " counting the pods without metrics" if metric.pods_missing or metric.pods_not_ready else ""
        return f"within tolerance{counting}: replicas stay"
    if metric.note:
        return words.note(metric.note)
    return f"outside tolerance{_taken_to_use(metric)}" if metric.ratio else ""


def _taken_to_use(metric: MetricDecision) -> str:
    """What is assumed of pods without a usable sample."""
    up = float(metric.ratio) > 1
    absent = "missing" if metric.pods_missing else "not ready" if metric.pods_not_ready and up else ""
    if not absent:
        return ""
    down = "all that they request" if metric.target_utilization is not None else "as much as the target"
    return f", {absent} pods counted as using {'nothing' if up else down}"


def _samples(decision: Decision, metric: MetricDecision) -> str:
    made_ms = parse_time_ms(decision.time)
    parts = []
    if metric.pods_used:
        parts.append(f"{metric.pods_used} {'pod' if metric.pods_used == 1 else 'pods'} used")
    for count, text in (
        (metric.pods_not_ready, "not ready"),
        (metric.pods_missing, "missing"),
        (metric.pods_ignored, "ignored"),
    ):
        if count:
            parts.append(f"{count} {text}")
    if metric.newest is not None:
        parts.append(f"newest {span(max(0, made_ms - metric.newest))}")
    return ", ".join(parts)

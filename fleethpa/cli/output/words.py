"""Decisions in words: what came out, what held it, and numbers as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from schemas.decisions import Decision, MetricDecision

if TYPE_CHECKING:
    from streams.state.moves import Fight

_WORDING: Final = re.compile(
    r"(?P<resource>\S+) (?:container )?resource(?: utilization \(percentage of request\))?$"
    r"|\S+ metric (?P<metric>[^\s(]+)"
)

SMALLEST_MILLI: Final = -(2**63)

LIMITS: Final = {
    "MinReplicas": "minReplicas",
    "MaxReplicas": "maxReplicas",
    "ScaleUpPolicy": "a scale-up policy",
    "ScaleDownPolicy": "a scale-down policy",
    "ScaleUpLimit": "the scale-up limit (twice the current count, at least 4)",
    "StabilizationWindow": "the stabilization window",
    "Tolerance": "the tolerance",
    "Paused": "a pause",
    "Frozen": "the cluster's freeze",
    "Overflow": "the overflow guard",
    "MaxStep": "the cluster's largest step",
}

REASONS: Final = {
    "DesiredWithinRange": "the metrics ask for what is there",
    "ScalingDisabled": "scaling is disabled: the target has 0 replicas",
}


def milli(value: int) -> str:
    """A milli value as a quantity: `112500m`, or a whole number where it is one."""
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def number(value: int) -> str:
    """A milli value as people read it in a formula: `112.5`."""
    return f"{value / 1000:.3f}".rstrip("0").rstrip(".")


def ratio(text: str) -> str:
    """A ratio's text, three decimals."""
    return f"{float(text):.3f}" if text else ""


def scale_is_known(decision: Decision) -> bool:
    """Whether the replicas of a decision are numbers: of a scale that could not be read there are none."""
    return decision.reason != "FailedGetScale" or "specReplicas" in decision.observed


def change(decision: Decision) -> str:
    """`4 → 8`, or the count that stays; `-` where it is not known."""
    if not scale_is_known(decision):
        return "-"
    before, after = decision.current_replicas, decision.final_desired_replicas
    return f"{before} → {after}" if before != after else str(after)


def short_name(metric: MetricDecision) -> str:
    """A metric as the tables name it: `cpu`, `http_requests_per_second`."""
    return short(metric.name) or metric.type


def short(name: str) -> str:
    """The bare name in upstream's wording of a metric, such as `cpu resource utilization (percentage of request)`."""
    match = _WORDING.match(name)
    return (match["resource"] or match["metric"]) if match else name


def held_by(decision: Decision) -> str:
    """What held or cut the proposal, in words; empty where nothing did."""
    words = [LIMITS.get(limit, limit) for limit in decision.constraints_applied if limit != "Tolerance"]
    return ", ".join(words)


def why(decision: Decision) -> str:
    """One line: why this decision came out as it did."""
    if decision.kind == "completion":
        return _completion(decision)
    if (missing := _missing(decision)) and decision.final_desired_replicas == decision.current_replicas:
        return missing
    if decision.error:
        return first_line(decision.error)
    if decision.refused:
        return f"not written: {decision.refused}"
    if decision.paused:
        return f"not written: paused ({decision.paused})"
    held = held_by(decision)
    if decision.final_desired_replicas != decision.current_replicas:
        reason = rescale_reason(decision) + _numbers(decision)
        return f"{reason}; limited by {held}" if held else reason
    if held:
        return f"held by {held}" + _would_be(decision)
    if tolerated := [metric for metric in decision.metrics if metric.note == "withinTolerance"]:
        filled = any(metric.pods_missing or metric.pods_not_ready for metric in tolerated)
        how = " before pods without a sample are filled in" if filled else ""
        return f"within tolerance ({_largest_ratio(decision)}{how})"
    return REASONS.get(decision.reason, decision.reason) or "the metrics ask for what is there"


def rescale_reason(decision: Decision) -> str:
    """Upstream's reason of a rescale, with the metric's bare name."""
    metric, above, rest = decision.reason.partition(" above target")
    return f"{short(metric)}{above}{rest}" if above else decision.reason or "the replicas are out of bounds"


def _numbers(decision: Decision) -> str:
    """The value and the target of the metric that decided: ` (224%/60%)`."""
    winner = next((metric for metric in decision.metrics if metric.name == decision.selected_metric), None)
    if winner is None or winner.value is None:
        return ""
    if winner.utilization is not None:
        return f" ({winner.utilization}%/{winner.target_utilization}%)"
    # Upstream divides by 0 replicas where there are none, and shows the smallest integer.
    is_shown = winner.target is not None and winner.value > SMALLEST_MILLI
    return f" ({number(winner.value)}/{number(winner.target or 0)})" if is_shown else ""


def _missing(decision: Decision) -> str:
    """Which metric is missing while others have an answer; empty where none is, or all are."""
    failed = [metric for metric in decision.metrics if metric.error]
    known = [metric for metric in decision.metrics if metric.proposal is not None]
    if not (failed and known):
        return ""
    asks = ", ".join(f"{short_name(metric)} asks for {metric.proposal}" for metric in known)
    return f"{short_name(failed[0])} is missing; {asks}; nothing scales down on incomplete metrics"


def _would_be(decision: Decision) -> str:
    wanted = decision.raw_desired_replicas
    return f"; the metrics ask for {wanted}" if wanted not in (None, decision.final_desired_replicas) else ""


def _largest_ratio(decision: Decision) -> str:
    ratios = [float(metric.ratio) for metric in decision.metrics if metric.ratio]
    return f"ratio {max(ratios):.2f}" if ratios else "no ratio"


def _completion(decision: Decision) -> str:
    outcome = decision.outcome.get("result", "ended")
    error = decision.outcome.get("error") or decision.error
    return f"write {outcome}" + (f": {first_line(error)}" if error else "")


def fight(found: Fight) -> str:
    """A fight over the replicas in words."""
    return (
        f"{found.writers[0]} and {found.writers[1]} undo each other: {found.turns} times, "
        f"between {found.lowest} and {found.highest} replicas"
    )


def shortened(text: str, width: int) -> str:
    """A text cut to a width, if it is longer."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def first_line(text: str) -> str:
    """The first line of a text that may have several."""
    return text.splitlines()[0] if text else ""


def counted(count: int, noun: str) -> str:
    """Print a count with its noun, in the plural where there is not exactly one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

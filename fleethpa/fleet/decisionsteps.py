"""The steps of a decision from the current count to the final one, with their numbers in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from fleethpa.show import words
from fleethpa.show.text import span
from fleethpa.show.words import alike, one_line
from schemas.constraints import CONSTRAINTS, is_limit, of_step
from schemas.decisions import Decision, MetricDecision, Step
from schemas.kubernetes.gotimes import parse_time_ms


class StepRow(NamedTuple):
    """A step from the current count to the final one: the count after it, and its numbers in words."""

    name: str
    value: str
    detail: str
    is_winner: bool = False
    """Whether it is the metric that decided."""


def step_rows(decision: Decision) -> Iterator[StepRow]:
    """The current count, what each metric asks for, each step after that, and the final count."""
    known = words.scale_is_known(decision)
    yield StepRow("current", str(decision.current_replicas) if known else "-", _current(decision))
    for metric, asked in zip_longest(decision.metrics, decision.observed.get("asked", ())[: len(decision.metrics)]):
        proposal = "-" if metric.proposal is None else str(metric.proposal)
        detail = _metric_detail(decision, metric)
        yield StepRow(words.short_name(metric), proposal, detail, _is_winner(decision, metric))
        if asked:
            yield StepRow("asked", "", asked)
    if len(decision.metrics) > 1 and decision.raw_desired_replicas is not None:
        yield StepRow("max of metrics", str(decision.raw_desired_replicas), "")
    for step in decision.steps:
        if step.step != "metrics":
            yield StepRow(_step_name(decision, step), str(step.out), _step(decision, step))
    yield StepRow("final", str(decision.final_desired_replicas) if known else "-", _final(decision))
    for name, cluster in decision.observed.get("clusters", {}).items():
        yield StepRow(f"  {name}", str(cluster.get("share", "-")), words.of_cluster(cluster))


def _final(decision: Decision) -> str:
    if not decision.status:
        return ""
    conditions = decision.status.get("conditions") or []
    shown = ("AbleToScale", "ScalingActive")
    false = [c for c in conditions if c.get("type") in shown and c.get("status") == "False"]
    return "; ".join(f"{c.get('type')}=False {c.get('reason')}" for c in false)


def _current(decision: Decision) -> str:
    observed = decision.observed
    if not words.scale_is_known(decision):
        return f"the scale could not be read: {one_line(decision.error)}"
    parts = []
    if "specReplicas" in observed and "statusReplicas" in observed:
        parts = [f"scale.spec {observed['specReplicas']}, scale.status {observed['statusReplicas']}"]
    pods = next((m for m in decision.metrics if m.pods_used or m.pods_not_ready or m.pods_missing), None)
    if pods is not None:
        parts.append(f"{pods.pods_used} ready, {pods.pods_not_ready} not ready, {pods.pods_missing} without metrics")
    return "; ".join(parts)


def _is_winner(decision: Decision, metric: MetricDecision) -> bool:
    if metric.proposal is None or metric.proposal != decision.raw_desired_replicas:
        return False
    first = next((m for m in decision.metrics if m.proposal == decision.raw_desired_replicas), None)
    return first is metric


_STEPS: Final = {
    "bounds": "min/max bounds",
    "scaleUpPolicy": "scaleUp policy",
    "scaleDownPolicy": "scaleDown policy",
    "clusters": "clusters by themselves",
    "shares": "shares not reached",
}
"""Step that no single constraint explains → what a table calls it."""


def _step_name(decision: Decision, step: Step) -> str:
    if step.step == "guard":
        # Limits without a step of their own share this one.
        applied = [CONSTRAINTS[name] for name in decision.constraints_applied if is_limit(name)]
        return ", ".join(each.label for each in applied if not each.step) or step.step
    known = of_step(step.step)
    return (known.label if known is not None else "") or _STEPS.get(step.step, step.step)


def _step(decision: Decision, step: Step) -> str:
    if step.step == "override":
        return "; ".join([*([f"{step.in_} → {step.out}"] if step.in_ != step.out else []), decision.reason])
    detail = dict(step.detail)
    parts = [f"{step.in_} → {step.out}"] if step.in_ != step.out else []
    if step.step == "bounds":
        parts.append(f"{decision.min_replicas} … {decision.max_replicas}{_bound(detail)}")
    if step.step == "stabilization":
        parts += _stabilization(decision, step, detail)
    policies = detail.pop("policies", None)
    if "limit" in detail:
        limit = detail.pop("limit")
        parts.append(f"limit {limit}" + (f" = ({', '.join(map(_policy, policies))})" if policies else ""))
    parts += [_fact(name, value) for name, value in detail.items()]
    return "; ".join(part for part in parts if part)


def _bound(detail: dict[str, Any]) -> str:
    detail.pop("path", None)
    texts = {"TooManyReplicas": ": maxReplicas limits", "TooFewReplicas": ": minReplicas limits"}
    return texts.get(detail.pop("bound", ""), "")


def _stabilization(decision: Decision, step: Step, detail: dict[str, Any]) -> list[str]:
    made_ms = parse_time_ms(decision.time)
    windows = {"up": detail.pop("upWindowMs", None), "down": detail.pop("downWindowMs", None)}
    parts = [f"{name} window {span(length)}" for name, length in windows.items() if length is not None]
    held, at = detail.pop("recommendation", None), detail.pop("at", None)
    if held is not None and at is not None:
        parts.append(f"held by the recommendation {held} of {span(max(0, made_ms - at))} before")
    if step.until:
        parts.append(f"ends in {span(max(0, step.until - made_ms))}")
    return parts


def _policy(policy: dict[str, Any]) -> str:
    unit = "%" if policy.get("type") == "Percent" else ""
    period = span(int(policy.get("periodMs", 0)))
    return f"{policy.get('type')} {policy.get('value')}{unit} over {period} → {policy.get('limit')}"


def _fact(name: str, value: Any) -> str:
    if name.endswith("Ms") and isinstance(value, int):
        return f"{_spaced(name[:-2])} {span(value)}"
    if value in (None, "", []):
        return ""
    return f"{_spaced(name)} {value}"


def _spaced(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


# --- metrics ----------------------------------------------------------------------------------------------------------


def _metric_detail(decision: Decision, metric: MetricDecision) -> str:
    """Value and target, the product that is rounded up, what was judged, and of which samples."""
    if metric.error:
        return f"{metric.reason or 'failed'}: {one_line(metric.error)}"
    return "   ".join(filter(None, (_formula(decision, metric), _judgement(metric), _samples(decision, metric))))


def _formula(decision: Decision, metric: MetricDecision) -> str:
    quotient = _quotient(metric)
    if not quotient:
        return ""
    if not metric.ratio:
        return quotient
    ratio = float(metric.ratio)
    if not math.isfinite(ratio):  # upstream divides by no pods; its average is no number
        return "no average: there are no pods"
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
    is_judged = metric.ratio and math.isfinite(float(metric.ratio))
    return f"outside tolerance{_taken_to_use(metric)}" if is_judged else ""


def _taken_to_use(metric: MetricDecision) -> str:
    """Return what is assumed of pods without a usable sample."""
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

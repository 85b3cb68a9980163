"""Decisions, metric values, errors and differences of specs in words, each on one line.

Statuses, events and decision records keep upstream's text byte for byte; only views use this.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from fleethpa.show.formats import to_yaml
from fleethpa.show.text import time_of_day
from schemas.constraints import CONSTRAINTS, is_limit, words_of
from schemas.decisions import IGNORED_REASON, Decision, MetricDecision
from schemas.kubernetes.gotimes import parse_time_ms, rfc3339_seconds
from schemas.kubernetes.metricspecs import metric_name

if TYPE_CHECKING:
    from streams.state.fights import Fight
    from streams.state.needs import Blocked, Flapping


_TENTHS: Final = 100
"""Milli units in a tenth of a unit."""
_BINARY: Final = ((2**20, "Mi"), (2**10, "Ki"))


def number(milli: int) -> str:
    """A milli value as people read it in a formula: `112.5`."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def alike(milli: Sequence[int], metric: str) -> list[str]:
    """Values of one metric (milli units) in one notation: cores or `m` for cpu, `Mi` for memory, else decimals."""
    if metric == "cpu":
        return [f"{value}m" if any(each % 1000 for each in milli) else str(value // 1000) for value in milli]
    unit, suffix = _unit(milli, metric)
    if unit == 1:
        return list(map(number, milli))
    return [f"{round(Fraction(value, unit * _TENTHS)) / 10:.1f}".removesuffix(".0") + suffix for value in milli]


def threshold(milli: int, beside: int, metric: str, *, lower: bool) -> tuple[str, str]:
    """A value at which an answer changes and the value beside it, in one notation.

    Where the notation has not enough digits, the value is rounded away from the one beside it: what is printed still
    changes the answer.
    """
    unit, _ = _unit((milli, beside), metric)
    if metric != "cpu" and unit > 1:
        tenth = unit * _TENTHS
        milli = (milli // tenth if lower else -(-milli // tenth)) * tenth
    text, other = alike((milli, beside), metric)
    return text, other


def _unit(milli: Sequence[int], metric: str) -> tuple[int, str]:
    """Mi or Ki where the largest value has at least one, as requests are written; 1 for what is not memory."""
    largest = max(map(abs, milli)) if metric == "memory" else 0
    return next(((size, suffix) for size, suffix in _BINARY if largest >= size * 1000), (1, ""))


_SELECTOR: Final = re.compile(
    r"&?(?:v1\.)?LabelSelector\{MatchLabels:map\[string\]string\{(?P<labels>[^{}]*)\},"
    r"MatchExpressions:\[\]LabelSelectorRequirement\{"
    r"(?P<expressions>(?:LabelSelectorRequirement\{[^{}]*\},)*)\},\}"
)
_EXPRESSION: Final = re.compile(r"\{Key:([^,]*),Operator:([^,]*),Values:\[([^\]]*)\],\}")
_OPERATORS: Final = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
_WRAPPER: Final = re.compile(
    r"invalid metrics \(\d+ invalid out of \d+\), first error is: "
    r"|failed to compute desired number of replicas based on listed metrics for [^:]*: "
    r"|the HPA (?:controller )?was unable to [^:]*: "
    r"|(?:failed|unable) to (?:get|fetch|query|update|rescale)\b[^:]*: "
)
"""What upstream puts before a cause."""


def one_line(text: str) -> str:
    """The first line of a text, with selectors as users write them."""
    return _SELECTOR.sub(_written, text.splitlines()[0]) if text else ""


def cause(text: str) -> str:
    """The cause in an error of upstream: what it put before it is left out, for the whole text is in `explain`."""
    rest = one_line(text)
    while (match := _WRAPPER.match(rest)) and match.end() < len(rest):
        rest = rest[match.end() :]
    return rest


def _written(match: re.Match[str]) -> str:
    """Go's debug form of a label selector as `app=web,tier in (a,b)`."""
    labels = [
        f"{key}={value}" for key, _, value in (pair.partition(": ") for pair in match["labels"].split(",") if pair)
    ]
    expressions = [
        _OPERATORS.get(operator, "{} " + operator + " ({})").format(key, ",".join(values.split()))
        for key, operator, values in _EXPRESSION.findall(match["expressions"])
    ]
    return ",".join([*labels, *expressions]) or "<everything>"


Spec = dict[str, Any]


def sorted_spec(spec: Spec) -> Spec:
    """The spec, its metrics in an order that does not depend on how they were written."""
    fields = {name: spec[name] for name in sorted(spec)}
    from streams.analysis.candidate import metric_key  # here: most commands need no analysis

    return fields | ({"metrics": sorted(spec["metrics"], key=metric_key)} if spec.get("metrics") else {})


def spec_diff(before: Spec | None, after: Spec | None, one: str, other: str, context: int = 3) -> list[str]:
    """The lines of a unified diff; None: there is no such spec.

    Args:
        one, other: what the two are called in its head.
        context: how many unchanged lines are shown around each change.
    """
    return list(
        difflib.unified_diff(
            _lines(before),
            _lines(after),
            one if before is not None else "/dev/null",
            other if after is not None else "/dev/null",
            lineterm="",
            n=context,
        )
    )


def _lines(spec: Spec | None) -> list[str]:
    return to_yaml(sorted_spec(spec)).splitlines() if spec is not None else []


_WORDING: Final = re.compile(
    r"(?P<resource>\S+) (?:container )?resource(?: utilization \(percentage of request\))?$"
    r"|\S+ metric (?P<metric>[^\s(]+)"
)

SMALLEST_MILLI: Final = -(2**63)

OVERRIDE: Final = "Override"
_ENOUGH: Final = "the metrics ask for the current count"
REASONS: Final = {"DesiredWithinRange": _ENOUGH, "ScalingDisabled": "scaling is disabled: the target has 0 replicas"}
NOTES: Final = {
    "withinTolerance": "within tolerance",
    "directionFlip": "with the pods without metrics counted in, the direction would reverse: replicas stay",
    "countGuard": "the new count contradicts the ratio: replicas stay",
}
"""Rules of upstream that keep a metric's count."""


def scale_is_known(decision: Decision) -> bool:
    """Whether the replicas of a decision are numbers: a scale that could not be read has none."""
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
    """Return what held or cut the proposal, in words; empty where nothing did."""
    return ", ".join(limit_name(decision, limit) for limit in _holding(decision))


def limit_name(decision: Decision, limit: str) -> str:
    """A limit in words; one that an object sets with its name, a stabilization window with its direction."""
    known = CONSTRAINTS.get(limit)
    if known is not None and known.named_by:
        for step in decision.steps:
            if step.step == known.step:
                return f"{limit} {step.detail[known.named_by]}"
    if limit == "StabilizationWindow" and (window := _window(decision)):
        return f"the {window} stabilization window"
    return words_of(limit)


def _window(decision: Decision) -> str:
    """Which window changed the count, by its field in the spec's behavior: that of removals raises it; empty: none."""
    steps = [(step.in_, step.out) for step in decision.steps if step.step == "stabilization" and step.in_ != step.out]
    return next(("scaleDown" if after > before else "scaleUp" for before, after in steps), "")


def why(decision: Decision) -> str:
    """One line: why this decision came out as it did and, where it asks for a change that is not made, why not."""
    if decision.kind == "completion":
        return _completion(decision)
    not_made = not_written(decision)
    return f"{reason(decision)}; not written: {not_made}" if not_made else reason(decision)


def reason(decision: Decision) -> str:
    """Why an evaluation came out as it did."""
    if decision.reason == IGNORED_REASON:
        return decision.refused
    if OVERRIDE in decision.constraints_applied:
        return _overridden(decision)
    stays = decision.final_desired_replicas == decision.current_replicas
    if stays and (missing := _missing(decision)):
        return missing
    if not stays:
        # The metric that decided is the reason of a change; one that failed comes after it.
        failed = f"; {failure(decision)}" if decision.error else ""
        return rescale_reason(decision) + _numbers(decision) + limited(decision) + failed
    if decision.error:
        return failure(decision)
    return held(decision) or kept(decision) or REASONS.get(decision.reason, decision.reason) or _ENOUGH


def not_written(decision: Decision) -> str:
    """Why a change that the decision asks for is not written; empty: it is, or there is none."""
    if decision.kind == "completion":
        return ""
    if decision.paused:
        return decision.paused
    if decision.final_desired_replicas == decision.current_replicas:
        return ""
    if decision.refused:
        return f"enforcing is refused: {decision.refused}"
    return f"mode {decision.mode}" if decision.mode != "enforce" else ""


def held(decision: Decision) -> str:
    """Return what keeps the count where it is, and the count that the metrics ask for; empty where nothing keeps it."""
    bounds, others = holding(decision)
    if not (bounds or others):
        return ""
    parts = [*(f"at {bound}" for bound in bounds), *([f"held by {', '.join(others.values())}"] if others else [])]
    return ", ".join(parts) + asked_for(decision)


def holding(decision: Decision) -> tuple[list[str], dict[str, str]]:
    """Return what keeps the count where it is: the bounds with their numbers, and the other limits in words by their
    names.
    """
    bounds = _bounds(decision)
    return list(bounds.values()), {
        limit: limit_name(decision, limit) for limit in _holding(decision) if limit not in bounds
    }


def braked(decision: Decision) -> str:
    """Which of fleethpa's own limits keeps the count, until when, and what the metrics ask for; empty: none does."""
    by = [limit_name(decision, limit) for limit in decision.constraints_applied if is_limit(limit)]
    count = decision.raw_desired_replicas
    if not by or count in (None, decision.final_desired_replicas):
        return ""
    ends = [step.until for step in decision.steps if step.until is not None and step.step != "override"]
    until_ms = max(ends, default=None)
    until = "" if until_ms is None else f" until {time_of_day(until_ms, parse_time_ms(decision.time))}"
    return f"held by {', '.join(by)}{until} (metrics ask for {count})"


def limited(decision: Decision) -> str:
    """Return what cut a change, and the count that the metrics ask for, to put behind it; empty where nothing cut
    it.
    """
    if OVERRIDE in decision.constraints_applied:
        return f"; {_overridden(decision)}"
    by = held_by(decision)
    return f"; limited by {by}{asked_for(decision)}" if by else ""


def _overridden(decision: Decision) -> str:
    """The override, what holds or cuts it, and what the metrics ask for."""
    by = [limit_name(decision, limit) for limit in _holding(decision) if limit != OVERRIDE]
    held_ = f"; held by {', '.join(by)}" if by else ""
    failed = f"; {failure(decision)}" if decision.error else ""
    reason, made_ms = decision.reason, parse_time_ms(decision.time)
    for until_ms in (step.until for step in decision.steps if step.step == "override" and step.until):
        reason = reason.replace(rfc3339_seconds(until_ms), time_of_day(until_ms, made_ms))
    return f"{reason}{held_}{failed}{asked_for(decision)}"


def of_cluster(found: Mapping[str, Any]) -> str:
    """Return what a decision of a FleetHPA knows of one of its clusters, beside its share."""
    has = f"has {found['replicas']}" if "replicas" in found else "has not reported"
    allotted = found.get("allotted", found.get("replicas"))
    moving = f"allotted {allotted}" if allotted != found.get("replicas") else ""
    away = "away" if found.get("away") else ""
    spilled = "which the others may have as well" if found.get("spilled") else ""
    room = f"has nodes for {found['room']}" if "room" in found else ""
    return ", ".join(filter(None, (away, has, spilled, moving, room)))


def _holding(decision: Decision) -> list[str]:
    """Return what decides the count beside the metrics: before an override, nothing matters."""
    limits = decision.constraints_applied
    limits = limits[limits.index(OVERRIDE) :] if OVERRIDE in limits else limits
    return [limit for limit in limits if limit != "Tolerance"]


def _bounds(decision: Decision) -> dict[str, str]:
    """The bounds at which the count is, by the limit's name."""
    bounds = {
        "MaxReplicas": ("maxReplicas", decision.max_replicas),
        "MinReplicas": ("minReplicas", decision.min_replicas),
    }
    away = [
        name
        for name, each in decision.observed.get("clusters", {}).items()
        if each.get("away") and not each.get("spilled")
    ]
    less = f" (less what {listed(away)} {'keeps' if len(away) == 1 else 'keep'} while away)" if away else ""
    return {
        limit: f"{name} {bound}{less}"
        for limit, (name, bound) in bounds.items()
        if limit in decision.constraints_applied and bound == decision.final_desired_replicas
    }


def asked_for(decision: Decision) -> str:
    """The count that the metrics ask for where it is not the result, to put behind it; else empty."""
    count = decision.raw_desired_replicas
    return f"; metrics ask for {count}" if count not in (None, decision.final_desired_replicas) else ""


def asks(decision: Decision) -> str:
    """Return what the metric that decided says and asks for: `cpu 8% of 60% asks for 1`; empty where nothing asks."""
    count = decision.raw_desired_replicas
    if count is None:
        return ""
    winner = _winner(decision)
    if winner is None:
        return f"metrics ask for {count}"
    measured = _value_and_target(winner)
    numbers = f" {' of '.join(measured)}" if measured else ""
    return f"{short_name(winner)}{numbers} asks for {count}"


def _winner(decision: Decision) -> MetricDecision | None:
    """The metric that decided, if it is known."""
    named = (metric for metric in decision.metrics if metric.name == decision.selected_metric)
    alike_ = (metric for metric in decision.metrics if metric.proposal == decision.raw_desired_replicas)
    return next(named if decision.selected_metric else alike_, None)


def kept(decision: Decision) -> str:
    """Which rule of the metrics keeps the count; empty where none does."""
    noted = [metric for metric in decision.metrics if metric.note]
    if any(metric.note == "withinTolerance" for metric in noted):
        measured = any(metric.pods_missing or metric.pods_not_ready for metric in noted)
        ratios = [float(metric.ratio) for metric in decision.metrics if metric.ratio not in ("", "nan")]
        ratio = f"ratio {max(ratios):.2f}" if ratios else "no ratio"
        return f"within tolerance ({ratio}{' from measured pods only' if measured else ''})"
    return note(noted[0].note) if noted else ""


def note(name: str) -> str:
    """The rule that kept a metric's count, in words: `withinTolerance`, `directionFlip` or `countGuard`."""
    return NOTES.get(name, name)


NO_METRIC: Final = "no metric: "
"""How it begins what is said of an HPA of which the cluster gives no metric; then why."""


def failure(decision: Decision) -> str:
    """Why an evaluation failed: the metric that has no value and the cause, or the cause alone."""
    failed = next((metric for metric in decision.metrics if metric.error), None)
    if failed is not None:
        return f"{short_name(failed)}: {cause(failed.error)}"
    cause_text = cause(decision.error)
    return cause_text if scale_is_known(decision) else f"the scale cannot be read: {cause_text}"


def rescale_reason(decision: Decision) -> str:
    """Upstream's reason of a rescale, with the metric's bare name."""
    metric, above, rest = decision.reason.partition(" above target")
    return f"{short(metric)}{above}{rest}" if above else decision.reason or "the replicas are out of bounds"


def _numbers(decision: Decision) -> str:
    """The value and the target of the metric that decided: ` (224%/60%)`."""
    winner = next((metric for metric in decision.metrics if metric.name == decision.selected_metric), None)
    numbers = _value_and_target(winner) if winner is not None else ()
    return f" ({'/'.join(numbers)})" if numbers else ""


def _value_and_target(metric: MetricDecision) -> Sequence[str]:
    """The value and the target of a metric in one notation; empty where one of them is not known."""
    if metric.value is None:
        return ()
    if metric.utilization is not None:
        return f"{metric.utilization}%", f"{metric.target_utilization}%"
    # Upstream divides by 0 replicas where there are none, and shows the smallest integer.
    if metric.target is None or metric.value <= SMALLEST_MILLI:
        return ()
    return alike((metric.value, metric.target), short_name(metric))


def _missing(decision: Decision) -> str:
    """Which metric is missing while others have an answer; empty where none is, or all are."""
    failed = [metric for metric in decision.metrics if metric.error]
    known = [metric for metric in decision.metrics if metric.proposal is not None]
    if not (failed and known):
        return ""
    asks = ", ".join(f"{short_name(metric)} asks for {metric.proposal}" for metric in known)
    first = failed[0]
    return (
        f"{short_name(first)} has no value ({cause(first.error)}); {asks}; "
        "replicas do not go down while a metric is missing"
    )


def _completion(decision: Decision) -> str:
    outcome = decision.outcome.get("result", "ended")
    error = decision.outcome.get("error") or decision.error
    return f"write {outcome}" + (f": {cause(error)}" if error else "")


def fight(conflict: Fight) -> str:
    """A fight over the replicas in words."""
    return (
        f"{conflict.writers[0]} and {conflict.writers[1]} undo each other: {conflict.turns} times, "
        f"between {conflict.lowest} and {conflict.highest} replicas"
    )


def blocked(block: Blocked, spec: Mapping[str, Any]) -> str:
    """A metric outside its tolerance that pods without metrics keep from changing the count."""
    metrics = spec.get("metrics") or []
    name = metric_name(metrics[block.metric]) if block.metric < len(metrics) else "a metric"
    pods = f"{counted(block.missing, 'pod')} without metrics"
    return f"blocked: {name} at {block.percent}% of its target changes nothing, because of {pods}"


def disabled_direction(direction: str) -> tuple[str, str]:
    """A direction that the spec forbids (`scaleUp`, `scaleDown`): its name, and the sentence with the field."""
    name = "scale-up" if direction == "scaleUp" else "scale-down"
    return name, f"{name} is disabled by the spec (behavior.{direction}.selectPolicy: Disabled)"


def flapping(flaps: Flapping) -> str:
    """An HPA that goes up and down, in words."""
    span_text = f"{max(1, round(flaps.span_ms / 60_000))} min"
    return f"flapping: {flaps.changes} changes in {span_text}, {flaps.turns} of them take back the one before"


def listed(names: Iterable[str], most: int = 5, separator: str = ", ") -> str:
    """Some texts in a row, of many only the first ones and how many more there are."""
    known = list(names)
    return separator.join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def percent(ratio: float, digits: int = 1) -> str:
    """A part of a whole, in percent: `12.3%`."""
    return f"{_without_sign_of_nothing(ratio, digits):.{digits}%}"


def signed_percent(ratio: float, digits: int = 1) -> str:
    """A relative difference, in percent: `+12.3%`."""
    return f"{_without_sign_of_nothing(ratio, digits):+.{digits}%}"


def relative_change(before: float, after: float, digits: int = 1) -> str:
    """By how much a quantity differs from what it was, in percent; empty where it was nothing."""
    return signed_percent(after / before - 1, digits) if before else ""


def _without_sign_of_nothing(ratio: float, digits: int) -> float:
    """A ratio, of which none is shown as -0%."""
    return ratio if abs(ratio) * 100 * 10**digits >= 0.5 else 0.0


def counted(count: int, noun: str) -> str:
    """Print a count with its noun, in the plural where there is not exactly one."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"

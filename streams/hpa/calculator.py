"""Replicas that one metric asks for: the upstream replica calculator, formula by formula.

Doubles are multiplied and divided in upstream's order; percentages and averages of pods are truncated integers.
Source: upstream `replica_calculator.go` and `metrics/utilization.go`, v1.37.1; other versions by `Rules`.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isnan

from msgspec import structs

from streams.hpa.evaluation import Calculation
from streams.hpa.gofloat import (
    MAX_INT32,
    MAX_INT64,
    MIN_INT64,
    ceil32,
    ceil64,
    divide,
    saturated32,
    saturated_ceil32,
    trunc_div,
    wrap32,
    wrap64,
)
from streams.hpa.grouping import NO_PODS_ERROR, Groups, MetricError
from streams.hpa.observation import SeenPods
from streams.hpa.rules import CURRENT, Rules

ToleranceBand = tuple[float, float]
"""Ratios from the first to the second, both included, are within tolerance."""


@lru_cache(maxsize=256)
def bounds(down: float, up: float, rules: Rules = CURRENT) -> ToleranceBand:
    """Return the tolerance band around 1. Source: upstream `Tolerances.isWithin`; up to 1.32 `math.Abs(1.0-ratio)`."""
    if rules.tolerance_is_band:
        return 1.0 - down, 1.0 + up
    return _edge(down, -2.0 - 2.0 * down), _edge(up, 2.0 + 2.0 * up)


@lru_cache(maxsize=64)
def _edge(tolerance: float, outside: float) -> float:
    """Return the double on the way from 1 to `outside` that is the last whose distance from 1 rounds to `tolerance`.

    That distance never shrinks on this way, so comparing a ratio with both edges is comparing its distance.
    """
    inside = 1.0
    while (middle := (inside + outside) / 2.0) not in (inside, outside):
        if abs(1.0 - middle) <= tolerance:
            inside = middle
        else:
            outside = middle
    return inside


def utilization(current: int, target: int, groups: Groups, band: ToleranceBand, rules: Rules) -> Calculation:
    """Propose replicas for a target of `target` percent of what the pods request.

    Raises MetricError: no pods, no samples left, a pod without a request, or requests that sum up to 0.
    """
    if (groups.request_error or not groups.ready) and (fault := groups.fault()):
        raise MetricError(fault)
    usage, request = groups.ready_milli, groups.ready_request
    percent, wrapped = _percent_of_request(usage, request, rules)
    average = usage // groups.ready if 0 <= usage <= MAX_INT64 else trunc_div(_total(usage, rules), groups.ready)
    # Both are int32, so that they are divided as doubles are.
    ratio = percent / target if target else divide(float(percent), 0.0)
    if not groups.missing and not (groups.unready and ratio > 1.0):
        plain = _plain(current, percent, ratio, average, groups, band, rules)
        return _marked(wrapped, plain) if wrapped else plain
    if ratio < 1.0 or ratio > 1.0:
        # NaN (0 % of a target of 0) is neither: nothing is filled in then.
        request += groups.missing_request
    if ratio < 1.0:
        usage += groups.missing_fallback
    if ratio > 1.0:
        request += groups.unready_request
    final_percent, also_wrapped = _percent_of_request(usage, request, rules)
    final = divide(float(final_percent), float(target))
    size = _map_size(ratio, groups, ratio_one=False)
    filled = _filled(current, percent, ratio, average, final, size, groups, band, rules)
    return _marked(True, filled) if wrapped or also_wrapped else filled


def raw_average(current: int, target_milli: int, groups: Groups, band: ToleranceBand, rules: Rules) -> Calculation:
    """Propose replicas for a target average per pod; samples of unknown names are averaged in.

    Raises MetricError: no pods, or no samples left.
    """
    if (groups.request_error or not groups.ready) and (fault := groups.fault()):
        raise MetricError(fault)
    total = groups.kept_milli
    count = groups.ready + groups.strays
    average = trunc_div(_total(total, rules), count)
    ratio = divide(float(average), float(target_milli))
    wrapped = _total(total, rules) != total
    if not groups.missing and not (groups.unready and ratio > 1.0):
        plain = _plain(current, average, ratio, None, groups, band, rules)
        return _marked(wrapped, plain) if wrapped else plain
    if ratio < 1.0:
        total += target_milli * groups.missing
    size = _map_size(ratio, groups, ratio_one=not rules.ratio_one_ignores_missing)
    final_average = trunc_div(_total(total, rules), size)
    final = divide(float(final_average), float(target_milli))
    wrapped = wrapped or _total(total, rules) != total
    filled = _filled(current, average, ratio, None, final, size, groups, band, rules)
    return _marked(wrapped, filled) if wrapped else filled


def object_value(
    current: int, target_milli: int, usage_milli: int, pods: SeenPods, band: ToleranceBand, rules: Rules
) -> Calculation:
    """Propose replicas for a target total of an Object metric.

    Raises MetricError: the running and ready pods are needed and there is no pod.
    """
    ratio = divide(float(usage_milli), float(target_milli))
    if current == 0:
        return Calculation(_ceil32(ratio, rules), usage_milli, ratio)
    if band[0] <= ratio <= band[1]:
        return Calculation(current, usage_milli, ratio, kept="withinTolerance")
    if not len(pods):
        raise MetricError(f"unable to calculate ready pods: {NO_PODS_ERROR}")
    proposal = _ceil32(ratio * float(pods.running_ready), rules, rules.totals_saturate)
    not_ready = len(pods) - pods.running_ready
    return Calculation(proposal, usage_milli, ratio, None, None, pods.running_ready, not_ready)


def external_value(
    current: int, target_milli: int, values: Sequence[int], pods: SeenPods, band: ToleranceBand, rules: Rules
) -> Calculation:
    """Propose replicas for a target total of an External metric, whose series are summed up to MaxInt64.

    Raises MetricError: the running and ready pods are needed and there is no pod.
    """
    usage, wrapped = 0, False
    for value in values:
        if rules.totals_saturate and value > 0 and usage > MAX_INT64 - value:
            usage = MAX_INT64
            break
        wrapped = wrapped or not MIN_INT64 <= usage + value <= MAX_INT64
        usage = wrap64(usage + value)
    return _marked(wrapped, object_value(current, target_milli, usage, pods, band, rules))


def object_per_pod(
    status_replicas: int, target_milli: int, usage_milli: int, band: ToleranceBand, rules: Rules
) -> Calculation:
    """Propose replicas for a target of an Object metric per pod; `status_replicas` are what the scale reports."""
    usage, target = float(usage_milli), float(target_milli)
    average = _average(usage, status_replicas, rules, rules.average_of_none_is_zero)
    return _per_pod(status_replicas, usage, target, average, _ceil32(divide(usage, target), rules), band, rules)


def external_per_pod(
    status_replicas: int, target_milli: int, values: Sequence[int], band: ToleranceBand, rules: Rules
) -> Calculation:
    """Propose replicas for a target of an External metric per pod.

    From 1.34 on a running sum below 0 counts as MaxInt64, and what is above MaxInt32 replicas as that.
    """
    saturates = rules.external_average_saturates
    usage_milli, wrapped = 0, False
    for value in values:
        total = usage_milli + value
        usage_milli = wrap64(total)
        wrapped = wrapped or usage_milli != total
        if saturates and usage_milli < 0:
            usage_milli, wrapped = MAX_INT64, True
            break
    usage, target = float(usage_milli), float(target_milli)
    average = _average(usage, status_replicas, rules, saturates)
    replicas = _ceil32(divide(usage, target), rules, saturates)
    return _marked(wrapped, _per_pod(status_replicas, usage, target, average, replicas, band, rules))


def _average(usage: float, replicas: int, rules: Rules, saturates: bool) -> int:
    """Return the usage per replica, rounded up, as the status shows it."""
    if saturates and usage >= 9223372036854775808.0:
        return MAX_INT64
    if rules.average_of_none_is_zero and replicas == 0:
        return 0
    return ceil64(divide(usage, float(replicas)))


def _total(exact: int, rules: Rules) -> int:
    """Return a sum of int64 as upstream holds it: up to 1.37 its low 64 bits."""
    return exact if rules.totals_exact else wrap64(exact)


def _percent_of_request(usage: int, request: int, rules: Rules) -> tuple[int, bool]:
    """Return usage in whole percent of request, truncated; and whether that, computed as upstream does, wraps.

    Up to 1.37 the low 32 bits of what int64 makes of it; from 1.38 on the exact percentage, or the largest or least
    int32.
    """
    hundredfold = usage * 100
    if 0 < request <= MAX_INT64 and 0 <= hundredfold <= MAX_INT64 and hundredfold <= MAX_INT32 * request:
        return hundredfold // request, False
    divisor = _total(request, rules)
    if divisor == 0:
        raise MetricError("no metrics returned matched known pods")
    if rules.totals_exact:
        percent = abs(hundredfold) // abs(divisor)
        return saturated32(percent if (hundredfold < 0) == (divisor < 0) else -percent), False
    leaves = wrap64(hundredfold) != hundredfold or divisor != request or abs(hundredfold) > MAX_INT32 * request
    return wrap32(trunc_div(wrap64(hundredfold), divisor)), leaves


def _marked(wrapped: bool, made: Calculation) -> Calculation:
    return structs.replace(made, wrapped=True) if wrapped else made


def _plain(
    current: int, value: int, ratio: float, average: int | None, groups: Groups, band: ToleranceBand, rules: Rules
) -> Calculation:
    """Finish where every counted pod has a sample: no guard of the direction here."""
    within = band[0] <= ratio <= band[1]
    proposal = current if within else _ceil32(ratio * float(groups.ready), rules)
    kept = "withinTolerance" if within else ""
    unready, ignored, strays = groups.unready, groups.ignored, groups.strays
    return Calculation(proposal, value, ratio, average, None, groups.ready, unready, 0, ignored, strays, kept)


def _filled(
    current: int,
    value: int,
    ratio: float,
    average: int | None,
    final: float,
    size: int,
    groups: Groups,
    band: ToleranceBand,
    rules: Rules,
) -> Calculation:
    """Finish after missing and unready pods were filled in: tolerance, then both guards of the direction.

    `size` is the count of the map of samples after filling in.
    """
    if band[0] <= final <= band[1]:
        return _calculation(current, value, ratio, average, final, groups, "withinTolerance")
    if (ratio < 1.0 and final > 1.0) or (ratio > 1.0 and final < 1.0):
        return _calculation(current, value, ratio, average, final, groups, "directionFlip")
    proposal = _ceil32(final * float(size), rules)
    if (final < 1.0 and proposal > current) or (final > 1.0 and proposal < current):
        return _calculation(current, value, ratio, average, final, groups, "countGuard")
    return _calculation(proposal, value, ratio, average, final, groups, "")


def _map_size(ratio: float, groups: Groups, *, ratio_one: bool) -> int:
    """Count the map of samples after filling in; unknown names are part of it.

    `ratio_one`: missing pods are filled in also where the ratio is exactly 1 or NaN, as up to 1.27.
    """
    size = groups.ready + groups.strays
    if ratio < 1.0 or ratio > 1.0 or ratio_one:
        size += groups.missing
    if ratio > 1.0:
        size += groups.unready
    return size


def _calculation(
    proposal: int, value: int, ratio: float, average: int | None, final: float | None, groups: Groups, kept: str
) -> Calculation:
    return Calculation(
        proposal,
        value,
        ratio,
        average,
        final,
        groups.ready,
        groups.unready,
        groups.missing,
        groups.ignored,
        groups.strays,
        kept,
    )


def _per_pod(
    status_replicas: int, usage: float, target: float, average: int, replicas: int, band: ToleranceBand, rules: Rules
) -> Calculation:
    ratio = divide(usage, target * float(status_replicas))
    # Up to 1.32 these two metrics scale where `math.Abs(1.0-ratio) > tolerance`, which NaN never is.
    if band[0] <= ratio <= band[1] or (isnan(ratio) and not rules.tolerance_is_band):
        return Calculation(status_replicas, average, ratio, kept="withinTolerance")
    return Calculation(replicas, average, ratio)


def _ceil32(value: float, rules: Rules, saturates: bool = False) -> int:
    return saturated_ceil32(value) if saturates or rules.conversions_saturate else ceil32(value)

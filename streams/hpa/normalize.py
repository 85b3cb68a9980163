"""From the metrics' number to the final one: stabilization windows, rate limits, minReplicas and maxReplicas; and how
they show in the conditions of the status.

Source: upstream `normalizeDesiredReplicas` (no `behavior`), `normalizeDesiredReplicasWithBehaviors` and
`storeScaleEvent`, v1.37.1.
"""

from functools import lru_cache
from typing import Final

from streams.hpa.autoscaler import Autoscaler, ControllerSettings, ScalingPolicy, ScalingRules
from streams.hpa.evaluation import Conditions, History, Normalization, PolicyLimit
from streams.hpa.gofloat import MAX_INT32, MIN_INT32, ceil32, int32, saturated_ceil32, wrap32
from streams.hpa.rules import CURRENT, Rules

ScaleEvents = tuple[tuple[int, int, bool], ...]


def store_scale_event(history: History, change: int, longest_ms: int, now_ms: int) -> History:
    """Remember a rescale by `change` replicas (positive: up; not wrapped: the direction is that of the two counts).

    What is stored is an int32, so a change of more than 2^31 replicas wraps. Events older than the direction's longest
    policy period are marked outdated for good; the last outdated slot is reused.
    """
    recommended, times_ms = history.recommended, history.recommended_ms
    ups, downs = history.scale_up_events, history.scale_down_events
    if change > 0:
        return History(recommended, times_ms, _stored(ups, wrap32(change), longest_ms, now_ms), downs)
    return History(recommended, times_ms, ups, _stored(downs, wrap32(-change), longest_ms, now_ms))


def with_rescale(history: History, autoscaler: Autoscaler, change: int, now_ms: int) -> History:
    """Remember a rescale of an HPA, whoever made it. No change, and an HPA without `behavior`, needs no event."""
    rules = autoscaler.scale_up if change > 0 else autoscaler.scale_down
    return history if rules is None or not change else store_scale_event(history, change, rules.longest_ms, now_ms)


def _stored(events: ScaleEvents, change: int, longest_ms: int, now_ms: int) -> ScaleEvents:
    cutoff_ms = now_ms - longest_ms
    marked = [(size, time_ms, outdated or time_ms < cutoff_ms) for size, time_ms, outdated in events]
    slot = max((index for index, event in enumerate(marked) if event[2]), default=None)
    if slot is None:
        return (*marked, (change, now_ms, False))
    marked[slot] = (change, now_ms, False)
    return tuple(marked)


WITHIN_RANGE = "DesiredWithinRange"


def normalize(
    autoscaler: Autoscaler, current: int, desired: int, history: History, settings: ControllerSettings, now_ms: int
) -> tuple[Normalization, History]:
    """Limit `desired` and give the history with it stored: always un-normalised, in the last outdated slot."""
    if autoscaler.scale_up is None or autoscaler.scale_down is None:
        return _legacy(autoscaler, current, desired, history, settings, now_ms)
    return _with_behavior(autoscaler, current, desired, history, settings, now_ms)


def _legacy(
    autoscaler: Autoscaler, current: int, desired: int, history: History, settings: ControllerSettings, now_ms: int
) -> tuple[Normalization, History]:
    window_ms = settings.downscale_stabilization_ms
    cutoff_ms = now_ms - window_ms
    stabilized, slot, held = desired, -1, None
    for index, (replicas, time_ms) in enumerate(history.recommendations):
        if time_ms < cutoff_ms:
            slot = index
        elif replicas > stabilized:
            stabilized = replicas
    rate_limit = int32(max(2.0 * float(current), 4.0))
    limited, bound = legacy_limits(stabilized, rate_limit, autoscaler.min_replicas, autoscaler.max_replicas)
    if stabilized != desired:
        counted = history.recommendations
        held = _latest(
            [
                (at_ms, recommendation)
                for recommendation, at_ms in counted
                if at_ms >= cutoff_ms and recommendation >= stabilized
            ]
        )
    normalization = Normalization(
        True,
        desired,
        stabilized,
        limited,
        0,
        window_ms,
        held,
        # An entry exactly at the cutoff still counts, so it lets go one millisecond later.
        held[1] + window_ms + 1 if held else None,
        (),
        rate_limit,
        bound,
    )
    return normalization, _store(history, slot, desired, now_ms)


def legacy_limits(stabilized: int, rate_limit: int, min_replicas: int, max_replicas: int) -> tuple[int, str]:
    """Return (replicas, bound) where there is no `behavior`."""
    ceiling, label = (rate_limit, "ScaleUpLimit") if max_replicas > rate_limit else (max_replicas, "TooManyReplicas")
    if stabilized < min_replicas:
        return min_replicas, "TooFewReplicas"
    if stabilized > ceiling:
        return ceiling, label
    return stabilized, WITHIN_RANGE


def _with_behavior(
    autoscaler: Autoscaler, current: int, desired: int, history: History, settings: ControllerSettings, now_ms: int
) -> tuple[Normalization, History]:
    up, down = autoscaler.scale_up, autoscaler.scale_down
    if up is None or down is None:
        raise ValueError("normalize without behavior is the legacy path")
    up_window_ms, down_window_ms = up.window_ms or 0, down.window_ms
    if down_window_ms is None:
        # The controller's, in whole seconds.
        down_window_ms = settings.downscale_stabilization_ms // 1000 * 1000
    up_cutoff_ms, down_cutoff_ms = now_ms - up_window_ms, now_ms - down_window_ms
    held, until_ms = None, None
    lowest, highest, slot = _extremes(history, desired, up_cutoff_ms, down_cutoff_ms)
    stabilized = min(max(current, lowest), highest)
    if stabilized > desired:
        counted = history.recommendations
        held = _latest(
            [
                (at, recommendation)
                for recommendation, at in counted
                if at > down_cutoff_ms and recommendation >= stabilized
            ]
        )
        until_ms = held[1] + down_window_ms if held else None
    elif stabilized < desired:
        counted = history.recommendations
        held = _latest(
            [
                (at, recommendation)
                for recommendation, at in counted
                if at > up_cutoff_ms and recommendation <= stabilized
            ]
        )
        until_ms = held[1] + up_window_ms if held else None
    limited, bound, rate_limit, policies = _rate_limits(
        autoscaler, up, down, current, stabilized, history, settings, now_ms
    )
    normalization = Normalization(
        False, desired, stabilized, limited, up_window_ms, down_window_ms, held, until_ms, policies, rate_limit, bound
    )
    return normalization, _store(history, slot, desired, now_ms)


def _extremes(history: History, desired: int, up_cutoff_ms: int, down_cutoff_ms: int) -> tuple[int, int, int]:
    """Return (lowest of the scale-up window, highest of the scale-down window, slot of the last that neither needs).

    Source: upstream `stabilizeRecommendationWithBehaviors`.
    """
    outdated_ms, recommended = min(up_cutoff_ms, down_cutoff_ms), history.recommended or ()
    lowest = highest = desired
    index = slot = -1
    if recommended.count(desired) == len(recommended):
        # Nothing else was recommended, as in a fleet at rest: only the slot is to be found, from the end on.
        times_ms = history.recommended_ms
        for index in range(len(times_ms) - 1, -1, -1):
            if times_ms[index] < outdated_ms:
                return desired, desired, index
        return desired, desired, -1
    for replicas, time_ms in zip(recommended, history.recommended_ms, strict=True):
        index += 1
        if replicas > highest:
            if time_ms > down_cutoff_ms:
                highest = replicas
        elif replicas < lowest and time_ms > up_cutoff_ms:
            lowest = replicas
        if time_ms < outdated_ms:
            slot = index
    return lowest, highest, slot


def _latest(by_time: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the last one of (time, replicas), the largest of a moment, as (replicas, time)."""
    if not by_time:
        return None
    time_ms, replicas = max(by_time)
    return replicas, time_ms


def _store(history: History, slot: int, desired: int, now_ms: int) -> History:
    """Store what is recommended now in a slot; -1: at the end."""
    recommended = history.recommended or ()
    if slot < 0 or recommended[slot] != desired:
        recommended = _with_value(recommended, slot, desired)
        if recommended.count(desired) == len(recommended):
            recommended = _alike(desired, len(recommended))
    times_ms = _with_time(history.recommended_ms, slot, now_ms)
    return History(recommended, times_ms, history.scale_up_events, history.scale_down_events)


def _with_value(values: tuple[int, ...], slot: int, value: int) -> tuple[int, ...]:
    return (*values, value) if slot < 0 else (*values[:slot], value, *values[slot + 1 :])


@lru_cache(maxsize=1024)
def _alike(value: int, count: int) -> tuple[int, ...]:
    """Return the same object to all HPAs at rest."""
    return (value,) * count


_with_time = lru_cache(maxsize=64)(_with_value)
"""Gives the same object to the HPAs of a namespace, which are evaluated one after the other at the same times."""


def _rate_limits(
    autoscaler: Autoscaler,
    up: ScalingRules,
    down: ScalingRules,
    current: int,
    stabilized: int,
    history: History,
    settings: ControllerSettings,
    now_ms: int,
) -> tuple[int, str, int | None, tuple[PolicyLimit, ...]]:
    """Return (replicas, bound, rate limit, policies). minReplicas does not act upwards, nor maxReplicas downwards."""
    if stabilized > current:
        limit, policies = scale_up_limit(up, current, history, now_ms, settings.rules)
        limit = max(limit, current)
        maximum = autoscaler.max_replicas
        cap, label = (limit, "ScaleUpLimit") if maximum > limit else (maximum, "TooManyReplicas")
        return (cap, label, limit, policies) if stabilized > cap else (stabilized, WITHIN_RANGE, limit, policies)
    if stabilized < current:
        limit, policies = scale_down_limit(down, current, history, now_ms)
        limit = min(limit, current)
        minimum = autoscaler.min_replicas
        floor, label = (limit, "ScaleDownLimit") if minimum < limit else (minimum, "TooFewReplicas")
        return (floor, label, limit, policies) if stabilized < floor else (stabilized, WITHIN_RANGE, limit, policies)
    return stabilized, WITHIN_RANGE, None, ()


def scale_up_limit(
    rules: ScalingRules, current: int, history: History, now_ms: int, version: Rules = CURRENT
) -> tuple[int, tuple[PolicyLimit, ...]]:
    """Return the highest count that the scale-up policies allow now, and what each of them allows."""
    return _policy_limit(rules, current, history, now_ms, up=True, version=version)


def scale_down_limit(
    rules: ScalingRules, current: int, history: History, now_ms: int
) -> tuple[int, tuple[PolicyLimit, ...]]:
    """Return the lowest count that the scale-down policies allow now, and what each of them allows."""
    return _policy_limit(rules, current, history, now_ms, up=False)


def _policy_limit(
    rules: ScalingRules, current: int, history: History, now_ms: int, *, up: bool, version: Rules = CURRENT
) -> tuple[int, tuple[PolicyLimit, ...]]:
    """Return what the policies of one direction allow together. `Min` means the least change: downwards, the largest
    count.
    """
    if rules.select == "Disabled":
        return current, ()
    policies = []
    to_int32 = int32 if not up else saturated_ceil32 if version.conversions_saturate else ceil32
    takes_lowest = (rules.select == "Min") == up
    best, limit = MAX_INT32 if takes_lowest else MIN_INT32, 0
    for policy in rules.policies:
        added, deleted, start = _period(policy, current, history, now_ms)
        # A policy of another type, which the API refuses, repeats the number of the one before it.
        if policy.type == "Pods":
            limit = wrap32(start + policy.value if up else start - policy.value)
        elif policy.type == "Percent":
            limit = to_int32(float(start) * policy.factor)
        best = min(best, limit) if takes_lowest else max(best, limit)
        policies.append(PolicyLimit(policy.type, policy.value, policy.period_ms, added, deleted, start, limit))
    return best, tuple(policies)


def _period(policy: ScalingPolicy, current: int, history: History, now_ms: int) -> tuple[int, int, int]:
    """Sum the scale events of a policy's period (strictly younger; the outdated flag does not matter here)."""
    cutoff_ms = now_ms - policy.period_ms
    added, deleted = _sum_since(history.scale_up_events, cutoff_ms), _sum_since(history.scale_down_events, cutoff_ms)
    return added, deleted, wrap32(current - added + deleted)


def _sum_since(events: ScaleEvents, cutoff_ms: int) -> int:
    return wrap32(sum([change for change, time_ms, _ in events if time_ms > cutoff_ms])) if events else 0


_LIMITED_MESSAGES: Final = {
    WITHIN_RANGE: "the desired count is within the acceptable range",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
}
_STABILIZED_MESSAGES: Final = {
    "ScaleUpStabilized": "recent recommendations were lower than current one,"
    " applying the lowest recent recommendation",
    "ScaleDownStabilized": "recent recommendations were higher than current one,"
    " applying the highest recent recommendation",
}


def set_stabilized(conditions: Conditions, current: int, normalization: Normalization) -> None:
    """Say in AbleToScale whether recent recommendations changed the number, and in which direction.

    Upstream has set it before, when it read the scale; that text shows only where no number is found.
    """
    proposal = normalization.desired
    if normalization.stabilized == proposal:
        conditions.set("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size", again=True)
        return
    up = not normalization.legacy and proposal >= current
    why = "ScaleUpStabilized" if up else "ScaleDownStabilized"
    conditions.set("AbleToScale", "True", why, _STABILIZED_MESSAGES[why], again=True)


def set_limited(conditions: Conditions, normalization: Normalization) -> None:
    """Say in ScalingLimited which limit changed the stabilized number, if any did."""
    if normalization.limited == normalization.stabilized:
        conditions.set("ScalingLimited", "False", WITHIN_RANGE, _LIMITED_MESSAGES[WITHIN_RANGE])
        return
    conditions.set("ScalingLimited", "True", normalization.bound, _LIMITED_MESSAGES[normalization.bound])

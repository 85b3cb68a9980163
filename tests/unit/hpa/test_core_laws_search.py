"""Laws of the decision, each with the domain in which it really holds; the docstring says where it ends, and why."""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams.hpa.evaluation import Calculation
from streams.hpa.observation import ObjectSample, TargetPods
from tests.kit.hpa import (
    NOW_MS,
    Controller,
    Group,
    behavior,
    calculate,
    external_metric,
    hpa,
    object_metric,
    pods_metric,
    policy,
    replicas,
    resource,
    wanting,
    world,
)
from tests.laws import examples

QUEUE = external_metric(average=1000)
Json = dict[str, Any]

percents = st.integers(1, 200)
usages = st.integers(0, 400)
requests = st.integers(1, 400)
pods_alike = st.builds(Group, st.integers(1, 4), usages, st.just("ready"), requests)
gone = st.sampled_from(["unready", "pending", "failed", "deleting"])
others = st.lists(st.builds(Group, st.integers(1, 2), st.none() | usages, gone, requests), max_size=2)
missing = st.lists(st.builds(Group, st.integers(1, 2), st.none(), st.just("ready"), requests), max_size=2)
policies = st.builds(
    policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 150), st.sampled_from([5, 15, 40, 90])
)


def rules_of(select: st.SearchStrategy[str], windows: tuple[int, ...] = (0, 30, 120)) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {
            "stabilizationWindowSeconds": st.sampled_from(windows),
            "selectPolicy": select,
            "policies": st.lists(policies, min_size=1, max_size=3),
        }
    )


any_rules = rules_of(st.sampled_from(["Max", "Min", "Disabled"]))
behaviors = st.none() | st.builds(behavior, any_rules, any_rules)
syncs = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), min_size=1, max_size=14)


def made_of(metric: Json, groups: list[Group], current: int) -> Calculation | None:
    """Calculate over these pods; None where the metric fails."""
    pods, answer = world(*groups)
    try:
        return calculate(metric, answer, current=current, pods=pods)
    except AssertionError:
        return None


# --- limits -----------------------------------------------------------------------------------------------------------


@given(behaviors, st.integers(0, 8), st.integers(8, 40), st.integers(1, 60), st.integers(0, 100))
def test_the_count_is_never_outside_min_and_max(rules: Any, low: int, high: int, current: int, desired: int) -> None:
    """Whatever the metrics say, and from any count but 0, the next count is within minReplicas and maxReplicas.

    Ends at current 0 (a pause: it stays 0), where min exceeds max (max acts first, then min), and where twice the
    count leaves int32 (the legacy limit turns negative).
    """
    controller = Controller(hpa([QUEUE], low=low, high=high, behavior=rules))

    made = controller.evaluate(current, wanting(desired))

    assert made.desired_replicas is not None
    assert low <= made.desired_replicas <= high


@given(behaviors, st.integers(0, 8), st.integers(8, 40), st.integers(0, 100))
def test_from_zero_the_count_is_zero_or_within_min_and_max(rules: Any, low: int, high: int, desired: int) -> None:
    """Woken from zero, the count is at least minReplicas, whatever policies and windows say; paused it stays 0."""
    woken = {
        "desiredReplicas": 0,
        "currentMetrics": None,
        "conditions": [{"type": "ScaledToZero", "status": "True", "lastTransitionTime": "2000-01-01T00:00:00Z"}],
    }
    for status in (woken, None):
        made = Controller(hpa([QUEUE], low=low, high=high, behavior=rules), status=status).evaluate(0, wanting(desired))
        assert made.desired_replicas is not None
        assert made.desired_replicas == 0 or max(low, 1) <= made.desired_replicas <= high
        assert not (status is None and made.desired_replicas)


# --- usage ------------------------------------------------------------------------------------------------------------


def is_monotone_domain(made: Calculation, current: int) -> bool:
    """Say whether more usage cannot ask for less: what counts pods by `used` has no guard of its direction."""
    if made.missing:
        return True
    return made.used == current or (made.not_ready > 0 and made.used <= current)


@given(st.lists(pods_alike, min_size=1, max_size=3), others, missing, st.integers(1, 400), percents, st.integers(1, 16))
def test_more_usage_never_asks_for_less(
    counted: Any, others: Any, missing: Any, more: int, target: int, current: int
) -> None:
    """More usage of one pod, all else equal, never gives a lower proposal (Resource and Pods metrics).

    Holds where a pod is missing, where pods are not ready and the counted ones are at most the current count, and where
    the counted pods are exactly the current count. Elsewhere upstream's short path has no guard: current 10 with five
    pods at 52 of 50 % stays 10, at 60 % it asks for 6.
    """
    for metric in (resource(percent=target), resource(average=target), pods_metric(target)):
        first, *rest = counted
        hotter = [Group(first.count, first.usage_milli + more, "ready", first.request_milli), *rest]
        before = made_of(metric, [*counted, *others, *missing], current)
        after = made_of(metric, [*hotter, *others, *missing], current)
        assert (before is None) == (after is None)
        if before is not None and after is not None and is_monotone_domain(before, current):
            assert before.proposal <= after.proposal


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**5), st.integers(0, 20))
def test_a_larger_object_or_external_value_never_asks_for_less(one: int, other: int, target: int, count: int) -> None:
    """Holds for averages always, for totals where the running and ready pods are exactly the current count."""
    low, high = sorted((one, other))
    for metric in (object_metric(value=target), object_metric(average=target)):
        small, large = (
            (
                calculate(metric, ObjectSample(value), current=count, pods=replicas(count, count)).proposal
                for value in (low, high)
            )
            if count
            else (0, 0)
        )
        assert small <= large


# --- losing a sample --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.lists(pods_alike, min_size=1, max_size=3), others, missing, percents, st.integers(1, 16))
def test_with_a_missing_pod_the_proposal_goes_the_way_of_the_measured_ratio_or_stays(
    counted: Any, others: Any, missing: Any, target: int, current: int
) -> None:
    """With a missing pod, nothing moves against what was measured, and at exactly the target nothing moves."""
    assume(missing)
    for metric in (resource(percent=target), resource(average=target), pods_metric(target)):
        made = made_of(metric, [*counted, *others, *missing], current)
        if made is None:
            continue
        if made.ratio < 1:
            assert made.proposal <= current
        elif made.ratio > 1:
            assert made.proposal >= current
        else:
            assert made.proposal == current


@given(st.lists(pods_alike, min_size=2, max_size=4), percents)
def test_losing_a_sample_never_moves_further_than_having_it(groups: list[Group], target: int) -> None:
    """A lost sample may keep the count, or change it by less; never by more, and never the other way.

    For utilization, where all pods are ready and as many as the current count. Downwards it holds if the lost pod used
    at most max(100, target) percent of its request, which is what it then counts as: a hotter pod that is lost may
    let the count fall.
    """
    lost = groups[0]
    current = sum(group.count for group in groups)
    metric = resource(percent=target)
    full = made_of(metric, groups, current)
    part = made_of(metric, [Group(lost.count, None, "ready", lost.request_milli), *groups[1:]], current)
    assert full is not None
    assert part is not None
    if part.proposal > current:
        assert full.proposal >= part.proposal
    modest = (lost.usage_milli or 0) * 100 <= (lost.request_milli or 0) * max(100, target)
    if part.proposal < current and modest:
        assert full.proposal <= part.proposal


def test_a_hot_pod_that_is_lost_may_let_the_count_fall() -> None:
    """Where the law above ends: four pods stay because of one at 300 %; without its sample they fall to three."""
    metric = resource(percent=100)
    cold = Group(3, 40)

    full, part = made_of(metric, [Group(1, 300), cold], 4), made_of(metric, [Group(1, None), cold], 4)

    assert full is not None
    assert part is not None
    assert (full.proposal, part.proposal) == (4, 3)


# --- behavior ---------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(any_rules, st.booleans(), syncs)
def test_disabled_never_moves_in_its_direction(rules: Json, up: bool, steps: list[tuple[int, int]]) -> None:
    """`selectPolicy: Disabled` keeps the count from moving that way, in every step of any run.

    Ends outside minReplicas and maxReplicas, whose corrections ask no policy, and at zero with minReplicas above it.
    """
    frozen = {**rules, "selectPolicy": "Disabled"}
    both = behavior(frozen, rules) if up else behavior(rules, frozen)
    controller, current, now_ms = Controller(hpa([QUEUE], low=1, high=100, behavior=both)), 20, NOW_MS
    for desired, seconds in steps:
        controller.sync(current, wanting(desired), now_ms=now_ms)
        before, current = current, controller.status["desiredReplicas"]
        assert current <= before if up else current >= before
        now_ms += seconds * 1000


tight = st.builds(policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 12), st.sampled_from([15, 40, 90]))
moving = st.fixed_dictionaries(
    {
        "stabilizationWindowSeconds": st.just(0),
        "selectPolicy": st.sampled_from(["Max", "Min"]),
        "policies": st.lists(tight, min_size=1, max_size=2),
    }
)
"""Policies that bind, and no window that hides it."""
far = st.lists(st.tuples(st.sampled_from([1, 400]), st.integers(1, 40)), min_size=2, max_size=14)


def allowed(rules: Json, counts: list[tuple[int, int]], now_ms: int, *, up: bool) -> int:
    """The limit by the counts at the start of each policy's period, computed from the run and not from events."""
    limits: list[int] = []
    for each in rules["policies"]:
        start = [count for time_ms, count in counts if time_ms <= now_ms - each["periodSeconds"] * 1000][-1]
        share = float(each["value"]) / 100
        if each["type"] == "Pods":
            limits.append(start + each["value"] if up else start - each["value"])
        else:
            limits.append(math.ceil(start * (1 + share)) if up else int(start * (1 - share)))
    return (max if (rules["selectPolicy"] == "Max") is up else min)(limits)


@settings(max_examples=examples(60))
@given(moving, moving, far)
def test_the_limits_of_policies_hold_over_any_window_of_a_run(up: Json, down: Json, steps: Any) -> None:
    """After each step, the count is within what the policies allow from the counts at the starts of their periods.

    Holds in a run that the HPA alone makes, within minReplicas and maxReplicas, memory not lost. Events are forgotten
    by the longest period of their own direction; the other direction then only becomes stricter.
    """
    controller = Controller(hpa([QUEUE], low=1, high=500, behavior=behavior(up, down)))
    current, now_ms = 100, NOW_MS
    counts = [(0, current)]
    for desired, seconds in steps:
        controller.sync(current, wanting(desired), now_ms=now_ms)
        after = controller.status["desiredReplicas"]
        if after > current:
            assert after <= allowed(up, counts, now_ms, up=True)
        if after < current:
            assert after >= max(1, allowed(down, counts, now_ms, up=False))
        counts.append((now_ms, after))
        current = after
        now_ms += seconds * 1000


@settings(max_examples=examples(60))
@given(behaviors, syncs)
def test_a_stabilized_number_lies_between_the_proposal_and_what_was_recommended(rules: Any, steps: Any) -> None:
    """With `behavior` it lies between the proposal and the current count; without, never below the proposal."""
    controller, current, now_ms = Controller(hpa([QUEUE], low=1, high=100, behavior=rules)), 20, NOW_MS
    for desired, seconds in steps:
        made = controller.evaluate(current, wanting(desired), now_ms=now_ms)
        normalization = made.normalization
        assert normalization is not None
        if rules is None:
            assert normalization.stabilized >= normalization.desired
        else:
            low, high = sorted((normalization.desired, current))
            assert low <= normalization.stabilized <= high
        now_ms += seconds * 1000


# --- order and scale --------------------------------------------------------------------------------------------------


def turned(value: Any) -> Any:
    """The same JSON with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {key: turned(each) for key, each in reversed(value.items())}
    return [turned(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=examples(60))
@given(behaviors, st.lists(pods_alike, min_size=1, max_size=3), others, syncs)
def test_the_order_of_keys_changes_nothing(rules: Any, counted: Any, others: Any, steps: Any) -> None:
    """Keys of the spec, of the status and of the samples may come in any order: status and memory are equal."""
    spec = hpa([QUEUE, resource(percent=50), object_metric(average=500)], behavior=rules)
    one, other = Controller(spec), Controller(turned(spec))
    pods, answer = world(*counted, *others)
    now_ms, current = NOW_MS, 5
    for desired, seconds in steps:
        value = ObjectSample(desired * 300)
        first = one.sync(current, wanting(desired), answer, value, pods=pods, now_ms=now_ms)
        other.status = turned(other.status)
        samples = type(answer)(turned(answer.samples), answer.total_milli, answer.oldest_ms, answer.newest_ms)
        second = other.sync(current, wanting(desired), samples, value, pods=pods, now_ms=now_ms)
        assert first.status == second.status
        assert (first.events, one.history) == (second.events, other.history)
        current, now_ms = one.status["desiredReplicas"], now_ms + seconds * 1000


factors = st.integers(2, 10**6)


@settings(max_examples=examples(60))
@given(st.lists(pods_alike, min_size=1, max_size=3), others, missing, percents, st.integers(1, 16), factors)
def test_a_common_factor_of_usage_and_request_changes_no_utilization(
    counted: Any, others: Any, missing: Any, target: int, current: int, factor: int
) -> None:
    """Usage and requests times a factor give the same proposal and percentage, short of 2^63 / 100.

    Where pods have no sample it needs requests times max(100, target) to be whole percents: what such a pod counts as
    is truncated pod by pod.
    """
    groups = [*counted, *others, *missing]
    filled = [group for group in groups if group.usage_milli is None]
    whole = all((group.request_milli or 0) * max(100, target) % 100 == 0 for group in filled)
    assume(whole)
    small = made_of(resource(percent=target), groups, current)
    large = made_of(resource(percent=target), [times(group, factor) for group in groups], current)
    assert (small is None) == (large is None)
    if small is not None and large is not None:
        assert (small.proposal, small.value, small.kept) == (large.proposal, large.value, large.kept)


def times(group: Group, factor: int) -> Group:
    usage = None if group.usage_milli is None else group.usage_milli * factor
    return Group(group.count, usage, group.state, (group.request_milli or 0) * factor)


@given(st.integers(1, 12), usages, percents, factors)
def test_a_common_factor_of_usage_and_target_changes_no_average_of_equal_pods(
    count: int, usage: int, target: int, factor: int
) -> None:
    """Usage and target times a factor give the same proposal where the average is whole, as with equal pods.

    Elsewhere the average is truncated to thousandths, of which the larger numbers have more.
    """
    metrics: tuple[Callable[[int], Json], ...] = (pods_metric, lambda average: resource(average=average))
    for metric in metrics:
        small = made_of(metric(target), [Group(count, usage)], count)
        large = made_of(metric(target * factor), [Group(count, usage * factor)], count)
        assert small is not None
        assert large is not None
        assert small.proposal == large.proposal


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50), factors)
def test_a_common_factor_of_value_and_target_changes_no_object_metric(
    value: int, target: int, count: int, factor: int
) -> None:
    """Holds while value times target and count are below 2^53, where doubles are exact."""
    makers: tuple[Callable[[int], Json], ...] = (
        lambda each: object_metric(value=each),
        lambda each: object_metric(average=each),
    )
    for make in makers:
        pods: TargetPods = replicas(count, count)
        small = calculate(make(target), ObjectSample(value), current=count, pods=pods)
        large = calculate(make(target * factor), ObjectSample(value * factor), current=count, pods=pods)
        assert (small.proposal, small.ratio) == (large.proposal, large.ratio)

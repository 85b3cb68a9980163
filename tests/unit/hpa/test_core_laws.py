"""Laws of the decision algorithm, over worlds that nobody thought of."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.evaluation import Pending, ScaleApplied
from streams.hpa.gofloat import MAX_INT64, MIN_INT64, trunc_div, wrap32, wrap64
from streams.hpa.grouping import Groups, MetricError, group, group_by_pod
from streams.hpa.observation import TargetPods, pod_samples
from streams.hpa.reconcile import complete
from tests.kit.hpa import (
    NOW_MS,
    Controller,
    Group,
    behavior,
    calculate,
    external_metric,
    hpa,
    pods_metric,
    policy,
    resource,
    wanting,
    world,
)

QUEUE = external_metric(average=1000)
METRICS = (resource(percent=50), resource(average=100), pods_metric(100), resource("memory", percent=80))

groups = st.lists(
    st.builds(
        Group,
        st.integers(1, 4),
        st.none() | st.integers(0, 400),
        st.sampled_from(["ready", "unready", "pending", "failed", "succeeded", "deleting"]),
        st.integers(1, 500),
    ),
    min_size=1,
    max_size=5,
)
policies = st.builds(policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15, 60, 300]))
rules = st.fixed_dictionaries(
    {
        "stabilizationWindowSeconds": st.sampled_from([0, 30, 300]),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": st.lists(policies, min_size=1, max_size=3),
    }
)
behaviors = st.none() | st.builds(behavior, rules, rules)


def result_of(metric: dict[str, Any], current: int, pods: TargetPods, answer: Any) -> object:
    try:
        return calculate(metric, answer, current=current, pods=pods)
    except AssertionError as error:
        return str(error)


@given(groups, st.dictionaries(st.sampled_from("xyz"), st.integers(0, 400)), st.randoms(), st.integers(1, 20))
def test_the_order_of_pods_and_samples_changes_nothing(parts: Any, strays: Any, random: Any, current: int) -> None:
    pods, answer = world(*parts, strays=strays)
    rows, samples = list(pods.rows), list(answer.samples.items())
    random.shuffle(rows)
    random.shuffle(samples)

    for metric in METRICS:
        mixed = result_of(metric, current, TargetPods(tuple(rows)), pod_samples(dict(samples)))
        assert mixed == result_of(metric, current, pods, answer)


@given(groups, st.booleans(), st.integers(0, 2), st.integers(-400_000, 400_000))
def test_pods_that_all_count_are_grouped_as_pod_by_pod(parts: Any, cpu: bool, strays: int, later_ms: int) -> None:
    pods, answer = world(*parts, strays={name: 100 for name in "xy"[:strays]})
    requests, now_ms = pods.requests("cpu", ""), NOW_MS + later_ms
    arguments = (pods, answer, cpu, requests, ControllerSettings(), now_ms)

    def grouped(how: Callable[..., Groups]) -> Groups | str:
        try:
            return how(*arguments)
        except MetricError as error:
            return str(error)

    assert grouped(group) == grouped(group_by_pod)


def test_settled_pods_are_grouped_by_what_is_known_of_their_list() -> None:
    pods, answer = world(Group(3, 100), Group(1, None, "pending"), Group(1, None, "failed"))
    made = group(pods, answer, True, pods.requests("cpu", ""), ControllerSettings(), NOW_MS)
    assert (made.ready, made.ready_milli, made.unready, made.ignored) == (3, 300, 1, 1)
    assert pods.are_settled(ControllerSettings().cpu_initialization_period_ms, NOW_MS)


@given(groups, st.integers(1, 20))
def test_every_pod_is_counted_once(parts: Any, current: int) -> None:
    pods, answer = world(*parts)
    made = result_of(pods_metric(100), current, pods, answer)

    if not isinstance(made, str):
        counts = [getattr(made, name) for name in ("used", "not_ready", "missing", "ignored")]
        assert sum(counts) == len(pods)


@given(st.integers(1, 30), st.integers(0, 300), st.integers(0, 300))
def test_more_usage_never_asks_for_less(count: int, one: int, other: int) -> None:
    low, high = (
        calculate(
            resource(percent=50), world(Group(count, usage))[1], current=count, pods=world(Group(count, usage))[0]
        )
        for usage in sorted((one, other))
    )

    assert low.proposal <= high.proposal


syncs = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 90)), min_size=1, max_size=12)


@given(behaviors, st.integers(1, 8), st.integers(8, 40), syncs)
def test_replicas_stay_within_min_and_max(rules: Any, low: int, high: int, steps: list[tuple[int, int]]) -> None:
    controller, current, now_ms = Controller(hpa([QUEUE], low=low, high=high, behavior=rules)), low, NOW_MS
    for desired, seconds in steps:
        controller.sync(current, wanting(desired), now_ms=now_ms)
        current, now_ms = controller.status["desiredReplicas"], now_ms + seconds * 1000
        assert low <= current <= high


@given(behaviors, syncs)
def test_memory_grows_by_at_most_one_entry_and_is_never_changed_in_place(rules: Any, steps: Any) -> None:
    controller, current, now_ms = Controller(hpa([QUEUE], behavior=rules)), 5, NOW_MS
    for desired, seconds in steps:
        before = controller.history
        kept = copy.deepcopy(before)
        controller.sync(current, wanting(desired), now_ms=now_ms)
        current, now_ms = controller.status["desiredReplicas"], now_ms + seconds * 1000
        assert before == kept
        grown = len(controller.history.recommendations) - len(before.recommendations)
        assert 0 <= grown <= 1 + (before.recommended is None)


@given(behaviors, syncs)
def test_the_same_inputs_give_the_same_bytes(rules: Any, steps: Any) -> None:
    twins = [Controller(hpa([QUEUE, resource(percent=50)], behavior=rules)) for _ in range(2)]
    now_ms = NOW_MS
    for desired, seconds in steps:
        answer = world(Group(5, desired * 10))[1]
        results = [each.sync(5, wanting(desired), answer, now_ms=now_ms) for each in twins]
        assert msgspec.json.encode(results[0]) == msgspec.json.encode(results[1])
        now_ms += seconds * 1000


@given(behaviors, st.integers(1, 60).filter(lambda desired: desired != 5))
def test_a_pending_write_can_be_stored_and_completed_later(rules: Any, desired: int) -> None:
    controller = Controller(hpa([QUEUE], behavior=rules), recommendations=())
    made = controller.evaluate(5, wanting(desired))
    if made.pending is None:
        return

    stored = msgspec.json.decode(msgspec.json.encode(made.pending), type=Pending)

    done = [complete(each, controller.status, made.history, ScaleApplied(), NOW_MS) for each in (made.pending, stored)]
    assert done[0] == done[1]


@given(st.integers(), st.integers())
def test_wrapping_commutes_with_adding(one: int, other: int) -> None:
    assert wrap64(wrap64(one) + wrap64(other)) == wrap64(one + other)
    assert wrap32(wrap32(one) + wrap32(other)) == wrap32(one + other)
    assert MIN_INT64 <= wrap64(one) <= MAX_INT64


@given(st.integers(MIN_INT64 + 1, MAX_INT64), st.integers(MIN_INT64, MAX_INT64).filter(bool))
def test_quotient_and_remainder_make_the_dividend(dividend: int, divisor: int) -> None:
    quotient = trunc_div(dividend, divisor)
    remainder = dividend - quotient * divisor

    assert abs(remainder) < abs(divisor)
    assert remainder == 0 or (remainder < 0) == (dividend < 0)

"""Rules of the decision that ordinary objects hardly touch: bounds of the types, odd statuses, refused specs."""

from typing import Any

import pytest

from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, Conditions, History, Pending, ScaleApplied, ScaleFailed
from streams.hpa.normalize import scale_down_limit, scale_up_limit, store_scale_event
from streams.hpa.observation import ExternalSamples, Scale, ScaleFailure
from streams.hpa.reconcile import complete
from tests.kit.hpa import (
    FAILED,
    MAX_INT32,
    NOW_MS,
    Controller,
    behavior,
    external_metric,
    hpa,
    object_metric,
    policy,
    replicas,
    resource,
    wanting,
)
from tests.kit.upstream import status_write_failed

MIN_INT32 = -(2**31)
QUEUE = external_metric(average=1000)
TRANSITION = "2000-01-01T00:00:00Z"


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": TRANSITION, "reason": "R", "message": "m", **more}


def status_with(*conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"desiredReplicas": 5, "currentMetrics": None, "conditions": list(conditions), **more}


# --- int32 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "ups", "downs"),
    [
        pytest.param(3, [3], [], id="up"),
        pytest.param(-3, [], [3], id="down, stored without its sign"),
        pytest.param(2**31, [MIN_INT32], [], id="up by more than int32 holds: the direction stays, the size wraps"),
        pytest.param(-(2**32) + 1, [], [-1], id="down by nearly 2^32"),
        pytest.param(0, [], [0], id="what is not up is down"),
    ],
)
def test_a_scale_event_has_the_direction_of_the_counts_and_an_int32_size(
    change: int, ups: list[int], downs: list[int]
) -> None:
    after = store_scale_event(EMPTY_HISTORY, change, 60_000, NOW_MS)

    assert [event[0] for event in after.scale_up_events] == ups
    assert [event[0] for event in after.scale_down_events] == downs


def test_from_a_negative_count_to_the_largest_is_still_up() -> None:
    controller = Controller(hpa([QUEUE], low=MAX_INT32, high=MAX_INT32, behavior=behavior()))

    result = controller.sync(MIN_INT32, wanting(1))

    assert result.action == "scale_up"
    assert controller.history.scale_up_events == ((-1, NOW_MS, False),)
    assert controller.history.scale_down_events == ()


@pytest.mark.parametrize("current", [-1, MIN_INT32])
def test_a_negative_count_is_below_min(current: int) -> None:
    made = Controller(hpa([QUEUE], low=2)).evaluate(current, wanting(9))

    assert (made.path, made.desired_replicas) == ("belowMin", 2)


def test_twice_the_largest_count_leaves_int32_and_the_legacy_limit_turns_negative() -> None:
    controller = Controller(hpa([QUEUE], high=MAX_INT32), recommendations=())

    made = controller.evaluate(2**30, wanting(2**30 + 2**29), pods=replicas(1, 1))

    assert made.normalization is not None
    assert (made.normalization.rate_limit, made.normalization.limited) == (MIN_INT32, MIN_INT32)


@pytest.mark.parametrize("status_replicas", [-3, MIN_INT32])
def test_negative_status_replicas_give_a_negative_average_and_no_tolerance(status_replicas: int) -> None:
    made = Controller(hpa([object_metric(average=1000)], high=100)).evaluate(
        4, _object(4000), scale=Scale(4, status_replicas, "app=x"), pods=replicas(4, 4)
    )

    calculation = made.metrics[0].calculation
    assert calculation is not None
    assert calculation.proposal == 4
    assert calculation.value == -(4000 // -status_replicas)


def _object(milli: int) -> Any:
    from streams.hpa.observation import ObjectSample

    return ObjectSample(milli)


# --- refused specs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policies", "up", "down"),
    [
        pytest.param([policy("Bogus", 50, 60)], 0, 0, id="alone it allows nothing"),
        pytest.param([policy("Pods", 3, 60), policy("Bogus", 50, 60)], 13, 7, id="after another it repeats that one"),
        pytest.param([policy("Bogus", 50, 60), policy("Pods", 3, 60)], 13, 0, id="before another it counts as 0"),
    ],
)
def test_a_policy_of_an_unknown_type_repeats_the_number_before_it(policies: Any, up: int, down: int) -> None:
    rules = {"policies": policies}
    compiled = compile_autoscaler(hpa([QUEUE], behavior=behavior(rules, rules)))
    assert compiled.scale_up is not None
    assert compiled.scale_down is not None

    assert scale_up_limit(compiled.scale_up, 10, EMPTY_HISTORY, NOW_MS)[0] == up
    assert scale_down_limit(compiled.scale_down, 10, EMPTY_HISTORY, NOW_MS)[0] == down


def test_the_longest_period_is_never_below_zero() -> None:
    compiled = compile_autoscaler(hpa([QUEUE], behavior=behavior({"policies": [policy("Pods", 1, -60)]})))

    assert compiled.scale_up is not None
    assert compiled.scale_up.longest_ms == 0


def test_without_policies_nothing_moves() -> None:
    rules: dict[str, Any] = {"policies": []}
    controller = Controller(hpa([QUEUE], behavior=behavior(rules, rules)), recommendations=())

    for desired in (3, 30):
        made = controller.evaluate(10, wanting(desired))
        assert made.normalization is not None
        assert made.normalization.limited == 10


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        pytest.param("", '""', id="empty"),
        pytest.param('a"b', '"a\\"b"', id="a quote"),
        pytest.param("a\x01\u00e9", '"a\\x01é"', id="a control character as Go writes it"),
        pytest.param("a<b>&", '"a<b>&"', id="what JSON would escape"),
    ],
)
def test_an_unknown_metric_type_is_quoted_as_go_does(kind: str, shown: str) -> None:
    compiled = compile_autoscaler(hpa([{"type": kind}])).metrics[0]

    assert compiled.error == f"unknown metric source type {shown}"


def test_no_metrics_at_all_leave_a_condition_without_a_type_and_want_zero() -> None:
    controller = Controller(hpa([]), recommendations=())

    controller.sync(5)
    controller.sync(5)

    assert [each["type"] for each in controller.status["conditions"]].count("") == 1
    assert controller.status["desiredReplicas"] == 1


def test_limits_that_contradict_each_other_act_max_first() -> None:
    controller = Controller(hpa([QUEUE], low=10, high=5))

    assert controller.evaluate(7, wanting(7)).path == "aboveMax"
    assert controller.evaluate(4, wanting(4)).path == "belowMin"


# --- conditions -------------------------------------------------------------------------------------------------------


def test_a_condition_that_was_unknown_moves_its_transition_time() -> None:
    controller = Controller(hpa([QUEUE]), status=status_with(condition("AbleToScale", "Unknown")))

    controller.sync(5, wanting(5))

    assert controller.status["conditions"][0]["lastTransitionTime"] != TRANSITION


def test_a_condition_keeps_its_place_its_transition_time_and_what_else_it_has() -> None:
    kept = condition("ScaledToZero", "False", observedGeneration=3)
    controller = Controller(hpa([QUEUE]), status=status_with(kept, condition("AbleToScale")))

    controller.sync(5, wanting(5))

    assert [each["type"] for each in controller.status["conditions"]][:2] == ["ScaledToZero", "AbleToScale"]
    assert controller.status["conditions"][0] == kept
    assert controller.status["conditions"][1]["lastTransitionTime"] == TRANSITION


def test_of_two_conditions_of_one_type_the_first_is_written() -> None:
    twice = Conditions([condition("AbleToScale"), condition("AbleToScale", "False")], NOW_MS)

    twice.set("AbleToScale", "False", "New", "new")

    assert [each["reason"] for each in twice.items] == ["New", "R"]


def test_setting_a_condition_to_what_it_is_changes_nothing() -> None:
    items = [condition("AbleToScale")]
    conditions = Conditions(items, NOW_MS)

    conditions.set("AbleToScale", "True", "R", "m")

    assert conditions.items == items
    assert conditions.items[0] is items[0]


@pytest.mark.parametrize("waking", ["False", "Unknown"])
def test_only_true_wakes_from_zero(waking: str) -> None:
    for status in (status_with(condition("ScaledToZero", waking)), status_with()):
        made = Controller(hpa([QUEUE], low=0), status=status).evaluate(0, wanting(3))
        assert made.path == "disabled"


# --- writes that fail -------------------------------------------------------------------------------------------------


def test_the_event_of_a_failed_status_write_comes_before_that_of_failed_metrics() -> None:
    result = Controller(hpa([resource(percent=50)])).sync(5, FAILED)

    failed = status_write_failed(result, "web", "no")

    reasons = [event[1] for event in (*failed.events, *failed.events_after_write)]
    assert reasons == ["FailedGetResourceMetric", "FailedUpdateStatus", "FailedComputeMetricsReplicas"]
    assert failed.error == result.error, "the metrics' error is what the reconcile returns"


def test_a_failed_status_write_takes_the_place_of_the_remembered_error() -> None:
    result = Controller(hpa([QUEUE, {"type": "Odd"}])).sync(5, wanting(9), None)
    assert (result.error_label, bool(result.error)) == ("spec", True)

    failed = status_write_failed(result, "web", "no")

    assert (failed.error, failed.error_label) == ("failed to update status for web: no", "internal")
    assert failed.action == "scale_up"


def test_a_failed_scale_write_keeps_the_desired_replicas_that_the_status_had() -> None:
    controller = Controller(hpa([QUEUE]), status=status_with(desiredReplicas=77, lastScaleTime=TRANSITION))

    result = controller.sync(5, wanting(9), outcome=ScaleFailed("conflict"))

    assert (controller.status["desiredReplicas"], controller.status["currentReplicas"]) == (77, 5)
    assert controller.status["lastScaleTime"] == TRANSITION
    assert controller.history.scale_up_events == ()
    assert (result.action, result.error_label) == ("none", "internal")


def test_an_unreadable_scale_leaves_counts_and_metrics_of_the_status_alone() -> None:
    before = status_with(currentReplicas=4, observedGeneration=2, lastScaleTime=TRANSITION)
    controller = Controller(hpa([QUEUE]), status=before)

    controller.evaluate(5, wanting(5), scale=ScaleFailure("gone"))

    kept = {key: value for key, value in controller.status.items() if key != "conditions"}
    assert kept == {key: value for key, value in before.items() if key != "conditions"}
    assert controller.history.recommended is None


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "proposal"),
    [
        pytest.param((), 0, id="no series"),
        pytest.param((0,), 0, id="zero"),
        pytest.param((-1,), MAX_INT32, id="a negative value counts as an overflow"),
        pytest.param((5, -6, 1), MAX_INT32, id="so does a running sum below zero"),
        pytest.param((6, -5), 1, id="a sum that stays above it does not"),
    ],
)
def test_series_are_summed_as_they_come(values: tuple[int, ...], proposal: int) -> None:
    made = Controller(hpa([external_metric(average=1)], high=MAX_INT32)).evaluate(5, ExternalSamples(values))

    assert made.metrics[0].calculation is not None
    assert made.metrics[0].calculation.proposal == proposal


def test_partial_metrics_that_would_scale_down_scale_nothing() -> None:
    controller = Controller(hpa([QUEUE, resource(percent=50)]), status=status_with(desiredReplicas=9))

    result = controller.sync(5, wanting(2), FAILED)

    assert (result.action, controller.status["desiredReplicas"]) == ("none", 9)
    assert [each["type"] for each in controller.status["currentMetrics"]] == ["External", ""]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_an_event_outdated_by_a_longer_policy_stays_so_when_the_policy_is_shorter_again() -> None:
    old = History((), (), ((4, NOW_MS - 100_000, False),))
    marked = store_scale_event(old, 2, 90_000, NOW_MS)
    assert marked.scale_up_events == ((2, NOW_MS, False),)

    kept = store_scale_event(History((), (), ((4, NOW_MS - 100_000, True),)), 2, 300_000, NOW_MS)

    assert kept.scale_up_events == ((2, NOW_MS, False),), "the flag sticks, so its slot is free"


def test_turning_behavior_off_keeps_the_events_but_stores_none() -> None:
    pending = Pending(
        current_replicas=5,
        desired_replicas=9,
        reason="r",
        name="web",
        reference="Deployment/shop/web",
        generation=1,
        to_zero=False,
        conditions=[],
        longest_period_ms=None,
    )
    before = History((), (), ((4, NOW_MS - 1, False),))

    assert complete(pending, status_with(), before, ScaleApplied(), NOW_MS).history == before

"""From the metrics' number to the final one: stabilization, policies, minReplicas, maxReplicas, scale events."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, Normalization, ScaleFailed
from streams.hpa.normalize import normalize, scale_down_limit, scale_up_limit, store_scale_event
from streams.hpa.parts import added_up, recent
from tests.kit.hpa import MAX_INT32, NOW_MS, SETTINGS, Controller, behavior, external_metric, hpa, policy, wanting

QUEUE = external_metric(average=1000)
LEGACY: Any = None


def normalized(
    rules: Any,
    current: int,
    desired: int,
    *,
    low: int = 1,
    high: int = 1000,
    recommendations: tuple[tuple[int, int], ...] = (),
    settings: ControllerSettings = SETTINGS,
) -> tuple[Normalization, list[tuple[int, int]]]:
    """Normalize; ages of recommendations in seconds. Gives also (replicas, age) of those stored."""
    autoscaler = compile_autoscaler(hpa([QUEUE], low=low, high=high, behavior=rules))
    history = EMPTY_HISTORY.with_recommendations([(n, NOW_MS - age * 1000) for n, age in recommendations])
    made, stored = normalize(autoscaler, current, desired, history, settings, NOW_MS)
    return made, [(n, (NOW_MS - time_ms) // 1000) for n, time_ms in stored.recommendations]


@pytest.mark.parametrize(
    ("rules", "current", "desired", "high", "expected", "bound"),
    [
        pytest.param(LEGACY, 1, 1000, 5000, 4, "ScaleUpLimit", id="N1 the legacy limit is at least 4"),
        pytest.param(LEGACY, 3, 1000, 5000, 6, "ScaleUpLimit", id="N1 else double"),
        pytest.param(LEGACY, 5, 1000, 5000, 10, "ScaleUpLimit", id="N1 double again"),
        pytest.param(behavior(), 1, 1000, 5000, 5, "ScaleUpLimit", id="N2 behavior: four more"),
        pytest.param(behavior(), 3, 1000, 5000, 7, "ScaleUpLimit", id="N2 behavior: four more than three"),
        pytest.param(behavior(), 5, 1000, 5000, 10, "ScaleUpLimit", id="N2 behavior: double"),
        pytest.param(LEGACY, 3, 7, 6, 6, "TooManyReplicas", id="N3 at equal limits maxReplicas is named"),
        pytest.param(LEGACY, 3, 7, 100, 6, "ScaleUpLimit", id="N4 the smaller limit is named"),
        pytest.param(LEGACY, 3, 5, 100, 5, "DesiredWithinRange", id="within the legacy limits"),
        pytest.param(
            behavior(down={"selectPolicy": "Disabled"}), 10, 3, 20, 10, "ScaleDownLimit", id="N23 scale down disabled"
        ),
        pytest.param(
            behavior({"selectPolicy": "Disabled"}), 10, 13, 20, 10, "ScaleUpLimit", id="N24 scale up disabled"
        ),
        pytest.param(
            behavior({"selectPolicy": "Disabled"}), 10, 13, 10, 10, "TooManyReplicas", id="N24 disabled at maxReplicas"
        ),
    ],
)
def test_limits(rules: Any, current: int, desired: int, high: int, expected: int, bound: str) -> None:
    made, _ = normalized(rules, current, desired, high=high)

    assert (made.limited, made.bound) == (expected, bound)


def windows(up: int, down: int) -> dict[str, Any]:
    return behavior({"stabilizationWindowSeconds": up}, {"stabilizationWindowSeconds": down})


@pytest.mark.parametrize(
    ("rules", "current", "desired", "recommendations", "stabilized", "stored"),
    [
        pytest.param(
            LEGACY, 5, 2, ((10, 30),), 10, [(10, 30), (2, 0)], id="N5 legacy: the highest wins, above current too"
        ),
        pytest.param(windows(0, 300), 5, 2, ((10, 30),), 5, [(10, 30), (2, 0)], id="N6 behavior: bounded by current"),
        pytest.param(
            LEGACY,
            5,
            3,
            ((10, 600), (4, 60), (5, 120), (9, 540)),
            5,
            [(10, 600), (4, 60), (5, 120), (3, 0)],
            id="N9 the last old slot is reused",
        ),
        pytest.param(windows(300, 300), 2, 1, ((2, 6000), (3, 180)), 2, [(1, 0), (3, 180)], id="N10 no scale up"),
        pytest.param(windows(300, 300), 2, 3, ((2, 6000), (1, 180)), 2, [(3, 0), (1, 180)], id="N11 no scale down"),
        pytest.param(
            windows(300, 0),
            1,
            7,
            ((4, 120), (5, 60)),
            4,
            [(4, 120), (5, 60), (7, 0)],
            id="N12 the lowest of the window",
        ),
        pytest.param(
            windows(300, 300), 5, 8, ((10, 30), (6, 60)), 6, [(10, 30), (6, 60), (8, 0)], id="N13 up to the lowest"
        ),
        pytest.param(
            windows(300, 300), 5, 2, ((10, 30), (3, 60)), 5, [(10, 30), (3, 60), (2, 0)], id="N14 down to current"
        ),
        pytest.param(LEGACY, 5, 2, ((7, 300),), 7, [(7, 300), (2, 0)], id="N15 legacy: at the cutoff it is recent"),
        pytest.param(LEGACY, 5, 2, ((7, 301),), 2, [(2, 0)], id="N15 legacy: past the cutoff it is old"),
        pytest.param(
            windows(300, 300), 9, 2, ((7, 300),), 2, [(7, 300), (2, 0)], id="N15 behavior: at the cutoff neither"
        ),
        pytest.param(windows(300, 300), 9, 2, ((7, 301),), 2, [(2, 0)], id="N15 behavior: past the cutoff reusable"),
        pytest.param(windows(0, 0), 9, 2, ((7, 1),), 2, [(2, 0)], id="without windows nothing is held"),
    ],
)
def test_stabilization(
    rules: Any,
    current: int,
    desired: int,
    recommendations: tuple[tuple[int, int], ...],
    stabilized: int,
    stored: list[tuple[int, int]],
) -> None:
    made, kept = normalized(rules, current, desired, recommendations=recommendations)

    assert (made.stabilized, kept) == (stabilized, stored)


def test_what_held_the_count_and_until_when_is_reported() -> None:
    made, _ = normalized(windows(0, 300), 12, 2, recommendations=((10, 30), (10, 200), (4, 10)))

    assert made.stabilized == 10
    assert made.held_by == (10, NOW_MS - 30_000)
    assert made.held_until_ms == NOW_MS + 270_000
    late = NOW_MS + 270_000
    history = EMPTY_HISTORY.with_recommendations([(10, NOW_MS - 30_000)])
    autoscaler = compile_autoscaler(hpa([QUEUE], behavior=windows(0, 300)))
    assert normalize(autoscaler, 12, 2, history, SETTINGS, late - 1)[0].stabilized == 10
    assert normalize(autoscaler, 12, 2, history, SETTINGS, late)[0].stabilized == 2


def test_n36_an_omitted_scale_down_window_is_the_controllers() -> None:
    rules = behavior(down={"stabilizationWindowSeconds": None})
    settings = ControllerSettings(downscale_stabilization_ms=600_000)

    made, _ = normalized(rules, 9, 2, recommendations=((7, 599),), settings=settings)

    assert (made.stabilized, made.down_window_ms) == (7, 600_000)


def limit(direction: str, rules: dict[str, Any], current: int, ups: Any = (), downs: Any = ()) -> int:
    autoscaler = compile_autoscaler(hpa([QUEUE], behavior=behavior(**{direction: rules})))
    history = Controller(hpa([QUEUE]), ups=ups, downs=downs).history
    chosen, function = (
        (autoscaler.scale_up, scale_up_limit) if direction == "up" else (autoscaler.scale_down, scale_down_limit)
    )
    assert chosen is not None
    return function(chosen, current, history, NOW_MS)[0]


def rules_of(select: str, *policies: dict[str, Any]) -> dict[str, Any]:
    return {"selectPolicy": select, "policies": list(policies)}


@pytest.mark.parametrize(
    ("direction", "rules", "current", "ups", "downs", "expected"),
    [
        pytest.param("up", rules_of("Max", policy("Percent", 10, 60)), 100, (), (), 111, id="N16 110.00000000000001"),
        pytest.param("up", rules_of("Max", policy("Percent", 1, 60)), 3, (), (), 4, id="N17 always progress upwards"),
        pytest.param("down", rules_of("Max", policy("Percent", 90, 60)), 10, (), (), 0, id="N18 0.9999999999999998"),
        pytest.param("down", rules_of("Max", policy("Percent", 80, 60)), 5, (), (), 0, id="N19 0.9999999999999998"),
        pytest.param("down", rules_of("Max", policy("Percent", 10, 60)), 5, (), (), 4, id="N20 progress downwards"),
        pytest.param(
            "up", rules_of("Max", policy("Pods", 2, 60), policy("Percent", 50, 60)), 10, (), (), 15, id="N21 Max"
        ),
        pytest.param(
            "up", rules_of("Min", policy("Pods", 2, 60), policy("Percent", 50, 60)), 10, (), (), 12, id="N21 Min"
        ),
        pytest.param(
            "down", rules_of("Max", policy("Pods", 2, 60), policy("Percent", 50, 60)), 10, (), (), 5, id="N22 Max"
        ),
        pytest.param(
            "down", rules_of("Min", policy("Pods", 2, 60), policy("Percent", 50, 60)), 10, (), (), 8, id="N22 Min"
        ),
        pytest.param(
            "up", rules_of("Max", policy("Percent", 300, 300)), 6, ((4, 9),), ((2, 9),), 16, id="N25 start 6 - 4 + 2"
        ),
        pytest.param(
            "down", rules_of("Max", policy("Percent", 50, 180)), 10, ((2, 9),), ((4, 9),), 6, id="N26 start 12"
        ),
        pytest.param(
            "up",
            rules_of("Max", policy("Pods", 5, 120)),
            100,
            ((1, 9), (5, 20), (9, 30)),
            (),
            90,
            id="N27 before it is raised to current",
        ),
        pytest.param(
            "down", rules_of("Max", policy("Percent", 10, 120)), 100, (), ((30, 9),), 117, id="N28 before it is lowered"
        ),
        pytest.param(
            "down", rules_of("Max", policy("Percent", 1000, 120)), 10, (), ((30, 9),), -360, id="N29 far below zero"
        ),
        pytest.param(
            "up",
            rules_of("Max", policy("Pods", 4, 15), policy("Pods", 8, 60)),
            20,
            ((5, 10), (5, 50)),
            (),
            19,
            id="N30 each policy has its start: Max",
        ),
        pytest.param(
            "up",
            rules_of("Min", policy("Pods", 4, 15), policy("Pods", 8, 60)),
            20,
            ((5, 10), (5, 50)),
            (),
            18,
            id="N30 each policy has its start: Min",
        ),
        pytest.param(
            "up", rules_of("Max", policy("Pods", 4, 15)), 20, ((5, 15),), (), 24, id="N31 exactly the period is out"
        ),
        pytest.param("up", rules_of("Max", policy("Pods", MAX_INT32, 15)), 20, (), (), -(2**31) + 19, id="int32 wraps"),
    ],
)
def test_policies(direction: str, rules: dict[str, Any], current: int, ups: Any, downs: Any, expected: int) -> None:
    assert limit(direction, rules, current, ups, downs) == expected


@pytest.mark.parametrize(
    ("rules", "ups", "downs", "current", "desired", "expected"),
    [
        pytest.param(
            {"up": rules_of("Max", policy("Pods", 5, 120))}, ((15, 9),), (), 100, 200, (100, "ScaleUpLimit"), id="N27"
        ),
        pytest.param(
            {"down": rules_of("Max", policy("Percent", 10, 120))},
            (),
            ((30, 9),),
            100,
            20,
            (100, "ScaleDownLimit"),
            id="N28",
        ),
        pytest.param(
            {"down": rules_of("Max", policy("Percent", 1000, 120))},
            (),
            ((30, 9),),
            10,
            5,
            (5, "DesiredWithinRange"),
            id="N29",
        ),
    ],
)
def test_limits_never_turn_the_direction(
    rules: dict[str, Any], ups: Any, downs: Any, current: int, desired: int, expected: tuple[int, str]
) -> None:
    controller = Controller(hpa([QUEUE], behavior=behavior(**rules)), recommendations=(), ups=ups, downs=downs)

    made = controller.evaluate(current, wanting(desired))

    assert made.normalization is not None
    assert (made.normalization.limited, made.normalization.bound) == expected


def test_n32_the_last_outdated_slot_is_reused_and_nothing_is_dropped() -> None:
    history = Controller(hpa([QUEUE]), ups=((8, 29), (6, 59), (7, 61), (9, 61))).history

    after = store_scale_event(history, 5, 60_000, NOW_MS).scale_up_events

    assert [(size, outdated) for size, _, outdated in after] == [(8, False), (6, False), (7, True), (5, False)]


@given(st.integers(1, 9), st.lists(st.integers(0, 600), max_size=8), st.sampled_from([0, 60, 300]))
def test_where_nothing_else_was_recommended_the_last_outdated_slot_is_reused(
    desired: int, ages: list[int], window_s: int
) -> None:
    rules = behavior({"stabilizationWindowSeconds": 0}, {"stabilizationWindowSeconds": window_s})
    made, stored = normalized(rules, desired, desired, recommendations=tuple((desired, age) for age in ages))

    slot = max([at for at, age in enumerate(ages) if age > window_s], default=len(ages))
    expected = [(desired, age) for age in ages]
    expected[slot : slot + 1] = [(desired, 0)]
    assert (made.stabilized, made.limited, stored) == (desired, desired, expected)


def test_n7_the_reason_is_of_the_metrics_not_of_what_was_made_of_them() -> None:
    held = Controller(hpa([QUEUE]), recommendations=((10, 30),))

    assert held.sync(5, wanting(5)).events[-1] == ("Normal", "SuccessfulRescale", "New size: 10; reason: ")


def test_n5_a_legacy_window_may_scale_up_on_a_lower_number() -> None:
    held = Controller(hpa([QUEUE]), recommendations=((10, 30),))

    assert held.sync(5, wanting(2)).events[-1][2] == "New size: 10; reason: All metrics below target"


def test_n8_a_started_controller_remembers_the_current_replicas() -> None:
    controller = Controller(hpa([QUEUE]))

    for seconds in (0, 150, 300):
        assert controller.sync(5, wanting(3), now_ms=NOW_MS + seconds * 1000).action == "none"
    assert controller.sync(5, wanting(3), now_ms=NOW_MS + 301_000).action == "scale_down"


def test_n33_above_max_goes_straight_down_and_is_remembered() -> None:
    slow = behavior(down=rules_of("Max", policy("Pods", 1, 60)))
    controller = Controller(hpa([QUEUE], high=5, behavior=slow))

    result = controller.sync(10)

    assert controller.status["desiredReplicas"] == 5
    assert result.history.scale_down_events == ((5, NOW_MS, False),)
    assert result.events[-1][2] == "New size: 5; reason: Current number of replicas above Spec.MaxReplicas"


def test_n34_below_min_goes_straight_up_without_metrics() -> None:
    controller = Controller(hpa([QUEUE], low=8))

    controller.sync(1)

    assert controller.status["desiredReplicas"] == 8
    assert controller.status["currentMetrics"] is None
    assert controller.condition("ScalingActive") is None
    assert controller.condition("ScalingLimited") is None


def test_n37_the_status_shows_the_count_before_the_rescale() -> None:
    controller = Controller(hpa([QUEUE]))

    controller.sync(3, wanting(5))

    assert (controller.status["currentReplicas"], controller.status["desiredReplicas"]) == (3, 5)
    assert controller.status["observedGeneration"] == 7


def test_a_failed_write_changes_neither_memory_nor_desired_replicas() -> None:
    controller = Controller(hpa([QUEUE], behavior=behavior()), status={"desiredReplicas": 4, "currentMetrics": None})

    result = controller.sync(3, wanting(5), outcome=ScaleFailed("quota"))

    assert controller.status["desiredReplicas"] == 4
    assert "lastScaleTime" not in controller.status
    assert result.history.scale_up_events == ()
    assert controller.condition("AbleToScale") == ("False", "FailedUpdateScale")
    assert result.error == "failed to rescale Deployment/shop/web: quota"
    assert result.events[-1] == (
        "Warning",
        "FailedRescale",
        "New size: 5; reason: external metric queue(nil) above target; error: quota",
    )


_RECOMMENDED = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=12, unique_by=lambda x: x[1]
)


@given(st.lists(_RECOMMENDED, min_size=1, max_size=4))
def test_windows_that_are_added_up_have_the_sums_of_the_highest_and_of_the_lowest(parts: list[list[Any]]) -> None:
    made = added_up([tuple(part) for part in parts])
    newest = [max(part, key=lambda each: each[1])[0] for part in parts]
    for begin in range(max(time for part in parts for _, time in part) + 1):
        windows = [[replicas for replicas, time in part if time >= begin] for part in parts]
        found = [replicas for replicas, time in made if time >= begin]
        for of in (max, min):
            expected = sum(of(window, default=last) for window, last in zip(windows, newest, strict=True))
            assert of(found) == expected


@given(_RECOMMENDED)
def test_what_is_reported_of_recommendations_gives_each_window_that_ends_now(part: list[Any]) -> None:
    made = recent(part)
    for begin in range(max(time for _, time in part) + 1):
        whole, kept = [[replicas for replicas, time in each if time >= begin] for each in (part, made)]
        assert (max(whole), min(whole)) == (max(kept), min(kept))

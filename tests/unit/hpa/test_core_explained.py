"""What an evaluation says beside its numbers, for explanations: what kept the count, and until when."""

from typing import Any

import pytest

from reconciler.core.metricanswers import fill
from schemas.answers import Query
from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.quantity import parse_quantity
from streams.hpa.evaluation import Normalization
from streams.hpa.observation import ExternalSamples, MetricFailure, ObjectSample, Scale, ScaleFailure, compile_answer
from tests.kit.hpa import (
    FAILED,
    NOW_MS,
    Controller,
    Group,
    behavior,
    calculate,
    external_metric,
    hpa,
    policy,
    replicas,
    resource,
    wanting,
    world,
)
from tests.kit.upstream import compile_template

QUEUE = external_metric(average=1000)
SECOND = 1000


@pytest.mark.parametrize(
    ("current", "answer", "path"),
    [
        pytest.param(5, wanting(9), "metrics", id="by its metrics"),
        pytest.param(5, FAILED, "metricsFailed", id="no metric"),
        pytest.param(0, wanting(9), "disabled", id="paused at zero"),
        pytest.param(2000, wanting(9), "aboveMax", id="above max"),
        pytest.param(1, wanting(9), "belowMin", id="below min"),
    ],
)
def test_the_path_is_named(current: int, answer: Any, path: str) -> None:
    made = Controller(hpa([QUEUE], low=2)).evaluate(current, answer)

    assert (made.path, made.current_replicas) == (path, current)


def test_the_path_without_a_scale_is_named() -> None:
    assert Controller(hpa([QUEUE])).evaluate(5, FAILED, scale=ScaleFailure("no")).path == "scaleUnavailable"


@pytest.mark.parametrize(
    ("groups", "current", "kept", "final"),
    [
        pytest.param([Group(2, 52)], 2, "withinTolerance", None, id="within tolerance at once"),
        pytest.param([Group(2, 100), Group(2, None)], 4, "withinTolerance", 1.0, id="within tolerance after filling"),
        pytest.param([Group(2, 80), Group(2, None)], 4, "directionFlip", 0.8, id="the filled ratio turns"),
        pytest.param([Group(2, 10), Group(1, None)], 2, "countGuard", 0.8, id="more pods than replicas"),
        pytest.param([Group(8, 5), Group(2, None)], 10, "", 0.48, id="nothing keeps it"),
    ],
)
def test_what_kept_the_count_is_named(groups: list[Group], current: int, kept: str, final: float | None) -> None:
    pods, answer = world(*groups)

    made = calculate(resource(percent=50), answer, current=current, pods=pods)

    assert (made.kept, made.final_ratio) == (kept, final)


def normalization(controller: Controller, current: int, desired: int) -> Normalization:
    made = controller.evaluate(current, wanting(desired)).normalization
    assert made is not None
    return made


def test_legacy_the_newest_of_the_highest_recent_recommendations_holds_until_its_window_is_over() -> None:
    old, recent, newest, lower = (10, 301), (10, 200), (10, 100), (9, 5)
    made = normalization(Controller(hpa([QUEUE]), recommendations=(old, recent, newest, lower)), 10, 3)

    assert made.held_by == (10, NOW_MS - 100 * SECOND)
    assert made.held_until_ms == NOW_MS + 200 * SECOND + 1


def test_legacy_a_recommendation_at_the_cutoff_still_holds() -> None:
    made = normalization(Controller(hpa([QUEUE]), recommendations=((10, 300),)), 10, 3)

    assert (made.stabilized, made.held_by) == (10, (10, NOW_MS - 300 * SECOND))
    assert made.held_until_ms == NOW_MS + 1


@pytest.mark.parametrize(
    ("current", "desired", "recommendations", "held", "until_s"),
    [
        pytest.param(10, 3, ((10, 61), (8, 59), (8, 20), (5, 1)), (8, 20), 40, id="down: the newest of the highest"),
        pytest.param(10, 30, ((10, 31), (12, 29), (12, 10), (20, 1)), (12, 10), 20, id="up: the newest of the lowest"),
        pytest.param(10, 3, ((10, 60),), None, None, id="down: at the cutoff it no longer holds"),
        pytest.param(10, 12, ((10, 30),), None, None, id="up: neither"),
    ],
)
def test_what_holds_with_behavior_and_until_when(
    current: int, desired: int, recommendations: Any, held: tuple[int, int] | None, until_s: int | None
) -> None:
    rules = behavior({"stabilizationWindowSeconds": 30}, {"stabilizationWindowSeconds": 60})

    made = normalization(Controller(hpa([QUEUE], behavior=rules), recommendations=recommendations), current, desired)

    assert made.held_by == (None if held is None else (held[0], NOW_MS - held[1] * SECOND))
    assert made.held_until_ms == (None if until_s is None else NOW_MS + until_s * SECOND)


def test_what_each_policy_allows_is_reported() -> None:
    rules = {"policies": [policy("Pods", 5, 60), policy("Percent", 50, 20)]}
    reported = {}
    for desired in (40, 1, 12):
        controller = Controller(
            hpa([QUEUE], behavior=behavior(rules, rules)), recommendations=(), ups=((3, 30),), downs=((2, 40), (1, 10))
        )
        made = normalization(controller, 12, desired)
        reported[desired] = [
            (each.type, each.value, each.period_ms, each.scaled_up, each.scaled_down, each.start, each.limit)
            for each in made.policies
        ]

    assert reported == {
        40: [("Pods", 5, 60_000, 3, 3, 12, 17), ("Percent", 50, 20_000, 0, 1, 13, 20)],
        1: [("Pods", 5, 60_000, 3, 3, 12, 7), ("Percent", 50, 20_000, 0, 1, 13, 6)],
        12: [],
    }


@pytest.mark.parametrize(
    ("rules", "current", "desired", "low", "high"),
    [
        pytest.param(None, 3, 6, 1, 100, id="legacy: the scale-up limit"),
        pytest.param(None, 3, 5, 1, 5, id="legacy: maxReplicas"),
        pytest.param(None, 3, 2, 2, 5, id="legacy: minReplicas"),
        pytest.param(behavior(), 3, 7, 1, 100, id="behavior: the scale-up limit"),
        pytest.param(behavior(), 3, 5, 1, 5, id="behavior: maxReplicas"),
        pytest.param(behavior(), 3, 2, 2, 5, id="behavior: minReplicas"),
        pytest.param(
            behavior(down={"policies": [policy("Pods", 1, 60)]}), 3, 2, 1, 5, id="behavior: the scale-down limit"
        ),
    ],
)
def test_at_a_limit_nothing_is_limited(rules: Any, current: int, desired: int, low: int, high: int) -> None:
    controller = Controller(hpa([QUEUE], low=low, high=high, behavior=rules), recommendations=())

    made = normalization(controller, current, desired)

    assert (made.limited, made.bound) == (desired, "DesiredWithinRange")


def test_a_recent_recommendation_that_changes_nothing_holds_nothing() -> None:
    rules = behavior({"stabilizationWindowSeconds": 30}, {"stabilizationWindowSeconds": 60})

    made = normalization(Controller(hpa([QUEUE], behavior=rules), recommendations=((10, 5),)), 10, 10)

    assert (made.stabilized, made.held_by, made.held_until_ms) == (10, None, None)


@pytest.mark.parametrize(("desired", "raised"), [(1, True), (2, False), (3, False)])
def test_from_zero_only_what_is_below_min_is_raised(desired: int, raised: bool) -> None:
    woken = {"type": "ScaledToZero", "status": "True", "lastTransitionTime": "2000-01-01T00:00:00Z"}
    status = {"desiredReplicas": 0, "currentMetrics": None, "conditions": [woken]}
    controller = Controller(hpa([QUEUE], low=2, behavior=behavior()), status=status, recommendations=())

    made = controller.evaluate(0, wanting(desired))

    assert (made.raised_to_min, made.desired_replicas) == (raised, max(desired, 2))


def test_pods_that_a_total_does_not_count_are_reported() -> None:
    made = calculate(external_metric(value=1000), ExternalSamples((5000,)), current=3, pods=replicas(3, 1))

    assert (made.used, made.not_ready, made.proposal) == (1, 2, 5)


def test_an_object_is_answered_by_exactly_one_item() -> None:
    item = {"value": "5", "timestamp": "2000-01-01T00:00:00Z"}

    assert compile_answer(fill(Query(api="object"), {"items": [item]})) == ObjectSample(5000, 946_684_800_000)
    for items in ([], [item, item]):
        answer = compile_answer(fill(Query(api="object"), {"items": items}))
        assert isinstance(answer, MetricFailure)
        assert f"returned {len(items)} results when we asked for exactly one" in answer.error


def test_a_name_alone_is_not_ambiguous() -> None:
    made = Controller(hpa([QUEUE])).evaluate(5, wanting(5), ambiguous=("shop/web",))

    assert made.path == "metrics"


def test_a_sum_that_reaches_the_smallest_integer_has_not_wrapped() -> None:
    metric = external_metric(value=10**18)
    least, below = ExternalSamples((-(2**62), -(2**62))), ExternalSamples((-(2**62), -(2**62), -1))

    assert not calculate(metric, least, current=0).wrapped
    assert calculate(metric, below, current=0).wrapped


def test_only_init_containers_that_restart_always_run_beside_the_others() -> None:
    def container(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": "100m"}}, **more}

    template = compile_template(
        {
            "containers": [container("app")],
            "initContainers": [container("sidecar", restartPolicy="Always"), container("setup")],
        }
    )

    assert template.request("cpu", "") == 200
    assert template.request("cpu", "sidecar") == 100
    assert template.request("cpu", "setup") == "container setup not found in Pod "


def test_a_duration_that_cannot_be_read_says_how_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"^duration '5' cannot be read; write it as in Go, for instance 30s"):
        parse_duration_ms("5")


def test_the_least_amount_with_a_binary_suffix_is_decimal() -> None:
    least = parse_quantity("0.0000000000001Ki")

    assert (least.format, least.canonical()) == ("DecimalSI", "1n")


def test_exactly_one_with_a_binary_suffix_stays_binary() -> None:
    one = parse_quantity("0.0009765625Ki")

    assert (one.format, one.canonical()) == ("BinarySI", "1")


def test_replicas_of_the_status_count_where_averages_are_taken() -> None:
    made = Controller(hpa([QUEUE])).evaluate(3, wanting(4), scale=Scale(3, 5, "app=x"), pods=replicas(3, 3))

    assert made.metrics[0].calculation is not None
    assert made.metrics[0].calculation.value == 800

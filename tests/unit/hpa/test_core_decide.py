"""A whole reconcile: combining metrics, selectors, zero replicas, the scale that cannot be read, status writes."""

from typing import Any

import pytest

from schemas.kubernetes.hpa import semantically_equal_status
from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.evaluation import ScaleApplied
from streams.hpa.observation import ExternalSamples, ObjectSample, Scale, ScaleFailure, TargetPods
from streams.hpa.reconcile import complete
from tests.kit.hpa import (
    FAILED,
    NOW_MS,
    Controller,
    Group,
    behavior,
    external_metric,
    hpa,
    object_metric,
    replicas,
    resource,
    wanting,
    world,
)
from tests.kit.upstream import status_write_failed

QUEUE = external_metric(average=1000)
OTHER = object_metric(average=1000)
CPU = resource(percent=50)


def ask(desired: int) -> ObjectSample:
    return ObjectSample(desired * 1000)


@pytest.mark.parametrize(
    ("first", "second", "proposal", "selected"),
    [
        pytest.param(3, 3, 3, "external metric queue(nil)", id="M1 the first wins a tie"),
        pytest.param(0, 0, 0, "", id="M2 zero is no winner"),
        pytest.param(3, 7, 7, "external metric qps(nil)", id="the larger wins"),
        pytest.param(0, -3, 0, "", id="M3 a negative proposal means zero"),
    ],
)
def test_the_largest_proposal_decides(first: int, second: int, proposal: int, selected: str) -> None:
    controller = Controller(hpa([QUEUE, OTHER]), recommendations=())

    made = controller.evaluate(5, wanting(first), ask(second))

    assert (made.proposal, made.selected_metric) == (proposal, selected)


def test_m2_among_zeros_the_last_is_named() -> None:
    controller = Controller(hpa([QUEUE, OTHER]))

    controller.evaluate(5, wanting(0), ask(0))

    active = next(each for each in controller.status["conditions"] if each["type"] == "ScalingActive")
    assert active["message"].endswith("from external metric qps(nil)")


def test_m4_m7_a_failed_metric_forbids_scaling_down() -> None:
    before: dict[str, Any] = {"desiredReplicas": 4, "currentMetrics": None}
    controller = Controller(hpa([QUEUE, CPU]), status=before)

    result = controller.sync(5, wanting(3), FAILED)

    assert result.action == "none"
    assert controller.condition("ScalingActive") == ("False", "FailedGetResourceMetric")
    assert controller.status["currentMetrics"][1] == {"type": ""}
    assert controller.status["desiredReplicas"] == 4
    assert result.events_after_write[0][1] == "FailedComputeMetricsReplicas"
    assert result.desired_gauge is None


@pytest.mark.parametrize(("desired", "action"), [(5, "none"), (7, "scale_up")])
def test_m5_a_failed_metric_allows_everything_else(desired: int, action: str) -> None:
    controller = Controller(hpa([QUEUE, CPU]))

    result = controller.sync(5, wanting(desired), FAILED)

    assert result.action == action
    assert controller.condition("ScalingActive") == ("True", "ValidMetricFound")
    assert result.error.startswith("invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource")
    assert result.error_label == "internal"


@pytest.mark.parametrize(
    ("metrics", "answers", "label"),
    [
        pytest.param([QUEUE, {"type": "CheddarCheese"}], (wanting(4), None), "spec", id="M6 an unknown type alone"),
        pytest.param(
            [QUEUE, CPU, {"type": "CheddarCheese"}], (wanting(4), FAILED, None), "internal", id="the first error counts"
        ),
    ],
)
def test_m6_an_unknown_type_is_a_fault_of_the_spec(metrics: Any, answers: Any, label: str) -> None:
    result = Controller(hpa(metrics)).sync(3, *answers)

    assert (result.action, result.error_label) == ("scale_up", label)
    assert result.metric_results[-1] == ("CheddarCheese", "none", "spec")
    assert ("Warning", "InvalidMetricSourceType", 'unknown metric source type "CheddarCheese"') in result.events


def test_m9_zero_alone_is_reported_as_below_target() -> None:
    result = Controller(hpa([QUEUE]), recommendations=()).sync(5, wanting(0))

    assert result.events[-1][2] == "New size: 1; reason: All metrics below target"


@pytest.mark.parametrize(
    ("selector", "event", "error"),
    [
        pytest.param("", "SelectorRequired", "selector is required", id="M8 no selector"),
        pytest.param("cheddar cheese", "InvalidSelector", "couldn't convert selector into", id="unreadable"),
    ],
)
def test_m8_a_bad_selector_stops_everything(selector: str, event: str, error: str) -> None:
    controller = Controller(hpa([QUEUE]))

    result = controller.sync(3, wanting(9), scale=Scale(3, 3, selector))

    assert controller.condition("ScalingActive") == ("False", "InvalidSelector")
    assert [each[1] for each in result.events] == [event]
    assert result.events[0][2].startswith(error)
    assert controller.status["currentMetrics"] is None


def test_an_ambiguous_selector_names_two() -> None:
    controller = Controller(hpa([QUEUE]))

    result = controller.sync(3, wanting(9), ambiguous=("shop/a", "shop/b", "shop/web"))

    text = "pods by selector app=x are controlled by more than one HPA (e.g. [shop/a shop/b])"
    assert result.events == (("Warning", "AmbiguousSelector", text),)
    assert result.metric_results == ()


def test_an_ambiguous_selector_is_reported_as_the_scale_has_it() -> None:
    controller = Controller(hpa([QUEUE]))
    text = "tier in (b, a), app=x"

    result = controller.sync(3, wanting(9), scale=Scale(3, 3, text), ambiguous=("shop/a", "shop/web"))

    assert result.events[0][2].startswith(f"pods by selector {text} are controlled by more than one HPA")


@pytest.mark.parametrize(
    ("api_version", "scale", "error", "label"),
    [
        pytest.param(
            "a/b/c",
            Scale(1, 1, "app=x"),
            "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c",
            "spec",
            id="bad version",
        ),
        pytest.param(
            "acme.io/v1",
            ScaleFailure("no matches", unmapped=True),
            "unable to determine resource for scale target reference: no matches",
            "internal",
            id="unknown kind",
        ),
        pytest.param(
            "apps/v1",
            ScaleFailure("not found"),
            "failed to query scale subresource for Deployment/shop/web: not found",
            "internal",
            id="failed read",
        ),
    ],
)
def test_without_a_scale_only_able_to_scale_is_written(
    api_version: str, scale: Scale | ScaleFailure, error: str, label: str
) -> None:
    manifest = hpa([QUEUE])
    manifest["spec"]["scaleTargetRef"]["apiVersion"] = api_version
    before: dict[str, Any] = {"currentReplicas": 3, "desiredReplicas": 4, "currentMetrics": None}
    controller = Controller(manifest, status=before)

    result = controller.sync(3, wanting(9), scale=scale)

    assert (result.error, result.error_label) == (error, label)
    assert controller.status == {**before, "conditions": controller.status["conditions"]}
    assert controller.condition("AbleToScale") == ("False", "FailedGetScale")
    assert result.history.recommended is None


def at_zero(low: int, *, woken: bool, metrics: Any = (QUEUE,), rules: Any = None, **memory: Any) -> Controller:
    conditions = [
        {
            "type": "ScaledToZero",
            "status": "True",
            "lastTransitionTime": "2023-11-14T00:00:00Z",
            "reason": "ScaledToZero",
            "message": "the HPA controller scaled the workload to zero",
        }
    ]
    status: dict[str, Any] = {"desiredReplicas": 0, "currentMetrics": None}
    if woken:
        status["conditions"] = conditions
    return Controller(hpa(metrics, low=low, behavior=rules), status=status, **memory)


@pytest.mark.parametrize(
    ("controller", "answer", "wanted"),
    [
        pytest.param(at_zero(0, woken=False), wanting(3), None, id="Z1 without the condition it is a pause"),
        pytest.param(at_zero(1, woken=False), wanting(3), None, id="a manual pause"),
        pytest.param(at_zero(0, woken=True, metrics=[CPU]), FAILED, None, id="Z1 and without a metric that can wake"),
        pytest.param(
            at_zero(0, woken=True, metrics=[external_metric(value=15_000)]),
            ExternalSamples((1,)),
            1,
            id="Z2 ceil(ratio)",
        ),
        pytest.param(at_zero(0, woken=True), wanting(0), None, id="Z3 nothing to do"),
        pytest.param(
            at_zero(2, woken=True, metrics=[external_metric(value=15_000)]), ExternalSamples((10_000,)), 2, id="Z4 min"
        ),
        pytest.param(at_zero(10, woken=True), wanting(20), 10, id="Z5 legacy: limit 4, then raised to min"),
        pytest.param(at_zero(10, woken=True, rules=behavior()), wanting(20), 10, id="Z5 behavior: the same"),
        pytest.param(at_zero(2, woken=True, rules=behavior()), wanting(1), 2, id="Z6 raised to min"),
        pytest.param(at_zero(2, woken=True), wanting(0), 2, id="raised to min although nothing is to do"),
        pytest.param(
            at_zero(0, woken=True, rules=behavior({"stabilizationWindowSeconds": 60}), recommendations=((0, 10),)),
            wanting(6),
            None,
            id="Z7 a scale-up window holds at zero",
        ),
    ],
)
def test_zero_replicas(controller: Controller, answer: Any, wanted: int | None) -> None:
    made = controller.evaluate(0, answer, pods=TargetPods(()))

    assert (made.pending.desired_replicas if made.pending else None) == wanted


def test_z1_a_paused_target_says_so() -> None:
    controller = at_zero(1, woken=False)

    made = controller.evaluate(0, wanting(3))

    assert made.path == "disabled"
    assert controller.condition("ScalingActive") == ("False", "ScalingDisabled")


def test_z4_z5_z6_what_scaling_limited_says_from_zero() -> None:
    stated = []
    for low, rules, answer in ((10, None, 20), (2, behavior(), 1), (2, None, 1)):
        controller = at_zero(low, woken=True, rules=rules)
        controller.sync(0, wanting(answer), pods=TargetPods(()))
        stated.append(controller.condition("ScalingLimited"))

    assert stated == [("True", "ScaleUpLimit"), ("False", "DesiredWithinRange"), ("True", "TooFewReplicas")]


@pytest.mark.parametrize(
    ("usage_milli", "expected"),
    [pytest.param(3, 0, id="Z8 cpu is cut to 0 %"), pytest.param(20, 1, id="Z9 ceil(0.04) keeps one")],
)
def test_zero_with_cpu(usage_milli: int, expected: int) -> None:
    pods, answer = world(Group(1, usage_milli, request_milli=1000))
    controller = Controller(hpa([QUEUE, CPU], low=0), recommendations=())

    controller.sync(1, wanting(0), answer, pods=pods)

    assert controller.status["desiredReplicas"] == expected
    assert controller.condition("ScaledToZero") == (("True", "ScaledToZero") if expected == 0 else None)


def test_z11_every_rescale_sets_scaled_to_zero() -> None:
    controller = Controller(hpa([QUEUE]))

    controller.sync(3, wanting(5))

    assert controller.condition("ScaledToZero") == ("False", "NotScaledToZero")


def test_z12_a_stale_condition_wakes_a_paused_target() -> None:
    controller = Controller(hpa([QUEUE], low=0), recommendations=())
    controller.sync(2, wanting(0))

    controller.sync(3, wanting(3), now_ms=NOW_MS + 15_000)
    result = controller.sync(0, wanting(2), pods=TargetPods(()), now_ms=NOW_MS + 30_000)

    assert result.action == "scale_up"


def test_an_hpa_without_metrics_gets_an_empty_condition() -> None:
    controller = Controller(hpa([]))

    controller.sync(5)

    assert {"type": "", "status": "", "lastTransitionTime": None} in controller.status["conditions"]
    assert controller.status["currentMetrics"] == []


def test_q14_an_average_that_is_only_written_otherwise_is_no_change() -> None:
    controller = Controller(hpa([external_metric(value=1000)]))
    controller.sync(3, ExternalSamples((1000,)))
    controller.status["currentMetrics"][0]["external"]["current"]["value"] = "1000m"

    before = controller.status

    assert semantically_equal_status(before, controller.sync(3, ExternalSamples((1000,))).status)


def test_transition_times_move_with_the_status_only() -> None:
    controller = Controller(hpa([QUEUE]))
    controller.sync(3, wanting(3))
    first = controller.status

    second = controller.sync(3, wanting(9), now_ms=NOW_MS + 15_000).status

    times = [[each["lastTransitionTime"] for each in status["conditions"][:2]] for status in (first, second)]
    assert times[0] == times[1]
    assert second["lastScaleTime"] == "2023-11-14T22:13:35Z"


def test_nothing_given_is_changed() -> None:
    controller = Controller(hpa([QUEUE, CPU]))
    controller.sync(3, wanting(3), FAILED)
    before = {**controller.status, "conditions": [dict(each) for each in controller.status["conditions"]]}

    controller.evaluate(3, wanting(30), FAILED, now_ms=NOW_MS + 60_000)

    assert controller.status == before


def test_a_failed_status_write_replaces_the_error_of_a_finished_reconcile_only() -> None:
    finished = Controller(hpa([QUEUE, CPU])).sync(3, wanting(3), FAILED)
    stopped = Controller(hpa([CPU])).sync(3, FAILED)

    after = [status_write_failed(result, "web", "conflict") for result in (finished, stopped)]

    assert after[0].error == "failed to update status for web: conflict"
    assert after[1].error == stopped.error
    assert all(result.events[-1] == ("Warning", "FailedUpdateStatus", "conflict") for result in after)


def test_a_later_completion_carries_its_own_time() -> None:
    controller = Controller(hpa([QUEUE], behavior=behavior()))
    made = controller.evaluate(3, wanting(5))
    assert made.pending is not None

    done = complete(made.pending, controller.status, made.history, ScaleApplied(), NOW_MS + 2000)

    assert done.history.scale_up_events == ((2, NOW_MS + 2000, False),)
    assert done.status["lastScaleTime"] == "2023-11-14T22:13:22Z"


def test_the_metrics_are_reported_with_everything_that_led_to_them() -> None:
    pods, answer = world(Group(2, 200), Group(1, None), Group(1, 10, "unready"), Group(1, 5, "failed"))

    made = Controller(hpa([CPU])).evaluate(4, answer, pods=pods)

    reported = made.metrics[0].calculation
    assert reported is not None
    assert (reported.used, reported.missing, reported.not_ready, reported.ignored) == (2, 1, 1, 1)
    assert (reported.value, reported.ratio, reported.final_ratio, reported.proposal) == (200, 4.0, 2.0, 8)
    assert (made.metrics[0].oldest_ms, made.metrics[0].newest_ms) == (NOW_MS, NOW_MS)


def test_a_compiled_autoscaler_defaults_min_replicas_to_one() -> None:
    manifest = hpa([QUEUE])
    del manifest["spec"]["minReplicas"]

    assert compile_autoscaler(manifest).min_replicas == 1
    assert len(replicas(3, 2)) == 3

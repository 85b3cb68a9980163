"""One metric at a time: tolerance, rounding, grouping, missing pods, totals and averages per pod."""

from typing import Any

import pytest

from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.metrics import evaluate_metric
from streams.hpa.observation import (
    ContainerRequests,
    ExternalSamples,
    MetricFailure,
    ObjectSample,
    PodTemplate,
    Scale,
    TargetPods,
)
from tests.kit.hpa import (
    MAX_INT32,
    MAX_INT64,
    NOW_MS,
    SETTINGS,
    Controller,
    Group,
    calculate,
    external_metric,
    hpa,
    object_metric,
    pod,
    pods_metric,
    replicas,
    resource,
    samples,
    spec_of,
    world,
)

MIN_INT32 = -(2**31)
MIN_INT64 = -(2**63)


@pytest.mark.parametrize(
    ("current", "target", "groups", "tolerance", "expected", "value"),
    [
        pytest.param(10, 50, [Group(10, 55)], (0.1, 0.1), 10, 55, id="T1 the upper bound is inclusive"),
        pytest.param(10, 50, [Group(10, 45)], (0.1, 0.1), 10, 45, id="T2 the lower bound is inclusive"),
        pytest.param(
            10, 100, [Group(10, 1109, request_milli=1000)], (0.1, 0.1), 10, 110, id="T3 percent is cut before tolerance"
        ),
        pytest.param(
            10, 100, [Group(10, 899, request_milli=1000)], (0.1, 0.1), 9, 89, id="T4 cutting may cross the bound"
        ),
        pytest.param(10, 50, [Group(10, 68)], (0.1, 360 * 1e-3), 14, 68, id="T5 1.36 is above 1 + 0.36 in doubles"),
        pytest.param(10, 50, [Group(10, 41)], (180 * 1e-3, 0.1), 9, 41, id="T6 0.82 is below 1 - 0.18 in doubles"),
        pytest.param(
            3,
            100,
            [Group(1, 909, request_milli=900), Group(1, 1010, request_milli=1000), Group(1, 1111, request_milli=1100)],
            (0.0, 0.0),
            4,
            101,
            id="T7 zero tolerance",
        ),
        pytest.param(10, 50, [Group(10, 50)], (0.0, 0.0), 10, 50, id="T8 zero tolerance at the target"),
        pytest.param(3, 100, [Group(3, 190)], (0.1, 2.0), 3, 190, id="T9 tolerance above 1"),
        pytest.param(10, 50, [Group(10, 0)], (1.0, 0.1), 10, 0, id="T10 tolerance 1 downwards holds at zero usage"),
        pytest.param(3, 100, [Group(3, 102)], (0.1, 10 * 1e-3), 4, 102, id="T11 only scale up is tight"),
        pytest.param(3, 100, [Group(3, 95)], (0.1, 10 * 1e-3), 3, 95, id="T11 the other side keeps the cluster's"),
        pytest.param(25, 50, [Group(25, 56)], (0.1, 0.1), 29, 56, id="C1 28.000000000000004 is rounded up"),
        pytest.param(15, 30, [Group(15, 62)], (0.1, 0.1), 32, 62, id="C2 31.000000000000004 is rounded up"),
        pytest.param(4, 50, [Group(2, 100), Group(2, 100, "unready")], (0.1, 0.1), 4, 100, id="R1 unready count as 0"),
        pytest.param(4, 50, [Group(2, 200), Group(2, 200, "unready")], (0.1, 0.1), 8, 200, id="R2 up over all pods"),
        pytest.param(
            10, 50, [Group(5, 25), Group(5, 25, "unready")], (0.1, 0.1), 3, 25, id="R3 unready vanish when going down"
        ),
        pytest.param(4, 50, [Group(2, 10), Group(2, None)], (0.1, 0.1), 4, 10, id="R4 missing as 100 % flips"),
        pytest.param(10, 50, [Group(8, 5), Group(2, None)], (0.1, 0.1), 5, 5, id="R5 missing as 100 % dampens"),
        pytest.param(4, 50, [Group(2, 200), Group(2, None)], (0.1, 0.1), 8, 200, id="R6 missing as 0 going up"),
        pytest.param(4, 50, [Group(2, 80), Group(2, None)], (0.1, 0.1), 4, 80, id="R7 missing as 0 flips"),
        pytest.param(4, 50, [Group(2, 50), Group(2, None)], (0.1, 0.1), 4, 50, id="R8 at ratio 1 nothing is filled"),
        pytest.param(4, 150, [Group(2, 30), Group(2, None)], (0.1, 0.1), 3, 30, id="R9 missing as max(100, target)"),
        pytest.param(2, 50, [Group(2, 10), Group(1, None)], (0.1, 0.1), 2, 10, id="R10 no scale up on a ratio below 1"),
        pytest.param(
            6, 50, [Group(2, 200), Group(2, 9, "unready"), Group(2, None)], (0.1, 0.1), 8, 200, id="R11 both zeroed"
        ),
        pytest.param(
            6, 50, [Group(2, 5), Group(2, 9, "unready"), Group(1, None)], (0.1, 0.1), 3, 5, id="R12 both, going down"
        ),
        pytest.param(4, 50, [Group(5, 50)], (0.1, 0.1), 4, 50, id="R19 within tolerance gives spec replicas"),
        pytest.param(4, 50, [Group(5, 100)], (0.1, 0.1), 10, 100, id="R20 the multiplier is the ready count"),
        pytest.param(10, 50, [Group(5, 60)], (0.1, 0.1), 6, 60, id="R21 down although above the target"),
        pytest.param(
            2,
            50,
            [Group(1, 90), Group(1, 100, request_milli=900)],
            (0.1, 0.1),
            1,
            19,
            id="R22 utilization is weighted by request",
        ),
        pytest.param(3, 50, [Group(3, 1, request_milli=1000)], (0.1, 0.1), 0, 0, id="R23 cutting allows zero"),
        pytest.param(
            3, 50, [Group(2, 10), Group(1, None, "succeeded")], (0.1, 0.1), 3, 10, id="R38 a Succeeded pod is missing"
        ),
        pytest.param(3, 50, [Group(2, 10), Group(1, None, "failed")], (0.1, 0.1), 1, 10, id="R38 a Failed pod is not"),
        pytest.param(3, 50, [Group(2, 200), Group(1, None, "succeeded")], (0.1, 0.1), 8, 200, id="R39 Succeeded as 0"),
    ],
)
def test_cpu_utilization(
    current: int, target: int, groups: list[Group], tolerance: tuple[float, float], expected: int, value: int
) -> None:
    pods, answer = world(*groups)

    made = calculate(resource(percent=target), answer, current=current, pods=pods, tolerance=tolerance)

    assert (made.proposal, made.value) == (expected, value)


def test_r13_strays_count_in_the_multiplier_after_filling() -> None:
    pods, answer = world(Group(2, 200), Group(2, None), strays={"x": 1, "y": 1})

    assert calculate(resource(percent=50), answer, current=4, pods=pods).proposal == 12


def test_r14_strays_count_neither_in_the_ratio_nor_without_missing_pods() -> None:
    pods, answer = world(Group(4, 587, request_milli=100), strays={"x": 9000, "y": 9000})

    made = calculate(resource(percent=100), answer, current=4, pods=pods)

    assert (made.proposal, made.value) == (24, 587)


def test_r24_percent_keeps_its_low_32_bits() -> None:
    pods, answer = world(Group(1, 30_000_000, request_milli=1))

    made = calculate(resource(percent=50), answer, current=1, pods=pods)

    assert made.value == -1294967296
    assert made.proposal < 0


def test_r25_sums_keep_their_low_64_bits() -> None:
    pods, answer = world(Group(2, 2**62))

    made = calculate(resource(percent=50), answer, current=2, pods=pods)

    assert (made.value, made.average_milli) == (0, -(2**62))


def test_over_a_target_of_zero_a_percentage_of_zero_fills_nothing_in() -> None:
    """2^32 % are 0 % in int32, and 0 / 0 is neither below 1 nor above."""
    pods, answer = world(Group(1, 2**32), Group(3, None))

    made = calculate(resource(percent=0), answer, current=2, pods=pods)

    assert (made.value, made.proposal) == (0, MIN_INT32)


@pytest.mark.parametrize(
    ("groups", "strays", "error"),
    [
        pytest.param(
            [Group(2, 10, request_milli=0)], {}, "no metrics returned matched known pods", id="R15 requests 0"
        ),
        pytest.param([Group(1, None)], {"x": 5}, "no metrics returned matched known pods", id="R16 only a stray"),
        pytest.param(
            [Group(2, 10, "unready")],
            {},
            "did not receive metrics for targeted pods (pods might be unready)",
            id="R17 all unready",
        ),
        pytest.param(
            [Group(1, 10), Group(1, None, "failed", None)],
            {},
            "missing request for cpu in container app of Pod p1",
            id="R18 a failed pod's request is needed too",
        ),
        pytest.param([], {"x": 5}, "no pods returned by selector while calculating replica count", id="no pods"),
    ],
)
def test_cpu_utilization_fails(groups: list[Group], strays: dict[str, int], error: str) -> None:
    pods, answer = world(*groups, strays=strays)

    with pytest.raises(AssertionError) as failed:
        calculate(resource(percent=50), answer, current=3, pods=pods)

    assert str(failed.value) == f"failed to get cpu utilization: {error}"


MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("facts", "window_ms", "counted"),
    [
        pytest.param(
            {"start_ms": NOW_MS - MINUTE_MS, "ready_at_ms": NOW_MS - 30_000, "ready": "True"},
            30_000,
            True,
            id="R27 a sample at transition + window counts",
        ),
        pytest.param(
            {"start_ms": NOW_MS - MINUTE_MS, "ready_at_ms": NOW_MS - 30_000, "ready": "True"},
            30_001,
            False,
            id="R27 a sample before transition + window does not",
        ),
        pytest.param(
            {"start_ms": NOW_MS - 600_000, "ready_at_ms": NOW_MS - 590_000, "ready": "False"},
            30_000,
            True,
            id="R28 unready exactly at start + delay was ready once",
        ),
        pytest.param(
            {"start_ms": NOW_MS - 600_000, "ready_at_ms": NOW_MS - 594_000, "ready": "False"},
            30_000,
            False,
            id="R29 never became ready",
        ),
        pytest.param(
            {"start_ms": NOW_MS - 600_000, "ready_at_ms": NOW_MS - 540_000, "ready": "False"},
            30_000,
            True,
            id="R30 was ready once",
        ),
        pytest.param({"start_ms": None, "ready": "True"}, 30_000, False, id="R31 no start time"),
        pytest.param({"ready": None}, 30_000, False, id="R31 no Ready condition"),
        pytest.param(
            {"start_ms": NOW_MS - MINUTE_MS, "ready_at_ms": NOW_MS - MINUTE_MS, "ready": "Unknown"},
            30_000,
            True,
            id="R33 Unknown is not False",
        ),
        pytest.param(
            {"start_ms": NOW_MS - 2 * MINUTE_MS, "ready_at_ms": NOW_MS - MINUTE_MS, "ready": "True"},
            MINUTE_MS + 1,
            True,
            id="the initialization period is over exactly at its end",
        ),
    ],
)
def test_which_cpu_samples_count(facts: dict[str, Any], window_ms: int, counted: bool) -> None:
    template = Group(0, None).template()
    rows = (pod("p0", template), pod("p1", template, **facts))
    answer = samples({"p0": 50, "p1": 50}, window_ms=window_ms)
    settings = ControllerSettings(cpu_initialization_period_ms=2 * MINUTE_MS, initial_readiness_delay_ms=10_000)

    made = calculate(resource(percent=50), answer, current=2, pods=TargetPods(rows), settings=settings)

    assert (made.used, made.not_ready) == ((2, 0) if counted else (1, 1))


def test_r26_readiness_does_not_matter_to_memory() -> None:
    pods, answer = world(Group(1, 2**30 * 1000, "unready"))

    assert calculate(resource("memory", percent=100), answer, current=1, pods=pods).used == 1


def test_r32_a_pending_pods_sample_is_dropped_for_every_metric() -> None:
    pods, answer = world(Group(1, 100), Group(1, 900, "pending"))

    made = calculate(pods_metric(100), answer, current=1, pods=pods)

    assert (made.value, made.not_ready) == (100, 1)


def test_r36_terminating_goes_before_pending() -> None:
    template = Group(0, None).template()
    rows = (pod("p0", template), pod("p1", template, "deleting", phase="Pending"))

    made = calculate(resource(percent=50), samples({"p0": 50, "p1": 50}), current=1, pods=TargetPods(rows))

    assert (made.ignored, made.not_ready) == (1, 0)


def test_r37_a_container_average_is_named_like_a_resource() -> None:
    assert spec_of(resource(average=100, container="app")).name == "cpu resource"


@pytest.mark.parametrize(
    ("current", "target", "groups", "strays", "expected", "value"),
    [
        pytest.param(2, 100, [Group(2, 100)], {"x": 400}, 4, 200, id="P1 strays are averaged in"),
        pytest.param(4, 100, [Group(2, 300), Group(2, None, "pending")], {}, 6, 300, id="P2 pending pods are zeroed"),
        pytest.param(
            3,
            15_000,
            [Group(1, 50_000, "unready"), Group(1, 15_000, "unready"), Group(1, 30_000)],
            {},
            7,
            31_666,
            id="P3 readiness does not matter",
        ),
        pytest.param(
            5,
            20_000,
            [Group(1, 20_000), Group(1, 19_000), Group(1, 21_000), Group(2, None)],
            {},
            5,
            20_000,
            id="P4 missing pods at the target",
        ),
        pytest.param(2, 17_000, [Group(2, 10_000), Group(1, None)], {}, 2, 10_000, id="P5 a surge pod without sample"),
        pytest.param(3, 1, [Group(2, 10), Group(1, 11)], {}, 30, 10, id="C3 the average is cut"),
        pytest.param(3, 1000, [Group(2, 1100), Group(1, 1101)], {}, 3, 1100, id="C4 it is cut before the ratio"),
    ],
)
def test_pods_average(
    current: int, target: int, groups: list[Group], strays: dict[str, int], expected: int, value: int
) -> None:
    pods, answer = world(*groups, strays=strays)

    made = calculate(pods_metric(target), answer, current=current, pods=pods)

    assert (made.proposal, made.value) == (expected, value)


@pytest.mark.parametrize(
    ("metric", "answer", "current", "pods", "expected", "value"),
    [
        pytest.param(
            object_metric(value=10_000), ObjectSample(50_000), 3, replicas(3, 1), 5, 50_000, id="O1 times ready pods"
        ),
        pytest.param(
            external_metric(value=4400), ExternalSamples((8600,)), 3, replicas(3, 1), 2, 8600, id="O2 down above target"
        ),
        pytest.param(object_metric(value=1000), ObjectSample(5000), 3, replicas(3), 0, 5000, id="O3 no ready pod"),
        pytest.param(object_metric(value=1000), ObjectSample(1100), 3, replicas(0), 3, 1100, id="O4 tolerance first"),
        pytest.param(
            external_metric(value=5000), ExternalSamples((-5000,)), 3, replicas(3, 3), -3, -5000, id="O5 negative"
        ),
        pytest.param(
            external_metric(value=MAX_INT64),
            ExternalSamples((2**62, 2**62)),
            3,
            replicas(3, 3),
            3,
            MAX_INT64,
            id="O7 a total saturates",
        ),
        pytest.param(
            object_metric(value=1), ObjectSample(MAX_INT64), 3, replicas(3, 3), MAX_INT32, MAX_INT64, id="huge"
        ),
        pytest.param(
            object_metric(value=15_000), ObjectSample(1), 0, replicas(0), 1, 1, id="Z2 from zero: ceil(ratio)"
        ),
        pytest.param(
            external_metric(value=1), ExternalSamples((2**40,)), 0, replicas(0), -(2**31), 2**40, id="from zero: huge"
        ),
    ],
)
def test_totals(
    metric: dict[str, object],
    answer: ObjectSample | ExternalSamples,
    current: int,
    pods: TargetPods,
    expected: int,
    value: int,
) -> None:
    made = calculate(metric, answer, current=current, pods=pods)

    assert (made.proposal, made.value) == (expected, value)


@pytest.mark.parametrize(
    ("metric", "answer", "reported", "tolerance", "expected", "value"),
    [
        pytest.param(
            object_metric(average=5000), ObjectSample(20_208), 4, (0.1, 10 * 1e-3), 5, 5052, id="T12 1.0104 > 1.01"
        ),
        pytest.param(
            external_metric(average=2150), ExternalSamples((8600,)), 3, (0.1, 0.1), 4, 2867, id="C5 this mean is ceiled"
        ),
        pytest.param(
            external_metric(average=1000),
            ExternalSamples((-5000,)),
            3,
            (0.1, 0.1),
            MAX_INT32,
            MAX_INT64,
            id="O6 a negative sum takes the overflow guard",
        ),
        pytest.param(
            external_metric(average=1), ExternalSamples((MAX_INT64,)), 1, (0.1, 0.1), MAX_INT32, MAX_INT64, id="O8"
        ),
        pytest.param(
            external_metric(average=2150), ExternalSamples((8600,)), 5, (0.1, 0.1), 4, 1720, id="O9 status replicas"
        ),
        pytest.param(
            external_metric(average=10_000),
            ExternalSamples((110_000,)),
            10,
            (0.1, 0.1),
            10,
            11_000,
            id="O10 on the bound",
        ),
        pytest.param(
            external_metric(average=10_000), ExternalSamples((110_001,)), 10, (0.1, 0.1), 12, 11_001, id="O10 past it"
        ),
        pytest.param(
            object_metric(average=5000), ObjectSample(20_000), 0, (0.1, 0.1), 4, MIN_INT64, id="O11 over no replicas"
        ),
        pytest.param(
            external_metric(average=5000), ExternalSamples((0,)), 0, (0.1, 0.1), 0, MIN_INT64, id="O12 zero over zero"
        ),
    ],
)
def test_averages_over_status_replicas(
    metric: dict[str, object],
    answer: ObjectSample | ExternalSamples,
    reported: int,
    tolerance: tuple[float, float],
    expected: int,
    value: int,
) -> None:
    made = calculate(metric, answer, current=3, reported=reported, tolerance=tolerance)

    assert (made.proposal, made.value) == (expected, value)


def test_o3_a_total_that_needs_pods_fails_without_any() -> None:
    with pytest.raises(AssertionError, match=r"^unable to calculate ready pods: no pods returned by selector"):
        calculate(object_metric(value=1000), ObjectSample(5000), current=3, pods=TargetPods(()))


def test_o14_an_object_average_is_named_external() -> None:
    assert spec_of(object_metric(average=1)).name == "external metric qps(nil)"


def test_o15_an_object_target_of_type_utilization_is_an_error() -> None:
    metric = object_metric(value=1)
    metric["object"]["target"]["type"] = "Utilization"

    spec = spec_of(metric)

    assert (spec.calculation, spec.reason) == ("invalid", "FailedGetObjectMetric")
    assert spec.error == "invalid object metric source: neither a value target nor an average value target was set"


def test_o16_the_type_of_a_resource_target_is_ignored() -> None:
    metric = resource(percent=50)
    metric["resource"]["target"]["type"] = "Value"

    assert spec_of(metric).calculation == "utilization"


def test_q13_a_tolerance_is_the_double_of_its_canonical_text() -> None:
    rules = {"scaleUp": {"tolerance": "360m", "policies": []}, "scaleDown": {"policies": []}}

    scale_up = compile_autoscaler(hpa([resource(percent=50)], behavior=rules)).scale_up

    assert scale_up is not None
    assert scale_up.tolerance == 360 * 1e-3


@pytest.mark.parametrize(
    ("metric", "usage", "text"),
    [
        pytest.param(resource("memory", average=10**12), 1_000_000_500, "1000000500m", id="Q10 a broken binary"),
        pytest.param(resource("memory", average=10**12), 1_048_576_000, "1Mi", id="Q11 a binary suffix"),
        pytest.param(resource("memory", average=10**12), 1_000_000_000, "1000000", id="Q11 without a suffix"),
        pytest.param(resource("memory", average=10**12), 1_023_000, "1023", id="Q11 below 1024"),
        pytest.param(resource(average=500), 495, "495m", id="Q12 milli"),
        pytest.param(resource(average=1000), 1000, "1", id="Q12 one"),
        pytest.param(resource(average=20_000), 20_000, "20", id="Q12 twenty"),
    ],
)
def test_how_an_average_prints(metric: dict[str, object], usage: int, text: str) -> None:
    pods, answer = world(Group(1, usage))
    controller = Controller(hpa([metric]))

    controller.sync(1, answer, pods=pods)

    assert controller.status["currentMetrics"][0]["resource"]["current"]["averageValue"] == text


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        pytest.param(
            resource(percent=50),
            "failed to get cpu utilization: unable to get metrics for resource cpu: boom",
            id="cpu",
        ),
        pytest.param(
            resource(average=50, container="app"),
            "failed to get cpu usage: unable to get metrics for resource cpu: boom",
            id="container",
        ),
        pytest.param(pods_metric(1), "unable to get metric rps: boom", id="pods"),
        pytest.param(object_metric(value=1), "unable to get metric qps on Service shop/svc: boom", id="object"),
        pytest.param(external_metric(value=1), "unable to get external metric shop/queue/nil: boom", id="external"),
    ],
)
def test_a_clients_error_is_reported_with_the_metric(metric: dict[str, object], error: str) -> None:
    scale = Scale(1, 1, "app=x")

    made = evaluate_metric(spec_of(metric), MetricFailure("boom"), scale, TargetPods(()), (0.9, 1.1), SETTINGS, NOW_MS)

    assert made.error == error


def test_an_answer_of_the_wrong_kind_is_the_callers_mistake() -> None:
    with pytest.raises(
        TypeError, match=r"^ObjectSample is not an answer for metric 'cpu resource .*' \(utilization\)$"
    ):
        calculate(resource(percent=50), ObjectSample(1), current=1)


@pytest.mark.parametrize(
    ("template", "container", "request_or_error"),
    [
        pytest.param(
            PodTemplate([ContainerRequests("a", {"cpu": "100m"}), ContainerRequests("b", {"cpu": "1"})]),
            "",
            1100,
            id="containers add up",
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {"cpu": "1"})], [ContainerRequests("s", {"cpu": "50m"}, sidecar=True)]),
            "",
            1050,
            id="a sidecar counts",
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {"cpu": "1"})], [ContainerRequests("i", {})]),
            "",
            1000,
            id="an init container does not",
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {})], (), {"cpu": "2"}, {"cpu": "10m"}),
            "",
            2010,
            id="pod level plus overhead",
        ),
        pytest.param(
            PodTemplate(
                [ContainerRequests("a", {"cpu": "1"})],
                [ContainerRequests("s", {"cpu": "1"}, sidecar=True), ContainerRequests("i", {"cpu": "4"})],
                {"memory": "1Gi"},
            ),
            "",
            5000,
            id="pod level of another resource: the peak of initialisation",
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {"cpu": "100m"})], (), {"cpu": "2"}), "a", 100, id="a container by name"
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {})]), "b", "container b not found in Pod ", id="an unknown container"
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {})], (), {"memory": "1Gi"}),
            "",
            "missing pod-level request for cpu in Pod ",
            id="pod level without this resource",
        ),
        pytest.param(
            PodTemplate([ContainerRequests("a", {"cpu": "1"}), ContainerRequests("b", {})]),
            "",
            "missing request for cpu in container b of Pod ",
            id="one container without",
        ),
    ],
)
def test_requests(template: PodTemplate, container: str, request_or_error: int | str) -> None:
    assert template.request("cpu", container) == request_or_error

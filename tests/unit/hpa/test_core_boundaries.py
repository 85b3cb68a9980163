"""Where one rule of the calculation ends and the next begins, to the millisecond, the thousandth and the last bit."""

from typing import Any

import pytest

from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.observation import ExternalSamples, ObjectSample
from tests.kit.hpa import (
    MAX_INT32,
    MAX_INT64,
    Controller,
    Group,
    behavior,
    calculate,
    external_metric,
    hpa,
    object_metric,
    policy,
    replicas,
    resource,
    wanting,
    world,
)
from tests.kit.upstream import compile_template

QUEUE = external_metric(average=1000)


@pytest.mark.parametrize(
    ("groups", "final"),
    [
        pytest.param([Group(2, 50), Group(1, 50, "unready")], None, id="unready pods alone fill nothing in"),
        pytest.param(
            [Group(2, 50), Group(1, 50, "unready"), Group(1, None)], 1.0, id="nor do they beside missing ones"
        ),
    ],
)
def test_exactly_at_the_target_unready_pods_are_not_filled_in(groups: list[Group], final: float | None) -> None:
    pods, answer = world(*groups)

    made = calculate(resource(percent=50), answer, current=9, pods=pods, tolerance=(0, 0))

    assert (made.ratio, made.final_ratio, made.proposal, made.kept) == (1.0, final, 9, "withinTolerance")


@pytest.mark.parametrize(
    ("target", "final"),
    [
        # 9 ready pods at 10 of 100 and one missing one at 100 of 100: 190 of 1000 is 19 percent.
        pytest.param(80, 19 / 80, id="a target below 100 percent: as if they used all that they request"),
        # The missing one counts 160 of 100: 250 of 1000 is 25 percent.
        pytest.param(160, 25 / 160, id="a higher target: as if they were at it"),
    ],
)
def test_what_missing_pods_count_as_when_scaling_down(target: int, final: float) -> None:
    pods, answer = world(Group(9, 10), Group(1, None))

    assert calculate(resource(percent=target), answer, current=10, pods=pods).final_ratio == final


@pytest.mark.parametrize(
    ("usage_milli", "request_milli", "wrapped"),
    [
        pytest.param(MAX_INT32, 100, False, id="the largest percentage fits"),
        pytest.param(MAX_INT32 + 1, 100, True, id="one more does not"),
        pytest.param(30_000_000, 1_000, False, id="it is the percentage that has to fit, not the usage"),
    ],
)
def test_a_percentage_that_leaves_int32_is_reported(usage_milli: int, request_milli: int, wrapped: bool) -> None:
    pods, answer = world(Group(1, usage_milli, request_milli=request_milli))

    assert calculate(resource(percent=MAX_INT32), answer, current=1, pods=pods).wrapped is wrapped


@pytest.mark.parametrize(
    ("values", "value"),
    [
        pytest.param((MAX_INT64, 1), MAX_INT64, id="one too many"),
        pytest.param((MAX_INT64 - 1, 1), MAX_INT64, id="exactly full"),
        pytest.param((MAX_INT64 - 1, 1, -5), MAX_INT64 - 5, id="exactly full is not too many"),
        pytest.param((MAX_INT64, 0), MAX_INT64, id="nothing more"),
        pytest.param((MAX_INT64, 1, -5), MAX_INT64, id="full it stays, whatever follows"),
    ],
)
def test_series_are_summed_up_to_the_largest_integer(values: tuple[int, ...], value: int) -> None:
    assert calculate(external_metric(value=1000), ExternalSamples(values), current=0).value == value


@pytest.mark.parametrize(
    ("milli", "proposal"),
    [
        pytest.param(2_147_483_646_001, MAX_INT32, id="rounded up to the largest"),
        pytest.param(2_147_483_647_000, MAX_INT32, id="the largest"),
        pytest.param(2_147_483_647_500, MAX_INT32, id="above it, by less than one"),
        pytest.param(2_147_483_649_000, MAX_INT32, id="above it"),
    ],
)
def test_counts_of_totals_end_at_the_largest_int32(milli: int, proposal: int) -> None:
    made = calculate(external_metric(value=1000), ExternalSamples((milli,)), current=1, pods=replicas(1, 1))

    assert made.proposal == proposal


def test_a_sum_per_pod_that_fits_has_not_wrapped() -> None:
    assert not calculate(QUEUE, ExternalSamples((5000, 6000)), current=3).wrapped
    assert calculate(QUEUE, ExternalSamples((MAX_INT64, 1)), current=3).wrapped


@pytest.mark.parametrize(
    ("usage_milli", "proposal", "kept"),
    [
        pytest.param(8_999, 9, "", id="just below the band"),
        pytest.param(9_000, 10, "withinTolerance", id="lower edge of the band"),
        pytest.param(11_000, 10, "withinTolerance", id="upper edge of the band"),
        pytest.param(11_001, 12, "", id="just above the band"),
    ],
)
@pytest.mark.parametrize(
    ("metric", "answer"),
    [(object_metric(average=1000), ObjectSample), (QUEUE, lambda milli: ExternalSamples((milli,)))],
)
def test_the_edges_of_the_band_of_an_average_belong_to_it(
    metric: Any, answer: Any, usage_milli: int, proposal: int, kept: str
) -> None:
    made = calculate(metric, answer(usage_milli), current=10)

    assert (made.proposal, made.kept) == (proposal, kept)


def test_what_a_spec_does_not_say() -> None:
    spec = hpa([QUEUE], behavior={"scaleUp": {}, "scaleDown": {"policies": [policy("Pods", 1, 60)]}})
    del spec["metadata"]["generation"]

    made = compile_autoscaler(spec)

    assert made.generation == 0
    assert made.scale_up is not None
    assert made.scale_down is not None
    assert (made.scale_up.select, made.scale_up.policies, made.scale_up.longest_ms) == ("Max", (), 0)
    assert (made.scale_down.select, made.scale_down.longest_ms) == ("Max", 60_000)


def test_a_pod_may_request_as_a_whole() -> None:
    container = {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
    template = compile_template({"containers": [container], "resources": {"requests": {"cpu": "700m"}}})

    assert template.request("cpu", "") == 700
    assert template.request("cpu", "app") == 100


def test_every_metric_needs_its_answer() -> None:
    controller = Controller(hpa([QUEUE, QUEUE], behavior=behavior()))

    with pytest.raises(ValueError, match="shorter than argument 1"):
        controller.evaluate(3, wanting(4))


def test_the_controllers_window_counts_whole_seconds_only() -> None:
    down = behavior()
    del down["scaleDown"]["stabilizationWindowSeconds"]
    settings = ControllerSettings(downscale_stabilization_ms=999_500)

    made = Controller(hpa([QUEUE], behavior=down), settings=settings).evaluate(5, wanting(3))

    assert made.normalization is not None
    assert made.normalization.down_window_ms == 999_000

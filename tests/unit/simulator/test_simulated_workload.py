"""The model behind simulated clusters: pods' lives, load and what it costs, in simulated time."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.lab.simulator.model import ConstantLoad, PodProfile, SimulatedWorkload, parse_load
from tests.laws import examples

START_MS = 1_000_000_000_000
PROFILE = PodProfile(schedule_ms=500, ready_ms=2_000, stop_ms=1_000, idle_cpu_milli=10, cpu_milli_per_unit=5)


def workload(replicas: int = 2, load: float = 100, profile: PodProfile = PROFILE, **more: Any) -> SimulatedWorkload:
    return SimulatedWorkload("web", START_MS, replicas, ConstantLoad(load), profile, sample_ms=5_000, **more)


@pytest.mark.parametrize(
    ("document", "elapsed_s", "expected"),
    [
        pytest.param(7, 1e9, 7, id="a number is a constant load"),
        pytest.param({"shape": "step", "before": 1, "after": 9, "at_s": 10}, 9.999, 1, id="a step has not come before"),
        pytest.param({"shape": "step", "before": 1, "after": 9, "at_s": 10}, 10, 9, id="a step comes at its second"),
        pytest.param(
            {"shape": "ramp", "start": 10, "end": 20, "over_s": 10, "from_s": 5}, 10, 15, id="a ramp is straight"
        ),
        pytest.param({"shape": "ramp", "start": 10, "end": 20, "over_s": 10}, 99, 20, id="a ramp stays at its end"),
        pytest.param(
            {"shape": "sine", "base": 10, "amplitude": 5, "period_s": 40}, 10, 15, id="a sine peaks at a quarter"
        ),
        pytest.param({"shape": "sine", "base": 1, "amplitude": 5, "period_s": 40}, 30, 0, id="load is never negative"),
        pytest.param({"shape": "spike", "base": 1, "peak": 8, "at_s": 5, "duration_s": 2}, 7, 1, id="a spike ends"),
        pytest.param(
            {"shape": "spike", "base": 1, "peak": 8, "at_s": 5, "duration_s": 2, "every_s": 10},
            16,
            8,
            id="a spike recurs",
        ),
    ],
)
def test_load_at_a_time(document: Mapping[str, Any] | float, elapsed_s: float, expected: float) -> None:
    assert parse_load(document).at(elapsed_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"shape": "wave"}, "load.shape 'wave' is unknown", id="an unknown shape is named"),
        pytest.param({"shape": "sine", "base": 1}, "load of shape sine: .*amplitude", id="a missing field is named"),
        pytest.param({"shape": "sine", "base": 1, "amplitude": 1, "period_s": 0}, "period_s is 0", id="no zero period"),
    ],
)
def test_bad_load_is_refused(document: Mapping[str, Any] | float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_load(document)


def test_a_pod_goes_from_pending_over_running_to_ready() -> None:
    model = workload(replicas=1)
    (pod,) = model.pods.values()
    seen = []
    for after_ms in (499, 500, 2_499, 2_500):
        model.advance_to(START_MS + after_ms)
        seen.append((pod.phase(model.now_ms), pod.ready(model.now_ms)))
    assert seen == [("Pending", False), ("Running", False), ("Running", False), ("Running", True)]


def test_ready_pods_share_the_load_and_a_sample_shows_its_cost() -> None:
    model = workload(replicas=2, load=100)
    model.advance_to(START_MS + 5_000)
    usages = model.samples[-1].pods.values()
    assert [(usage.cpu_milli, usage.load) for usage in usages] == [(10 + 5 * 50, 50.0)] * 2


def test_a_pod_that_is_not_ready_yet_idles_but_is_sampled() -> None:
    model = workload(replicas=1, profile=PodProfile(schedule_ms=500, ready_ms=9_000, idle_cpu_milli=10))
    model.advance_to(START_MS + 5_000)
    assert [usage.cpu_milli for usage in model.samples[-1].pods.values()] == [10]


def test_a_pending_pod_has_no_sample() -> None:
    model = workload(replicas=1, profile=PodProfile(schedule_ms=6_000))
    model.advance_to(START_MS + 5_000)
    assert model.samples[-1].pods == {}


def test_start_up_burns_extra_cpu_for_a_while() -> None:
    model = workload(load=0, replicas=1, profile=PodProfile(startup_cpu_milli=300, startup_ms=6_000, idle_cpu_milli=10))
    model.advance_to(START_MS + 10_000)
    assert [next(iter(sample.pods.values())).cpu_milli for sample in model.samples] == [310, 10]


def test_scale_down_terminates_for_a_while_and_the_pod_takes_no_load() -> None:
    model = workload(replicas=3)
    model.advance_to(START_MS + 5_000)
    model.replicas = 1
    model.advance_to(START_MS + 5_001)
    assert (len(model.pods), len(model.alive()), len(model.ready_pods())) == (3, 1, 1)
    model.advance_to(START_MS + 6_001)
    assert len(model.pods) == 1


def test_scale_down_takes_pods_that_are_not_ready_first() -> None:
    model = workload(replicas=2)
    model.advance_to(START_MS + 5_000)
    kept = set(model.pods)
    model.replicas = 4
    model.advance_to(START_MS + 5_100)
    model.replicas = 2
    model.advance_to(START_MS + 5_200)
    assert {pod.name for pod in model.alive()} == kept


def test_ordinals_are_reused_and_the_highest_goes_first() -> None:
    model = workload(replicas=3, ordinals=True)
    model.replicas = 2
    model.advance_to(START_MS + 2_000)
    assert list(model.pods) == ["web-0", "web-1"]
    model.kill("web-0")
    model.advance_to(START_MS + 2_500)
    assert [pod.name for pod in model.alive()] == ["web-1"]  # web-0 is still terminating and holds its name
    model.advance_to(START_MS + 3_001)
    assert sorted(pod.name for pod in model.alive()) == ["web-0", "web-1"]


@pytest.mark.parametrize(
    ("ordinals", "least_ready", "most_alive"),
    [
        pytest.param(False, 4, 5, id="a Deployment surges by one and never has less than wanted"),
        pytest.param(True, 3, 4, id="a StatefulSet replaces one at a time"),
    ],
)
def test_a_new_template_rolls_out(ordinals: bool, least_ready: int, most_alive: int) -> None:
    model = workload(replicas=4, ordinals=ordinals)
    model.advance_to(START_MS + 5_000)
    model.revision = "2"
    ready, alive = [], []
    for step_ms in range(100, 60_000, 100):
        model.advance_to(START_MS + 5_000 + step_ms)
        ready.append(len(model.ready_pods()))
        alive.append(len(model.alive()))
    assert {pod.revision for pod in model.alive()} == {"2"}
    assert (min(ready), max(alive)) == (least_ready, most_alive)


def test_a_queue_grows_without_workers_and_drains_with_them() -> None:
    profile = PodProfile(schedule_ms=0, ready_ms=0, capacity=10, idle_cpu_milli=0, cpu_milli_per_unit=1)
    model = workload(replicas=0, load=5, profile=profile)
    model.advance_to(START_MS + 10_000)
    assert model.queue == pytest.approx(50)
    model.replicas = 1
    model.advance_to(START_MS + 15_000)
    assert model.queue == pytest.approx(25)
    assert next(iter(model.samples[-1].pods.values())).load == 10  # full speed while something waits
    model.advance_to(START_MS + 30_000)
    assert model.queue == 0


def test_absence_is_not_zero_without_pods_there_is_no_usage() -> None:
    model = workload(replicas=0, load=100)
    model.advance_to(START_MS + 5_000)
    assert (model.samples[-1].pods, model.samples[-1].total_load) == ({}, 100)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 20_000)), max_size=6), st.integers(97, 7_000))
def test_the_size_of_steps_does_not_change_what_happens(changes: list[tuple[int, int]], step_ms: int) -> None:
    """A law: one leap and many small steps see the same pods and samples."""
    leaping, walking = workload(replicas=1), workload(replicas=1)
    for replicas, span_ms in changes:
        leaping.replicas = walking.replicas = replicas
        until = leaping.now_ms + span_ms
        leaping.advance_to(until)
        while walking.now_ms < until:
            walking.advance_to(min(until, walking.now_ms + step_ms))
    assert walking.pods == leaping.pods
    assert list(walking.samples) == list(leaping.samples)


@settings(max_examples=examples(50))
@given(st.integers(0, 40), st.integers(0, 40))
def test_the_count_settles_at_what_is_wanted(first: int, second: int) -> None:
    model = workload(replicas=first)
    model.advance_to(START_MS + 3_000)
    model.replicas = second
    model.advance_to(START_MS + 10_000)
    assert len(model.pods) == len(model.ready_pods()) == second

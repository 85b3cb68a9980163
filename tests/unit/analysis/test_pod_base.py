"""A metric whose total grows with the pods is told apart from a load that changes while the count does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.lab.simulator.model import LoadCurve, PodProfile, RampLoad, SineLoad, SpikeLoad, StepLoad
from fleethpa.tuning.specsearch import RefusedError, tune
from streams.analysis.backtest import backtest, condensed
from streams.analysis.candidate import CandidateError, candidate
from streams.analysis.podbase import base_per_pod
from streams.history.evaluations import Evaluated
from streams.state.inputs import EvaluationInputs
from tests.kit.simulated_hpa import HPA, live, spec
from tests.laws import one_of

SHAPES: dict[str, LoadCurve] = {
    "step": StepLoad(150, 520, 900),
    "ramp": RampLoad(100, 800, 2_700, 600),
    "sine": SineLoad(400, 250, 1_800),
    "spike": SpikeLoad(150, 600, 600, 240, 1_200),
}
TARGET_MILLI = 300


class Points:
    """Straight lines between loads at equal distances, as a metric shows them that is the mean over a window."""

    def __init__(self, loads: list[int], apart_s: int, window_s: int) -> None:
        self.loads, self.apart_s, self.window_s = loads, apart_s, window_s

    def at(self, elapsed_s: float) -> float:
        steps = range(0, self.window_s + 1, 15)
        return sum(self._now(max(0.0, elapsed_s - step)) for step in steps) / len(steps)

    def _now(self, elapsed_s: float) -> float:
        place = min(int(elapsed_s / self.apart_s), len(self.loads) - 1)
        following = self.loads[min(place + 1, len(self.loads) - 1)]
        return self.loads[place] + (following - self.loads[place]) * min(1.0, elapsed_s % self.apart_s / 60)


def recorded(load: LoadCurve, idle_milli: int, seconds: int = 3_600, **changes: Any) -> list[EvaluationInputs]:
    profile = PodProfile(schedule_ms=2_000, ready_ms=13_000, stop_ms=5_000, noise=0.03, idle_cpu_milli=idle_milli)
    return live(load, candidate(HPA, spec(**changes)), seconds, lambda _: None, profile, replicas=2)


def counts(inputs: list[EvaluationInputs]) -> list[int]:
    return [len(each.observation.pods.active) for each in inputs]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("idle_milli", one_of(2, [10, 60, 100]))
@pytest.mark.parametrize("window_s", [0, 300])
def test_a_load_that_the_pods_share_is_never_refused(shape: str, idle_milli: int, window_s: int) -> None:
    inputs = recorded(SHAPES[shape], idle_milli, down={"stabilizationWindowSeconds": window_s})
    assert sum(one != other for one, other in pairwise(counts(inputs))) >= 2
    assert base_per_pod(inputs) is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("idle_milli", one_of(2, [350, 500, 830]))
@pytest.mark.parametrize("most", [10, 20])
def test_pods_that_use_more_than_the_target_without_load_are_refused(shape: str, idle_milli: int, most: int) -> None:
    inputs = recorded(SHAPES[shape], idle_milli, most=most)
    base = base_per_pod(inputs)
    assert base is not None
    assert base.metric == "cpu"
    assert base.base == pytest.approx(idle_milli / TARGET_MILLI, rel=0.25)
    assert base.few[0] < base.many[0] <= most
    assert base_per_pod(condensed(HPA, inputs).inputs) == base


LOADS = st.lists(st.integers(20, 700), min_size=3, max_size=8)


@given(LOADS, st.sampled_from([300, 600]), st.sampled_from([0, 30, 60, 120]), st.sampled_from([0, 60, 300]))
def test_a_load_that_changes_while_the_count_does_is_not_refused(
    loads: list[int], apart_s: int, smear_s: int, window_s: int
) -> None:
    inputs = recorded(
        Points(loads, apart_s, smear_s), 20, 2_400, down={"stabilizationWindowSeconds": window_s}, most=40
    )
    found = base_per_pod(inputs)
    assert found is None, found.text


@given(LOADS, st.sampled_from([300, 600]), st.integers(400, 1_000))
def test_a_base_is_found_under_any_load(loads: list[int], apart_s: int, idle_milli: int) -> None:
    """The load adds at most one target to what each of ten pods uses without it."""
    inputs = recorded(Points([load // 10 for load in loads], apart_s, 30), idle_milli, 1_200, most=10)
    base = base_per_pod(inputs)
    changed = sum(one != other for one, other in pairwise(counts(inputs)))
    assert base is not None or changed < 2
    if base is not None:
        assert base.base == pytest.approx(idle_milli / TARGET_MILLI, rel=0.3)


def test_who_would_judge_refuses_by_the_same_reason() -> None:
    inputs = recorded(SHAPES["ramp"], 500, most=10)
    base = base_per_pod(inputs)
    assert base is not None
    with pytest.raises(CandidateError, match="the total of cpu grows with the pods") as refused:
        backtest([Evaluated(each, b"") for each in inputs], candidate(HPA, spec(most=25)), "closed")
    assert base.text in str(refused.value)
    with pytest.raises(RefusedError, match="the total of cpu grows with the pods"):
        tune(HPA, inputs)


def test_a_record_without_a_change_of_the_count_says_nothing() -> None:
    assert base_per_pod(recorded(SHAPES["sine"], 500, 900, least=10, most=10)[10:]) is None
    assert base_per_pod([]) is None

"""The compact loop: upstream's rules on numbers, and how near it is to the closed loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.simulator.model import SineLoad
from streams.analysis.candidate import candidate
from streams.analysis.closedloop import ClosedLoop
from streams.analysis.measures import spans_ms
from streams.analysis.tuning.search import tune
from streams.analysis.tuning.surrogate import Knobs, LoadSeries, lived, outcome_of, play
from streams.hpa.autoscaler import ControllerSettings
from tests.bench.simulated_hpa import HPA, live, spec
from tests.laws import examples

PERIOD_MS = 15_000


def series(loads: Sequence[float | None], replicas: int = 2) -> LoadSeries:
    """One entry every 15 s."""
    times = [number * PERIOD_MS for number in range(len(loads))]
    return LoadSeries(times, spans_ms(times, PERIOD_MS), list(loads), [0.0] * len(loads), replicas, 0)


def counts(loads: Sequence[float | None], tried: dict[str, Any], replicas: int = 2, start_up_ms: int = 0) -> list[int]:
    """The replicas at each entry."""
    knobs = Knobs(candidate(HPA, tried).autoscaler, ControllerSettings())
    return [moment.replicas for moment in lived(series(loads, replicas), knobs, start_up_ms)]


def test_it_scales_up_at_once_and_down_after_the_window() -> None:
    tried = spec(60, 1, 20, down={"stabilizationWindowSeconds": 60})

    assert counts([2.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], tried) == [2, 2, 4, 4, 4, 4, 4, 1, 1][:9]


def test_policies_limit_each_step() -> None:
    one = [{"type": "Pods", "value": 1, "periodSeconds": 15}]

    assert counts([8.0] * 5, spec(60, 1, 20, up={"policies": one})) == [2, 3, 4, 5, 6]


def test_the_spec_without_behavior_waits_five_minutes_and_at_most_doubles() -> None:
    tried = spec(60, 1, 40)
    del tried["behavior"]
    found = counts([20.0] * 4 + [1.0] * 25, tried, replicas=5)

    assert found[:4] == [5, 10, 20, 20]
    assert found[4:25] == [20] * 21
    assert found[25] == 1


def test_bounds_and_tolerance_hold() -> None:
    assert counts([9.0] * 4, spec(60, 1, 3)) == [2, 3, 3, 3]
    assert counts([0.1] * 40, spec(60, 2, 9), replicas=2)[-1] == 2
    assert counts([2.19] * 4, spec(60, 1, 9)) == [2] * 4
    assert counts([2.21] * 4, spec(60, 1, 9)) == [2, 3, 3, 3]
    assert counts([1.0] * 2, spec(60, 4, 9), replicas=2) == [2, 4]


def test_pods_that_start_take_no_load_and_are_not_asked_for_twice() -> None:
    knobs = Knobs(candidate(HPA, spec(60, 1, 20)).autoscaler, ControllerSettings())
    moments = lived(series([4.0] * 6), knobs, 30_000)
    made = outcome_of(series([4.0] * 6), moments, 1.0)

    assert [moment.replicas for moment in moments] == [2, 4, 4, 4, 4, 4]
    assert [moment.ready for moment in moments] == [2, 2, 4, 4, 4, 4]
    assert made.overload_share == pytest.approx(2 / 6)
    assert made.overload == pytest.approx(2 / 6 * 0.5)
    assert made.worst == 2.0


def test_time_without_known_load_counts_nowhere() -> None:
    assert counts([4.0, None, None, 4.0], spec(60, 1, 20)) == [2, 4, 4, 4]
    knobs = Knobs(candidate(HPA, spec(60, 1, 20)).autoscaler, ControllerSettings())
    assert play(series([2.0, None, 2.0]), knobs, 0, 1.0).hours == pytest.approx(2 * 15 / 3600)


LOADS = st.lists(st.one_of(st.none(), st.floats(0, 60)), min_size=1, max_size=80)


@settings(max_examples=examples(60))
@given(LOADS, st.integers(1, 8), st.integers(0, 12), st.integers(0, 120), st.sampled_from([0, 60, 300]))
def test_the_sums_are_those_of_the_moments_and_bounds_hold(
    loads: list[float | None], least: int, width: int, start_up_s: int, window_s: int
) -> None:
    tried = spec(60, least, least + width, down={"stabilizationWindowSeconds": window_s})
    knobs = Knobs(candidate(HPA, tried).autoscaler, ControllerSettings())
    given_series = series(loads, least)
    moments = lived(given_series, knobs, start_up_s * 1_000)
    made = play(given_series, knobs, start_up_s * 1_000, 1.5)

    assert all(least <= moment.replicas <= least + width for moment in moments)
    assert all(0 <= moment.ready <= moment.replicas for moment in moments)
    known = [(moment, load) for moment, load in zip(moments, loads, strict=True) if load is not None]
    over = sum(load / 1.5 > moment.ready + 1e-9 for moment, load in known)
    assert made.replica_hours == pytest.approx(sum(moment.replicas for moment, _ in known) * PERIOD_MS / 3_600_000)
    assert made.overload_share == pytest.approx(over / len(known) if known else 0.0)


def test_it_is_near_the_closed_loop() -> None:
    inputs = live(SineLoad(400, 300, 1_800), candidate(HPA, spec(60)), 5_400, lambda _: None, step_s=5)
    found = tune(HPA, inputs, "balanced")
    for tried, cost in ((found.deployed, found.deployed_point), (found.spec, found.proposed_point)):
        moments = ClosedLoop(candidate(HPA, tried), found.start_up.ms).run(inputs)
        split = round(len(inputs) * 2 / 3)
        hours = sum(moment.replicas for moment in moments[:split]) * PERIOD_MS / 3_600_000
        assert cost.replica_hours == pytest.approx(hours, rel=0.06)

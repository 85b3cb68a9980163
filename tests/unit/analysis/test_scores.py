"""The scores of the literature on hand-made series, each value worked out from its formula."""

import pytest

from fleethpa.tuning.specsearch import FEWEST, tune
from streams.analysis.backtest import backtest
from streams.analysis.candidate import candidate
from streams.analysis.ideal import ideal, recorded_ideal
from streams.analysis.measures import Moment, Scores, by_hours, demand, scores, spans_ms
from streams.history.evaluations import Evaluated
from tests.experiments.closed_loop import SHAPES
from tests.kit.simulated_hpa import HPA, live, spec

PERIOD_MS = 60_000
HOUR = [index * PERIOD_MS for index in range(60)]


def series(*steps: tuple[int, float | None, int, int]) -> list[Moment]:
    """Moments of one minute each: (how many, need, ready, replicas)."""
    moments: list[Moment] = []
    for count, need, ready, replicas in steps:
        moments += [Moment((len(moments) + n) * PERIOD_MS, replicas, ready, need, False) for n in range(count)]
    return moments


def scored(moments: list[Moment]) -> Scores:
    return scores(moments, PERIOD_MS, ideal(each.need for each in moments))


def test_perfect_supply_has_no_fault() -> None:
    found = scored(series((60, 4.0, 4, 4)))

    assert (found.under_accuracy, found.over_accuracy, found.under_share, found.over_share) == (0, 0, 0, 0)
    assert (found.hours, found.replica_hours, found.ideal_replica_hours, found.slack) == (1, 4, 4, 0)
    assert found.ideal_ratio == 1


def test_half_an_hour_with_half_of_the_pods() -> None:
    found = scored(series((30, 4.0, 2, 2), (30, 4.0, 4, 4)))

    assert found.under_accuracy == pytest.approx(0.25)  # half of the demand is missing for half of the time
    assert found.under_share == pytest.approx(0.5)
    assert found.over_accuracy == 0
    assert found.adaptations_per_hour == 1


def test_twice_the_pods_all_the_time() -> None:
    found = scored(series((60, 2.0, 4, 4)))

    assert (found.over_accuracy, found.over_share, found.slack) == (1, 1, 0.5)


def test_replicas_that_min_replicas_demands_are_too_many_for_the_ideal_too() -> None:
    found = scored(series((60, 2.0, 4, 4)))

    assert (found.over_share, found.over_accuracy) == (1, 1)
    assert found.ideal_ratio == 2


def test_a_pod_that_starts_is_paid_for_and_supplies_nothing() -> None:
    found = scored(series((60, 4.0, 2, 4)))

    assert (found.under_accuracy, found.over_share, found.replica_hours) == (0.5, 0, 4)


def test_several_hpas_are_weighed_by_their_time_and_their_replicas() -> None:
    one = scored(series((60, 4.0, 2, 2)))
    other = scored(series((20, 2.0, 4, 4)))
    both = by_hours([one, other])

    assert both.under_accuracy == pytest.approx(0.5 * 60 / 80)
    assert both.slack == pytest.approx(1 - (2 * 1 + 2 / 3) / both.replica_hours)
    assert both.hours == pytest.approx(80 / 60)
    assert by_hours([]).hours == 0


def test_what_is_above_the_ideal_does_not_make_up_for_what_is_below_it() -> None:
    found = scored(series((30, 4.0, 6, 6), (15, 4.0, 1, 4), (15, 4.0, 4, 4)))

    assert found.too_many_replica_hours == pytest.approx(2 * 0.5)
    assert found.too_few_replica_hours == pytest.approx(3 * 0.25)  # pods that are not ready are missing
    assert found.too_few_share == pytest.approx(0.25)
    both = by_hours([found, scored(series((60, 4.0, 4, 4)))])
    assert both.too_many_replica_hours == pytest.approx(1)
    assert both.too_few_share == pytest.approx(0.125)


def test_load_beyond_the_maximum_is_missing_and_the_ideal_runs_it() -> None:
    found = scored(series((60, 8.0, 4, 4)))

    assert found.under_accuracy == pytest.approx(0.5)
    assert found.ideal_replica_hours == 8


def test_opposite_movements_are_instability_and_lagging_ones_are_not() -> None:
    apart = series((30, 2.0, 4, 4), (1, 4.0, 2, 2), (29, 4.0, 2, 2))
    lagging = series((30, 2.0, 2, 2), (5, 4.0, 2, 2), (25, 4.0, 4, 4))

    assert scored(apart).instability == pytest.approx(1 / 60)
    assert scored(lagging).instability == 0


def test_time_without_known_load_is_left_out() -> None:
    found = scored(series((30, None, 9, 9), (30, 2.0, 2, 2)))

    assert (found.hours, found.replica_hours, found.over_share) == (0.5, 1, 0)


def test_nothing_known_scores_nothing() -> None:
    assert scored(series((3, None, 1, 1))).hours == 0


@pytest.mark.parametrize(
    ("need", "replicas"), [(0.0, 1), (0.2, 1), (1.0, 1), (1.0000000000001, 1), (1.01, 2), (7.5, 8)]
)
def test_demand_is_whole_pods_and_at_least_one(need: float, replicas: int) -> None:
    assert demand(need) == replicas


@pytest.mark.parametrize("shape", SHAPES)
def test_the_ideal_of_an_hpa_is_one_number_whatever_is_tried_and_wherever_it_is_said(shape: str) -> None:
    deployed = candidate(HPA, spec())
    inputs = live(SHAPES[shape], deployed, 1_800, lambda _: None)
    events = [Evaluated(each, b"") for each in inputs]
    spans = spans_ms([each.now_ms for each in inputs], inputs[-1].period_ms)
    own = recorded_ideal(inputs)
    hours = sum((count or 0) * span_ms for count, span_ms in zip(own, spans, strict=True)) / 3_600_000
    assert hours
    for tried in (spec(target=80), spec(most=5), spec(least=9)):
        made = backtest(events, candidate(HPA, tried), "closed")
        assert made.recorded_scores.ideal_replica_hours == pytest.approx(hours)
        assert made.candidate_scores.ideal_replica_hours == pytest.approx(hours)
    if len(inputs) >= FEWEST:
        found = tune(HPA, inputs)
        assert found.recorded == made.recorded_scores
        assert found.deployed.total.ideal_replica_hours == pytest.approx(hours)

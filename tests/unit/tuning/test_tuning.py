"""Tuning: what is proposed, what is refused, and that no proposal is worse than the deployed spec in either half."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fleethpa.lab.simulator.model import ConstantLoad, LoadCurve, PodProfile, SineLoad, StepLoad
from fleethpa.tuning.specsearch import (
    NO_BETTER,
    NOTHING_TO_SPARE,
    RefusedError,
    SpecSearch,
    TunedPast,
    Tuning,
    Within,
    tune,
)
from fleethpa.tuning.tune import headline, relief_hint
from schemas.kubernetes.validation import validate_create
from streams.analysis.backtest import backtest, condensed
from streams.analysis.candidate import candidate
from streams.analysis.load import cycle_ms
from streams.history.evaluations import Evaluated
from streams.state.inputs import EvaluationInputs
from tests.kit.loads import PointsLoad
from tests.kit.simulated_hpa import HPA, PROFILE, live, spec

WAVE = SineLoad(500, 350, 1_500)


def recorded(
    load: LoadCurve, tried: dict[str, Any], seconds: int = 6_000, profile: PodProfile = PROFILE
) -> list[EvaluationInputs]:
    """What the evaluations of a simulated HPA saw."""
    return live(load, candidate(HPA, tried), seconds, lambda _: None, profile, step_s=5)


@pytest.fixture(scope="module")
def wave() -> list[EvaluationInputs]:
    """From when the first pods are ready."""
    return recorded(WAVE, spec(40, 2, 40))[10:]


@pytest.fixture(scope="module")
def hot() -> list[EvaluationInputs]:
    """Of a spec with too little reserve."""
    return recorded(WAVE, spec(90, 1, 40))


@pytest.fixture(scope="module")
def balanced(wave: list[EvaluationInputs]) -> Tuning:
    return tune(HPA, wave)


def test_a_cautious_spec_gets_a_cheaper_one_that_is_worse_in_neither_half(balanced: Tuning) -> None:
    assert balanced.proposed is not None
    for was, own in zip(balanced.deployed.halves, balanced.proposed.halves, strict=True):
        assert own.replica_hours < 0.8 * was.replica_hours
        assert own.too_few_share <= was.too_few_share
        assert own.too_few_replica_hours <= was.too_few_replica_hours + 1e-9
    assert balanced.saved == pytest.approx(
        balanced.deployed.total.replica_hours - balanced.proposed.total.replica_hours
    )
    assert any("less than two days" in text for text in balanced.bounds)


def test_its_numbers_are_those_of_a_backtest(wave: list[EvaluationInputs], balanced: Tuning) -> None:
    assert balanced.proposed is not None
    made = backtest([Evaluated(each, b"") for each in wave], candidate(HPA, balanced.proposed.spec), "closed")

    assert balanced.recorded == made.recorded_scores
    whole = balanced.proposed.total
    for name in (
        "replica_hours",
        "ideal_replica_hours",
        "too_many_replica_hours",
        "too_few_replica_hours",
        "too_few_share",
    ):
        assert getattr(whole, name) == pytest.approx(getattr(made.candidate_scores, name), rel=1e-3), name


def test_the_proposal_is_a_valid_spec_that_changes_only_what_is_searched(balanced: Tuning) -> None:
    assert balanced.proposed is not None
    made, was = balanced.proposed.spec, balanced.deployed.spec
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": made,
    }

    assert validate_create(body) == []
    for name in ("scaleTargetRef", "maxReplicas"):
        assert made[name] == was[name]
    assert made["behavior"]["scaleUp"] == was["behavior"]["scaleUp"]
    assert made["behavior"]["scaleDown"]["policies"] == was["behavior"]["scaleDown"]["policies"]


def test_the_same_recording_gives_the_same_proposal(wave: list[EvaluationInputs], balanced: Tuning) -> None:
    assert tune(HPA, wave) == balanced


def test_a_proposal_keeps_within_what_is_asked(wave: list[EvaluationInputs]) -> None:
    found = tune(HPA, wave, within=Within(target=(None, 45), min_replicas=(3, 6), window=(120, None)))

    assert found.proposed is not None
    assert found.proposed.values.target <= 45
    assert 3 <= found.proposed.values.min_replicas <= 6
    assert found.proposed.values.window_s >= 120


def test_nothing_is_proposed_where_nothing_may_change(wave: list[EvaluationInputs]) -> None:
    found = tune(HPA, wave, within=Within(target=(40, 40), min_replicas=(2, 2), window=(300, 300)))

    assert (found.proposed, found.why, found.saved) == (None, NO_BETTER, 0.0)
    assert headline(found) == f"no change proposed: {NO_BETTER}"


def test_specs_that_save_and_have_too_few_pods_are_named_where_none_is_better(wave: list[EvaluationInputs]) -> None:
    found = tune(HPA, wave, within=Within(target=(90, 100)))

    assert found.proposed is None
    assert len(found.others) == 2
    shares = [each.total.too_few_share for each in found.others]
    assert shares == sorted(shares, reverse=True)
    assert all(each.total.replica_hours < found.deployed.total.replica_hours for each in found.others)


def test_cost_is_never_dearer_than_balanced(wave: list[EvaluationInputs], balanced: Tuning) -> None:
    cost = tune(HPA, wave, "cost")

    assert cost.proposed is not None
    assert balanced.proposed is not None
    assert cost.proposed.total.replica_hours <= balanced.proposed.total.replica_hours * 1.001


def test_safety_spares_half_of_what_was_missing_and_says_what_that_costs(hot: list[EvaluationInputs]) -> None:
    found = tune(HPA, hot, "safety", Within(window=(300, 300), min_replicas=(1, 1)))

    assert found.proposed is not None
    was, own = found.deployed.total, found.proposed.total
    assert was.too_few_share > 0.01
    assert own.too_few_share <= was.too_few_share / 2
    assert was.replica_hours < own.replica_hours <= was.replica_hours * 1.5
    assert found.saved < 0
    assert found.proposed.values.target < 90
    assert headline(found).startswith("proposed, at ")
    assert "more replica-hours: too few pods for" in headline(found)
    assert "minutes of a day) as deployed" in headline(found)


def test_safety_has_nothing_to_do_where_nothing_was_missing(wave: list[EvaluationInputs]) -> None:
    found = tune(HPA, wave, "safety")

    assert (found.proposed, found.why, found.tried) == (None, NOTHING_TO_SPARE, 1)


def test_where_there_were_too_few_pods_and_nothing_is_proposed_the_report_names_the_objective_to_ask_for(
    hot: list[EvaluationInputs], wave: list[EvaluationInputs]
) -> None:
    fixed = Within(target=(90, 90), min_replicas=(1, 1), window=(300, 300))
    found = tune(HPA, hot, within=fixed)

    assert found.proposed is None
    assert "--objective safety" in relief_hint(found)[0]
    assert relief_hint(tune(HPA, wave, within=Within(target=(40, 40), min_replicas=(2, 2)))) == []


def test_min_replicas_falls_by_half_at_a_time_and_not_below_two() -> None:
    found = tune(HPA, recorded(WAVE, spec(40, 16, 40)))
    past = TunedPast(HPA, condensed(HPA, recorded(WAVE, spec(40, 3, 40))))
    search = SpecSearch(past, "balanced", Within())
    search.run()

    assert found.proposed is not None
    assert found.proposed.values.min_replicas == 8
    assert {values.min_replicas for values in search.tried} == {3, 2}


def test_an_hpa_without_behavior_gets_a_window_beside_upstreams_defaults() -> None:
    plain = {name: value for name, value in spec(40, 2, 40).items() if name != "behavior"}
    past = TunedPast(HPA, condensed(HPA, recorded(WAVE, plain)))

    assert past.spec(past.values)["minReplicas"] == 2
    assert "behavior" not in past.spec(past.values._replace(target=60.0))
    behavior = past.spec(past.values._replace(window_s=60))["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 60
    assert [each["value"] for each in behavior["scaleUp"]["policies"]] == [4, 100]


def test_a_recording_at_max_replicas_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"at maxReplicas and above its target for .* raise maxReplicas, and tune again"
    ):
        tune(HPA, recorded(WAVE, spec(40, 2, 5)))


def test_a_short_time_at_max_replicas_bounds_the_target_and_names_the_next_step() -> None:
    flood = PointsLoad(((0, 300), (2_000, 300), (2_010, 1_100), (2_090, 1_100), (2_100, 300)))
    inputs = recorded(flood, spec(50, 2, 8), 6_000)
    found = tune(HPA, inputs)
    search = SpecSearch(TunedPast(HPA, condensed(HPA, inputs)), "balanced", Within())
    search.run()

    assert any("at maxReplicas" in text and "raise maxReplicas, and tune again" in text for text in found.bounds)
    assert max(values.target for values in search.tried) == 50


def test_saturated_pods_get_no_higher_target() -> None:
    slow = PodProfile(schedule_ms=2_000, ready_ms=240_000, noise=0.0, cpu_limit_milli=400)
    past = TunedPast(HPA, condensed(HPA, recorded(StepLoad(100, 900, 1_000), spec(40, 2, 40), 4_000, slow)))

    assert any("probably at their limit" in text and "raise the limit" in text for text in past.bounds)
    assert not past.may_raise_target


def test_a_load_without_two_periods_of_a_cycle_needs_a_larger_reserve_and_says_so() -> None:
    inputs = recorded(StepLoad(300, 500, 2_000), spec(40, 4, 40), 4_000)
    found = tune(HPA, inputs)

    assert any("two periods" in text and "25% more load" in text and "--since" in text for text in found.bounds)
    assert found.proposed is not None
    assert 40 < found.proposed.values.target <= 80


def test_too_short_a_recording_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"at least 120 are needed .*: tune again .* earlier --since"):
        tune(HPA, recorded(ConstantLoad(200), spec(), 900))
    with pytest.raises(RefusedError, match=r"minReplicas is 0: .* set minReplicas to 1"):
        tune(HPA, recorded(ConstantLoad(200), spec(50, 0, 40), 3_000))
    with pytest.raises(RefusedError, match=r"no evaluation .* choose an earlier --since"):
        tune(HPA, [])


@pytest.mark.parametrize(("periods", "expected"), [(2.0, True), (7.0, True), (0.6, False)])
def test_a_cycle_is_found_where_it_repeats(periods: float, expected: bool) -> None:
    times = [number * 15_000 for number in range(2_000)]
    load: list[float | None] = [5 + 3 * math.sin(2 * math.pi * periods * number / 2_000) for number in range(2_000)]
    found = cycle_ms(times, load)

    assert (found is not None) == expected
    if found is not None:
        assert found == pytest.approx(2_000 * 15_000 / periods, rel=0.05)


def test_no_cycle_in_a_constant_an_empty_or_a_rising_load() -> None:
    times = [number * 15_000 for number in range(400)]
    assert cycle_ms(times, [3.0] * 400) is None
    assert cycle_ms(times, [None] * 400) is None
    assert cycle_ms(times, [number / 10 for number in range(400)]) is None
    assert cycle_ms([], []) is None

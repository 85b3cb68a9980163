"""Tuning: what is chosen, what is refused, and that no proposal is worse than the deployed spec on what it saw."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from fleethpa.cli.tune import headline, relief_hint
from fleethpa.simulator.model import ConstantLoad, LoadCurve, PodProfile, SineLoad, StepLoad
from schemas.kubernetes.validation import validate_create
from streams.analysis.candidate import candidate
from streams.analysis.load import cycle_ms
from streams.analysis.tuning.recording import RefusedError, Tuning, Within, tuned_past
from streams.analysis.tuning.search import SpecSearch, tune
from streams.analysis.tuning.variants import SearchLine, Variants, Variation
from streams.state.inputs import EvaluationInputs
from tests.bench.simulated_hpa import HPA, PROFILE, live, spec
from tests.kit.loads import PointsLoad

WAVE = SineLoad(500, 350, 1_500)


def recorded(
    load: LoadCurve, tried: dict[str, Any], seconds: int = 6_000, profile: PodProfile = PROFILE
) -> list[EvaluationInputs]:
    """What the evaluations of a simulated HPA saw."""
    return live(load, candidate(HPA, tried), seconds, lambda _: None, profile, step_s=5)


@pytest.fixture(scope="module")
def wave() -> list[EvaluationInputs]:
    return recorded(WAVE, spec(40, 2, 40))


@pytest.fixture(scope="module")
def hot() -> list[EvaluationInputs]:
    """Of a spec with too little reserve."""
    return recorded(WAVE, spec(90, 1, 40))


@pytest.fixture(scope="module")
def balanced(wave: list[EvaluationInputs]) -> Tuning:
    return tune(HPA, wave)


def test_a_cautious_spec_gets_a_cheaper_one_with_no_more_overload_on_both_parts(balanced: Tuning) -> None:
    found = balanced

    assert found.changed
    for was, own in (found.chosen_on, found.unseen):
        assert own.replica_hours < was.replica_hours
        assert own.overload_share <= was.overload_share
        assert own.overload <= was.overload
    assert found.unseen[1].replica_hours < 0.8 * found.unseen[0].replica_hours
    assert found.curve[0].replica_hours < found.deployed_point.replica_hours
    assert any("less than two days" in text for text in found.bounds)


def test_the_proposal_is_a_valid_spec_that_changes_only_what_is_tuned(wave: list[EvaluationInputs]) -> None:
    """Scale-up stays as deployed where `within` leaves no room for other rules."""
    found = tune(HPA, wave, within=Within(tolerance=(0.1, None), scale_up_percent=(None, 100)))
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": found.spec,
    }

    assert validate_create(body) == []
    assert found.spec["scaleTargetRef"] == found.deployed["scaleTargetRef"]
    assert found.spec["behavior"]["scaleUp"] == found.deployed["behavior"]["scaleUp"]


def test_what_is_tried_next_has_a_little_more_reserve_and_costs_a_little_more(wave: list[EvaluationInputs]) -> None:
    ladder = SpecSearch(tuned_past(HPA, wave), "balanced", Within()).finalists()[:5]

    assert len(ladder) == 5
    for before, after in pairwise(ladder):
        assert after.plain.worst <= 0.98 * before.plain.worst
        assert 1.0 <= after.plain.replica_hours / before.plain.replica_hours <= 1.15


def test_the_same_recording_gives_the_same_proposal(wave: list[EvaluationInputs], balanced: Tuning) -> None:
    assert tune(HPA, wave) == balanced


def test_a_proposal_keeps_within_what_is_asked(wave: list[EvaluationInputs]) -> None:
    found = tune(HPA, wave, within=Within(target=(None, 45), min_replicas=(3, 6), window=(120, None)))

    assert found.proposed_point.target <= 45
    assert not found.changed or 3 <= found.proposed_point.min_replicas <= 6
    assert not found.changed or found.proposed_point.window_seconds >= 120


def test_nothing_is_proposed_where_nothing_may_change(wave: list[EvaluationInputs]) -> None:
    found = tune(
        HPA, wave, within=Within(target=(40, 40), min_replicas=(2, 2), window=(300, 300), max_replicas=(40, 40))
    )

    assert (found.changed, found.spec) == (False, found.deployed)
    assert found.why == "no spec that was tried is better within the objective"
    assert found.unseen[0] == found.unseen[1]


def test_cost_is_never_dearer_than_balanced(wave: list[EvaluationInputs], balanced: Tuning) -> None:
    cost = tune(HPA, wave, "cost")

    assert cost.chosen_on[1].replica_hours <= balanced.chosen_on[1].replica_hours * 1.001


def test_safety_spares_half_of_the_overload_and_says_what_that_costs(hot: list[EvaluationInputs]) -> None:
    safe = tune(HPA, hot, "safety")

    assert safe.changed
    was, own = safe.chosen_on
    assert was.overload_share > 0.01
    assert own.overload_share <= was.overload_share / 2
    for was, own in (safe.chosen_on, safe.unseen):
        assert own.replica_hours <= was.replica_hours * 1.5
        assert own.overload <= was.overload + 1e-9


def test_safety_may_cost_more_and_says_for_what(hot: list[EvaluationInputs]) -> None:
    """A lower target alone: no other rule can spare the overload at no more cost."""
    only = Within(window=(300, 300), min_replicas=(1, 1), tolerance=(0.1, None), scale_up_percent=(None, 100))
    found = tune(HPA, hot, "safety", only)

    assert found.costs_more
    assert found.saved < 0
    assert found.proposed_point.target < 90
    assert found.chosen_on[1].overload_share <= found.chosen_on[0].overload_share / 2
    assert headline(found).startswith(f"proposed, at {found.more_cost:.1%} more replica-hours: ")
    assert "minutes of a day) as deployed" in headline(found)


def test_where_pods_were_in_overload_and_nothing_is_proposed_the_report_names_the_objective_to_ask_for(
    hot: list[EvaluationInputs], wave: list[EvaluationInputs]
) -> None:
    fixed = Within(target=(90, 90), min_replicas=(1, 1), window=(300, 300), max_replicas=(40, 40))
    found = tune(HPA, hot, within=fixed)

    assert not found.changed
    assert "--objective safety" in relief_hint(found)[0]
    calm = tune(HPA, wave, within=Within(target=(40, 40), min_replicas=(2, 2)))
    assert relief_hint(calm) == []


def test_scale_up_is_as_fast_as_deployed_and_within_keeps_other_rules_out() -> None:
    """Where the deployed scale-up waits, a proposal may wait no longer; 300 % per 15 s and tolerances are kept out."""
    late = spec(40, 2, 40, up={"stabilizationWindowSeconds": 120})
    found = tune(HPA, recorded(WAVE, late), within=Within(tolerance=(0.1, None), scale_up_percent=(None, 100)))

    assert found.changed
    up = found.spec["behavior"]["scaleUp"]
    assert up["stabilizationWindowSeconds"] in (0, 120)
    assert up["policies"] == late["behavior"]["scaleUp"]["policies"]
    assert "tolerance" not in up
    assert "tolerance" not in found.spec["behavior"]["scaleDown"]


def test_variations_are_valid_specs_that_are_never_slower_to_scale_up(wave: list[EvaluationInputs]) -> None:
    plain, kept = tune(HPA, wave), tune(HPA, wave, within=Within(tolerance=(0.1, None), scale_up_percent=(None, 100)))

    assert plain.tried > kept.tried  # tolerances and a further scale-up policy were tried
    assert plain.chosen_on[1].replica_hours <= kept.chosen_on[1].replica_hours * 1.005


def test_an_hpa_without_behavior_gets_rules_beside_upstreams_defaults() -> None:
    plain = {name: value for name, value in spec(40, 2, 40).items() if name != "behavior"}
    variants = Variants(tuned_past(HPA, recorded(WAVE, plain)), "safety", Within())
    line = SearchLine(300, 2, 40, None, Variation(up_window_s=30, faster_up=True, down_tolerance=50))

    behavior = variants.spec(variants.world.deployed_target, line)["behavior"]

    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 30
    assert [each["value"] for each in behavior["scaleUp"]["policies"]] == [4, 100, 300]
    assert behavior["scaleDown"]["tolerance"] == "50m"
    assert tune(HPA, recorded(WAVE, plain)).tried > 0


def test_spikes_that_grow_bound_the_proposal_and_the_report_says_so() -> None:
    """Four spikes, each higher than the one before: how high the next one is nobody knows."""
    spikes = [(0.0, 300.0)]
    for number, height in enumerate((450, 550, 700, 900)):
        begin = 1_000.0 + 1_400 * number
        spikes += [(begin, 300.0), (begin + 1, height), (begin + 60, height), (begin + 61, 300.0)]
    found = tune(HPA, recorded(PointsLoad(tuple(spikes)), spec(50, 2, 40), 6_600))

    assert any("peaks differ much" in text for text in found.bounds)
    assert found.proposed_point.target <= 50


def test_a_recording_at_max_replicas_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"at maxReplicas and above its target for .* raise maxReplicas, and tune again"
    ):
        tune(HPA, recorded(WAVE, spec(40, 2, 5)))


def test_a_short_time_at_max_replicas_bounds_the_target_and_names_the_next_step() -> None:
    flood = PointsLoad(((0, 300), (2_000, 300), (2_010, 1_100), (2_090, 1_100), (2_100, 300)))
    found = tune(HPA, recorded(flood, spec(50, 2, 8), 6_000))

    assert any("at maxReplicas" in text and "raise maxReplicas, and tune again" in text for text in found.bounds)
    assert found.proposed_point.target <= 50


def test_saturated_pods_get_no_higher_target() -> None:
    slow = PodProfile(schedule_ms=2_000, ready_ms=240_000, noise=0.0, cpu_limit_milli=400)
    found = tune(HPA, recorded(StepLoad(100, 900, 1_000), spec(40, 2, 40), 4_000, slow))

    assert any("probably at their limit" in text and "raise the limit" in text for text in found.bounds)
    assert found.proposed_point.target <= 40


def test_a_load_without_two_periods_of_a_cycle_keeps_min_replicas_and_says_so() -> None:
    found = tune(HPA, recorded(StepLoad(300, 500, 2_000), spec(40, 4, 40), 4_000))

    assert any("two periods" in text and "--since" in text for text in found.bounds)
    assert found.spec["minReplicas"] >= 4


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

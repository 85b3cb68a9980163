"""Regret: the whole is what an oracle would have spared, and its causes add up to it, always."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleethpa.cli.regret import cost, fleet, printed
from fleethpa.frame.options import parse_price
from fleethpa.simulator.model import LoadCurve, StepLoad
from schemas.keys import HpaId
from streams.analysis.answer import answer
from streams.analysis.candidate import candidate
from streams.analysis.closedloop import StartUp
from streams.analysis.load import MetricNeed
from streams.analysis.regret import (
    CARRIED_MS,
    CAUSES,
    MILLI_REPLICA_HOUR_MS,
    Cause,
    Level,
    Parts,
    Regret,
    RegretReader,
    RegretStep,
    added,
    divided,
    levels,
    regret,
    rounded,
)
from streams.hpa.observation import MetricFailure
from streams.state.inputs import EvaluationInputs, NamedInputs
from streams.state.limits.paused import PausesInForce
from tests.bench.simulated_hpa import HPA, live, spec
from tests.kit.hpa import resource, spec_of

PERIOD_MS = 15_000
CPU = spec_of(resource(percent=50))
NO_DELAY = StartUp(ms=0, measured=1, how="given")


def step(number: int, need: float | None, replicas: int, ready: int, *way: Level) -> RegretStep:
    """An evaluation; `need` in pods at the target of 50 %, so twice what they are worth at their request."""
    needs = () if need is None else (MetricNeed(0, CPU, need, need / ready if ready else None),)
    return RegretStep(number * PERIOD_MS, PERIOD_MS, replicas, ready, needs, way, 1.1)


def judged(steps: list[RegretStep], start_up_ms: int = 0) -> Regret:
    return regret(HPA, steps, structs.replace(NO_DELAY, ms=start_up_ms))


# --- hand-made --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        pytest.param([Level("target", 6)], [("target", 4), ("otherWriters", 2)], id="what nothing explains"),
        pytest.param(
            [Level("target", 4), Level("reaction", 4), Level("window", 8)],
            [("target", 2), ("window", 4)],
            id="the window holds what the target does not need",
        ),
        pytest.param(
            [Level("target", 6), Level("reaction", 3), Level("window", 8)],
            [("target", 4), ("window", 2)],
            id="what the target needs is never the window's",
        ),
        pytest.param([Level("target", 20)], [("target", 6)], id="no more than what ran"),
        pytest.param([Level("minReplicas", 8)], [("minReplicas", 6)], id="the minimum"),
    ],
)
def test_replicas_too_many_are_divided_from_the_oracle_upwards(
    way: list[Level], parts: list[tuple[Cause, int]]
) -> None:
    assert divided(2, 8, way) == parts


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        pytest.param([], [("startUp", 6)], id="nothing decided against it: not ready yet"),
        pytest.param([Level("reaction", 10), Level("maxReplicas", 4)], [("maxReplicas", 4), ("startUp", 2)], id="max"),
        pytest.param([Level("reaction", 5), Level("policy", 2)], [("reaction", 3), ("policy", 3)], id="two steps"),
        pytest.param([Level("pause", 2)], [("pause", 6)], id="a pause"),
    ],
)
def test_replicas_too_few_are_divided_from_the_oracle_downwards(
    way: list[Level], parts: list[tuple[Cause, int]]
) -> None:
    assert divided(8, 2, way) == parts


def test_an_hour_with_twice_the_pods_of_a_target_of_half_is_the_targets() -> None:
    found = judged([step(n, 8.0, 8, 8, Level("reaction", 8)) for n in range(240)])

    assert found.ran == 8 * 3_600_000
    assert found.oracle == 4 * 3_600_000
    assert found.too_many.whole == found.too_many.parts["target"] == 4 * 3_600_000
    assert found.too_few.whole == found.too_few_ms.whole == 0


def test_pods_that_start_are_too_few_for_as_long_as_it_takes() -> None:
    found = judged([step(n, 8.0, 4, 2 if n < 4 else 4, Level("reaction", 4)) for n in range(8)])

    assert found.too_few_ms.parts["startUp"] == found.too_few_ms.whole == 4 * PERIOD_MS
    assert found.too_few.whole == 2 * 4 * PERIOD_MS


def test_an_oracle_that_must_start_pods_early_pays_for_it() -> None:
    steps = [step(n, 4.0 if n < 4 else 8.0, 4, 4, Level("reaction", 4)) for n in range(8)]

    assert judged(steps).too_many.parts["startUp"] == 0
    assert judged(steps, 2 * PERIOD_MS).too_many.parts["startUp"] == 2 * 2 * PERIOD_MS


def test_a_load_that_is_not_known_is_the_last_one_for_a_while_and_then_not_judged() -> None:
    carried = CARRIED_MS // PERIOD_MS
    steps = [step(0, 4.0, 4, 4)] + [step(n, None, 4, 4, Level("missingMetrics", 4)) for n in range(1, carried + 11)]
    found = judged(steps)

    assert found.carried_ms == CARRIED_MS
    assert found.unknown_ms == 10 * PERIOD_MS
    assert found.known_ms == CARRIED_MS + PERIOD_MS


# --- the decision's own numbers ---------------------------------------------------------------------------------------


def recorded(load: LoadCurve, minutes: int = 30, **limits: int) -> list[EvaluationInputs]:
    return live(load, candidate(HPA, spec(50, **limits)), minutes * 60, lambda _: None, step_s=5)


def read(inputs: list[EvaluationInputs]) -> Regret:
    reader = RegretReader(HPA)
    for each in inputs:
        reader.add(each)
    found = reader.regret()
    assert found is not None
    return found


def test_after_a_load_has_fallen_the_window_keeps_pods() -> None:
    found = read(recorded(StepLoad(600.0, 60.0, 600.0)))
    parts = found.too_many.parts

    assert parts["window"] > 0.5 * 3_600_000 / 12 * 6  # some six pods, for a good part of five minutes
    assert parts["policy"] == parts["pause"] == parts["maxReplicas"] == 0


def test_at_the_maximum_the_maximum_answers() -> None:
    found = read(recorded(StepLoad(60.0, 3_000.0, 300.0), most=3))

    assert found.too_few_ms.parts["maxReplicas"] > 0.9 * found.too_few_ms.whole > 0


def test_a_pause_answers_for_what_it_held() -> None:
    scaling = next(each for each in recorded(StepLoad(60.0, 900.0, 300.0)) if _final(each) > _current(each))
    held = structs.replace(scaling, limits=NamedInputs((("Paused", PausesInForce("maintenance", "")),)))

    assert levels(answer(held))[-1] == Level("pause", _current(scaling))
    assert "pause" not in [level.cause for level in levels(answer(scaling))]


def test_metrics_that_fail_answer_for_replicas_that_stay() -> None:
    last = recorded(StepLoad(60.0, 900.0, 300.0))[-1]
    failed = structs.replace(last, observation=structs.replace(last.observation, answers=(MetricFailure("gone"),)))

    assert levels(answer(failed)) == (Level("missingMetrics", _current(last)),)


def _final(inputs: EvaluationInputs) -> int:
    return answer(inputs).final


def _current(inputs: EvaluationInputs) -> int:
    return answer(inputs).current


# --- laws -------------------------------------------------------------------------------------------------------------

COUNTS = st.integers(0, 60)
LEVELS = st.builds(Level, st.sampled_from(CAUSES), COUNTS)
STEPS = st.builds(
    lambda gap, need, replicas, ready, way: (gap, need, replicas, ready, way),
    st.integers(1, 100_000),
    st.none() | st.floats(0, 100),
    COUNTS,
    COUNTS,
    st.lists(LEVELS, max_size=4),
)


@st.composite
def periods(draw: st.DrawFn) -> list[RegretStep]:
    """Evaluations at odd times, with any decision in force: none of what is read needs to make sense."""
    found, time_ms = [], 0
    for gap, need, replicas, ready, way in draw(st.lists(STEPS, min_size=1, max_size=30)):
        time_ms += gap
        found.append(structs.replace(step(0, need, replicas, ready, *way), time_ms=time_ms))
    return found


@given(periods(), st.integers(0, 300_000))
def test_the_causes_add_up_to_the_whole(steps: list[RegretStep], start_up_ms: int) -> None:
    found = judged(steps, start_up_ms)

    for each in (found.too_many, found.too_few, found.too_few_ms):
        assert sum(each.parts.values()) == each.whole
        assert min(each.parts.values()) >= 0
    # What ran is what the oracle runs, and what was too many, less what did not run: the wholes are no invention.
    assert found.ran - found.oracle <= found.too_many.whole
    assert found.known_ms + found.unknown_ms <= sum(4 * PERIOD_MS for _ in steps)


@given(st.lists(periods(), min_size=1, max_size=4))
def test_what_is_printed_adds_up_to_the_last_thousandth(fleets: list[list[RegretStep]]) -> None:
    found = [judged(steps) for steps in fleets]
    amounts = [printed(each) for each in found]
    whole = fleet(amounts)

    for own, exact in zip(amounts, found, strict=True):
        assert sum(own.too_many.parts.values()) == own.too_many.whole
        assert abs(own.too_many.whole * MILLI_REPLICA_HOUR_MS - exact.too_many.whole) <= MILLI_REPLICA_HOUR_MS / 2
        for cause in CAUSES:
            off = own.too_many.parts[cause] * MILLI_REPLICA_HOUR_MS - exact.too_many.parts[cause]
            assert abs(off) < MILLI_REPLICA_HOUR_MS
    for place in range(3):
        assert sum(whole[place].parts.values()) == whole[place].whole == sum(own[place].whole for own in amounts)


def test_rounding_gives_what_is_left_to_the_largest_remainders() -> None:
    parts: dict[Cause, int] = {"target": 15, "window": 16, "policy": 19}
    assert rounded(Parts(whole=50, parts=parts), 10) == Parts(whole=5, parts={"target": 1, "window": 2, "policy": 2})
    assert added([]).whole == 0


def test_a_price_is_exact_and_of_no_currency() -> None:
    price = parse_price("0.04/h")
    assert price == parse_price("0.04")
    assert price is not None
    assert str(cost(2_500, price)) == "0.10"
    assert parse_price(None) is None


def test_regret_knows_whose_it_is() -> None:
    assert RegretReader(HpaId("east", "shop", "web")).regret() is None

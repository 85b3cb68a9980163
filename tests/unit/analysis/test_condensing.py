"""A condensed recording gives the models what the whole one gives them, in a fraction of the memory."""

from __future__ import annotations

import pickle
from functools import cache

from msgspec import structs

from fleethpa.lab.simulator.model import SineLoad
from streams.analysis.backtest import condensed
from streams.analysis.candidate import candidate
from streams.analysis.closedloop import ClosedLoop, start_up
from streams.analysis.load import need
from streams.hpa.observation import MetricFailure
from streams.state.inputs import EvaluationInputs
from tests.kit.simulated_hpa import HPA, live, spec


@cache
def recorded() -> list[EvaluationInputs]:
    return live(SineLoad(400.0, 300.0, 1_800), candidate(HPA, spec(50)), 3_600, lambda _: None, step_s=5)


def test_the_closed_loop_gives_the_same_moments() -> None:
    made = condensed(HPA, recorded())

    for tried in (candidate(HPA, spec(80)), candidate(HPA, spec(50, most=4))):
        assert ClosedLoop(tried, 30_000).run(made.inputs) == ClosedLoop(tried, 30_000).run(recorded())


def test_load_and_start_up_are_the_same() -> None:
    made = condensed(HPA, recorded())

    assert made.start_up() == start_up(recorded())
    for own, whole in zip(made.inputs, recorded(), strict=True):
        assert need(own.autoscaler, own.observation.answers, own.observation.pods) == need(
            whole.autoscaler, whole.observation.answers, whole.observation.pods
        )


def test_what_is_kept_is_small_and_can_be_sent_to_another_process() -> None:
    made = condensed(HPA, recorded())
    sent = pickle.dumps(made)

    assert len(sent) < len(pickle.dumps(recorded())) / 3
    tried = candidate(HPA, spec(80))
    assert ClosedLoop(tried, 30_000).run(pickle.loads(sent).inputs) == ClosedLoop(tried, 30_000).run(made.inputs)


def test_metrics_that_failed_stay_failed() -> None:
    failed = structs.replace(recorded()[-1].observation, answers=(MetricFailure("gone"),))
    made = condensed(HPA, [*recorded()[:4], structs.replace(recorded()[-1], observation=failed)])
    assert made.inputs[-1].observation.answers == (MetricFailure("gone"),)

"""The closed loop against the simulator, whose truth is known."""

from __future__ import annotations

import pytest

from streams.analysis.backtest import backtest
from streams.analysis.candidate import CandidateError, candidate
from streams.analysis.measures import Moment, changes, measure, total
from streams.history.evaluations import Evaluated
from tests.experiments.closed_loop import CHANGES, DEPLOYED, SHAPES, Score, run, scores
from tests.kit.simulated_hpa import HPA, spec


def test_one_change_is_predicted_within_bounds() -> None:
    recorded, was = run(SHAPES["step"], candidate(HPA, DEPLOYED))
    events = [Evaluated(inputs, b"") for inputs in recorded]
    tried = candidate(HPA, CHANGES["target 60% -> 80%"])
    made = backtest(events, tried, "closed")
    real = run(SHAPES["step"], tried)[1]
    score = Score("step", "", was, real, made.candidate.replica_hours, made.candidate.above_target_minutes)
    assert abs(score.hours_error) < 0.05
    assert abs(score.minutes_error) < 2
    assert made.start_up is not None
    assert 27_000 <= made.start_up.ms <= 32_000
    assert made.start_up.measured > 0
    assert made.deployed is not None
    assert made.deployed.replica_hours == pytest.approx(was.replica_hours, rel=0.05)
    assert made.candidate_at_recorded_target is not None
    assert made.candidate_at_recorded_target.above_target_minutes > made.candidate.above_target_minutes


@pytest.mark.slow
def test_thirty_changes_on_five_loads_are_predicted_within_bounds() -> None:
    found = list(scores())
    assert len(found) >= 20
    assert len({score.shape for score in found}) == 5
    assert max(abs(score.hours_error) for score in found) < 0.06
    assert max(abs(score.minutes_error) for score in found) < 3
    assert sum(abs(score.hours_error) for score in found) / len(found) < 0.015


@pytest.mark.parametrize(
    ("changed", "stated"),
    [
        pytest.param(
            {
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}},
                    }
                ]
            },
            "the recording holds no answers for memory",
            id="a metric that was not recorded",
        ),
        pytest.param(
            {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}},
            "drives Deployment/web in the recording",
            id="another target",
        ),
    ],
)
def test_what_the_recording_cannot_tell_is_refused(changed: dict[str, object], stated: str) -> None:
    recorded, _ = run(SHAPES["step"], candidate(HPA, DEPLOYED))
    with pytest.raises(CandidateError, match=stated):
        backtest([Evaluated(recorded[0], b"")], candidate(HPA, spec() | changed), "closed")


def test_no_evaluation_in_the_window_is_refused() -> None:
    with pytest.raises(CandidateError, match="no evaluation with a known scale"):
        backtest([], candidate(HPA, DEPLOYED), "open")


MINUTE = 60_000


def test_measures_hold_each_moment_until_the_next_and_count_no_gap() -> None:
    moments = [
        Moment(0, 2, 2, 1.0, False),
        Moment(MINUTE, 4, 2, 3.0, True),
        Moment(2 * MINUTE, 4, 4, None, True),
        Moment(100 * MINUTE, 2, 4, 4.2, False),
    ]
    made = measure(moments, 0.1, MINUTE)
    assert made.hours * 60 == pytest.approx(4)
    assert made.replica_hours * 60 == pytest.approx(2 + 4 + 4 + 2)
    assert made.above_target_minutes == pytest.approx(1)
    assert made.worst_overload == pytest.approx(1.5)
    assert made.at_max_minutes == pytest.approx(2)
    assert made.unknown_minutes == pytest.approx(1)
    assert (made.scale_events, made.direction_flips) == (2, 1)
    both = total([made, made])
    assert both.replica_hours == pytest.approx(2 * made.replica_hours)
    assert both.worst_overload == made.worst_overload


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        pytest.param([], (0, 0), id="nothing"),
        pytest.param([2, 2, 2], (0, 0), id="steady"),
        pytest.param([2, 4, 6, 6, 4], (3, 1), id="up, up, down"),
        pytest.param([2, 3, 2, 3], (3, 2), id="to and fro"),
    ],
)
def test_changes_and_flips_are_counted(replicas: list[int], expected: tuple[int, int]) -> None:
    assert changes(replicas) == expected

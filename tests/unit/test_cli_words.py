"""Decisions in words: what is said where numbers or texts would mislead."""

from typing import Any

import pytest

from fleethpa.cli.output import words
from schemas.decisions import Decision, InputPosition, MetricDecision


def decision(metric: dict[str, Any], **changes: Any) -> Decision:
    made = MetricDecision(type="External", name="external metric queue(nil)", **metric)
    position = InputPosition(partition=0, offset=1, hash="")
    fixed: dict[str, Any] = {"id": "0-1-u", "seq": 1, "prev": "", "cluster": "c", "namespace": "n", "name": "web"}
    fixed |= {"uid": "u", "time": "2026-01-01T00:00:00Z", "input": position, "selected_metric": made.name}
    return Decision(**(fixed | {"metrics": [made]} | changes))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(60_000, "queue above target (60/30)", id="the value and the target that moved the replicas"),
        pytest.param(-(2**63), "queue above target", id="a value divided by no replicas is no number to show"),
    ],
)
def test_a_rescale_names_its_numbers(value: int, shown: str) -> None:
    made = decision(
        {"value": value, "target": 30_000},
        reason="external metric queue(nil) above target",
        current_replicas=0,
        final_desired_replicas=5,
    )
    assert words.why(made) == shown


def test_a_ratio_from_before_pods_were_filled_in_is_said_to_be_one() -> None:
    made = decision(
        {"note": "withinTolerance", "ratio": "1.67", "pods_missing": 1}, current_replicas=5, final_desired_replicas=5
    )
    assert words.why(made) == "within tolerance (ratio 1.67 before pods without a sample are filled in)"


def test_long_texts_are_cut_and_short_ones_are_not() -> None:
    assert words.shortened("abc", 3) == "abc"
    assert words.shortened("ab cd", 4) == "ab…"

"""Numbers of more digits than Python reads, in options of the command line: errors in words, never internal ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleethpa.changes.specs import changed_spec
from fleethpa.fleet.decisionfinding import asked_id
from fleethpa.frame.errors import CommandError
from fleethpa.rollouts.marks import waves_of

HUGE = "9" * 5_000
SPEC = {
    "maxReplicas": 3,
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ],
}


@pytest.mark.parametrize(
    ("read", "error"),
    [
        pytest.param(lambda: changed_spec(SPEC, (f"maxReplicas={HUGE}",)), CommandError, id="--set of a count"),
        pytest.param(lambda: changed_spec(SPEC, (f"cpu={HUGE}%",)), CommandError, id="--set of a target"),
        pytest.param(lambda: waves_of(["a", "b"], HUGE), CommandError, id="--wave"),
    ],
)
def test_it_is_refused(read: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        read()


@pytest.mark.parametrize("digits", ["9" * 19, HUGE])
def test_a_percentage_of_too_many_digits_is_out_of_range(digits: str) -> None:
    with pytest.raises(CommandError, match=f"--set cpu={digits}%: out of range") as caught:
        changed_spec(SPEC, (f"cpu={digits}%",))
    assert "The controller calculates with at most" in caught.value.cause


def test_a_setting_of_a_behavior_is_left_to_validation() -> None:
    made = changed_spec(SPEC, (f"scaleDown.stabilizationWindowSeconds={HUGE}",))
    assert made["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == HUGE


def test_it_is_no_decision() -> None:
    assert asked_id(f"1-{HUGE}-236c406f") is None

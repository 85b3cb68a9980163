"""The options of the fleet drill."""

import pytest

from fleethpa.frame.errors import CommandError
from fleethpa.questions.fleetdrill import parse_factor


@pytest.mark.parametrize(("text", "factor"), [("1.3", 1.3), ("1", 1.0), ("0.5", 0.5), ("100", 100.0)])
def test_a_factor_is_a_number(text: str, factor: float) -> None:
    assert parse_factor(text) == factor


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "1,3", "nan", "inf", "100.1", "1e999", "30%"])
def test_another_factor_is_refused_by_name(text: str) -> None:
    with pytest.raises(CommandError, match="is not a factor") as refused:
        parse_factor(text)
    assert refused.value.code == 2

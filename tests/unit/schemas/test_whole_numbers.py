"""Whole numbers in texts of others."""

import pytest

from schemas.codec import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("", None),
        ("-1", None),
        (" 1", None),
        ("1_0", None),
        pytest.param("²", None, id="a digit that is no number"),
        pytest.param("٣", None, id="digits of another script"),
        pytest.param("1" * 20, None, id="beyond 64 bits"),
        pytest.param("1" * 5_000, None, id="more than Python reads"),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number

"""Percentages of all reports are written by one formatter."""

from __future__ import annotations

import re

import pytest

from fleethpa.show.words import percent, relative_change, signed_percent
from tests.kit.documented import ROOT

_BY_HAND = re.compile(r"\{[^{}]*:[^{}]*%\}")
"""A field of an f-string that Python writes as a percentage."""
_FORMATTER = "show/words.py"


def test_no_module_formats_a_percentage_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {field}"
        for path in sorted((ROOT / "fleethpa").rglob("*.py"))
        if not str(path).endswith(_FORMATTER)
        for field in _BY_HAND.findall(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("ratio", "digits", "text"),
    [(0.0, 1, "0.0%"), (0.12345, 1, "12.3%"), (0.12345, 2, "12.35%"), (0.9, 0, "90%"), (-0.0001, 1, "0.0%")],
)
def test_a_share_is_written_in_percent(ratio: float, digits: int, text: str) -> None:
    assert percent(ratio, digits) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.797, "+79.7%"), (-0.012, "-1.2%"), (0.0, "+0.0%"), (-0.0004, "+0.0%"), (-0.0006, "-0.1%")]
)
def test_a_difference_has_its_sign_unless_it_is_none(ratio: float, text: str) -> None:
    assert signed_percent(ratio) == text


def test_what_changed_from_nothing_has_no_percentage() -> None:
    assert relative_change(2.0, 3.0) == "+50.0%"
    assert relative_change(2.0, 3.0, 0) == "+50%"
    assert relative_change(0.0, 3.0) == ""

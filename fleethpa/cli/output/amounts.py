"""Metric values as people read them: values that stand side by side share one notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_TENTHS: Final = 100
"""Milli units in a tenth of a unit."""
_BINARY: Final = ((2**20, "Mi"), (2**10, "Ki"))


def number(milli: int) -> str:
    """A milli value as people read it in a formula: `112.5`."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def alike(milli: Sequence[int], metric: str) -> list[str]:
    """Values of one metric (milli units) in one notation: cores or `m` for cpu, `Mi` for memory, else decimals."""
    if metric == "cpu":
        return [f"{value}m" if any(each % 1000 for each in milli) else str(value // 1000) for value in milli]
    unit, suffix = _unit(milli, metric)
    return [_in_unit(value, unit) + suffix for value in milli]


def threshold(milli: int, beside: int, metric: str, *, lower: bool) -> tuple[str, str]:
    """A value at which an answer changes and the value beside it, in one notation.

    Where the notation has not enough digits, the value is rounded away from the one beside it: what is printed still
    changes the answer.
    """
    unit, _ = _unit((milli, beside), metric)
    if metric != "cpu" and unit > 1:
        tenth = unit * _TENTHS
        milli = (milli // tenth if lower else -(-milli // tenth)) * tenth
    text, other = alike((milli, beside), metric)
    return text, other


def _unit(milli: Sequence[int], metric: str) -> tuple[int, str]:
    """Mi or Ki where the largest value has at least one, as requests are written; 1 for what is not memory."""
    largest = max(map(abs, milli)) if metric == "memory" else 0
    return next(((size, suffix) for size, suffix in _BINARY if largest >= size * 1000), (1, ""))


def _in_unit(milli: int, unit: int) -> str:
    if unit == 1:
        return number(milli)
    return f"{_half_even(milli, unit * _TENTHS) / 10:.1f}".removesuffix(".0")


def _half_even(value: int, step: int) -> int:
    """A count of steps, rounded without leaving whole numbers."""
    whole, rest = divmod(value, step)
    return whole + (rest * 2 > step or (rest * 2 == step and whole % 2 == 1))

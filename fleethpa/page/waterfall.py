"""The arithmetic of a decision as a picture: a bar for the count after each step, the step that decided lit."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from fleethpa.fleet.decisionpage import Explanation
from fleethpa.fleet.decisionsteps import BRAKES, StepRow

STEP_WIDTH: Final = 150
BAR_WIDTH: Final = 84
HEIGHT: Final = 92
"""The highest bar."""
TOP: Final = 24
FOOT: Final = 50
LETTERS: Final = 23
LINES: Final = 2
"""Of a detail under a bar, each of LETTERS; the whole of it is in the bar's title."""
LEAST_PX: Final = 3
_BRAKE_NAMES: Final = frozenset(re.sub("[A-Z]", lambda found: f" {found[0].lower()}", name) for name in BRAKES)
"""As rows of steps name the brakes."""


class Bar(NamedTuple):
    """A step as a bar, in SVG coordinates. `style`: `current`, `metric`, `rule`, `brake` or `final`."""

    name: str
    label: str
    value: str
    lines: Sequence[str]
    detail: str
    style: str
    is_lit: bool
    x: int
    y: float
    height: float
    link: str
    """The path of the line from the bar before; empty: there is none, or its count is not known."""


class Waterfall(NamedTuple):
    """The picture. `label`: what it says, in words."""

    bars: Sequence[Bar]
    width: int
    height: int
    label: str
    base: int = TOP + HEIGHT


def waterfall(found: Explanation) -> Waterfall:
    """Draw the steps of a decision from the current count to the final one; the division of a FleetHPA comes after."""
    divided = len(found.decision.observed.get("clusters", ()))
    found = replace(found, steps=found.steps[: len(found.steps) - divided])
    most = max([1, *(count for step in found.steps if (count := _count(step)) is not None)])
    decisive = deciding_step(found)
    tops = [_top(step, most) for step in found.steps]
    bars = [
        Bar(
            step.name,
            _label(step.name),
            step.value,
            _lines(step.detail),
            step.detail,
            _style(found, step, number),
            number == decisive,
            number * STEP_WIDTH + STEP_WIDTH // 2,
            top if top is not None else TOP + HEIGHT,
            TOP + HEIGHT - top if top is not None else 0,
            _link(tops, number),
        )
        for number, (step, top) in enumerate(zip(found.steps, tops, strict=True))
    ]
    label = ", ".join(f"{step.name} {step.value}" for step in found.steps)
    lit = f"; decided by {found.steps[decisive].name}" if decisive is not None else ""
    return Waterfall(bars, STEP_WIDTH * len(bars), TOP + HEIGHT + FOOT, f"{label}{lit}")


def deciding_step(found: Explanation) -> int | None:
    """The number of the step that made the answer what it is: the last one that changed the count, else the metric."""
    decisive = None
    before: int | None = None
    for number, step in enumerate(found.steps[:-1]):
        count = _count(step)
        is_changed = before is not None and count is not None and count != before
        if step.is_winner or (is_changed and _is_rule(found, number)):
            decisive = number
        if step.is_winner or _is_rule(found, number):
            before = count
    return decisive


def _is_rule(found: Explanation, number: int) -> bool:
    """Whether it comes after the metrics, and is not the end."""
    return len(found.decision.metrics) < number < len(found.steps) - 1


def _style(found: Explanation, step: StepRow, number: int) -> str:
    if number in (0, len(found.steps) - 1):
        return "current" if number == 0 else "final"
    if not _is_rule(found, number):
        return "metric"
    return "brake" if step.name in _BRAKE_NAMES else "rule"


def _count(step: StepRow) -> int | None:
    return int(step.value) if step.value.isdigit() else None


def _top(step: StepRow, most: int) -> float | None:
    count = _count(step)
    return None if count is None else round(TOP + HEIGHT - max(LEAST_PX, HEIGHT * count / most), 1)


def _link(tops: Sequence[float | None], number: int) -> str:
    before = tops[number - 1] if number else None
    if before is None or tops[number] is None:
        return ""
    x = number * STEP_WIDTH + STEP_WIDTH // 2
    return f"M{x - STEP_WIDTH + BAR_WIDTH // 2} {before}H{x - BAR_WIDTH // 2}"


def _label(name: str) -> str:
    return name if len(name) <= LETTERS - 3 else f"{name[: LETTERS - 4]}…"


def _lines(detail: str) -> list[str]:
    """The first part of a detail."""
    return textwrap.wrap(detail.partition("   ")[0], LETTERS, max_lines=LINES, placeholder=" …")

"""The picture of the arithmetic: a bar for each step, and the one that decided lit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleethpa.fleet.decisionpage import Explanation
from fleethpa.fleet.decisionsteps import StepRow
from fleethpa.page.decisionview import HEIGHT, LETTERS, TOP, deciding_step, waterfall
from tests.kit.cli import Fleet

METRIC = StepRow("cpu", "2", "8%/60% = 0.133   ceil(12 × 0.133 = 1.60)", is_winner=True)  # noqa: RUF001


def explanation(fleet: Fleet, steps: Sequence[StepRow]) -> Explanation:
    """Steps of a decision with one metric."""
    return Explanation(fleet.decisions()[0].decision, 0, "", "", [], steps, [])


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.settle(replicas=3, usage_milli=300)
    return made


@pytest.mark.parametrize(
    ("counts", "lit"),
    [
        pytest.param({"stabilization": "2", "removal budget": "12"}, 3, id="a brake holds"),
        pytest.param({"stabilization": "12", "scaleDown policy": "12"}, 2, id="the window holds"),
        pytest.param({"stabilization": "3", "scaleDown policy": "6"}, 3, id="the last that changed it"),
        pytest.param({"stabilization": "2", "scaleDown policy": "2"}, 1, id="the metric"),
    ],
)
def test_the_step_that_decided_is_lit(fleet: Fleet, counts: dict[str, str], lit: int) -> None:
    rules = [StepRow(name, count, "") for name, count in counts.items()]
    final = StepRow("final", rules[-1].value, "")
    found = explanation(fleet, [StepRow("current", "12", "12 ready"), METRIC, *rules, final])
    assert deciding_step(found) == lit
    drawn = waterfall(found)
    assert [bar.is_lit for bar in drawn.bars].index(True) == lit
    assert drawn.label.endswith(f"; decided by {found.steps[lit].name}")
    assert (drawn.bars[-2].style == "brake") is ("removal budget" in counts)


def test_bars_are_as_high_as_their_counts_and_unknown_ones_have_none(fleet: Fleet) -> None:
    steps = [StepRow("current", "12", ""), StepRow("cpu", "-", "no value"), StepRow("final", "6", "")]
    bars = waterfall(explanation(fleet, steps)).bars
    assert [bar.height for bar in bars] == [HEIGHT, 0, HEIGHT / 2]
    assert [bar.y for bar in bars] == [TOP, TOP + HEIGHT, TOP + HEIGHT / 2]
    assert [bool(bar.link) for bar in bars] == [False, False, False]
    assert deciding_step(explanation(fleet, steps)) is None


def test_long_texts_are_cut_in_the_picture_and_whole_in_the_title(fleet: Fleet) -> None:
    steps = [StepRow("current", "1", "x" * 10_000), StepRow("n" * 63, "1", "word " * 99), StepRow("final", "1", "")]
    bars = waterfall(explanation(fleet, steps)).bars
    assert all(len(line) <= LETTERS for bar in bars for line in [bar.label, *bar.lines])
    assert bars[1].name == "n" * 63
    assert bars[0].detail == "x" * 10_000

"""How often a decider that is behind wants HPAs evaluated."""

from typing import NamedTuple

import pytest

from streams.decider.pace import EvaluationPace, next_pace
from tests.unit.state.test_timing import NOW


class Look(NamedTuple):
    """A look at the lag, 10 s after the one before; `in_force`: what the decider has applied; None: what it wanted."""

    lag_ms: int
    every: int
    in_force: int | None = None


LOOKS = {
    "one that keeps up": [Look(900, 1)] * 20,
    "behind, but not for long": [Look(14_000, 1), Look(14_900, 1), Look(9_000, 1)],
    "behind for a moment": [Look(16_000, 1), Look(0, 1), Look(16_000, 1), Look(1_000, 1)],
    "after a restart it catches up": [Look(60_000, 1), Look(50_000, 1), Look(40_000, 1), Look(20_000, 1)],
    "a little too much to do": [Look(15_000, 1), Look(16_000, 2)],
    "at two fifths of the speed, with some room": [Look(10_000, 1), Look(16_000, 4)],
    "it does nothing for a moment": [Look(8_000, 1), Look(18_000, 2)],
    "nothing more before it is at the tick": [Look(15_000, 1), Look(16_000, 2), Look(30_000, 2, 1), Look(24_000, 2)],
    "and then, if it still falls behind": [
        Look(15_000, 1), Look(16_000, 2), Look(30_000, 2, 1), Look(31_000, 2), Look(32_000, 3)
    ],
    "eight sync periods at most": [Look(8_000, 1), Look(16_000, 7), Look(24_000, 8), Look(32_000, 8)],
    "back in steps": [Look(10_000, 1), Look(16_000, 4), *[Look(1_000, 4)] * 2, *[Look(1_000, 3)] * 3, Look(1_000, 2)],
    "half a minute each": [Look(15_000, 1), Look(16_000, 2), *[Look(1_000, 2)] * 2, *[Look(1_000, 1)] * 30],
    "half a minute that begins anew": [
        Look(15_000, 1), Look(16_000, 2), Look(1_000, 2), Look(6_000, 2), *[Look(0, 2)] * 2, Look(0, 1)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_a_decider_that_does_not_catch_up_wants_fewer_evaluations(name: str) -> None:
    pace = EvaluationPace()
    for number, look in enumerate(LOOKS[name]):
        pace = next_pace(pace, look.in_force or pace.every, NOW + 10_000 * number, look.lag_ms)
        assert pace.every == look.every, number


def test_between_two_looks_nothing_changes() -> None:
    pace = next_pace(EvaluationPace(), 1, NOW, 6_000)
    assert next_pace(pace, 1, NOW + 9_999, 60_000) is pace


@pytest.mark.parametrize("load", [0.9, 1.2, 1.9, 3.5])
def test_a_decider_with_too_much_to_do_does_not_stay_behind(load: float) -> None:
    """A model, second by second: the decider does a second's work in a second, and has `load` of it for each second of
    the log in which HPAs are evaluated in every sync period; half as much more where it is over 10 s late, since what
    is wanted then is never written, and wanted again.
    """
    pace, applied, room, lags = EvaluationPace(), -1, 0.0, list[int]()
    ticked = list[int]()
    """The ticks, one a second."""
    for second in range(1_800):
        ticked.append(pace.every)
        room += 1.0
        while applied < second:
            late = 1.5 if second - applied > 10 else 1.0
            if (cost := load * late / ticked[applied + 1]) > room:
                break
            applied, room = applied + 1, room - cost
        room = room if applied < second else min(room, 1.0)
        lags.append(second - applied)
        pace = next_pace(pace, ticked[max(applied, 0)], NOW + 1_000 * second, 1_000 * lags[-1])
    settled = lags[600:]
    # Without it, none of these lags would ever end; with it, they do before they are a minute.
    assert sum(lag <= 10 for lag in settled) > 0.5 * len(settled)
    assert max(settled) < 60
    assert sum(1 / every for every in ticked[600:]) / len(settled) > 0.6 * min(1.0, 1 / load)

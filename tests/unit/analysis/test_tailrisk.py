"""Peaks that a recording does not show: what is expected of them, and when one spec is as safe as another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.analysis.tuning.surrogate import BLOCKS, FOLDS, Block, SpecOutcome, as_safe, block_ms, bounded_reach, reach

PEAKS = st.lists(st.floats(0.01, 10), min_size=1, max_size=200)


def outcome(*blocks: Block) -> SpecOutcome:
    return SpecOutcome(
        replica_hours=1.0,
        overload_share=0.0,
        overload=0.0,
        worst=max(each.worst for each in blocks),
        scale_events=0,
        at_max_share=0.0,
        hours=1.0,
        blocks=blocks,
    )


def calm(worst: float = 0.7, count: int = BLOCKS) -> list[Block]:
    return [Block(0.0, worst) for _ in range(count)]


def spikes(*heights: float) -> list[Block]:
    """Spikes over a calm load: what is calm is two thirds of the highest, but no less than 0.3."""
    return [*calm(0.6 if min(heights) > 0.6 else 0.3, BLOCKS - len(heights)), *(Block(0.0, each) for each in heights)]


def test_even_peaks_are_expected_to_stay_and_scattered_ones_to_rise() -> None:
    assert reach([0.8] * BLOCKS) == 0.8
    assert reach([0.8 - 0.0005 * number for number in range(BLOCKS)]) < 0.85
    spikes = [0.4] * (BLOCKS - 6) + [0.9, 0.8, 0.7, 0.6, 0.5, 0.45]
    assert reach(spikes) > 1.2
    assert reach([]) == 0.0
    assert reach([0.5], 0.05) == pytest.approx(10.0)  # one peak says nothing of the next


@given(PEAKS, st.floats(0.001, 1.0), st.sampled_from([reach, bounded_reach]))
def test_it_is_at_least_the_highest_peak_and_scales_with_the_peaks(
    peaks: list[float], chance: float, estimate: Callable[[Sequence[float], float], float]
) -> None:
    found = estimate(peaks, chance)
    assert found >= max(peaks)
    assert estimate([2 * each for each in peaks], chance) == pytest.approx(2 * found, rel=1e-4)
    assert estimate([*peaks, 0.0], chance) == found
    assert estimate(peaks, chance / 2) >= found * (1 - 1e-9)


def test_peaks_with_an_end_are_not_expected_to_rise_far_beyond_it() -> None:
    """Spikes of about the same height over a calm load, for which the estimate without an end is far too high."""
    dice = random.Random(2)
    high = passed = 0
    for _ in range(200):
        seen = [dice.uniform(0.5, 0.9) for _ in range(BLOCKS)]
        high += bounded_reach(seen) > 1.0
        passed += max(dice.uniform(0.5, 0.9) for _ in range(BLOCKS)) > 1.05 * bounded_reach(seen)
    assert high < 0.1 * 200
    assert passed < 0.05 * 200
    even = [0.4] * (BLOCKS - 20) + [0.8 + 0.005 * number for number in range(20)]
    assert bounded_reach(even) < 1.0 < reach([0.4] * (BLOCKS - 10) + even[-10:])


@pytest.mark.parametrize("alpha", [2.0, 4.0, 10.0])
def test_the_next_recording_passes_it_about_as_often_as_is_promised(alpha: float) -> None:
    """Peaks with a heavy tail, for which the estimate is made; chances above 1 % come from the tail being estimated."""
    dice = random.Random(1)
    passed = 0
    for _ in range(400):
        seen = [dice.paretovariate(alpha) for _ in range(BLOCKS)]
        passed += max(dice.paretovariate(alpha) for _ in range(BLOCKS)) > reach(seen)
    assert passed < 0.1 * 400


@pytest.mark.parametrize(
    ("own", "was", "expected"),
    [
        (calm(0.9), calm(0.5), True),  # peaks that do not differ are carried
        (calm(1.1), calm(0.5), False),
        (calm(1.1), calm(1.2), True),
        ([*calm(1.1), Block(0, 0.95)], [*calm(1.2), Block(0, 0.5)], False),  # a block that was calm is not any more
        ([*calm(1.1), Block(0, 0.75)], [*calm(1.2), Block(0, 0.5)], True),
        ([*calm(0.5), Block(10, 1.1)], [*calm(0.5), Block(10, 1.1)], True),
        ([*calm(0.5), Block(20, 1.1)], [*calm(0.5), Block(10, 1.1)], False),
        ([Block(20, 0.9), *calm(0.5)], [*calm(0.5), Block(30, 1.1)], False),  # less in all, more in one part
        ([*calm(0.4)[:-6], *(Block(0, 0.5 + 0.08 * n) for n in range(6))], calm(0.4), False),  # spikes nearly reach it
        (
            spikes(0.94, 0.94, 0.94, 0.93, 0.93, 0.92, 0.91, 0.9, 0.88, 0.86, 0.83, 0.8),
            calm(0.4),
            True,  # an end is seen
        ),
        (spikes(0.96, 0.96, 0.96, 0.95, 0.95, 0.94, 0.93, 0.92, 0.9, 0.88, 0.85, 0.82), calm(0.4), False),  # no reserve
        (spikes(0.88, 0.82, 0.75, 0.7, 0.66, 0.63), calm(0.4), True),  # no end, but a reserve
        (spikes(0.92, 0.82, 0.75, 0.7, 0.66, 0.63), calm(0.4), False),
        (spikes(0.89, 0.84, 0.7, 0.66, 0.6, 0.5, 0.4), calm(0.2), False),  # so many that no reserve is enough
    ],
)
def test_as_safe(own: list[Block], was: list[Block], expected: bool) -> None:
    assert as_safe(outcome(*own), outcome(*was)) is expected


def test_a_recording_is_cut_into_as_many_blocks_as_are_meant() -> None:
    times = [number * 15_000 for number in range(5_760)]
    assert len({(time - times[0]) // block_ms(times) for time in times}) == BLOCKS
    assert block_ms([5, 5]) == 1
    assert FOLDS < BLOCKS

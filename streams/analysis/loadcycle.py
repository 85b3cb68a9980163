"""The cycle of a load: after what time it repeats itself, from its autocorrelation."""

from collections.abc import Sequence

_BINS = 512
_LIKE = 0.4
"""Autocorrelation from which a load is said to repeat itself."""


def cycle_ms(times_ms: Sequence[int], load: Sequence[float | None]) -> int | None:
    """The shortest time after which the load resembles itself; None: it does not, within two thirds of the series.

    Whoever asks for two periods compares with the length of the series: a period beyond its half was seen once.
    """
    values = _binned(times_ms, load)
    if len(values) < 16:
        return None
    mean = sum(values) / len(values)
    apart = [value - mean for value in values]
    if sum(each * each for each in apart) <= 1e-12 * max(1.0, mean * mean) * len(apart):
        return None
    found = [_likeness(apart, lag) for lag in range(len(apart) * 2 // 3)]
    dipped = next((lag for lag, value in enumerate(found) if value < 0), None)
    if dipped is None:
        return None
    best = max(range(dipped, len(found)), key=lambda lag: found[lag])
    if found[best] < _LIKE:
        return None
    # Multiples of a cycle resemble as much: the first summit that is nearly as high is the cycle.
    for lag in range(dipped + 1, best):
        if found[lag] >= 0.85 * found[best] and found[lag - 1] <= found[lag] >= found[lag + 1]:
            best = lag
            break
    return round(best * (times_ms[-1] - times_ms[0]) / len(values))


def _likeness(apart: list[float], lag: int) -> float:
    one, other = apart[: len(apart) - lag], apart[lag:]
    scale = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return sum(a * b for a, b in zip(one, other, strict=True)) / scale if scale else 0.0


def _binned(times_ms: Sequence[int], load: Sequence[float | None]) -> list[float]:
    """Means over equal times; an empty bin repeats the one before."""
    if len(times_ms) < 2 or times_ms[-1] <= times_ms[0]:
        return []
    bins = min(_BINS, len(times_ms))
    begin_ms, length_ms = times_ms[0], times_ms[-1] - times_ms[0] + 1
    sums, counts = [0.0] * bins, [0] * bins
    for time_ms, value in zip(times_ms, load, strict=True):
        if value is not None:
            at = (time_ms - begin_ms) * bins // length_ms
            sums[at] += value
            counts[at] += 1
    found: list[float] = []
    for total, count in zip(sums, counts, strict=True):
        found.append(total / count if count else (found[-1] if found else 0.0))
    return found

"""A step plot in block characters: two counts over time, on a terminal of any width, colour not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fleethpa.cli.output.times import axis_labels

StepSeries = Sequence[tuple[int, int]]
"""(time ms, count), by time; a count holds until the next."""
HEIGHT: Final = 10
_ONLY_FIRST, _ONLY_SECOND, _BOTH, _NONE = "░", "▒", "█", " "


def step_plot(first: StepSeries, second: StepSeries, names: tuple[str, str], *, width: int = 72) -> list[str]:
    """Draw both as filled steps: █ where both have a replica, ░ only the first, ▒ only the second."""
    if not first or not second:
        return []
    begin, end = first[0][0], max(first[-1][0], second[-1][0])
    columns = max(10, width - 8)
    one, other = _sampled(first, begin, end, columns), _sampled(second, begin, end, columns)
    top = max(1, *one, *other)
    rows = min(HEIGHT, top)
    lines = [_row(one, other, row, rows, top) for row in range(rows, 0, -1)]
    lines.append(f"{'':>5} └{'─' * columns}")
    lines.append(_axis(begin, end, columns))
    lines.append(f"{'':>7}█ both   ░ {names[0]} only   ▒ {names[1]} only")
    return lines


def _sampled(series: StepSeries, begin: int, end: int, columns: int) -> list[int]:
    """The highest count within each column's span."""
    found: list[int] = []
    place, count = 0, series[0][1]
    for column in range(columns):
        upto = begin + (end - begin) * (column + 1) // columns
        highest = count
        while place < len(series) and series[place][0] <= upto:
            count = series[place][1]
            highest = max(highest, count)
            place += 1
        found.append(highest)
    return found


def _row(one: list[int], other: list[int], row: int, rows: int, top: int) -> str:
    least = -(-top * row // rows)
    cells = []
    for a, b in zip(one, other, strict=True):
        cells.append(
            _BOTH if min(a, b) >= least else _ONLY_FIRST if a >= least else _ONLY_SECOND if b >= least else _NONE
        )
    return f"{least:>5} ┤{''.join(cells)}".rstrip()


def _axis(begin: int, end: int, columns: int) -> str:
    """The times at the beginning, the middle and the end."""
    texts = [text for _, text in axis_labels(begin, end, 3)]
    space = max(1, (columns - sum(map(len, texts))) // max(1, len(texts) - 1))
    return f"{'':>7}{(' ' * space).join(texts)} UTC"

"""A tab-writer: UPPERCASE headers, two spaces between columns, no box, nothing cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Generic, TypeVar

from runtime.log import clean, clean_lines

T = TypeVar("T")
GAP: Final = "  "
_STYLES: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1", "cyan": "36"}
_PAINTED: Final = re.compile(rf"(\x1b\[(?:0|{'|'.join(_STYLES.values())})m)")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: its header and the text of its cell. `wide` columns appear with `-o wide` only.

    `dispensable`: where the terminal is too narrow the column is left out, the highest number first; 0: never.
    `exact`: the text for `-o csv` where a table shows it shortened.
    """

    header: str
    cell: Callable[[T], str]
    wide: bool = False
    dispensable: int = 0
    exact: Callable[[T], str] | None = None


def too_wide(items: Sequence[T], columns: Sequence[Column[T]], width: int) -> frozenset[str]:
    """The headers of the dispensable columns that must be left out for the table to fit a width."""
    rows = [[column.header for column in columns], *[[column.cell(item) for column in columns] for item in items]]
    sizes = {column.header: max(map(len, cells)) for column, *cells in zip(columns, *rows, strict=True)}
    total = sum(sizes.values()) + len(GAP) * (len(columns) - 1)
    left_out: set[str] = set()
    for column in sorted(filter(lambda each: each.dispensable, columns), key=lambda each: -each.dispensable):
        if total <= width:
            break
        left_out.add(column.header)
        total -= sizes[column.header] + len(GAP)
    return frozenset(left_out)


def paint(text: str, style: str, *, color: bool) -> str:
    """Return text in a style (`red`, `bold`, …), or as it is without colour."""
    return f"\x1b[{_STYLES[style]}m{clean_lines(text)}\x1b[0m" if color and style and text else text


def for_terminal(text: str, *, color: bool, keep: Callable[[str], str] = clean_lines) -> str:
    """A text of which nothing acts on a terminal, except with `color` the styles of `paint`.

    `keep`: what is left of the text between these; `clean` keeps it to one line.
    """
    if not color:
        return keep(text)
    return "".join(part if _PAINTED.fullmatch(part) else keep(part) for part in _PAINTED.split(text))


def layout(rows: Sequence[Sequence[str]], widths: Widths | None = None, *, numbers: bool = False) -> list[str]:
    """Align the cells of rows in columns, each kept to its line; the last cell of a row is not padded.

    `numbers`: the columns behind the first are flush right.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = widths or Widths()
    widths.widen(rows)
    behind = str.rjust if numbers else str.ljust
    return [
        GAP.join((behind if at else str.ljust)(cell, widths.known[at]) for at, cell in enumerate(row)).rstrip()
        for row in rows
    ]


class Widths:
    """Widths of columns that only grow, so that what is printed later stays under what was printed before."""

    def __init__(self, known: Iterable[int] = ()) -> None:
        self.known = list(known)
        """The width of each column, from the first."""

    def widen(self, rows: Iterable[Sequence[str]]) -> None:
        """Make room for the cells of rows."""
        longest = [max(map(len, cells)) for cells in zip_longest(*rows, fillvalue="")]
        self.known = [max(pair) for pair in zip_longest(self.known, longest, fillvalue=0)]


def table(
    items: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    headers: bool = True,
    style: Callable[[T], str] | None = None,
    color: bool = False,
    widths: Widths | None = None,
) -> list[str]:
    """Lay out items as lines.

    `style` names the style of an item's line; it counts only with `color`. `widths`: those of the lines printed before.
    """
    listed = list(items)
    cells = [[column.cell(item) for column in columns] for item in listed]
    lines = layout(([[column.header for column in columns]] if headers else []) + cells, widths)
    if not (style and color):
        return lines
    head = lines[:1] if headers else []
    return head + [paint(line, style(item), color=True) for line, item in zip(lines[len(head) :], listed, strict=True)]

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
LEAST_TEXT: Final = 24
"""Characters that a text needs beside other columns, or its lines would be too short to read."""
_STYLES: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1", "cyan": "36"}
_PAINTED: Final = re.compile(rf"(\x1b\[(?:0|{'|'.join(_STYLES.values())})m)")
_WORDS: Final = re.compile(r" *(?:\S*fleethpa .*|kubectl .*|[^ ]+)")
"""A command is one word: who copies it from two lines would run half of it."""
_BEGINS: Final = re.compile(r"^ *| {2,}")


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


def folded(line: str, width: int | None) -> list[str]:
    """A line as lines of at most `width` characters (None: any number), each further one below the last column.

    It is broken at spaces; a word that is longer, and a command, stays whole. Styles take no room.
    """
    if width is None or len(_PAINTED.sub("", line)) <= width:
        return [line]
    plain = _PAINTED.sub("", line)
    begins = [found.end() for found in _BEGINS.finditer(plain)]
    hanging = max((at for at in begins[1:] if at + LEAST_TEXT <= width), default=begins[0] + len(GAP))
    found, used = [""], 0
    for word in _WORDS.findall(line):
        size = len(_PAINTED.sub("", word))
        if used and used + size > width:
            word = " " * hanging + word.lstrip(" ")
            size, used = len(_PAINTED.sub("", word)), 0
            found.append("")
        found[-1] += word
        used += size
    return found


def _fitting(sizes: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """From which column to before which each line of a row goes, so that the lines fit a width (None: one line)."""
    starts, used = [0], 0
    for at, size in enumerate(sizes):
        needed = min(size, LEAST_TEXT) if at == len(sizes) - 1 else size
        if width is not None and at > starts[-1] and used + len(GAP) + needed > width:
            starts.append(at)
            used = 0
        used += len(GAP) + size
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))


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
    width: int | None = None,
) -> list[str]:
    """Lay out items as lines.

    `style` names the style of an item's line; it counts only with `color`. `widths`: those of the lines printed before.
    `width`: what is wider has several lines for each item, the later ones indented; nothing is left out.
    """
    listed = list(items)
    rows = [[column.cell(item) for column in columns] for item in listed]
    rows = ([[column.header for column in columns]] if headers else []) + rows
    widths = widths or Widths()
    whole = layout(rows, widths)
    parts = _fitting(widths.known, width)
    if len(parts) > 1:
        laid = [layout([row[begin:end] for row in rows], Widths(widths.known[begin:end])) for begin, end in parts]
        whole = [("\n" + GAP).join(filter(None, lines)) for lines in zip(*laid, strict=True)]
    styles = [""] * headers + [style(item) if style and color else "" for item in listed]
    return [
        paint(each, name, color=color)
        for lines, name in zip(whole, styles, strict=True)
        for line in lines.split("\n")
        for each in folded(line, width)
    ]

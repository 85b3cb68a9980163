"""A tab-writer: UPPERCASE headers, two spaces between columns, no box, nothing cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
GAP: Final = "  "
_STYLES: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1", "cyan": "36"}


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: its header and the text of its cell. `wide` columns appear with `-o wide` only."""

    header: str
    cell: Callable[[T], str]
    wide: bool = False


def paint(text: str, style: str, *, color: bool) -> str:
    """Return text in a style (`red`, `bold`, …), or as it is without colour."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color and style and text else text


def layout(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of rows in columns; the last cell of a row is not padded."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    return [GAP.join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows]


def table(
    items: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    headers: bool = True,
    style: Callable[[T], str] | None = None,
    color: bool = False,
) -> list[str]:
    """Lay out items as lines. `style` names the style of an item's line; it counts only with `color`."""
    listed = list(items)
    cells = [[clean(column.cell(item)) for column in columns] for item in listed]
    lines = layout(([[column.header for column in columns]] if headers else []) + cells)
    if not (style and color):
        return lines
    head = lines[:1] if headers else []
    return head + [paint(line, style(item), color=True) for line, item in zip(lines[len(head) :], listed, strict=True)]


def clean(text: str) -> str:
    """Return a cell that keeps to its line: control characters, which could move the cursor, become spaces."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)

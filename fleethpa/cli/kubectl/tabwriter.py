"""Tab-separated text in aligned columns, as Go's text/tabwriter lays it out.

A cell ends with a tab; what follows the last tab of a line is in no column. Lines next to each other that have a
cell in a column share its width; a line without one ends the block.
"""

from collections.abc import Sequence


def align(text: str, *, min_width: int = 0, padding: int = 2, remember_widths: bool = False) -> str:
    """Align the columns of a text.

    Args:
        text: lines of tab-terminated cells.
        min_width: least width of a column, padding included.
        padding: blanks after the widest cell of a column.
        remember_widths: a column is never narrower than it was before its block ended.
    """
    sizes = _Sizes(min_width, padding, remember_widths)
    # A form feed ends a line, and all columns with it.
    return "\n".join(_aligned(page, sizes) for page in text.split("\f"))


class _Sizes:
    """Gives the widths of columns."""

    def __init__(self, min_width: int, padding: int, remember: bool) -> None:
        self._min_width, self._padding = min_width, padding
        self._widest: dict[int, int] | None = {} if remember else None

    def width(self, column: int, longest: int) -> int:
        """Give the width of a block of a column from the length of its longest cell."""
        width = max(self._min_width, longest + self._padding)
        if self._widest is None:
            return width
        self._widest[column] = max(width, self._widest.get(column, 0))
        return self._widest[column]


def _aligned(page: str, sizes: _Sizes) -> str:
    # A vertical tab ends a cell too.
    lines = [line.split("\t") for line in page.replace("\v", "\t").split("\n")]
    widths: list[list[int]] = [[0] * (len(line) - 1) for line in lines]
    _measure(lines, widths, range(len(lines)), 0, sizes)
    return "\n".join(_pad(line, width) for line, width in zip(lines, widths, strict=True))


def _measure(lines: Sequence[Sequence[str]], widths: list[list[int]], block: range, column: int, sizes: _Sizes) -> None:
    """Set the widths of one column and all to its right, within a block of lines that share the columns before."""
    start = block.start
    while start < block.stop:
        end = start
        while end < block.stop and column < len(widths[end]):
            end += 1
        if end > start:
            width = sizes.width(column, max(len(lines[index][column]) for index in range(start, end)))
            for index in range(start, end):
                widths[index][column] = width
            _measure(lines, widths, range(start, end), column + 1, sizes)
        start = end + 1


def _pad(line: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + line[-1]

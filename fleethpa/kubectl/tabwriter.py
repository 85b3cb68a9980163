"""Tab-separated text in aligned columns, as Go's text/tabwriter lays it out.

A cell ends with a tab; what follows the last tab of a line is in no column. Lines next to each other that have a
cell in a column share its width; a line without one ends the block.
"""

from collections.abc import Sequence


def align(text: str, *, min_width: int = 0, padding: int = 2) -> str:
    """Align the columns of a text.

    Args:
        text: lines of tab-terminated cells.
        min_width: least width of a column, padding included.
        padding: blanks after the widest cell of a column.
    """
    # A form feed ends a line, and all columns with it.
    return "\n".join(_aligned(page, (min_width, padding)) for page in text.split("\f"))


def _aligned(page: str, sizes: tuple[int, int]) -> str:
    # A vertical tab ends a cell too.
    lines = [line.split("\t") for line in page.replace("\v", "\t").split("\n")]
    widths: list[list[int]] = [[0] * (len(line) - 1) for line in lines]
    _measure(lines, widths, range(len(lines)), 0, sizes)
    return "\n".join(_pad(line, width) for line, width in zip(lines, widths, strict=True))


def _measure(
    lines: Sequence[Sequence[str]], widths: list[list[int]], block: range, column: int, sizes: tuple[int, int]
) -> None:
    """Set the widths of one column and all to its right, within a block of lines that share the columns before."""
    start = block.start
    while start < block.stop:
        end = start
        while end < block.stop and column < len(widths[end]):
            end += 1
        if end > start:
            longest = max(len(lines[index][column]) for index in range(start, end))
            for index in range(start, end):
                widths[index][column] = max(sizes[0], longest + sizes[1])
            _measure(lines, widths, range(start, end), column + 1, sizes)
        start = end + 1


def _pad(line: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + line[-1]

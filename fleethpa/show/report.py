"""What a report shows, as a value: sections of sentences, tables, curves and notes; and how it reads on a terminal.

Each question builds one `QuestionReport`: its `document` is what machine formats print, `fleethpa.show.html` makes its
page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from fleethpa.show.text import axis_labels, layout, paint

T = TypeVar("T")
MOST_POINTS: Final = 2_000
"""Points of a curve that a page draws; more would not be seen."""
PLOT_HEIGHT: Final = 10
"""Lines of a plot on a terminal."""


class Sentences(NamedTuple):
    """Sentences, each on a line of its own. `style`: as of `paint`."""

    texts: Sequence[str]
    style: str = ""


class Notes(NamedTuple):
    """A list below a title."""

    title: str
    texts: Sequence[str]


class Grid(NamedTuple):
    """A table: rows of texts, the first one the header; not shown where there is only that.

    `numbers`: every column but the first holds numbers, which are flush right.
    """

    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: bool = False


class Curve(NamedTuple):
    """A step line: (time in ms, value), by time; a value holds until the next. `colour`: a name of the style sheet."""

    name: str
    colour: str
    points: Sequence[tuple[int, float]]
    dash: Sequence[int] = ()


class Chart(NamedTuple):
    """Step lines over time, of which a terminal draws the first two. `top`: the highest value that a page draws."""

    title: str
    label: str
    curves: Sequence[Curve]
    since_ms: int
    until_ms: int
    top: float


class Preformatted(NamedTuple):
    """YAML below a title, which only a page shows: a terminal has `--emit-yaml`."""

    title: str
    text: str


ReportPart = Sentences | Notes | Grid | Chart | Preformatted


class Section(NamedTuple):
    """What a report says of one thing. `about`: what follows the title on its line."""

    title: str = ""
    about: str = ""
    parts: Sequence[ReportPart] = ()


def verdict(text: str, style: str = "bold") -> Section:
    """The answer in one sentence, with which a report begins."""
    return Section(parts=[Sentences([text], style)])


class QuestionReport(NamedTuple):
    """An answer.

    `title`: the heading of its page. `document`: what machine formats print, a `kind` of the published schemas.
    `summary`: what holds for all sections together: last on a terminal, where it is seen; first on a page. `closing`:
    what every reader has to keep in mind.
    """

    title: str
    kind: str
    document: dict[str, Any]
    sections: Sequence[Section]
    summary: Sequence[Section] = ()
    closing: Sequence[Notes] = ()


def report_lines(report: QuestionReport, *, color: bool = False, plot_width: int = 0) -> list[str]:
    """A report on a terminal, with a blank line between sections. `plot_width`: as of `section_lines`."""
    all_lines: list[str] = []
    for section in (*report.sections, *report.summary, *(Section(parts=[notes]) for notes in report.closing)):
        lines = section_lines(section, color=color, plot_width=plot_width)
        all_lines += [""] * bool(all_lines and lines) + lines
    return all_lines


def section_lines(section: Section, *, color: bool = False, plot_width: int = 0) -> list[str]:
    """A section on a terminal. `plot_width`: the characters that a plot may have; 0 leaves plots out."""
    lines = [f"{section.title}   {section.about}".rstrip()] if section.title else []
    for part in section.parts:
        match part:
            case Sentences(texts, style):
                lines += [paint(text, style, color=color) if style else text for text in texts]
            case Notes(title, texts):
                lines += [title, *(f"  - {text}" for text in texts)]
            case Grid():
                lines += _grid_lines(part)
            case Chart() if plot_width:
                lines += ["", *step_plot(part.curves[0], part.curves[1], width=plot_width)]
    return lines


def _grid_lines(grid: Grid) -> list[str]:
    if len(grid.rows) < 2:
        return []
    return [*([grid.title] if grid.title else []), *layout(grid.rows, numbers=grid.numbers)]


def thinned(
    found: Sequence[T],
    most: int,
    height: Callable[[T], float] = lambda _: 0.0,
    key: Callable[[T], Any] = lambda _: None,
) -> list[T]:
    """About `most` points of a curve, in order: the first, the last, and the highest of each of equal stretches.

    `key`: every point at which it changes is kept as well.
    """
    if len(found) <= most:
        return list(found)
    size = -(-len(found) // most)
    stretches = (range(at, min(at + size, len(found))) for at in range(0, len(found), size))
    kept = {max(stretch, key=lambda at: height(found[at])) for stretch in stretches}
    keys = [key(each) for each in found]
    kept |= {0, len(found) - 1, *(at for at in range(1, len(found)) if keys[at] != keys[at - 1])}
    return [found[at] for at in sorted(kept)]


# --- a plot on a terminal ---------------------------------------------------------------------------------------------


def step_plot(first: Curve, second: Curve, *, width: int = 72) -> list[str]:
    """Draw both as filled steps: █ where both reach, ░ only the first, ▒ only the second."""
    if not first.points or not second.points:
        return []
    begin, end = first.points[0][0], max(first.points[-1][0], second.points[-1][0])
    columns = max(10, width - 8)
    one, other = (_sampled(each.points, begin, end, columns) for each in (first, second))
    top = max(1, *one, *other)
    rows = min(PLOT_HEIGHT, top)
    levels = [-(-top * row // rows) for row in range(rows, 0, -1)]
    texts = [text for _, text in axis_labels(begin, end, 3)]
    space = " " * max(1, (columns - sum(map(len, texts))) // max(1, len(texts) - 1))
    return [
        *(f"{least:>5} ┤{''.join(_cell(*pair, least) for pair in zip(one, other, strict=True))}" for least in levels),
        f"{'':>5} └{'─' * columns}",
        f"{'':>7}{space.join(texts)} UTC",
        f"{'':>7}█ both   ░ {first.name} only   ▒ {second.name} only",
    ]


def _sampled(points: Sequence[tuple[int, float]], begin: int, end: int, columns: int) -> list[int]:
    """The highest count within each column's span."""
    counts: list[int] = []
    place, count = 0, points[0][1]
    for column in range(columns):
        upto = begin + (end - begin) * (column + 1) // columns
        highest = count
        while place < len(points) and points[place][0] <= upto:
            count = points[place][1]
            highest = max(highest, count)
            place += 1
        counts.append(int(highest))
    return counts


def _cell(one: int, other: int, least: int) -> str:
    if min(one, other) >= least:
        return "█"
    return "░" if one >= least else "▒" if other >= least else " "

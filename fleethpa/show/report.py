"""What a report shows, as a value: sections of facts, tables, curves and notes; and how it reads on a terminal.

Each question builds one `Report`. Its `document` is what machine formats print; `fleethpa.show.html` makes its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from fleethpa.show.formats import API_VERSION
from fleethpa.show.table import layout, paint
from fleethpa.show.times import axis_labels

T = TypeVar("T")
MOST_POINTS: Final = 2_000
"""Points of a curve that a page draws; more would not be seen."""
MOST_LISTED: Final = 12
"""Points of a scatter plot that a terminal lists."""
PLOT_HEIGHT: Final = 10
"""Lines of a plot on a terminal."""


@dataclass(frozen=True)
class Terminal:
    """How a report is printed. `plot_width`: characters that a plot may have; 0 leaves plots out."""

    color: bool = False
    plot_width: int = 0


@dataclass(frozen=True)
class Facts:
    """Sentences, each on a line of its own. `style`: as of `paint`."""

    texts: Sequence[str]
    style: str = ""

    def lines(self, terminal: Terminal) -> Iterator[str]:
        """The sentences, in their style."""
        for text in self.texts:
            yield paint(text, self.style, color=terminal.color and bool(self.style))


@dataclass(frozen=True)
class Notes:
    """A list below a title."""

    title: str
    texts: Sequence[str]

    def lines(self, _: Terminal) -> Iterator[str]:
        """The title, and each note behind a dash."""
        yield self.title
        yield from (f"  - {text}" for text in self.texts)


@dataclass(frozen=True)
class Table:
    """Rows of texts, the first one the header.

    Args:
        numbers: every column but the first holds numbers, which are flush right.
        bars: for each row below the header the length of its bar on a page, from 0 to 1; empty: there are none.
    """

    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: bool = False
    bars: Sequence[float] = ()

    def lines(self, _: Terminal) -> Iterator[str]:
        """The title and the aligned rows; nothing where there is only a header."""
        if len(self.rows) > 1:
            yield from [self.title] if self.title else []
            yield from layout(self.rows, numbers=self.numbers)


class Curve(NamedTuple):
    """A step line: (time in ms, value), by time; a value holds until the next. `colour`: a name of the style sheet."""

    name: str
    colour: str
    points: Sequence[tuple[int, float]]
    dash: Sequence[int] = ()


@dataclass(frozen=True)
class Chart:
    """Step lines over time. A terminal draws the first two. `top`: the highest value that a page draws."""

    title: str
    label: str
    curves: Sequence[Curve]
    since_ms: int
    until_ms: int
    top: float

    def lines(self, terminal: Terminal) -> Iterator[str]:
        """The first two curves as filled steps, where plots are wanted."""
        if terminal.plot_width:
            yield ""
            yield from step_plot(self.curves[0], self.curves[1], width=terminal.plot_width)


class Spot(NamedTuple):
    """A point of a scatter plot. `mark`: what is special about it; empty for most."""

    x: float
    y: float
    text: str
    mark: str = ""


@dataclass(frozen=True)
class Scatter:
    """Points over two measures, by the first; `x_format` and `y_format` write a value of each."""

    title: str
    x_name: str
    y_name: str
    x_format: str
    y_format: str
    spots: Sequence[Spot]

    def row(self, spot: Spot) -> tuple[str, ...]:
        """A point in words."""
        return (self.x_format.format(spot.x), self.y_format.format(spot.y), spot.text, spot.mark)

    def lines(self, terminal: Terminal) -> Iterator[str]:
        """The marked points and some of the others, as a table."""
        shown = {*thinned([spot for spot in self.spots if not spot.mark], MOST_LISTED)}
        rows = [self.row(spot) for spot in self.spots if spot.mark or spot in shown]
        yield from Table([(self.x_name, self.y_name, "", ""), *rows], self.title).lines(terminal)


@dataclass(frozen=True)
class Listing:
    """A text of several lines that only a page shows, such as a manifest."""

    title: str
    text: str

    def lines(self, _: Terminal) -> Iterator[str]:
        """Nothing."""
        yield from ()


Part = Facts | Notes | Table | Chart | Scatter | Listing


@dataclass(frozen=True)
class Section:
    """What a report says of one thing. `about`: what follows the title on its line."""

    title: str = ""
    about: str = ""
    parts: Sequence[Part] = ()

    def lines(self, terminal: Terminal) -> Iterator[str]:
        """The title, and everything below it."""
        if self.title:
            yield f"{self.title}   {self.about}".rstrip()
        for part in self.parts:
            yield from part.lines(terminal)


@dataclass(frozen=True)
class Report:
    """An answer.

    Args:
        title: the heading of its page.
        kind: the kind of its document.
        document: what machine formats print, in the words of the published schemas.
        summary: what holds for all sections together: last on a terminal, where it is seen; first on a page.
        closing: what every reader has to keep in mind.
    """

    title: str
    kind: str
    document: dict[str, Any]
    sections: Sequence[Section]
    summary: Sequence[Section] = ()
    closing: Sequence[Notes] = field(default=())

    @property
    def whole_document(self) -> dict[str, Any]:
        """The document with its kind."""
        return {"apiVersion": API_VERSION, "kind": self.kind} | self.document

    def lines(self, terminal: Terminal) -> list[str]:
        """The lines of a terminal: sections with a blank line between them."""
        found: list[str] = []
        for section in (*self.sections, *self.summary, *(Section(parts=[notes]) for notes in self.closing)):
            lines = list(section.lines(terminal))
            found += [""] * bool(found and lines) + lines
        return found


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
    found: list[int] = []
    place, count = 0, points[0][1]
    for column in range(columns):
        upto = begin + (end - begin) * (column + 1) // columns
        highest = count
        while place < len(points) and points[place][0] <= upto:
            count = points[place][1]
            highest = max(highest, count)
            place += 1
        found.append(int(highest))
    return found


def _cell(one: int, other: int, least: int) -> str:
    if min(one, other) >= least:
        return "█"
    return "░" if one >= least else "▒" if other >= least else " "

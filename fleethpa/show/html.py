"""Jinja2 templates, and reports as one HTML file that needs nothing else: no network, readable without its script.

Every text that a template shows is escaped and kept to its line: what a hostile cluster calls itself is text, never
markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from fleethpa.show.report import MOST_POINTS, Chart, Curve, QuestionReport, thinned
from fleethpa.show.text import axis_labels
from runtime.log import clean, clean_lines

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPTS: Final = ("vendor/uplot-1.6.32.min.js", "static/chart.js", "static/report.js")
"""What draws the charts of the page draws those of a report."""


@cache
def templates() -> Environment:
    """The templates of reports and of the page; a name that a template uses and that is not given is an error."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # here: few commands write HTML

    environment = Environment(
        loader=ChoiceLoader([PackageLoader("fleethpa.show"), PackageLoader("fleethpa.page")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_on_one_line,
    )
    environment.filters |= {"lines": _lines, "drawn": drawn, "data": chart_data}
    return environment


def _on_one_line(value: Any) -> Any:
    """Return what a template shows of a value: nothing in it acts on a line; markup and numbers as they are."""
    return value if isinstance(value, int | float) or hasattr(value, "__html__") else clean(str(value))


def _lines(text: str) -> Any:
    """A filter for texts of several lines."""
    from markupsafe import escape

    return escape(clean_lines(text))


def page_of(report: QuestionReport) -> str:
    """A report as one HTML file, with a script only where there are charts."""
    from markupsafe import Markup

    charts = any(isinstance(part, Chart) for section in report.sections for part in section.parts)
    # Both are files of the program.
    style = Markup(_page_file("vendor/uplot-1.6.32.min.css") if charts else "")
    script = Markup(chart_script() if charts else "")
    return templates().get_template("report.html").render(report=report, style=style, script=script)


@cache
def chart_script() -> str:
    """The only script of a report."""
    return "\n".join(map(_page_file, _SCRIPTS))


def _page_file(path: str) -> str:
    return files("fleethpa").joinpath("page", path).read_text(encoding="utf-8")


# --- pictures ---------------------------------------------------------------------------------------------------------

WIDTH: Final = 960
HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 20
_TOP: Final = 12
_BOTTOM: Final = 26
Placing = Callable[[float], float]


class Tick(NamedTuple):
    """A label of an axis, at a place of the picture. `anchor`: which end of the text is there."""

    at: float
    text: str
    anchor: str = "end"


class Drawing(NamedTuple):
    """A picture in SVG coordinates: `paths` are (class, path)."""

    label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    paths: Sequence[tuple[str, str]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT


def scale(least: float, most: float, begin: float, end: float) -> Placing:
    """Values from `least` to `most` to places of a picture from `begin` to `end`; what is beyond stays at the end."""
    span = (most - least) or 1.0
    return lambda value: round(begin + (min(value, most) - least) / span * (end - begin), 1)


def step_path(points: Sequence[tuple[float, float]], x: Placing, y: Placing, end: float) -> str:
    """A step line as an SVG path, its last value held until `end`."""
    if not points:
        return ""
    (first, value), *others = points
    steps = "".join(f"H{x(at)}V{y(value)}" for at, value in others)
    return f"M{x(first)} {y(value)}{steps}H{x(end)}"


def drawn(chart: Chart) -> Drawing:
    """Return a chart as a picture."""
    begin, end = chart.since_ms, max(chart.until_ms, chart.since_ms + 1)
    x, y = scale(begin, end, _LEFT, WIDTH - _RIGHT), scale(0, chart.top, HEIGHT - _BOTTOM, _TOP)
    anchors = {begin: "start", end: "end"}
    return Drawing(
        chart.label,
        [Tick(x(at), text, anchors.get(at, "middle")) for at, text in axis_labels(begin, end, 5)],
        [Tick(y(count), str(count)) for count in range(0, int(chart.top) + 1, max(1, round(chart.top / 5)))],
        [(curve.colour, step_path(visible(curve), x, y, end)) for curve in chart.curves],
    )


def visible(curve: Curve) -> list[tuple[int, float]]:
    """The points of a curve at which its value changes, and no more of them than can be seen."""
    moves = [
        point for number, point in enumerate(curve.points) if not number or point[1] != curve.points[number - 1][1]
    ]
    return thinned(moves, MOST_POINTS, lambda point: point[1])


def chart_data(chart: Chart) -> Any:
    """Return what the script draws: each curve with times in seconds since 1970, up to the end of the chart."""
    from markupsafe import Markup

    lines = []
    for curve in chart.curves:
        points = visible(curve)
        held = [*points, *((chart.until_ms, value) for _, value in points[-1:])]
        lines.append(
            {
                "name": curve.name,
                "colour": f"--{curve.colour}",
                "dash": list(curve.dash),
                "times": [at / 1000 for at, _ in held],
                "values": [value for _, value in held],
            }
        )
    text = orjson.dumps({"title": chart.title, "top": chart.top, "lines": lines}).decode()
    return Markup(text.replace("<", "\\u003c"))  # no text in it ends the element

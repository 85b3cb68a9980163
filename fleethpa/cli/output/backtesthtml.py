"""A backtest as one HTML file that needs nothing else: the page's chart, and where no script runs, the same as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from fleethpa.cli.output.backtestpage import Reported, facts, rows_of, totals, unknown
from fleethpa.cli.output.htmlreport import ChartLine, chart_figure, document, table
from fleethpa.cli.output.times import axis_labels, rfc3339

if TYPE_CHECKING:
    from streams.analysis.hpabacktest import Backtest
    from streams.analysis.measures import Moment

_WIDTH: Final = 960
_HEIGHT: Final = 260
_LEFT: Final = 44
_BOTTOM: Final = 26
_TOP: Final = 12
_POINTS: Final = 2_000
"""Steps drawn at most; a longer series is thinned, each step then the highest of its span."""


def report(reports: Sequence[Reported], failed: Sequence[str]) -> str:
    """Return the whole page: all HPAs together, where there are several, and each."""
    parts = [_together([each.result for each in reports]), *map(_section, reports)]
    gates = "".join(f'<p class="failed">{escape(text)}</p>' for text in failed)
    return document("Backtest", [gates, *parts], charts=True)


def _together(results: Sequence[Backtest]) -> str:
    rows = totals(results)
    return f"<section>\n<h2>All {len(results)} HPAs</h2>\n{table(rows)}\n</section>\n" if rows else ""


def _section(reported: Reported) -> str:
    result = reported.result
    rows = rows_of(result)
    stated = "".join(f"<p>{escape(text)}</p>\n" for text in facts(reported))
    items = "".join(f"<li>{escape(text)}</li>" for text in unknown(result.model))
    notes = "".join(f"<p>{escape(text)}</p>" for text in reported.notes)
    return (
        f"<section>\n<h2>{escape(str(result.hpa))}</h2>\n<p>{rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}, "
        f"{result.evaluations:,} evaluations</p>\n{stated}"
        f"{table(rows)}\n{_chart(result)}\n{notes}"
        f"<p>This model cannot know:</p><ul>{items}</ul>\n</section>\n"
    )


_LINES: Final[tuple[tuple[str, str, list[int]], ...]] = (
    ("recorded", "recorded replicas", []),
    ("candidate", "candidate", []),
    ("need", "pods that the load needs at target", [3, 3]),
)
"""Name of the colour, label and dash of each line."""


def _chart(result: Backtest) -> str:
    """Replicas over time: recorded, candidate, and how many pods the load needs at the deployed target."""
    series = {
        "recorded": _thinned(result.recorded_moments),
        "candidate": _thinned(result.candidate_moments),
        "need": _thinned(result.recorded_moments, need=True),
    }
    lines = [_line(name, text, dash, series[name], result.until_ms) for name, text, dash in _LINES]
    key = "".join(f'<span><i style="color:var(--{name})"></i>{text}</span>' for name, text, _ in _LINES)
    counts = [moment.replicas for moment in (*result.recorded_moments, *result.candidate_moments)]
    # A need far beyond what ran would make the lines flat.
    top = max([1.0, *counts, *(min(need, 2 * max(counts)) for _, need in series["need"])])
    frame = _Frame(result.since_ms, max(result.until_ms, result.since_ms + 1), top)
    paths = "".join(
        f'<path class="{name}" d="{frame.steps(series[name])}"/>' for name in ("need", "recorded", "candidate")
    )
    label = f"replicas over time of {escape(str(result.hpa))}"
    picture = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{frame.grid()}{paths}</svg>'
    return f'{chart_figure("Replicas", lines, top, picture)}\n<p class="key">{key}</p>'


def _line(name: str, text: str, dash: list[int], points: list[tuple[int, float]], until_ms: int) -> ChartLine:
    held = [*points, *((until_ms, value) for _, value in points[-1:])]
    times, values = [time_ms / 1000 for time_ms, _ in held], [value for _, value in held]
    return ChartLine(name=text, colour=f"--{name}", dash=dash, times=times, values=values)


class _Frame:
    """Time and count to points of the picture."""

    def __init__(self, begin: int, end: int, top: float) -> None:
        self.begin, self.end, self.top = begin, end, top

    def x(self, time_ms: int) -> float:
        return _LEFT + (time_ms - self.begin) / (self.end - self.begin) * (_WIDTH - _LEFT - 10)

    def y(self, count: float) -> float:
        return _TOP + (1 - min(count, self.top) / self.top) * (_HEIGHT - _TOP - _BOTTOM)

    def steps(self, points: Sequence[tuple[int, float]]) -> str:
        """A step line as a path."""
        parts: list[str] = []
        for time_ms, value in points:
            x, y = self.x(time_ms), self.y(value)
            parts.append(f"H{x:.1f}V{y:.1f}" if parts else f"M{x:.1f} {y:.1f}")
        return "".join(parts) + (f"H{self.x(self.end):.1f}" if parts else "")

    def grid(self) -> str:
        """Lines and labels."""
        step = max(1, round(self.top / 5))
        made = []
        for count in range(0, int(self.top) + 1, step):
            y = self.y(count)
            made.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>')
            made.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count}</text>')
        for time_ms, text in axis_labels(self.begin, self.end, 5):
            anchor = "start" if time_ms == self.begin else "end" if time_ms == self.end else "middle"
            made.append(f'<text x="{self.x(time_ms):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
        return "".join(made)


def _thinned(moments: Sequence[Moment], *, need: bool = False) -> list[tuple[int, float]]:
    """Only where the value changes, and no more than can be seen."""
    values = [(m.time_ms, m.need if need else m.replicas) for m in moments]
    known = [(time_ms, float(value)) for time_ms, value in values if value is not None]
    size = max(1, len(known) // _POINTS)
    spans = [known[at : at + size] for at in range(0, len(known), size)]
    found: list[tuple[int, float]] = []
    for part in spans:
        value = max(each[1] for each in part)
        if not found or found[-1][1] != value:
            found.append((part[0][0], value))
    return found

"""A backtest as text, document and HTML file: recorded against candidate, the model, what it cannot know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fleethpa.show.html import ChartLine, chart_figure, html_document, table
from fleethpa.show.times import axis_labels, rfc3339, span
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.measures import by_hours, total

if TYPE_CHECKING:
    from streams.analysis.backtest import Backtest
    from streams.analysis.measures import Measures, Moment, Scores


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


MODELS: Final = {
    "open": "open loop: samples, pods and scale stay as recorded; the candidate's recommendations have no effect",
    "closed": "closed loop: the recorded total load divided over the candidate's pods",
}
OPEN_UNKNOWN: Final = (
    "what its own replicas would have changed: the load per pod stays the recorded one",
    "load over replicas is counted as if every wanted replica took load at once",
)
_FAR: Final = 1e6


def minutes(value: float) -> str:
    """Minutes as a span."""
    return span(round(value * 60) * 1000) or "0s"


def ratio(value: float) -> str:
    """An overload; endless where there was load and no pod."""
    return f"{value:.2f}" if value < _FAR else "no pod"


_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("replica-hours", "replica_hours", lambda value: f"{value:,.2f}"),
    ("time above target", "above_target_minutes", minutes),
    ("worst overload (ratio)", "worst_overload", ratio),
    ("time at maxReplicas", "at_max_minutes", minutes),
    ("scale events", "scale_events", lambda value: f"{value:.0f}"),
    ("direction flips", "direction_flips", lambda value: f"{value:.0f}"),
)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


_SCORES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("under-provisioning accuracy", "under_accuracy", _percent),
    ("over-provisioning accuracy", "over_accuracy", _percent),
    ("under-provisioned time share", "under_share", _percent),
    ("over-provisioned time share", "over_share", _percent),
    ("instability", "instability", _percent),
    ("adaptations per hour", "adaptations_per_hour", lambda value: f"{value:.2f}"),
    ("slack", "slack", _percent),
    ("replica-hours of an oracle", "oracle_replica_hours", lambda value: f"{value:,.2f}"),
    ("  with start-up delay", "oracle_with_start_up_replica_hours", lambda value: f"{value:,.2f}"),
)


def score_rows(recorded: Scores, candidate: Scores) -> list[tuple[str, ...]]:
    """Rows of the scores of the literature, to follow `table_rows`; the change of a share is in points."""
    rows: list[tuple[str, ...]] = []
    for name, field, text in _SCORES:
        before, after = float(getattr(recorded, field)), float(getattr(candidate, field))
        moved = f"{(after - before) * 100:+.1f} points" if text is _percent else f"{after - before:+.2f}"
        rows.append((name, text(before), text(after), moved))
    before_ratio, after_ratio = recorded.oracle_ratio, candidate.oracle_ratio
    if before_ratio is not None and after_ratio is not None:
        moved = f"{after_ratio - before_ratio:+.2f}"
        rows.append(("replica-hours / oracle's", f"{before_ratio:.2f}", f"{after_ratio:.2f}", moved))
    return rows


def rows_of(result: Backtest) -> list[tuple[str, ...]]:
    """The whole comparison of one HPA: measures, then scores; text and HTML show the same rows."""
    rows = table_rows(result.recorded, result.candidate, result.candidate_at_recorded_target)
    return rows + score_rows(result.recorded_scores, result.candidate_scores)


def table_rows(recorded: Measures, candidate: Measures, at_recorded: Measures | None = None) -> list[tuple[str, ...]]:
    """The rows of the comparison: name, recorded, candidate, change."""
    rows: list[tuple[str, ...]] = [("", "recorded", "candidate", "change")]
    for name, field, text in _ROWS:
        before, after = float(getattr(recorded, field)), float(getattr(candidate, field))
        rows.append((name, text(before), text(after), change(field, before, after, text)))
        if field == "above_target_minutes" and at_recorded is not None:
            own = at_recorded.above_target_minutes
            rows.append(("  at the deployed target", text(before), text(own), change(field, before, own, text)))
    return rows


def change(field: str, before: float, after: float, text: Callable[[float], str]) -> str:
    """The change: relative for replica-hours, else the difference."""
    if field == "replica_hours":
        return f"{(after / before - 1) * 100:+.1f} %" if before else "-"
    if field == "worst_overload":
        return f"{after - before:+.2f}" if max(before, after) < _FAR else "-"
    sign = "+" if after > before else "-" if after < before else ""
    return f"{sign}{text(abs(after - before))}" if sign else "0"


class Reported(NamedTuple):
    """A backtest with what its report says beside the numbers.

    `changes`: what the candidate changes in the deployed spec. `notes`: what to keep in mind about this result.
    """

    result: Backtest
    changes: Sequence[str]
    notes: Sequence[str]


def page(reported: Reported, *, plot: bool, width: int) -> list[str]:
    """The text of one HPA."""
    result = reported.result
    lines = [
        f"{result.hpa}   {rfc3339(result.since_ms)} … {rfc3339(result.until_ms)}   {result.evaluations:,} evaluations",
        *facts(reported),
        *_aligned(rows_of(result)),
    ]
    if plot:
        lines += ["", *_plot(result, width)]
    return [*lines, *[f"note: {text}" for text in reported.notes]]


def facts(reported: Reported) -> list[str]:
    """What was changed, the model, and what it assumes and how well it does, as every report states them."""
    changed = ", ".join(reported.changes) or "nothing: it is the deployed spec"
    model = MODELS[reported.result.model]
    return [f"candidate: {changed}", f"model: {model}", *_model_facts(reported.result)]


def _model_facts(result: Backtest) -> list[str]:
    if result.model == "open":
        share = result.agreed / result.evaluations * 100
        return [
            f"the candidate answers {result.agreed:,} of {result.evaluations:,} evaluations as recorded ({share:.1f} %)"
        ]
    facts = []
    if result.start_up is not None:
        seen = f", {result.start_up.measured} seen" if result.start_up.measured else ""
        facts.append(f"pods take load after {result.start_up.ms / 1000:.0f}s ({result.start_up.how}{seen})")
    if result.deployed is not None:
        hours = (result.deployed.replica_hours / result.recorded.replica_hours - 1) * 100
        above = result.deployed.above_target_minutes - result.recorded.above_target_minutes
        facts.append(
            f"self-check: the deployed spec in this model gives {hours:+.1f} % replica-hours, "
            f"{above:+.1f} min above target"
        )
    return facts


def _plot(result: Backtest, width: int) -> list[str]:
    first = [(moment.time_ms, moment.replicas) for moment in result.recorded_moments]
    second = [(moment.time_ms, moment.replicas) for moment in result.candidate_moments]
    return step_plot(first, second, ("recorded", "candidate"), width=width)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}".rstrip()
        for row in rows
    ]


def unknown(model: str) -> Sequence[str]:
    """What the model cannot know."""
    return UNKNOWN if model == "closed" else OPEN_UNKNOWN


def caution(model: str) -> list[str]:
    """The closing lines of every report."""
    return ["This model cannot know:", *[f"  - {text}" for text in unknown(model)]]


def totals(results: Sequence[Backtest]) -> list[tuple[str, ...]]:
    """The rows of all HPAs together; none where there is only one."""
    if len(results) < 2:
        return []
    rows = table_rows(total(r.recorded for r in results), total(r.candidate for r in results))
    recorded, candidate = [r.recorded_scores for r in results], [r.candidate_scores for r in results]
    return rows + score_rows(by_hours(recorded), by_hours(candidate))


def summary(results: Sequence[Backtest], failed: Sequence[str]) -> list[str]:
    """All HPAs together, where there are several, and the gate."""
    rows = totals(results)
    lines = [f"all {len(results)} HPAs", *_aligned(rows), ""] if rows else []
    return lines + [f"FAILED: {text}" for text in failed]


def document(reported: Reported) -> dict[str, Any]:
    """One HPA for machine formats."""
    result = reported.result
    made: dict[str, Any] = {
        "cluster": result.hpa.cluster,
        "namespace": result.hpa.namespace,
        "name": result.hpa.name,
        "model": result.model,
        "since": rfc3339(result.since_ms),
        "until": rfc3339(result.until_ms),
        "evaluations": result.evaluations,
        "recorded": msgspec.to_builtins(result.recorded),
        "candidate": msgspec.to_builtins(result.candidate),
        "recordedScores": msgspec.to_builtins(result.recorded_scores),
        "candidateScores": msgspec.to_builtins(result.candidate_scores),
        "changes": list(reported.changes),
        "notes": list(reported.notes),
        "unknown": list(unknown(result.model)),
    }
    if result.candidate_at_recorded_target is not None:
        made["candidateAtRecordedTarget"] = msgspec.to_builtins(result.candidate_at_recorded_target)
    if result.candidate_scores_at_recorded_target is not None:
        made["candidateScoresAtRecordedTarget"] = msgspec.to_builtins(result.candidate_scores_at_recorded_target)
    if result.model == "open":
        made["agreed"] = result.agreed
    else:
        made["startUp"] = msgspec.to_builtins(result.start_up)
        made["selfCheck"] = msgspec.to_builtins(result.deployed)
    made["series"] = [
        {"time": was.time_ms, "recorded": was.replicas, "candidate": own.replicas, "need": was.need}
        for was, own in zip(result.recorded_moments, result.candidate_moments, strict=True)
    ]
    return made


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
    return html_document("Backtest", [gates, *parts], charts=True)


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

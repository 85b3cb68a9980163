"""One HPA at one moment: the verdict, the arithmetic, its metrics, who moved it, and what happened before."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from fleethpa.changes.specs import change_text
from fleethpa.fleet.decisionpage import Explanation, metric_health
from fleethpa.fleet.views import FleetState, HpaView, Problem
from fleethpa.frame.errors import usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.page.decisionview import waterfall
from fleethpa.page.fleethpaview import division
from fleethpa.page.hpapast import TIMELINE, HpaPast, likeness
from fleethpa.page.stripview import SHAPES
from fleethpa.show import words
from fleethpa.show.report import MOST_POINTS, thinned
from fleethpa.show.text import age, rfc3339
from schemas.decisions import Decision, MetricDecision
from schemas.keys import HpaId
from streams.analysis.revisions import Revision
from streams.history.recorded import Recorded
from streams.state.moves import FLEETHPA, moved

SPANS: Final = ("15m", "1h", "6h", "24h", "7d")
DEFAULT_SPAN: Final = "1h"


def span_of(text: str) -> int:
    """Read the span of the charts in milliseconds; an empty text is the default.

    Raises CommandError: it is not a duration, or holds no time.
    """
    span_ms = parse_duration_ms(text or DEFAULT_SPAN, "span")
    if not span_ms:
        raise usage(f"span {text!r} holds no time", cause=f"Write one of {', '.join(SPANS)}, or another duration.")
    return span_ms


def hpa_view(state: FleetState, hpa: HpaId, read: HpaPast, now_ms: int, *, every: bool = False) -> dict[str, Any]:
    """Return what the template shows; of an HPA that was deleted there is only its past.

    `every`: the timeline has also evaluations that changed nothing.
    """
    view = state.hpas.get(hpa)
    if view is not None and read.again is not None:
        view = replace(view, decision=read.again.recorded)
    explanation = read.again.explained(read.ending, read.troubles) if read.again is not None else None
    problems, unfed = (view.problems, view.unfed) if view is not None else ((), "")
    said, boxes = said_once(explanation, problems, state.remarks, unfed)
    return {
        "said": said,
        "boxes": boxes,
        "hpa": hpa,
        "view": view,
        "can_try": view is not None and not view.is_of_fleet,
        "division": division(view, now_ms) if view is not None and view.members else None,
        "groups": [name for name, members in state.capacity_members.items() if str(hpa) in members],
        "more_replicas": view.spec["maxReplicas"] * 5 // 3 if view is not None else 0,
        "moves": list(reversed(view.moves)) if view is not None else [],
        "has_other_writers": view is not None and any(move.writer != FLEETHPA for move in view.moves),
        "timeline": timeline(read, every=every),
        "is_evaluated": bool(read.decisions),
        "whole_ms": 0 if read.has_more else read.since_ms,
        "has_more": read.has_more,
        "is_checked": read.is_checked,
        "marks": to_marks(read.revisions) if read.is_whole else None,
        "revisions": list(reversed(read.revisions)),
        "change_text": change_text,
        "note": read.note,
        "next_step": read.next_step,
        "explained": explanation,
        "last_known": last_known(state, view, read, now_ms),
        "waterfall": waterfall(explanation) if explanation is not None and is_counted(explanation) else None,
        "charts": 1 + len(explanation.decision.metrics) if explanation is not None else 1,
        "health": metric_health(read.again.recorded.decision, now_ms) if read.again is not None else [],
    }


def is_counted(explanation: Explanation) -> bool:
    """Whether there is a count to draw: not where the scale could not be read."""
    return explanation.decision.kind == "evaluation" and any(step.value.isdigit() for step in explanation.steps)


def said_once(
    explanation: Explanation | None, problems: Iterable[Problem], remarks: Iterable[str] = (), unfed: str = ""
) -> tuple[list[tuple[str, str]], list[str]]:
    """The problems that the verdict says (label, style), and the texts that it leaves to be said, each once.

    `remarks`: what every view says above; `unfed`: why nothing comes in, which is among them.
    """
    if explanation is None:
        return [], [problem.text for problem in problems]
    above = "\n".join(remarks)
    notices = [notice for notice in _unsaid_notices(explanation) if notice not in above]
    texts = " ".join((explanation.verdict, explanation.ended, *explanation.notices))
    said = {problem.label: problem for problem in problems if _is_said(problem, explanation, texts)}
    is_above = bool(unfed and above)
    boxes = [each.text for each in problems if each.label not in said and not (is_above and unfed in each.text)]
    # That it failed or is held, and a fight with its notice, are beside the verdict already.
    chips = [problem for problem in said.values() if problem.label not in ("held", "fight") and not explanation.failed]
    return [(each.label, SHAPES.get(each.label, "trouble")) for each in chips], [*notices, *boxes]


def _is_said(problem: Problem, explanation: Explanation, texts: str) -> bool:
    decision = explanation.decision
    if problem.label == "held":
        return bool(explanation.held)
    if problem.label == "paused":
        return bool(decision.paused) and decision.paused in texts
    if problem.label == "saturated":
        return "MaxReplicas" in decision.constraints_applied and not explanation.failed
    if problem.label == "fight":
        return any(label == "Fight" for label, _ in explanation.around)
    if explanation.cut_off and problem.text.startswith(words.NO_METRIC):
        return True
    return any(part in texts for part in (problem.text, problem.text.partition(f"{problem.label}: ")[2]) if part) or (
        problem.label.endswith(" disabled") and problem.text.partition(";")[0] in texts
    )


def _unsaid_notices(explanation: Explanation) -> list[str]:
    """The notices beside the verdict; of the trouble that the verdict says only the next step."""
    around = list(explanation.around)
    first = next((number for number, (label, _) in enumerate(around) if label == "Cluster"), None)
    if first is not None and explanation.cut_off:
        around[first : first + 2] = [
            ("Next:", text.removeprefix("Next: ")) for _, text in around[first + 1 : first + 2]
        ]
    return replace(explanation, around=around).notices


LONGEST_BUNDLE_MS: Final = 3_600_000


def bundle_command(hpa: HpaId, end_ms: int, span_ms: int) -> str:
    """Return the command that writes what was recorded of an HPA in the span of its charts, but at most in an hour, to
    a file.
    """
    since_ms = end_ms - min(span_ms, LONGEST_BUNDLE_MS)
    window = ["--since", rfc3339(since_ms), "--until", rfc3339(end_ms + 1), "--out", f"{hpa.name}.tar"]
    return shlex.join(["fleethpa", "export", "bundle", str(hpa), *window])


def last_known(state: FleetState, view: HpaView | None, read: HpaPast, now_ms: int) -> tuple[str, str] | None:
    """The replicas that were known last, and how long ago; `?` where none are. None: they are known now.

    They are not known while the scale cannot be read, or while nothing new of the HPA can come.
    """
    if view is None or read.again is None:
        return None
    newest = read.again.recorded
    hidden = state.clusters.get(view.id.cluster)
    is_hidden = state.is_last_known or (hidden is not None and hidden.hidden is not None)
    if words.scale_is_known(newest.decision) and not is_hidden:
        return None
    # An evaluation goes on with the last report of a scale for a while after reports have ended.
    ended_ms = [] if hidden is None or hidden.hidden is None else [hidden.hidden.since_ms]
    ended_ms += [state.newest_ms] if state.is_last_known else []
    for each in (newest, *reversed(read.decisions)):
        if each.decision.kind == "evaluation" and words.scale_is_known(each.decision):
            ago = age(max(0, now_ms - min([each.time_ms, *filter(None, ended_ms)])))
            return str(each.decision.final_desired_replicas), f"last known {ago} ago"
    return ("?", "not known") if view.has is None else (str(view.has), "last known")


# --- the timeline -----------------------------------------------------------------------------------------------------


def timeline(read: HpaPast, *, every: bool = True) -> list[dict[str, Any]]:
    """Return what happened, newest first; evaluations that came out alike are one line.

    `every`: also those that changed nothing, and a line of its own for each write that was applied.
    """
    applied = {each.decision.completes for each in read.decisions if _is_applied(each)}
    told = read.decisions if every else [each for each in read.decisions if not _is_applied(each)]
    runs = [list(run) for _, run in groupby(told, key=likeness)]
    shown = (line for line in map(_alike, reversed(runs)) if every or line["kind"] != "same")
    lines = list(islice(shown, TIMELINE))
    lines += [_changed(each) for each in read.revisions]
    lines += [line for recorded in read.decisions if (line := _by_hand(recorded)) is not None]
    newest = sorted(lines, key=lambda line: -line["time_ms"])[:TIMELINE]
    return [line | {"is_applied": not every and line["id"] in applied} for line in newest]


def _is_applied(recorded: Recorded) -> bool:
    """Whether it is the record that a change was applied."""
    return recorded.decision.kind == "completion" and recorded.decision.outcome.get("result") == "applied"


def _alike(run: Sequence[Recorded]) -> dict[str, Any]:
    first, last = run[0], run[-1]
    decision = last.decision
    kind = "write" if decision.kind == "completion" else "scale" if decision.direction != "None" else "same"
    return {
        "kind": "failed" if decision.error or decision.refused else kind,
        "time_ms": last.time_ms,
        "since_ms": first.time_ms,
        "count": len(run),
        "id": decision.id,
        "change": "" if decision.kind == "completion" else words.change(decision),
        "text": words.why(decision),
    }


def _changed(each: Revision) -> dict[str, Any]:
    by = each.author or each.manager
    what = change_text(each)
    text = f"{what}{f', by {by}' if by else ''}{f': {each.reason}' if each.reason else ''}"
    # In bold before the text, which says what kind of change it is.
    change = f"revision {each.generation}" if each.generation else "" if what.startswith(each.what) else each.what
    return _line("spec", each.time, change, text)


def to_marks(revisions: Sequence[Revision]) -> str:
    """Every change as a mark of the charts, at the time at which it was recorded (JSON)."""
    marks = [
        Mark(time=each.time / 1000, kind="spec" if each.kind.is_of_spec else "command", text=_changed(each)["text"])
        for each in revisions
    ]
    return msgspec.json.encode(marks).decode()


def _by_hand(recorded: Recorded) -> dict[str, Any] | None:
    change = recorded.decision.observed.get("change")
    if not change or (change["by"] == "decision" and "outcome" not in change):
        return None
    move = moved(recorded.time_ms, change)
    if "outcome" in change:
        text = f"written by fleethpa, for decision {change['decision']}, whose outcome never came"
        return _line("hand", move.time_ms, f"{move.before} → {move.after}", text)
    return _line("hand", move.time_ms, f"{move.before} → {move.after}", f"written by {move.writer}")


def _line(kind: str, time_ms: int, change: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "time_ms": time_ms, "since_ms": time_ms, "count": 1, "id": "", "change": change, "text": text}


# --- the charts -------------------------------------------------------------------------------------------------------

Number = float | int | None
GAP_MS: Final = 180_000
"""Without an evaluation for this long, and for three times the usual distance, the line has a gap."""


class MetricLine(Struct, kw_only=True, rename="camel"):
    """A metric: its values and targets at the chart's times, in `unit` (`%`, `Mi`, `Gi`, or empty: as it has them)."""

    name: str
    unit: str
    values: list[Number]
    targets: list[Number]


class Mark(Struct, kw_only=True, rename="camel"):
    """Something that happened at a time (seconds): `kind` is `spec`, `command`, `restart`, `hand` or `write`."""

    time: float
    kind: str
    text: str


class ChartSeries(Struct, kw_only=True, rename="camel"):
    """Lines over `times` (seconds since 1970); None is a gap. All replicas are counts."""

    times: list[float]
    wanted: list[Number]
    spec: list[Number]
    ready: list[Number]
    least: list[Number]
    most: list[Number]
    metrics: list[MetricLine]
    marks: list[Mark]
    since: float = 0
    """From when on evaluations were read; 0: since the span begins."""


def evaluations(decisions: Iterable[Recorded]) -> list[Recorded]:
    """The decisions that are evaluations."""
    return [each for each in decisions if each.decision.kind == "evaluation"]


def bounds_of(recorded: Recorded) -> tuple[int, ...]:
    """Return what a chart shows every change of: replicas and the bounds of them."""
    decision = recorded.decision
    return (decision.final_desired_replicas, decision.current_replicas, decision.min_replicas, decision.max_replicas)


def series(decisions: Sequence[Recorded], marks: Iterable[Mark] = ()) -> ChartSeries:
    """Lines of one HPA's evaluations, which are in order of time; every move of replicas and bounds is kept."""
    records = thinned(evaluations(decisions), MOST_POINTS, key=bounds_of)
    gap_ms = _gap_ms(records)
    points: list[tuple[float, Decision | None]] = []
    """The second part is None where a gap begins."""
    for before, recorded in zip([None, *records], records, strict=False):
        if before is not None and recorded.time_ms - before.time_ms > gap_ms:
            points.append(((before.time_ms + 1) / 1000, None))
        points.append((recorded.time_ms / 1000, recorded.decision))

    def line(value: Callable[[Decision], Number]) -> list[Number]:
        return [None if decision is None else value(decision) for _, decision in points]

    return ChartSeries(
        times=[time_s for time_s, _ in points],
        wanted=line(lambda d: d.final_desired_replicas if words.scale_is_known(d) else None),
        spec=line(lambda d: d.current_replicas if words.scale_is_known(d) else None),
        ready=line(lambda d: max((metric.pods_used for metric in d.metrics), default=0) or None),
        least=line(lambda d: d.min_replicas),
        most=line(lambda d: d.max_replicas),
        metrics=_metric_lines([decision for _, decision in points]),
        marks=list(marks),
    )


def _gap_ms(decisions: Sequence[Recorded]) -> float:
    if len(decisions) < 3:
        return GAP_MS
    distances = sorted(after.time_ms - before.time_ms for before, after in pairwise(decisions))
    return max(GAP_MS, 3 * distances[(len(distances) - 1) // 2])


def _metric_lines(decisions: Sequence[Decision | None]) -> list[MetricLine]:
    """A line for each metric that occurs, in the order in which they come."""
    metrics = [
        {words.short_name(m): m for m in decision.metrics} if decision is not None else {} for decision in decisions
    ]
    lines = []
    for name in dict.fromkeys(name for each in metrics for name in each):
        own = [each.get(name) for each in metrics]
        unit = _unit(name, [metric for metric in own if metric is not None])
        lines.append(
            MetricLine(
                name=name,
                unit=unit,
                values=[None if metric is None else _value(metric, unit) for metric in own],
                targets=[None if metric is None else _target(metric, unit) for metric in own],
            )
        )
    return lines


def spec_marks(decisions: Sequence[Recorded]) -> list[Mark]:
    """Where another generation of the spec comes into force, and where a pause begins or ends to hold a change."""
    marks = []
    for before, after in pairwise(evaluations(decisions)):
        one, other = before.decision, after.decision
        if (one.uid, one.generation, one.spec_hash) != (other.uid, other.generation, other.spec_hash):
            by = f" by {other.author}" if other.author else ""
            marks.append(Mark(time=after.time_ms / 1000, kind="spec", text=f"revision {other.generation}{by}"))
        if bool(one.paused) != bool(other.paused):
            text = other.paused or "resumed"
            marks.append(Mark(time=after.time_ms / 1000, kind="command", text=text))
    return marks


def restart_marks(decisions: Iterable[Recorded]) -> list[Mark]:
    """Where windows and scale events were cleared, with the reason: as if the controller had been started again."""
    return [
        Mark(time=each.time_ms / 1000, kind="restart", text=f"windows cleared: {why}")
        for each in decisions
        if (why := each.decision.observed.get("restart"))
    ]


def scale_marks(decisions: Iterable[Recorded]) -> list[Mark]:
    """Why replicas were changed, of the newest changes."""
    scalings = [each for each in decisions if each.decision.kind == "evaluation" and each.decision.direction != "None"]
    return [
        Mark(time=each.time_ms / 1000, kind="scale", text=f"{words.change(each.decision)} {words.why(each.decision)}")
        for each in scalings[-TIMELINE:]
    ]


def hand_marks(decisions: Iterable[Recorded]) -> list[Mark]:
    """Who wrote the replicas, as each evaluation saw it."""
    marks = []
    for recorded in decisions:
        if change := recorded.decision.observed.get("change"):
            move = moved(recorded.time_ms, change)
            text = f"{move.before} → {move.after} by {move.writer}"
            marks.append(
                Mark(time=move.time_ms / 1000, kind="write" if change["by"] == "decision" else "hand", text=text)
            )
    return marks


_SIZES: Final = {"Mi": 2**20, "Gi": 2**30}
"""Units of bytes in which a chart has numbers that fit beside its axis."""


def _unit(name: str, metrics: Sequence[MetricDecision]) -> str:
    if any(metric.target_utilization for metric in metrics):
        return "%"
    if name != "memory":
        return ""
    most = max((metric.target or 0 for metric in metrics), default=0) / 1000
    return "Gi" if most >= 10 * _SIZES["Gi"] else "Mi"


def _value(metric: MetricDecision, unit: str) -> Number:
    if metric.error:
        return None
    if unit == "%":
        return metric.utilization
    impossible = metric.value is None or metric.value <= words.SMALLEST_MILLI
    return None if impossible else _in(unit, metric.value or 0)


def _target(metric: MetricDecision, unit: str) -> Number:
    if unit == "%":
        return metric.target_utilization
    return None if metric.target is None else _in(unit, metric.target)


def _in(unit: str, milli: int) -> float:
    return milli / 1000 / _SIZES.get(unit, 1)


def charts(decisions: Sequence[Recorded], since_ms: int = 0) -> ChartSeries:
    """The lines of an HPA's charts, with marks for other specs, pauses in force, restarts, and for who wrote.

    `since_ms`: from when on decisions were read; 0: since the span begins.
    """
    chart_series = series(
        decisions, [*spec_marks(decisions), *restart_marks(decisions), *scale_marks(decisions), *hand_marks(decisions)]
    )
    chart_series.since = since_ms / 1000
    return chart_series

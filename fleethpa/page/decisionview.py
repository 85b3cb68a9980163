"""One decision with its arithmetic as a picture and its receipt, the difference of two, and what the record covers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from fleethpa.fleet.decisionfinding import AskedId, asked_id, find_decision
from fleethpa.fleet.decisionpage import Explanation, metric_health
from fleethpa.fleet.decisionsteps import StepRow
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.questions import explaining
from fleethpa.questions.explaining import Again, derived_again, derived_document, derived_text, evaluated_again
from fleethpa.show import words
from fleethpa.show.formats import one, to_yaml
from fleethpa.show.text import rfc3339
from fleethpa.show.words import spec_diff
from schemas.codec import encode, whole_number
from schemas.constraints import CONSTRAINTS
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from streams.analysis.revisions import spec_of
from streams.archive.layout import LOG, ArchiveError, is_written, snapshots
from streams.archive.segmentreader import PartitionReader
from streams.archive.signing import read_checkpoints
from streams.history.archivepast import ArchivePast
from streams.history.past import Past
from streams.history.recorded import Recorded
from streams.history.replay import NOTHING, differences

# --- the arithmetic: a bar for the count after each step, the step that decided lit -----------------------------------

STEP_WIDTH: Final = 130
BAR_WIDTH: Final = 76
HEIGHT: Final = 48
"""The highest bar."""
TOP: Final = 20
FOOT: Final = 50
LETTERS: Final = 19
LINES: Final = 2
"""Of a detail under a bar, each of LETTERS; the whole of it is in the bar's title."""
LEAST_PX: Final = 3


class Bar(NamedTuple):
    """A step as a bar, in SVG coordinates. `style`: `current`, `metric`, `rule`, `brake` or `final`."""

    name: str
    label: str
    value: str
    lines: Sequence[str]
    detail: str
    style: str
    is_lit: bool
    x: int
    y: float
    height: float
    link: str
    """The path of the line from the bar before; empty: there is none, or its count is not known."""


class Waterfall(NamedTuple):
    """The picture. `label`: what it says, in words."""

    bars: Sequence[Bar]
    width: int
    height: int
    label: str
    base: int = TOP + HEIGHT
    bar_width: int = BAR_WIDTH


def waterfall(explanation: Explanation) -> Waterfall:
    """Draw the steps of a decision from the current count to the final one; the division of a FleetHPA comes after."""
    divided = len(explanation.decision.observed.get("clusters", ()))
    explanation = replace(explanation, steps=explanation.steps[: len(explanation.steps) - divided])
    most = max([1, *(count for step in explanation.steps if (count := _count(step)) is not None)])
    decisive = deciding_step(explanation)
    tops = [_top(step, most) for step in explanation.steps]
    bars = [
        Bar(
            step.name,
            _label(step.name),
            step.value,
            _lines("no value" if step.value == "-" and number else step.detail),
            step.detail,
            _style(explanation, step, number),
            number == decisive,
            number * STEP_WIDTH + STEP_WIDTH // 2,
            top if top is not None else TOP + HEIGHT,
            TOP + HEIGHT - top if top is not None else 0,
            _link(tops, number),
        )
        for number, (step, top) in enumerate(zip(explanation.steps, tops, strict=True))
    ]
    label = ", ".join(f"{step.name} {step.value}" for step in explanation.steps)
    lit = f"; decided by {explanation.steps[decisive].name}" if decisive is not None else ""
    return Waterfall(bars, STEP_WIDTH * len(bars), TOP + HEIGHT + FOOT, f"{label}{lit}")


def deciding_step(explanation: Explanation) -> int | None:
    """The number of the step that made the answer what it is: the last one that changed the count, else the metric."""
    decisive = None
    before: int | None = None
    for number, step in enumerate(explanation.steps[:-1]):
        count = _count(step)
        is_changed = before is not None and count is not None and count != before
        if step.is_winner or (is_changed and _is_rule(explanation, number)):
            decisive = number
        if step.is_winner or _is_rule(explanation, number):
            before = count
    return decisive


def _is_rule(explanation: Explanation, number: int) -> bool:
    """Whether it comes after the metrics, and is not the end."""
    return len(explanation.decision.metrics) < number < len(explanation.steps) - 1


def _style(explanation: Explanation, step: StepRow, number: int) -> str:
    if number in (0, len(explanation.steps) - 1):
        return "current" if number == 0 else "final"
    if not _is_rule(explanation, number):
        return "metric"
    return "brake" if _is_limit(step) else "rule"


def _is_limit(row: StepRow) -> bool:
    """Whether it is the step of one of fleethpa's own limits."""
    return any(each.label == row.name for each in CONSTRAINTS.values() if each.kind == "limit" and each.step)


def _count(step: StepRow) -> int | None:
    return int(step.value) if step.value.isdigit() else None


def _top(step: StepRow, most: int) -> float | None:
    count = _count(step)
    return None if count is None else round(TOP + HEIGHT - max(LEAST_PX, HEIGHT * count / most), 1)


def _link(tops: Sequence[float | None], number: int) -> str:
    before = tops[number - 1] if number else None
    if before is None or tops[number] is None:
        return ""
    x = number * STEP_WIDTH + STEP_WIDTH // 2
    return f"M{x - STEP_WIDTH + BAR_WIDTH // 2} {before}H{x - BAR_WIDTH // 2}"


def _label(name: str) -> str:
    return name if len(name) <= LETTERS - 3 else f"{name[: LETTERS - 4]}…"


def _lines(detail: str) -> list[str]:
    """The first part of a detail."""
    return textwrap.wrap(detail.partition("   ")[0], LETTERS, max_lines=LINES, placeholder=" …")


# --- the decision -----------------------------------------------------------------------------------------------------

SHOWN_CHECKPOINTS: Final = 20
UNBROKEN: Final = 1_000_000
"""Width of YAML of which the browser breaks the lines."""


async def read_coverage(past: Past) -> dict[str, Any]:
    """Return what the template shows: the time and the records of each log partition, and the newest signed
    checkpoints.

    Raises ArchiveError: the archive is damaged.
    """
    rows = []
    for number in range(await past.partitions()):
        row = {
            "number": number,
            "first_ms": await past.first_ms(number),
            "last_ms": await past.last_ms(number),
            "records": len(await past.offsets(LOG, number)),
        }
        if isinstance(past, ArchivePast):
            row["segments"] = len(PartitionReader(past.root, LOG, number).manifests())
            row["snapshots"] = len(snapshots(past.root, number))
        rows.append(row)
    return {"partitions": rows, "has_segments": isinstance(past, ArchivePast)} | _checkpoints(past)


def _checkpoints(past: Past) -> dict[str, Any]:
    if not isinstance(past, ArchivePast):
        return _none("The topics hold none: an archive signs them.", "fleethpa audit keygen")
    try:
        checkpoints = read_checkpoints(past.root, None, written=is_written(past.root))
    except ArchiveError as error:
        return _none(f"The signed checkpoints are damaged: {error}", "")
    shown = [
        {"number": each.number, "time_ms": each.time_ms, "places": f"{len(each.heads)} topic partitions"}
        for each in reversed(checkpoints[-SHOWN_CHECKPOINTS:])
    ]
    none = _none("None: this archive is not signed.", "fleethpa audit keygen")
    return none | {"checkpoints": shown, "more_checkpoints": len(checkpoints) - len(shown)}


def _none(text: str, next_step: str) -> dict[str, Any]:
    return {"checkpoints": [], "more_checkpoints": 0, "no_checkpoints": text, "next_step": next_step}


WHOLE = 10_000
"""Lines around a change: the whole spec."""


async def read_spec_diff(past: Past, hpa: HpaId, one: str, other: str) -> dict[str, Any]:
    """Return what the template shows.

    Args:
        one: the log offset after which the first spec is taken; empty: right before `other`.
        other: the log offset after which the second is.

    Raises:
        CommandError: these are no offsets (exit 2).
        ArchiveError, CoreError: the log cannot be read, or does not reach back.
    """
    last, first = whole_number(other), whole_number(one)
    if last is None or (one and first is None):
        raise usage("which changes?", cause="They are named by their log offsets.", next_step=f"fleethpa history {hpa}")
    first = last - 1 if first is None else first
    (one_spec, _), (other_spec, time_ms) = [await _spec_after(past, hpa, offset) for offset in (first, last)]
    lines = spec_diff(one_spec, other_spec, "", "", WHOLE)
    kinds = {"+": "added", "-": "removed"}
    shown = [(kinds.get(line[:1], "same"), line) for line in lines[_DIFF_HEAD:]]
    change = "created" if one_spec is None else "deleted" if other_spec is None else "changed"
    return {"hpa": hpa, "lines": shown, "time_ms": time_ms, "change": change}


_DIFF_HEAD: Final = 3
"""Lines of a unified diff before those of the specs; one that shows them whole has one place."""


async def _spec_after(past: Past, hpa: HpaId, offset: int) -> tuple[dict[str, Any] | None, int]:
    """The spec of an HPA after a log record, and log time there."""
    if offset < 0:
        return None, 0
    number = partition_for(hpa.namespace_key, await past.partitions())
    partition = (await past.fold_to(number, offset=offset)).partition
    return spec_of(partition, hpa), partition.clock_ms


_METRIC: Final = re.compile(r"metrics\[(?P<name>.*)\](?P<rest>[^\]]*)")
MOMENTS: Final = frozenset({"at", "expires", "newest", "oldest", "until"})
"""Fields of a decision that are moments, in milliseconds since 1970."""
FOLDED: Final = frozenset({"id", "input", "labels", "prev", "seq", "specHash", "status"})
"""Fields that say of no decision why it came out as it did: those in which any two differ, and what others follow."""


@dataclass(frozen=True)
class DecisionPast:
    """A decision as it was recorded and evaluated again, and the record that ended its write."""

    found: Recorded
    ending: Recorded | None
    again: Again


async def read_decision(past: Past, id_: str) -> DecisionPast:
    """Read a decision by its ID, whole or short.

    Raises CommandError: no such decision (exit 4), or a short ID that means several (exit 2).
    """
    _named(id_)
    recorded, ending, _ = await find_decision(past, id_, None)
    return DecisionPast(recorded, ending, await evaluated_again(past, recorded))


def decision_view(read: DecisionPast) -> dict[str, Any]:
    """Return what the template shows; the ages of samples are those at which they were evaluated."""
    explanation = read.again.explained(read.ending)
    return {
        "explained": explanation,
        "hpa": read.found.hpa,
        "health": metric_health(explanation.decision, read.found.time_ms),
        "place": f"{read.found.partition}@{read.found.offset}",
        "note": read.again.unknown,
        "json": one("Decision", explaining.document(read.again), "json"),
    }


async def read_before(past: Past, other: DecisionPast) -> DecisionPast:
    """Read the evaluation of the same HPA right before a decision.

    Raises CommandError: it is the HPA's first (exit 4).
    """
    try:
        recorded, ending, _ = await find_decision(past, str(other.found.hpa), None, at_ms=other.found.time_ms - 1)
    except CommandError as error:
        raise not_found(
            f"the source holds no decision of {other.found.hpa} before {other.found.decision.id}", cause=error.what
        ) from error
    return DecisionPast(recorded, ending, await evaluated_again(past, recorded))


async def receipt(past: Past, id_: str, servers: str) -> dict[str, Any]:
    """Derive a decision again from the log: what `fleethpa replay ID` says, as a document and as lines.

    Raises CommandError: there is no such decision, or the source cannot be read.
    """
    derivation = derived_document(past, await derived_again(past, _named(id_), servers))
    return derivation | {"text": derived_text(derivation)}


def _named(id_: str) -> AskedId:
    if (decision_id := asked_id(id_)) is None:
        raise not_found(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A")
    return decision_id


FieldValues = tuple[str, str, str]
"""A path in a decision, and the value in each of two."""


def compared(one: Recorded, other: Recorded) -> tuple[list[FieldValues], list[FieldValues]]:
    """Where two decisions differ; and apart, where it is in a field that is folded away."""
    differing = differences(encode(one.decision), encode(other.decision))
    rows = [
        (_field(each.path), shown_value(each.path, each.recorded), shown_value(each.path, each.recomputed))
        for each in differing
    ]
    is_folded = [row[0].partition(".")[0].partition("[")[0] in FOLDED for row in rows]
    shown = [row for row, is_away in zip(rows, is_folded, strict=True) if not is_away]
    return shown, [row for row, is_away in zip(rows, is_folded, strict=True) if is_away]


def _field(path: str) -> str:
    """A path in which a metric has its short name."""
    match = _METRIC.match(path)
    return f"metrics[{words.short(match['name'])}]{match['rest']}" if match else path


def shown_value(path: str, value: Any) -> str:
    """A value as text, of several parts as YAML; what is a moment in milliseconds is a time."""
    if value is NOTHING:
        return "-"
    readable = _with_times(path.rpartition(".")[2], value)
    if isinstance(readable, list) and all(isinstance(each, str) for each in readable):
        return ", ".join(readable)
    if isinstance(readable, dict | list):
        return to_yaml(readable, UNBROKEN)
    return readable if isinstance(readable, str) else orjson.dumps(readable, default=str).decode()


def _with_times(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_times(key, each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_times(name, each) for each in value]
    return rfc3339(value) if name in MOMENTS and isinstance(value, int) else value

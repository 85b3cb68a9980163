"""One decision: the arithmetic, what would change it, its receipt, and how it differs from another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fleethpa.cli.common import explaining
from fleethpa.cli.common.decisionids import asked_id
from fleethpa.cli.common.deriving import derived_again
from fleethpa.cli.common.deriving import document as derived_document
from fleethpa.cli.common.deriving import text as derived_text
from fleethpa.cli.common.explaining import Again, evaluated_again
from fleethpa.cli.common.failures import CommandError, not_found
from fleethpa.cli.common.finding import find_decision
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import API_VERSION, to_json
from fleethpa.cli.output.times import rfc3339
from fleethpa.page.hpaview import decision_part
from schemas.codec import encode
from streams.history.differences import NOTHING, differences
from streams.history.past import Past
from streams.history.recorded import Recorded

_METRIC: Final = re.compile(r"metrics\[(?P<name>.*)\](?P<rest>[^\]]*)")
MOMENTS: Final = frozenset({"at", "expires", "newest", "oldest", "until"})
"""Fields of a decision that are moments, in milliseconds since 1970."""
OWN: Final = frozenset({"id", "input", "prev", "seq"})
"""Fields in which any two decisions differ."""


@dataclass(frozen=True)
class DecisionPast:
    """A decision as it was recorded and evaluated again, and the record that ended its write."""

    found: Recorded
    ending: Recorded | None
    again: Again


async def read_decision(past: Past, id_: str) -> DecisionPast:
    """Read a decision by its ID, whole or short.

    Raises:
        CommandError: no such decision (exit 4), or a short ID that means several (exit 2).
    """
    if asked_id(id_) is None:
        raise not_found(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A")
    found, ending = await find_decision(past, id_, None)
    return DecisionPast(found, ending, await evaluated_again(past, found))


def decision_view(read: DecisionPast) -> dict[str, Any]:
    """What the template shows; the ages of samples are those at which they were evaluated."""
    decision = read.again.recorded.decision
    body = explaining.document(read.again)
    return decision_part(read.again, read.ending, read.found.time_ms) | {
        "hpa": read.found.hpa,
        "kind": decision.kind,
        "completes": decision.completes,
        "mode": decision.mode,
        "generation": decision.generation,
        "engine": decision.engine,
        "author": decision.author,
        "spec_hash": decision.spec_hash,
        "input": decision.input,
        "place": f"{read.found.partition}@{read.found.offset}",
        "seq": decision.seq,
        "prev": decision.prev,
        "events": decision.events,
        "note": read.again.lacking,
        "json": to_json({"apiVersion": API_VERSION, "kind": "Decision"} | body),
    }


async def read_before(past: Past, other: DecisionPast) -> DecisionPast:
    """Read the evaluation of the same HPA right before a decision.

    Raises:
        CommandError: it is the HPA's first (exit 4).
    """
    try:
        found, ending = await find_decision(past, str(other.found.hpa), None, at_ms=other.found.time_ms - 1)
    except CommandError as error:
        raise not_found(
            f"the source holds no decision of {other.found.hpa} before {other.found.head.id}", cause=error.what
        ) from error
    return DecisionPast(found, ending, await evaluated_again(past, found))


async def receipt(past: Past, id_: str, servers: str) -> dict[str, Any]:
    """Derive a decision again from the log: what `fleethpa verify` says, as a document and as lines.

    Raises:
        CommandError: there is no such decision, or the source cannot be read.
    """
    asked = asked_id(id_)
    if asked is None:
        raise not_found(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A")
    found = derived_document(past, await derived_again(past, asked, servers))
    return found | {"text": derived_text(found)}


def compared(one: Recorded, other: Recorded) -> list[tuple[str, str, str]]:
    """Where two decisions differ: path, and the value in each. What differs between any two decisions comes last."""
    found = differences(encode(one.decision), encode(other.decision))
    rows = [(_field(each.path), _shown(each.path, each.recorded), _shown(each.path, each.recomputed)) for each in found]
    return sorted(rows, key=lambda row: row[0].partition(".")[0] in OWN)


def _field(path: str) -> str:
    """A path in which a metric has its short name."""
    found = _METRIC.match(path)
    return f"metrics[{words.short(found['name'])}]{found['rest']}" if found else path


def _shown(path: str, value: Any) -> str:
    """A value as text; what is a moment in milliseconds is a time."""
    if value is NOTHING:
        return "-"
    readable = _with_times(path.rpartition(".")[2], value)
    return readable if isinstance(readable, str) else orjson.dumps(readable, default=str).decode()


def _with_times(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_times(key, each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_times(name, each) for each in value]
    return rfc3339(value) if name in MOMENTS and isinstance(value, int) else value

"""One decision: the arithmetic, what would change it, its receipt, and how it differs from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from fleethpa.cli.common import explaining
from fleethpa.cli.common.decisionids import asked_id
from fleethpa.cli.common.deriving import derived_again
from fleethpa.cli.common.deriving import document as derived_document
from fleethpa.cli.common.deriving import text as derived_text
from fleethpa.cli.common.explaining import Again, evaluated_again
from fleethpa.cli.common.failures import not_found
from fleethpa.cli.common.finding import find_decision
from fleethpa.cli.output.formats import API_VERSION, to_json
from fleethpa.page.hpaview import decision_part
from schemas.codec import encode
from streams.history.differences import NOTHING, differences
from streams.history.past import Past
from streams.history.recorded import Recorded


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


def decision_view(read: DecisionPast, now_ms: int) -> dict[str, Any]:
    """What the template shows."""
    decision = read.again.recorded.decision
    body = explaining.document(read.again)
    return decision_part(read.again, read.ending, now_ms) | {
        "hpa": read.found.hpa,
        "kind": decision.kind,
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
    """Where two decisions differ: path, and the value in each."""
    found = differences(encode(one.decision), encode(other.decision))
    return [(each.path, _shown(each.recorded), _shown(each.recomputed)) for each in found]


def _shown(value: Any) -> str:
    if value is NOTHING:
        return "-"
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()

"""One decision derived again from the log, and what the comparison with the recorded one says."""

from __future__ import annotations

from typing import Any

import msgspec

from fleethpa.cli.common.brokerconnection import connecting
from fleethpa.cli.common.decisionids import AskedId, only
from fleethpa.cli.common.failures import not_found, usage
from runtime.jsonlog import clean
from streams.archive.segments import ArchiveError
from streams.history.differences import differences
from streams.history.onedecision import Derived, derive
from streams.history.past import Past
from streams.state.logerrors import CoreError


async def derived_again(past: Past, asked: AskedId, servers: str) -> Derived:
    """Derive the decision that is named again from the log; `servers`: the brokers, for messages.

    Raises:
        CommandError: no such decision (exit 4), or the source cannot be read.
    """
    async with connecting(servers):
        try:
            if asked.partition >= await past.partitions():
                raise not_found(f"no decision {asked.text}", cause=f"There is no partition {asked.partition}.")
            derived = await derive(past, asked.partition, asked.text, lambda ids: only(asked, ids))
        except (ArchiveError, CoreError) as error:
            raise usage(
                f"decision {asked.text} cannot be re-derived: {error}", next_step="fleethpa audit verify"
            ) from error
    if derived.standing is None and derived.made is None:
        raise not_found(
            f"no decision {asked.text}",
            cause="Neither the decisions nor the log hold it.",
            next_step="fleethpa decisions -A",
        )
    return derived


def document(past: Past, derived: Derived) -> dict[str, Any]:
    """What came out, as machine formats show it."""

    standing, made = derived.standing, derived.made
    value = standing.value if standing else b""
    found = differences(value, made.value) if standing and made else []
    body: dict[str, Any] = msgspec.json.decode(made.value if made else value)
    identical = standing is not None and made is not None and value == made.value
    return {
        "id": derived.id,
        "identical": identical,
        "source": past.name,
        "recorded": standing is not None,
        "recomputed": made is not None,
        "offset": standing.offset if standing else None,
        "seq": body.get("seq"),
        "input": body.get("input"),
        "engine": body.get("engine", 1),
        "start": derived.start,
        "logRecords": derived.folded,
        "differences": [{"path": d.path, "text": str(d)} for d in found],
    }


def text(found: dict[str, Any]) -> str:
    """What came out (a `document`), for people."""
    start = f"the snapshot at log offset {found['start']}" if found["start"] >= 0 else "the log's first record"
    lines = [f"decision   {found['id']}  number {found['seq']} of its partition"]
    if found["input"]:
        lines.append(
            f"input      log {found['input']['partition']}@{found['input']['offset']}  {found['input']['hash']}"
        )
    lines.append(f"made from  {start}, {found['logRecords']:,} log records folded")
    if found["identical"]:
        return "\n".join([*lines, "identical  to the byte"])
    if not found["recorded"]:
        return "\n".join([*lines, "MISSING    it follows from the log, but is not among the decisions"])
    if not found["recomputed"]:
        return "\n".join([*lines, "EXTRA      it is recorded, but does not follow from the log"])
    shown = [clean(f"DIFFERS    {each['text']}") for each in found["differences"]]
    return "\n".join([*lines, *(shown or ["DIFFERS    in its bytes, though not in their meaning"])])

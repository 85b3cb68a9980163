"""`fleethpa verify ID`: one decision derived again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.decisionids import AskedId, asked_id, only
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, not_found, usage
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import one

if TYPE_CHECKING:
    from streams.history.onedecision import Derived
    from streams.history.past import Past


@click.command()
@click.argument("id_", metavar="ID")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def verify(session: Session, id_: str, output: str) -> int:
    """Re-derive one decision from the log and compare it byte for byte; exit 1 if it differs.

    ID may be short, as lists of decisions print it.
    """
    from fleethpa.cli.common.sources import past_of

    asked = asked_id(id_)
    if asked is None:
        raise usage(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A -o wide")
    past = past_of(session)
    derived = session.run(_derive(session, past, asked))
    found = _document(past, derived)
    session.out(_text(found) if output == "table" else one("DecisionVerification", found, output))
    return OK if found["identical"] else ANSWER_IS_NO


async def _derive(session: Session, past: Past, asked: AskedId) -> Derived:
    from fleethpa.cli.common.brokerconnection import connecting
    from streams.archive.segments import ArchiveError
    from streams.history.onedecision import derive
    from streams.state.logerrors import CoreError

    async with connecting(session.config.servers):
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


def _document(past: Past, derived: Derived) -> dict[str, Any]:
    import msgspec

    from streams.history.differences import differences

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


def _text(found: dict[str, Any]) -> str:
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
    shown = [f"DIFFERS    {each['text']}" for each in found["differences"]]
    return "\n".join([*lines, *(shown or ["DIFFERS    in its bytes, though not in their meaning"])])

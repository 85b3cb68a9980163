"""What the record covers, and which parts of it were signed."""

from __future__ import annotations

from typing import Any, Final

from streams.archive.layout import LOG
from streams.archive.lock import is_written
from streams.archive.segmentreader import PartitionReader
from streams.archive.segments import ArchiveError
from streams.archive.signing import read_checkpoints
from streams.archive.snapshots import snapshots
from streams.history.archivepast import ArchivePast
from streams.history.past import Past

SHOWN_CHECKPOINTS: Final = 20


async def read_coverage(past: Past) -> dict[str, Any]:
    """What the template shows: the time and the records of each log partition, and the newest signed checkpoints.

    Raises:
        ArchiveError: the archive is damaged.
    """
    rows = []
    for number in range(await past.partitions()):
        row = {
            "number": number,
            "first_ms": await past.first_ms(number),
            "last_ms": await past.last_ms(number),
            "records": len(await past.log_offsets(number)),
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
        found = read_checkpoints(past.root, None, written=is_written(past.root))
    except ArchiveError as error:
        return _none(f"The signed checkpoints are damaged: {error}", "")
    shown = [
        {"number": each.number, "time_ms": each.time_ms, "places": f"{len(each.heads)} topic partitions"}
        for each in reversed(found[-SHOWN_CHECKPOINTS:])
    ]
    none = _none("None: this archive is not signed.", "fleethpa audit keygen")
    return none | {"checkpoints": shown, "more_checkpoints": len(found) - len(shown)}


def _none(text: str, next_step: str) -> dict[str, Any]:
    return {"checkpoints": [], "more_checkpoints": 0, "no_checkpoints": text, "next_step": next_step}

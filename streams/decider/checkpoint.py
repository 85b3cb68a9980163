"""Writing state rows: in the core's order into one changelog partition, so that a crash leaves a valid prefix.

Besides the core's rows is one of the adapter, `b"<partition>|d"`: the offset of the last own decision at the time.
It is written last, so one that is missing or old only makes the next owner read a little more.
"""

from collections.abc import Callable, Iterator, Mapping

from streams.decider.crashpoints import CrashPoint, crash
from streams.decider.owned import OwnedPartition
from streams.decider.recordbatches import BatchSender, BatchWriter
from streams.state.rowcopies import APPLIED_BYTES, applied_prefix

OWN_ROW = b"d"


def split_rows(rows: Mapping[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The core's rows, and the adapter's own."""
    core: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    for key, value in rows.items():
        (own if key.partition(b"|")[2] == OWN_ROW else core)[key] = value
    return core, own


def decisions_offset_of(own_rows: Mapping[bytes, bytes]) -> int:
    """The offset at which to begin to read the decisions topic; 0 without such a row."""
    return max((int(value[APPLIED_BYTES:]) for value in own_rows.values()), default=0)


def own_row(number: int, applied_offset: int, decisions_offset: int) -> tuple[bytes, bytes]:
    """The adapter's row of a partition that has applied the log up to an offset."""
    return b"%d|%s" % (number, OWN_ROW), applied_prefix(applied_offset) + b"%d" % decisions_offset


def written_rows(owned: OwnedPartition) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a partition as the checkpoints until now wrote them; right after one, while nothing has changed."""
    if owned.partition.applied_offset >= 0:
        yield from owned.partition.rows()
        yield own_row(owned.number, owned.partition.applied_offset, owned.decisions_offset)


async def write_checkpoint(
    owned: OwnedPartition,
    *,
    producer: BatchSender,
    topic: str,
    still_ours: Callable[[], bool],
    faults: CrashPoint,
) -> int:
    """Write the dirty rows of a partition, wait for the broker, give the number of bytes. Stops if no longer owner:
    what was queued until then is a prefix of the rows.
    """
    rows = owned.partition.checkpoint()
    rows.append(own_row(owned.number, owned.partition.applied_offset, owned.decisions_offset))
    writer = BatchWriter(producer, topic, owned.number)
    for number, (key, value) in enumerate(rows, start=1):
        if not still_ours():
            break
        await writer.add(value or None, key)
        if faults.is_due(f"checkpoint-row:{number}"):
            await writer.flush()
            await writer.written()
            crash()
    if still_ours():
        await writer.flush()
    await writer.written()
    return sum(len(value) for _, value in rows[: writer.queued])

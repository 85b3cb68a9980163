"""Writing state rows: in the core's order into one changelog partition, so that a crash leaves a valid prefix.

Besides the core's rows is one of the adapter, `b"<partition>|d"`: the offset of the last own decision at the time.
It is written last, so one that is missing or old only makes the next owner read a little more.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

from streams.decider.crashpoints import CrashPoint, crash
from streams.decider.owned import OwnedPartition
from streams.state.rowcopies import APPLIED_BYTES, applied_prefix

OWN_ROW = b"d"


class Producer(Protocol):
    """The part of aiokafka's producer that is used: `send` puts a record in the buffer, its future is the broker's."""

    async def send(self, topic: str, value: bytes, *, key: bytes | None, partition: int) -> "asyncio.Future[Any]": ...


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


async def write_checkpoint(
    owned: OwnedPartition,
    *,
    producer: Producer,
    topic: str,
    store: MutableMapping[bytes, bytes],
    still_ours: Callable[[], bool],
    faults: CrashPoint,
) -> int:
    """Write the dirty rows of a partition, wait for the broker, give the number of bytes. Stops if no longer owner."""
    rows = owned.partition.checkpoint()
    rows.append(own_row(owned.number, owned.partition.applied_offset, owned.decisions_offset))
    futures: list[asyncio.Future[Any]] = []
    for number, (key, value) in enumerate(rows, start=1):
        if not still_ours():
            break
        futures.append(await producer.send(topic, value, key=key, partition=owned.number))
        if faults.is_due(f"checkpoint-row:{number}"):
            await asyncio.gather(*futures)
            crash()
    await asyncio.gather(*futures)
    written = rows[: len(futures)]
    store.update(written)
    return sum(len(value) for _, value in written)

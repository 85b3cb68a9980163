"""Whose log it is: ingest and deciders sign the records that they append with the name of their hub, and a process of
another hub is refused at its start while the first one works. Of two that start in the same seconds, before either has
appended anything, the one whose name sorts later ends.

No clock is compared: a hub works if a further record of it comes. Only who finds another name waits for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from runtime.errors import NextStepError
from runtime.kafkaclients import ends_of, read_to, reader, seek_back
from schemas.connection import MOST_HUB_CHARACTERS, KafkaSettings
from schemas.topics import LOG

WATCHED_S: Final = 15.0
"""Ingest appends to each partition of the log within 5 s, a decider each second."""
STARTED_S: Final = 2 * WATCHED_S
"""How long a process that has started looks for another hub that started with it: longer than a start and an append."""
_HEADER: Final = "hub"
_READ_BACK: Final = 20
"""Records of each partition, of which all are signed but those of tools such as `admin topics log-time`."""
_NEVER_MS: Final = 253_402_300_799_000
_POLL_MS: Final = 500


class HubTakenError(NextStepError):
    """Another hub works with this log; the text names it."""


def signature(hub: str) -> list[tuple[str, bytes]]:
    """The headers of a record of the log that a hub appends; none where it has no name."""
    return [(_HEADER, hub.encode())] if hub else []


def hub_of(record: Any) -> str:
    """The hub that appended a record of the log; empty: it is not signed."""
    value = next((value for name, value in record.headers if name == _HEADER), b"")
    return str(value.decode("utf-8", "replace"))[:MOST_HUB_CHARACTERS]


async def check_hub(kafka: KafkaSettings, hub: str, partitions: int, watched_s: float = WATCHED_S) -> None:
    """Check that no other hub works with the log. Where the newest records are of another one, wait for further ones.

    Args:
        hub: this one; empty: nothing is checked.
        watched_s: how long to wait; one from which nothing comes meanwhile has given its place up.

    Raises HubTakenError: another one works. Raises KafkaError: the log cannot be read.
    """
    if not hub:
        return
    async with reader(kafka, [TopicPartition(LOG, number) for number in range(partitions)]) as consumer:
        ends = await ends_of(consumer)
        await seek_back(consumer, ends, _NEVER_MS, _READ_BACK)
        newest: dict[int, str] = {}
        async with aclosing(read_to(consumer, ends)) as records:
            async for record in records:
                newest[record.partition] = hub_of(record) or newest.get(record.partition, "")
        if set(newest.values()) - {hub, ""}:
            await _refuse(kafka, hub, consumer, lambda other: other != hub, watched_s)


async def watch_hub(kafka: KafkaSettings, hub: str, partitions: int, watched_s: float = STARTED_S) -> None:
    """Watch the log after the start, for a hub that began in the same seconds and found nothing either. Both see each
    other; the one whose name sorts first goes on.

    Args:
        hub: this one; empty: nothing is watched.
        partitions: of the log, all of which are watched: processes of two hubs share one group, and each writes to
            some of them.

    Raises HubTakenError: another one works, and its name sorts before this one's. Raises KafkaError: as `check_hub`.
    """
    if not hub:
        return
    async with reader(kafka, [TopicPartition(LOG, number) for number in range(partitions)]) as consumer:
        for partition, end in (await ends_of(consumer)).items():
            consumer.seek(partition, end)
        await _refuse(kafka, hub, consumer, lambda other: other < hub, watched_s)


async def _refuse(
    kafka: KafkaSettings, hub: str, consumer: AIOKafkaConsumer, is_refused: Callable[[str], bool], watched_s: float
) -> None:
    """Read on for a while. Raises HubTakenError: a record comes that a hub has signed by which this one is refused."""
    ends_s = time.monotonic() + watched_s
    while time.monotonic() < ends_s:
        for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
            for other in filter(None, map(hub_of, records)):
                if is_refused(other):
                    raise _taken(kafka, hub, other)


def _taken(kafka: KafkaSettings, hub: str, other: str) -> HubTakenError:
    return HubTakenError(
        f"hub {other!r} works with {LOG} at {kafka.bootstrap_servers}; this is hub {hub!r}, which would take its "
        "partitions",
        next_step=f"give this hub a Kafka of its own, or stop {other!r} and start this one again; if both are one hub "
        f"that got another name, start it with --hub {other} (chart: `hub`)",
    )

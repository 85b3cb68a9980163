"""Signs of life of the processes that write nothing while nothing happens (`schemas.topics.QuietProcess`).

Each commits the present time to a consumer group of its own without members, in the metadata of an offset. Kafka keeps
the newest only, and a process needs no right to write to a topic for it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final, get_args

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from runtime.ending import first_of
from runtime.kafkaclients import aiokafka_kwargs, new_consumer, started_patiently
from runtime.log import Clock
from schemas.connection import KafkaSettings
from schemas.topics import ALIVE_GROUPS, DECISIONS, QuietProcess

log = logging.getLogger(__name__)

SIGN_EVERY_S: Final = 5.0
FAREWELL_S: Final = 1.0
"""How long the commit at the end may take."""
_OFFSET: Final = TopicPartition(DECISIONS, 0)
"""A partition that all three and every reader may read; the offset itself means nothing."""


async def keep_signing(settings: KafkaSettings, process: QuietProcess, clock: Clock, stop: asyncio.Event) -> None:
    """Commit the present every 5 s until `stop` is set, and then that the process ended on purpose.

    Brokers that are away are waited for, but not at the end. `clock`: Unix milliseconds.
    """
    async with asyncio.TaskGroup() as group:
        signing = group.create_task(_signing(settings, process, clock, stop))
        stopped = group.create_task(stop.wait())
        await asyncio.wait({signing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({signing}, timeout=FAREWELL_S)
        signing.cancel()
        stopped.cancel()


async def _signing(settings: KafkaSettings, process: QuietProcess, clock: Clock, stop: asyncio.Event) -> None:
    """Sign, and ignore errors of the brokers: a process must not end because its sign could not be written."""
    while not stop.is_set():
        try:
            async with marks(settings, group_of(process), [_OFFSET]) as consumer:
                while not stop.is_set():
                    await _commit(consumer, str(clock()))
                    await first_of(stop.wait(), asyncio.sleep(SIGN_EVERY_S))
                await _commit(consumer, "")
        except KafkaError as error:
            log.warning("no sign of life was committed: %s", error)
            await first_of(stop.wait(), asyncio.sleep(SIGN_EVERY_S))


async def _commit(consumer: AIOKafkaConsumer, text: str) -> None:
    """Commit; raises KafkaError. The driver shields its request, so that a cancellation would leave the request's error
    to nobody, and asyncio would log it: here it is looked at.
    """
    committing = asyncio.ensure_future(consumer.commit({_OFFSET: OffsetAndMetadata(0, text)}))
    committing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.shield(committing)


@asynccontextmanager
async def marks(
    settings: KafkaSettings, group: str, partitions: Collection[TopicPartition]
) -> AsyncIterator[AIOKafkaConsumer]:
    """The committed offsets of a group without members, to be read and changed."""
    async with started_patiently(lambda: new_consumer(settings, group_id=group)) as consumer:
        consumer.assign(list(partitions))
        yield consumer


async def last_signs(settings: KafkaSettings) -> Mapping[QuietProcess, int]:
    """When each process gave its last sign of life (Unix milliseconds), without those that never ran or were stopped.

    Raises KafkaError: the brokers do not answer, or this user may not see the groups.
    """
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    try:
        await admin.start()
        processes = get_args(QuietProcess)
        texts = await asyncio.gather(*(_sign_of(admin, process) for process in processes))
    except GroupCoordinatorNotAvailableError:  # brokers on which no group has ever committed anything, or for a moment
        return {}
    finally:
        await admin.close()
    return {process: int(text) for process, text in zip(processes, texts, strict=True) if text.isdecimal()}


def group_of(process: QuietProcess) -> str:
    """The group that keeps a process's signs of life."""
    return f"{ALIVE_GROUPS}{process}"


async def _sign_of(admin: AIOKafkaAdminClient, process: QuietProcess) -> str:
    offsets = await admin.list_consumer_group_offsets(group_of(process), partitions=[_OFFSET])
    return (offsets[_OFFSET].metadata if _OFFSET in offsets else None) or ""

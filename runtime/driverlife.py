"""aiokafka clients where the driver would leave a connection open, wait without end, or ask without a pause."""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaTimeoutError

from runtime import ending

log = logging.getLogger(__name__)

BOOTSTRAP_WITHIN_S = 2.0
LOOK_S = 0.2
"""How long a cancellation waits for the first question to a broker to end, and between two looks whether it has."""
STOP_WITHIN_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Between two questions for the metadata of topics that a client is denied, or that do not exist, or to brokers that do
not answer: the first pause, and what it grows to.
"""

_ask_for_metadata = AIOKafkaClient._metadata_update


def ask_with_pauses() -> None:
    """Let every client of this process pause between questions that are in vain.

    A consumer of the driver (aiokafka 0.14) that has no leader of a partition asks again at once, hundreds of times a
    second, and logs each answer.
    """
    AIOKafkaClient._metadata_update = _ask_with_pauses


async def _ask_with_pauses(client: Any, metadata: ClusterMetadata, topics: Collection[str]) -> bool:
    in_vain: int = vars(client).get("asked_in_vain", 0)
    if in_vain:
        await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(in_vain - 1, 10)))
    is_answered: bool = await _ask_for_metadata(client, metadata, topics)
    is_complete = is_answered and all(metadata.partitions_for_topic(topic) for topic in topics or ())
    client.asked_in_vain = 0 if is_complete else in_vain + 1
    return is_answered


async def start_driver(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client; a cancellation waits until its first question to a broker has ended, BOOTSTRAP_WITHIN_S at most.

    The driver leaves the connection of that question open where the question is cancelled.
    """
    starting = asyncio.create_task(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        until_s = time.monotonic() + ending.left_s(BOOTSTRAP_WITHIN_S)
        while not (starting.done() or _has_asked(client)) and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.wait({starting}, timeout=min(left_s, LOOK_S))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise


def _has_asked(client: AIOKafkaConsumer | AIOKafkaProducer) -> bool:
    """Whether a broker has answered the first question: then the driver keeps its knowledge of them fresh in a task."""
    return driver_of(client)._sync_task is not None


async def stop_soon(client: AIOKafkaConsumer | AIOKafkaProducer) -> bool:
    """Stop a client within STOP_WITHIN_S, or what the end of the process leaves of it; whether it ended in order.

    The driver's own stop waits for a topic that takes no records, however long, and for a broker that does not answer.
    """
    try:
        async with asyncio.timeout(ending.left_s(STOP_WITHIN_S)):
            await client.stop()
    except TimeoutError:
        await _abandon(client)
        if isinstance(client, AIOKafkaProducer):
            log.warning("records were given up at the end of a producer, as the brokers did not take them")
        else:
            log.warning("a consumer ended without leaving its group, as the brokers did not answer")
        return False
    return True


async def _abandon(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """End the tasks of a client and close its connections, without a request to a broker."""
    driver = driver_of(client)
    is_producer = isinstance(client, AIOKafkaProducer)
    inner = (client._sender, client._message_accumulator) if is_producer else (client._coordinator, client._fetcher)
    tasks = [task for task in asyncio.all_tasks() if _works_for(task) in (driver, *inner)]
    for task in tasks:
        task.cancel()
    for connection in list(driver._conns.values()):
        if connection._writer is not None:
            connection._writer.transport.abort()  # closing would wait for a peer that reads nothing
    await driver.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    if is_producer:
        client._message_accumulator.fail_all(KafkaTimeoutError("the producer has ended"))


def _works_for(task: "asyncio.Task[Any]") -> object:
    """The object of the driver whose method a task runs; the driver keeps some of its tasks in local variables only."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame.f_locals.get("self", task) if frame is not None else task


def driver_of(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:
    """What of a client holds its connections."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client

"""Start and end of aiokafka clients where the driver would leave a connection open, or wait without end."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

BOOTSTRAP_WITHIN_S = 2.0
LOOK_S = 0.2
"""How long a cancellation waits for the first question to a broker to end, and between two looks whether it has."""
STOP_WITHIN_S = 5.0


async def start_driver(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client; a cancellation waits until its first question to a broker has ended, BOOTSTRAP_WITHIN_S at most.

    The driver leaves the connection of that question open where the question is cancelled.
    """
    starting = asyncio.create_task(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        until_s = time.monotonic() + BOOTSTRAP_WITHIN_S
        while not (starting.done() or _has_asked(client)) and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.wait({starting}, timeout=min(left_s, LOOK_S))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise


def _has_asked(client: AIOKafkaConsumer | AIOKafkaProducer) -> bool:
    """Whether a broker has answered the first question: then the driver keeps its knowledge of them fresh in a task."""
    return driver_of(client)._sync_task is not None


async def stop_soon(producer: AIOKafkaProducer) -> bool:
    """Stop a producer within STOP_WITHIN_S; whether all that it was sent was taken. The driver's own stop waits for a
    topic that takes no records, however long.
    """
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await producer.stop()
    except TimeoutError:
        await producer._sender.close()
        producer._message_accumulator.fail_all(KafkaTimeoutError("the producer has ended"))
        await producer.client.close()
        return False
    return True


def driver_of(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:
    """What of a client holds its connections."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client

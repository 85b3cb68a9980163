"""The start of an aiokafka client, so that a cancellation leaves no connection open."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

BOOTSTRAP_WITHIN_S = 2.0
LOOK_S = 0.2
"""How long a cancellation waits for the first question to a broker to end, and between two looks whether it has."""


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


def driver_of(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:
    """What of a client holds its connections."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client

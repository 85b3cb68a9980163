"""What a reconciler says of itself: whom it serves, for as long as it reads decisions."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from reconciler.apply.reconcilerconfig import ReconcilerConfig
from reconciler.apply.reconcilerprocess import Reconciler
from schemas.connection import KafkaSettings
from schemas.scales import Serving


class Topic:
    """Takes what is published; raises what it is given first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.taken = list(errors), asyncio.Queue[Serving]()

    async def send(self, topic: str, cluster: str, namespace: str, bodies: list[Any], time_ms: int) -> None:
        assert (topic, cluster, namespace) == ("fleethpa.scales", "", "")
        if self.errors:
            raise self.errors.pop(0)
        self.taken.put_nowait(bodies[0])


def reconciler(topic: Topic) -> Reconciler:
    made = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=(), heartbeat_ms=0))
    made._publisher = topic  # type: ignore[assignment]
    return made


async def test_it_is_heard_again_when_the_brokers_are_back() -> None:
    topic = Topic(KafkaTimeoutError(), KafkaTimeoutError())
    made = reconciler(topic)
    beating = asyncio.create_task(made._beat())
    while topic.errors:
        made._reading.set()
        await asyncio.sleep(0)
    made._reading.set()
    assert (await topic.taken.get()).clusters == []
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating


async def test_it_is_not_heard_while_it_reads_no_decisions() -> None:
    topic = Topic()
    made = reconciler(topic)
    beating = asyncio.create_task(made._beat())
    made._reading.set()
    await topic.taken.get()
    for _ in range(50):
        await asyncio.sleep(0)
    assert topic.taken.empty(), "the topic of decisions was not looked at again"
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating


async def test_a_right_that_is_missing_ends_it() -> None:
    made = reconciler(Topic(TopicAuthorizationFailedError("fleethpa.scales")))
    made._reading.set()
    with pytest.raises(TopicAuthorizationFailedError):
        await made._beat()

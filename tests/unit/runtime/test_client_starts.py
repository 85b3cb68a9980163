"""A Kafka client whose start is cancelled leaves nothing open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaError, RequestTimedOutError

from runtime import driver as driverlife
from runtime import kafkaclients
from runtime.topicadmin import TopicAdmin
from schemas.connection import KafkaSettings


class Connection:
    """The driver's first connection to a broker, which answers when it is let."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.is_asked, self.is_let = asyncio.Event(), asyncio.Event()
        self.is_open, self._error = True, error

    async def send(self, request: object) -> object:
        self.is_asked.set()
        await self.is_let.wait()
        if self._error is not None:
            raise self._error
        return SimpleNamespace(API_VERSION=0, brokers=[(0, "broker", 9092)], topics=[])

    def close(self, reason: object = None) -> asyncio.Future[None]:
        self.is_open = False
        closed = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[TopicAdmin]:
    async with TopicAdmin(settings) as admin:
        yield admin


def _producer(settings: KafkaSettings) -> AbstractAsyncContextManager[object]:
    return kafkaclients.started(kafkaclients.strict_producer(settings))


def _consumer(settings: KafkaSettings) -> AbstractAsyncContextManager[object]:
    return kafkaclients.reader(settings)


@pytest.mark.parametrize("client", [_producer, _consumer, _admin])
@pytest.mark.parametrize("answer", ["none", "late", "refused"])
async def test_a_start_that_is_cancelled_closes_its_first_connection_at_once(
    client: Callable[[KafkaSettings], AbstractAsyncContextManager[object]], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(RequestTimedOutError() if answer == "refused" else None)

    async def connect(*_: object, **__: object) -> Connection:
        return connection

    async def work() -> None:
        async with client(KafkaSettings(bootstrap_servers="broker:9092")):
            raise AssertionError("it was cancelled before")

    monkeypatch.setattr(driverlife, "_connect", connect)
    task = asyncio.create_task(work())
    await connection.is_asked.wait()
    task.cancel()
    if answer != "none":
        asyncio.get_running_loop().call_soon(connection.is_let.set)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, timeout=10)
    assert not connection.is_open


@pytest.mark.parametrize(
    ("is_answered", "known", "pauses"),
    [
        pytest.param(True, {"orders": {0}}, [], id="a topic that is there"),
        pytest.param(True, {}, [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], id="a topic that is denied or does not exist"),
        pytest.param(False, {"orders": {0}}, [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], id="brokers that do not answer"),
    ],
)
async def test_questions_for_metadata_that_are_in_vain_become_seldom(
    is_answered: bool, known: dict[str, set[int]], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask(*_: object) -> bool:
        return is_answered

    monkeypatch.setattr("asyncio.sleep", sleep)
    monkeypatch.setattr(driverlife, "_ask_for_metadata", ask)
    client, metadata = SimpleNamespace(), SimpleNamespace(partitions_for_topic=known.get)
    for _ in range(8):
        assert await driverlife._ask_with_pauses(client, metadata, {"orders"}) is is_answered
    assert slept == pauses
    known["orders"], is_answered = {0}, True
    for _ in range(2):
        await driverlife._ask_with_pauses(client, metadata, {"orders"})
    assert slept[len(pauses) :] == pauses[-1:]

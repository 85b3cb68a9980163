"""Two hubs on one Kafka: the second one is refused by name at its start, and the first one goes on."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.hubs import HubTakenError, check_hub, hub_of, signature, watch_hub
from schemas import topics
from schemas.connection import MOST_HUB_CHARACTERS, KafkaSettings
from streams.decider.tail import Exit
from tests.kit.decider_process import Decider
from tests.pipeline.ingesting import PARTITIONS, Process, producer, reading, sample

DECIDER_TOPICS = [topics.DECISIONS, topics.CHANGELOG]


@pytest.fixture
def broker() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([*topics.PUBLIC_TOPICS, topics.LOG, topics.REJECTED, *DECIDER_TOPICS])
        yield KafkaSettings(bootstrap_servers=running.bootstrap)


async def test_a_second_hub_is_refused_and_the_first_goes_on(broker: KafkaSettings, tmp_path: Path) -> None:
    async with producer(broker) as out, reading(broker, topics.LOG) as log:
        with Process(broker, "--hub", "eu/fleethpa") as first:
            await first.port()
            await out.send_and_wait(topics.SAMPLES, sample(1))
            await log.until(lambda log: log.values() == {1})
            with Process(broker, "--hub", "us/fleethpa") as second:
                code, text = await second.ended()
            assert code == 3, text
            assert "hub 'eu/fleethpa' works with fleethpa.log" in text
            assert "--hub eu/fleethpa" in text
            with Decider(broker.bootstrap_servers, tmp_path / "decider.txt", "--hub", "us/fleethpa") as decider:
                ended = await asyncio.to_thread(decider.process.wait, 120)
            assert (ended, "hub 'eu/fleethpa' works" in decider.tail()) == (Exit.NEEDS_OPERATOR, True), decider.tail()
            await out.send_and_wait(topics.SAMPLES, sample(2))
            await log.until(lambda log: log.values() == {1, 2})


async def _written(
    kafka: KafkaSettings, hub: str, stop: asyncio.Event, partitions: Sequence[int] = range(PARTITIONS)
) -> None:
    """Write to partitions as the processes of a hub do, until they are to stop."""
    async with producer(kafka) as out:
        while not stop.is_set():
            for number in partitions:
                await out.send_and_wait(topics.LOG, b"{}", partition=number, headers=signature(hub))
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [
        pytest.param([], "", False, id="an empty log"),
        pytest.param([""], "", False, id="what nobody signed"),
        pytest.param(["eu"], "", False, id="its own, which is away"),
        pytest.param(["eu"], "eu", False, id="its own, which works: another process of it"),
        pytest.param(["us"], "", False, id="another one that has ended"),
        pytest.param(["us"], "us", True, id="another one that works"),
        pytest.param(["us", "eu"], "eu", False, id="another one that was there before"),
        pytest.param(["us", ""], "us", True, id="another one, and what a tool has written since"),
    ],
)
async def test_who_may_start(broker: KafkaSettings, before: list[str], now: str, is_refused: bool) -> None:
    async with producer(broker) as out:
        for hub in before:
            for number in range(PARTITIONS):
                await out.send_and_wait(topics.LOG, b"{}", partition=number, headers=signature(hub))
    stop = asyncio.Event()
    writing = asyncio.create_task(_written(broker, now, stop)) if now else None
    try:
        # Long enough for one that works, which is seen at its first record; short for one that does not.
        await check_hub(broker, "eu", PARTITIONS, watched_s=30 if is_refused else 1)
        refused = ""
    except HubTakenError as error:
        refused = str(error)
    finally:
        stop.set()
        if writing is not None:
            await writing
    assert ("hub 'us' works" in refused) is is_refused, refused


@pytest.mark.parametrize(
    ("hub", "other", "is_refused"),
    [
        pytest.param("us", "eu", True, id="the other one's name sorts first"),
        pytest.param("eu", "us", False, id="its own name sorts first"),
        pytest.param("eu", "eu", False, id="its own other processes"),
        pytest.param("eu", "", False, id="what a tool writes"),
        pytest.param("", "eu", False, id="it has no name"),
    ],
)
async def test_after_its_start_a_process_gives_way_to_a_name_that_sorts_first(
    broker: KafkaSettings, hub: str, other: str, is_refused: bool
) -> None:
    stop = asyncio.Event()
    writing = asyncio.create_task(_written(broker, other, stop))
    try:
        await watch_hub(broker, hub, PARTITIONS, watched_s=30 if is_refused else 1)
        refused = ""
    except HubTakenError as error:
        refused = str(error)
    finally:
        stop.set()
        await writing
    assert (f"hub '{other}' works" in refused) is is_refused, refused


@pytest.mark.parametrize("partition", range(PARTITIONS))
async def test_another_hub_is_seen_in_whichever_partition_it_writes(broker: KafkaSettings, partition: int) -> None:
    """Processes of two hubs share one group: each has some of the partitions."""
    stop = asyncio.Event()
    writing = asyncio.create_task(_written(broker, "eu", stop, [partition]))
    try:
        with pytest.raises(HubTakenError, match="hub 'eu' works"):
            await watch_hub(broker, "us", PARTITIONS, watched_s=10)
    finally:
        stop.set()
        await writing


def test_a_name_of_any_bytes_is_read_and_shortened() -> None:
    class Record:
        headers: Any = (("other", b"x"), ("hub", b"\xff" * 1_000))

    assert len(hub_of(Record())) == MOST_HUB_CHARACTERS

"""The decider as processes on the embedded broker: whatever dies, the decisions are the pure fold's bytes."""

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from aiokafka import TopicPartition

from fleethpa.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, strict_producer
from schemas import topics
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import ENGINE
from schemas.entries import VERSION, Entry, LogRecord
from schemas.settings import EngineSet
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.decider.tail import Exit
from tests.kit.decider_process import Decider, first_difference, load_log, read_decisions, wait_for_decisions
from tests.kit.playback import TimedRecord, fold, make_log
from tests.kit.pushed import moving_samples

NUMBERS = range(PARTITIONS)


@pytest.fixture
def broker() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        yield KafkaSettings(bootstrap_servers=running.bootstrap)


def decider(broker: KafkaSettings, folder: Path, *arguments: str, crash_at: str = "") -> Decider:
    return Decider(broker.bootstrap_servers, folder / "decider.txt", *arguments, crash_at=crash_at)


@pytest.mark.parametrize(
    ("steps", "minutes"),
    [
        pytest.param(["after-publish"], 2, id="one"),
        pytest.param(["after-publish", "checkpoint-row:4*2"], 5, id="two", marks=pytest.mark.slow),
    ],
)
async def test_a_decider_killed_at_marked_steps_decides_what_an_undisturbed_fold_does(
    broker: KafkaSettings, tmp_path: Path, steps: list[str], minutes: int
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=minutes, hpas=24, seed=7)
    want = fold(log)
    await load_log(broker, log)
    for step in steps:
        with decider(broker, tmp_path, "--playback", crash_at=step) as doomed:
            assert await asyncio.to_thread(doomed.process.wait, 60) == -9, doomed.tail()
    with decider(broker, tmp_path, "--playback") as running:
        async with asyncio.timeout(60):  # the others may have published all decisions before this one started
            while running.output.read_text(errors="replace").count("owning log partitions") <= len(steps):
                await asyncio.sleep(0.1)
        got = await wait_for_decisions(broker, want, [running])
        assert await asyncio.to_thread(running.terminate) == 0, running.tail()
    assert first_difference(want, got) == ""
    assert [len(got[number].records) for number in NUMBERS] == [len(want[number]) for number in NUMBERS]


@pytest.mark.slow  # many processes; the fast tier has the other kills and ends
async def test_a_decider_killed_while_samples_bring_evaluations_decides_the_same(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    logs = {number: moving_samples(seed=number, records=400, number=number) for number in NUMBERS}
    log = {
        number: [TimedRecord(each.timestamp_ms, each.value) for each in made.records] for number, made in logs.items()
    }
    want = fold(log)
    await load_log(broker, log)
    with decider(broker, tmp_path, "--playback", crash_at="checkpoint-row:4*2") as doomed:
        assert await asyncio.to_thread(doomed.process.wait, 60) == -9, doomed.tail()
    with decider(broker, tmp_path, "--playback") as running:
        got = await wait_for_decisions(broker, want, [running])
    assert first_difference(want, got) == ""


async def test_ticks_pass_time_and_health_and_metrics_tell(broker: KafkaSettings, tmp_path: Path) -> None:
    with decider(broker, tmp_path, "--web-port", "0") as running:
        port = await _port(running)
        await _wait_for_ticks(broker, running)
        ready, metrics = await asyncio.to_thread(_get, port, "readyz"), await asyncio.to_thread(_get, port, "metrics")
        assert ready == "ok\n"
        assert re.search(r"^fleethpa_owned_partitions 4\.0$", metrics, re.MULTILINE)
        assert f'fleethpa_build_info{{engine="{ENGINE}"' in metrics
        assert await asyncio.to_thread(running.terminate, 5) == 0, running.tail()


async def test_an_engine_that_this_version_lacks_ends_it_and_names_the_next_step(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    entry = Entry(key="*", body=EngineSet(engine=99))
    async with strict_producer(broker) as producer:
        await producer.send_and_wait(topics.LOG, encode(LogRecord(v=VERSION, entries=[entry])), partition=1)
    with decider(broker, tmp_path, "--playback") as running:
        assert await asyncio.to_thread(running.process.wait, 60) == Exit.NEEDS_OPERATOR
        assert "run a fleethpa release that has engine 99" in running.tail()


@pytest.mark.slow
async def test_another_partition_count_than_the_log_records_ends_it(broker: KafkaSettings, tmp_path: Path) -> None:
    entry = Entry(key="*", body=EngineSet(engine=1, partitions=24))
    async with strict_producer(broker) as producer:
        await producer.send_and_wait(topics.LOG, encode(LogRecord(v=VERSION, entries=[entry])), partition=1)
    with decider(broker, tmp_path, "--playback") as running:
        assert await asyncio.to_thread(running.process.wait, 60) == Exit.NEEDS_OPERATOR, running.tail()
        assert "made with 24 partitions and has 4" in running.tail()


async def test_a_decision_that_comes_out_different_ends_it_and_shows_both(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=1, hpas=12, seed=3)
    number, values = next((number, values) for number, values in fold(log).items() if values)
    other = orjson.dumps(orjson.loads(values[0]) | {"maxReplicas": 4711})
    await load_log(broker, log)
    async with strict_producer(broker) as producer:
        await producer.send_and_wait(topics.DECISIONS, other, partition=number)
    with decider(broker, tmp_path, "--playback") as running:
        assert await asyncio.to_thread(running.process.wait, 60) == Exit.SOFTWARE
        assert "4711" in running.tail()
        assert "recomputed" in running.tail()


@pytest.mark.slow
async def test_no_broker_is_an_error_in_words(tmp_path: Path) -> None:
    with Decider("127.0.0.1:1", tmp_path / "decider.txt") as running:
        assert await asyncio.to_thread(running.process.wait, 60) == Exit.STALLED
    assert "cannot use the brokers 127.0.0.1:1" in running.tail()


async def _port(running: Decider) -> int:
    while True:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", running.tail()):
            return int(found[1])
        assert not running.ended, running.tail()
        await asyncio.sleep(0.1)


async def _wait_for_ticks(broker: KafkaSettings, running: Decider) -> None:
    tps = [TopicPartition(topics.LOG, number) for number in NUMBERS]
    async with reader(broker, tps) as consumer:
        while min((await consumer.end_offsets(tps)).values()) < 2:
            assert not running.ended, running.tail()
            await asyncio.sleep(0.1)
    assert not any(read.records for read in (await read_decisions(broker, list(NUMBERS))).values())


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text

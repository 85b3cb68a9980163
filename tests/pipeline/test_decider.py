"""The decider as processes on the embedded broker: whatever dies, the decisions are the pure fold's bytes."""

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from aiokafka import TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, strict_producer
from runtime.log import wall_clock_ms
from schemas import topics
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import ENGINE
from schemas.entries import VERSION, Entry, LogRecord
from schemas.observed import AutoscalerSet
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.decider.tail import Exit
from streams.ingest.loop import BEAT
from tests.kit.decider_process import Decider, first_difference, load_log, read_decisions, read_log, wait_for_decisions
from tests.kit.partition import make_hpa
from tests.kit.playback import TimedRecord, fold, make_log
from tests.kit.pushed import moving_samples
from tests.kit.stalled_decider import ENVIRONMENT, EVALUATION_S
from tests.patience import PATIENCE_S

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
        async with asyncio.timeout(PATIENCE_S):  # the others may have published all decisions before this one started
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
        assert await asyncio.to_thread(running.terminate) == 0, running.tail()


@pytest.mark.slow  # it takes a minute until a decider may be called behind, and has caught up
async def test_a_decider_that_is_behind_evaluates_less_often_and_is_behind_no_more(
    broker: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has twice as much to do as it can; afterwards the log alone gives the same decisions."""
    period_ms, evaluation_ms = 3_000, round(1_000 * EVALUATION_S)
    settings = SettingsSet(cluster="*", settings=ClusterSettings(sync_period_ms=period_ms))
    hpas = [make_hpa(f"app-{number}", f"uid-{number}") for number in range(2 * period_ms // evaluation_ms)]
    entries = [Entry(key="*", body=settings), *(Entry(key="eu/shop", body=AutoscalerSet(hpa=hpa)) for hpa in hpas)]
    begin_ms = wall_clock_ms() - period_ms  # so that they are not all due at once
    log = [
        TimedRecord(begin_ms + number * evaluation_ms // 2, encode(LogRecord(v=VERSION, entries=[entry])))
        for number, entry in enumerate(entries)
    ]
    await load_log(broker, {0: log})
    monkeypatch.setenv(ENVIRONMENT, "slow")
    slow = Decider(
        broker.bootstrap_servers,
        tmp_path / "decider.txt",
        "--web-port",
        "0",
        module="tests.kit.stalled_decider",
        session_timeout_s=30,
    )
    async with asyncio.TaskGroup() as group:
        others = group.create_task(_append_beats(broker))
        with slow as running:
            port = await _port(running)
            await _shown(running, port, r'^fleethpa_sync_periods_per_evaluation\{partition="0"\} [2-8]\.0$')
            assert "log partition 0 is" in running.output.read_text()
            # It keeps up: what waits are the records of a second or two.
            await _shown(running, port, r'^fleethpa_lag_records\{partition="0"\} [0-9]\.0$')
            others.cancel()
            assert await asyncio.to_thread(running.terminate, 20) == 0, running.tail()
    whole, got = await read_log(broker, list(NUMBERS)), await read_decisions(broker, list(NUMBERS))
    assert any(b'"every":' in record.value for record in whole[0])
    want = fold(whole)
    applied = {number: values[: len(got[number].decisions)] for number, values in want.items()}
    assert first_difference(applied, got) == ""
    assert len(got[0].decisions) > len(hpas)


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


async def test_brokers_that_are_away_at_the_start_are_waited_for_until_somebody_ends_it(tmp_path: Path) -> None:
    with Decider("127.0.0.1:1", tmp_path / "decider.txt") as running:
        await _until_said(running, "no broker accepts a connection, waiting")
        assert "127.0.0.1:1" in running.tail()
        assert await asyncio.to_thread(running.terminate) == 0, running.tail()


async def _until_said(running: Decider, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in running.tail():
            assert not running.ended, running.tail()
            await asyncio.sleep(0.05)


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


async def _append_beats(broker: KafkaSettings) -> None:
    """Append an empty record of ingest to a log partition in every quarter of a second, without end."""
    async with strict_producer(broker) as producer:
        while True:
            await producer.send_and_wait(topics.LOG, BEAT, partition=0)
            await asyncio.sleep(0.25)


async def _shown(running: Decider, port: int, pattern: str) -> None:
    """Wait until a metric is as expected."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError):  # nobody is answered during an evaluation
                if re.search(pattern, await asyncio.to_thread(_get, port, "metrics"), re.MULTILINE):
                    return
            assert not running.ended, running.tail()
            await asyncio.sleep(0.5)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text

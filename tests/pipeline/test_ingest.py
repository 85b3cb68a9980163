"""Ingest as a process on the embedded broker: everything arrives, also through kills, and what is bad is rejected."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import aiohttp
import orjson
import pytest
from aiokafka import TopicPartition

from fleethpa.lab.simulator.broker import EmbeddedBroker
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.partitioning import partition_for
from streams.ingest.preflight import IngestConfig, IngestError, example, reset_source
from tests.pipeline.ingesting import PARTITIONS, Process, commit, producer, reading, running, sample, without_duplicates

EXTRA = "otlp_metrics"


@pytest.fixture
def broker() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([*topics.PUBLIC_TOPICS, topics.LOG, topics.REJECTED, EXTRA])
        yield KafkaSettings(bootstrap_servers=running.bootstrap)


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_a_process_that_is_killed_loses_nothing_and_its_duplicates_can_be_dropped(
    broker: KafkaSettings, kills: int
) -> None:
    total = kills * 1_000
    async with producer(broker) as out, reading(broker, topics.LOG) as log:

        async def send() -> None:
            for number in range(total):
                await out.send(topics.SAMPLES, sample(number))
                if number % 50 == 0:
                    await out.flush()
                    await asyncio.sleep(0.02)  # load over some seconds, so that the kills fall into it
            await out.flush()

        sending = asyncio.create_task(send())
        for kill in range(kills):
            with Process(broker) as process:
                await process.port()
                await log.until(lambda log, least=kill * 600: len(log.values()) > least)
                process.popen.send_signal(signal.SIGKILL)
                assert (await process.ended())[0] == -signal.SIGKILL
        with Process(broker) as process:
            await process.port()
            await sending
            await log.until(lambda log: len(log.values()) == total)
            process.popen.send_signal(signal.SIGTERM)
            code, error = await process.ended()
            assert (code, error) == (0, "")
        kept = without_duplicates(log)
    points = [point.milli // 1000 for entries in kept.values() for entry in entries for point in entry.body.points]  # type: ignore[union-attr]
    assert sorted(points) == list(range(total))
    assert all(partition_for(entry.key, PARTITIONS) == number for number, entries in kept.items() for entry in entries)


async def test_sigterm_commits_so_that_a_restart_repeats_nothing(broker: KafkaSettings) -> None:
    async with producer(broker) as out, reading(broker, topics.LOG) as log:
        for round_ in range(2):
            for number in range(round_ * 100, round_ * 100 + 100):
                await out.send(topics.SAMPLES, sample(number))
            await out.flush()
            with Process(broker) as process:
                await process.port()
                await log.until(lambda log, wanted=round_ * 100 + 100: len(log.values()) == wanted)
                process.popen.send_signal(signal.SIGTERM)
                assert (await process.ended())[0] == 0
    assert len(log.entries()) == 200


async def test_formats_and_rubbish_of_other_producers(broker: KafkaSettings) -> None:
    async with producer(broker) as out, reading(broker, topics.LOG) as log, reading(broker, topics.REJECTED) as rejects:
        with Process(broker, "--sample-topic", EXTRA) as process:
            port = await process.port()
            await out.send_and_wait(EXTRA, example("otlp_proto"), partition=2)
            await out.send_and_wait(EXTRA, example("otlp_json"), key=b"any", partition=0)
            bad = await out.send_and_wait(EXTRA, b"rubbish", partition=1, headers=[("a", b"b")])
            large = b'{"v":1,"entries":[' + b" " * 900_000 + b"]}"
            await out.send_and_wait(topics.PODS, large, partition=3)
            await out.send_and_wait(EXTRA, example("fleethpa_sample"), partition=1)
            await log.until(lambda log: len(log.entries()) == 3)
            await rejects.until(lambda rejects: len(rejects.records) == 2)
            async with aiohttp.ClientSession() as web:
                metrics = await (await web.get(f"http://127.0.0.1:{port}/metrics")).text()
                ready = await web.get(f"http://127.0.0.1:{port}/readyz")
                health = await web.get(f"http://127.0.0.1:{port}/healthz")
    assert {record.partition for record, _ in log.entries()} == {partition_for("prod-eu/shop", PARTITIONS)}
    found = {dict(record.headers)["topic"]: record for record in rejects.records}
    headers = dict(found[EXTRA.encode()].headers)
    assert found[EXTRA.encode()].value == b"rubbish"
    assert (headers["partition"], headers["offset"], headers["original.a"]) == (b"1", b"%d" % bad.offset, b"b")
    assert b"first byte 0x72" in headers["reason"]
    assert len(found[topics.PODS.encode()].value) == topics.REJECTED_KEPT_BYTES
    assert dict(found[topics.PODS.encode()].headers)["length"] == b"%d" % len(large)
    assert (ready.status, health.status) == (200, 200)
    labels = 'format="unknown",reason="unknownFormat",result="rejected",topic="otlp_metrics"'
    assert f"fleethpa_ingest_records_total{{{labels}}} 1.0" in metrics


def _hpa_with_five_errors() -> bytes:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
    spec = {"scaleTargetRef": {"kind": "", "name": "web"}, "minReplicas": -1, "maxReplicas": 0, "metrics": [metric, {}]}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "Web_"},
        "spec": spec,
    }
    entry = {"kind": "autoscalerSet", "hpa": hpa, "origin": "central"}
    return orjson.dumps({"v": 1, "cluster": "east", "namespace": "shop", "entries": [entry]})


def _but(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(sample(0)) | changes)


BAD_RECORDS: dict[str, tuple[str, bytes, str]] = {
    "malformed JSON": (topics.SAMPLES, b'{"v":1,"entries":[', "not JSON"),
    "a truncated protobuf": (topics.SAMPLES, example("otlp_proto")[:-3], "OTLP protobuf"),
    "an unknown version": (topics.PODS, b'{"v":2,"entries":[]}', "2 is not known"),
    "NaN": (topics.SAMPLES, _but(value="NaN"), "NaN"),
    "a bare NaN": (topics.SAMPLES, b'{"v":1,"ts":1,"value":NaN}', "not JSON"),
    "an infinity": (topics.SAMPLES, _but(value="-Infinity"), "Infinity"),
    "a negative quantity": (topics.SAMPLES, _but(type="Resource", pod="p", metric="cpu", value="-1"), "negative"),
    "an absurd quantity": (topics.SAMPLES, _but(value="1e2147483648"), "out of range"),
    "ten megabytes": (topics.SCALES, b'{"v":1,"entries":[' + b"1," * (5 * 1024 * 1024) + b"1]}", "bytes"),
    "a cluster's name with a slash": (topics.SAMPLES, _but(cluster="a/b"), "cluster 'a/b'"),
    "no cluster's name": (topics.SAMPLES, _but(cluster=""), "cluster ''"),
    "nothing at all": (topics.OUTCOMES, b"", "no value"),
    "a manifest with five errors": (topics.SPECS, _hpa_with_five_errors(), "maxReplicas"),
}


async def test_everything_bad_is_rejected_with_its_reason_and_the_flow_goes_on(broker: KafkaSettings) -> None:
    async with (
        producer(broker, max_request_size=16 * 1024 * 1024) as out,
        reading(broker, topics.LOG) as log,
        reading(broker, topics.REJECTED) as rejects,
    ):
        with Process(broker) as process:
            port = await process.port()
            for number, (topic, value, _) in enumerate(BAD_RECORDS.values()):
                # One partition, so that each bad record comes before a good one; its key is empty, which is no fault.
                await out.send_and_wait(topic, value, key=b"", partition=0)
                await out.send_and_wait(topics.SAMPLES, sample(number), key=b"", partition=0)
            await log.until(lambda log: len(log.values()) == len(BAD_RECORDS))
            await rejects.until(lambda rejects: len(rejects.records) == len(BAD_RECORDS))
            async with aiohttp.ClientSession() as web:
                ready = await web.get(f"http://127.0.0.1:{port}/readyz")
            process.popen.send_signal(signal.SIGTERM)
            ended = await process.ended()
    reasons = [dict(record.headers)["reason"].decode() for record in rejects.records]
    missing = {name: text for name, (_, _, text) in BAD_RECORDS.items() if not any(text in one for one in reasons)}
    assert not missing, reasons
    five = next(reason for reason in reasons if "Web_" in reason)
    for field in ("metadata.name", "scaleTargetRef.kind", "minReplicas", "maxReplicas", "metrics[0]", "metrics[1]"):
        assert field in five
    assert (ready.status, ended) == (200, (0, ""))


async def test_playback_merges_a_backlog_by_source_time_and_stamps_the_log_with_it(broker: KafkaSettings) -> None:
    def record(time_ms: int, kind: str, **fields: Any) -> bytes:
        entry = {"kind": kind} | fields
        return orjson.dumps({"v": 1, "cluster": "east", "namespace": "shop", "time": time_ms, "entries": [entry]})

    times = [1_000 + 10 * number for number in range(200)]
    home = partition_for("east/shop", PARTITIONS)
    async with producer(broker) as out, reading(broker, topics.LOG) as log:
        for time_ms in times:
            if time_ms % 20:
                await out.send(topics.PODS, record(time_ms, "podDeleted", name="p"), partition=home)
            else:
                await out.send(topics.SCALES, record(time_ms, "heartbeat", session="s"), partition=home)
        await out.flush()
        async with running(IngestConfig(kafka=broker, timestamp="source")):
            await log.until(lambda log: len(log.entries()) == len(times))
            late = record(500, "podDeleted", name="late")
            await out.send_and_wait(topics.PODS, late, partition=home)
            await log.until(lambda log: len(log.entries()) == len(times) + 1)
    assert [entry.source.time for _, entry in log.entries() if entry.source] == [*times, 500]
    stamps = [record.timestamp for record, _ in log.entries()]
    assert stamps == [*times, times[-1]], "log time never goes back"


async def test_settings_reach_every_partition(broker: KafkaSettings) -> None:
    value = b'{"v":1,"entries":[{"kind":"settings","cluster":"*","settings":{"tolerance":"0.2"}}]}'
    async with producer(broker) as out, reading(broker, topics.LOG) as log:
        await out.send_and_wait(topics.SETTINGS, value)
        async with running(IngestConfig(kafka=broker)):
            await log.until(lambda log: len(log.entries()) == PARTITIONS)
    assert {record.partition for record, _ in log.entries()} == set(range(PARTITIONS))
    assert {entry.key for _, entry in log.entries()} == {"*"}


async def test_a_topic_made_again_stops_ingest_with_the_command_that_helps(broker: KafkaSettings) -> None:
    await commit(broker, TopicPartition(topics.PODS, 1), 500)
    with Process(broker) as process:
        code, error = await process.ended()
    assert code == 3
    assert "fleethpa admin ingest reset fleethpa.pods 1" in error
    assert "Traceback" not in error


async def test_brokers_that_are_away_at_the_start_are_waited_for_until_somebody_ends_it() -> None:
    with Process(KafkaSettings(bootstrap_servers="127.0.0.1:1")) as process:
        assert process.popen.stderr
        line = await asyncio.to_thread(process.popen.stderr.readline)
        assert "no broker accepts a connection, waiting" in line
        assert "127.0.0.1:1" in line
        process.popen.terminate()
        code, error = await process.ended()
    assert (code, error) == (0, "")


async def test_a_missing_partition_is_named(broker: KafkaSettings) -> None:
    with pytest.raises(IngestError, match="has no partition 99"):
        await reset_source(broker, topics.PODS, 99, author="a", reason="r")

"""`fleethpa admin archive` as a process on the embedded broker: killed at any moment it continues without gaps."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import strict_producer
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord
from streams.archive.segmentreader import PartitionReader
from streams.history.kafkapast import TOPICS, KafkaPast
from tests.kit.archive import ENFORCING, Topics, in_order, topics_of
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet

FLEET = Fleet(hpas=16, namespaces=8, minutes=3, partitions=PARTITIONS, metrics=2, seed=5, settings=ENFORCING)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(FLEET)


@pytest.fixture
def broker() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        yield KafkaSettings(bootstrap_servers=running.bootstrap)


@asynccontextmanager
async def producing(broker: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    made = strict_producer(broker, linger_ms=0)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def produce(producer: AIOKafkaProducer, records: list[tuple[str, int, ArchivedRecord]]) -> None:
    """Write records to the topics, as ingest and decider would."""
    sent = [
        await producer.send(
            TOPICS[topic],
            record.value,
            key=record.key or None,
            partition=number,
            timestamp_ms=record.timestamp_ms,
            headers=list(record.headers),
        )
        for topic, number, record in records
    ]
    await asyncio.gather(*sent)


def command(*arguments: str, settings: KafkaSettings | None = None) -> list[str]:
    reach = ["--brokers", settings.bootstrap_servers] if settings else []
    return [sys.executable, "-m", "fleethpa", *arguments, *reach]


def environment(home: Path) -> dict[str, str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("FLEETHPA_")}
    return clean | {"XDG_CONFIG_HOME": str(home)}


async def fleethpa(home: Path, *arguments: str, settings: KafkaSettings | None = None) -> tuple[int, str, str]:
    """Run a command to its end: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments, settings=settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(home),
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def archived(root: Path) -> Topics:
    return {(t, n): list(PartitionReader(root, t, n).records()) for t in (LOG, DECISIONS) for n in range(PARTITIONS)}


async def on_topics(broker: KafkaSettings) -> Topics:
    source = KafkaPast(broker)
    return {(t, n): [r async for r in source.records(t, n)] for t in (LOG, DECISIONS) for n in range(PARTITIONS)}


@pytest.mark.slow
async def test_an_archiver_killed_at_random_goes_on_without_gap_or_duplicate(
    broker: KafkaSettings, made: Topics, tmp_path: Path
) -> None:
    rng, root = random.Random(11), tmp_path / "archive"
    everything = in_order(made)
    arguments = command(
        "admin",
        "archive",
        "--to",
        str(root),
        "--segment-time",
        "40s",
        "--flush",
        "20ms",
        "--sign-every",
        "100ms",
        settings=broker,
    )
    code, out, _ = await fleethpa(tmp_path, "audit", "keygen")
    assert code == 0, out
    async with producing(broker) as producer:
        at, kills = 0, 0
        while at < len(everything):
            process = await asyncio.create_subprocess_exec(
                *arguments, cwd=ROOT, env=environment(tmp_path), stderr=subprocess.PIPE
            )
            share = rng.randrange(len(everything) // 6, len(everything) // 4)
            before = _size(root)
            for begin in range(at, min(at + share, len(everything)), 40):
                await produce(producer, everything[begin : min(begin + 40, at + share)])
                await asyncio.sleep(0)
            at = min(at + share, len(everything))
            # Killed while it works: as soon as some random part of what came is on disk, the first time also signed.
            wanted = before + rng.randrange(1, max(2, at - before))
            while _size(root) < wanted or (not kills and not any((root / "checkpoints").glob("*.json"))):
                assert process.returncode is None, (await process.stderr.read()).decode() if process.stderr else ""
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            kills += 1
    code, _, err = await fleethpa(tmp_path, "admin", "archive", "--to", str(root), "--once", settings=broker)
    assert code == 0, err
    assert kills >= 4
    assert archived(root) == await on_topics(broker) == made
    code, out, err = await fleethpa(
        tmp_path,
        "audit",
        "verify",
        "--from",
        str(root),
        "--public-key",
        str(tmp_path / "fleethpa" / "audit.pub"),
        "-o",
        "json",
    )
    report = orjson.loads(out)
    assert (code, report["ok"], report["faults"]) == (0, True, [])
    assert report["decisions"] == sum(len(made[DECISIONS, n]) for n in range(PARTITIONS))
    assert report["checkpoints"] >= 2
    closed = sum(len(PartitionReader(root, LOG, number).manifests()) for number in range(PARTITIONS))
    assert report["snapshots"] == closed >= PARTITIONS


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def _size(root: Path) -> int:
    try:
        return sum(PartitionReader(root, t, n).last()[0] + 1 for t in (LOG, DECISIONS) for n in range(PARTITIONS))
    except (ValueError, FileNotFoundError):  # the archive is being made
        return 0


async def test_an_archive_is_verified_while_it_is_written_and_complete_after_sigterm(
    broker: KafkaSettings, made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Cli(monkeypatch)
    everything, root = in_order(made), tmp_path / "archive"
    async with producing(broker) as producer:
        await produce(producer, everything[: len(everything) // 2])
        process = await asyncio.create_subprocess_exec(
            *command(
                "admin",
                "archive",
                "--to",
                str(root),
                "--segment-time",
                "40s",
                "--flush",
                "20ms",
                "--web-port",
                "0",
                settings=broker,
            ),
            cwd=ROOT,
            env=environment(tmp_path),
            stderr=subprocess.PIPE,
        )
        while _size(root) < len(everything) // 2:
            assert process.returncode is None
            await asyncio.sleep(0.05)
        assert process.stderr is not None
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", await process.stderr.readline())):
            assert process.returncode is None
        metrics = await asyncio.to_thread(_get, int(found[1]), "metrics")
        assert re.search(r'^fleethpa_archived_records_total\{topic="log"\} [1-9]', metrics, re.MULTILINE)
        assert await asyncio.to_thread(_get, int(found[1]), "readyz") == "ok\n"
        verified = await asyncio.to_thread(run, "audit", "verify", "--from", str(root), "--jobs", "1")
        assert verified.exit_code == 0, verified.output
        await produce(producer, everything[len(everything) // 2 :])
    while _size(root) < len(everything):
        assert process.returncode is None
        await asyncio.sleep(0.05)
    process.terminate()
    _, reported = await process.communicate()
    assert process.returncode == 0, reported.decode()
    assert "archived" in reported.decode()
    assert archived(root) == made
    assert not list(root.rglob("open.*"))
    verified = await asyncio.to_thread(run, "audit", "verify", "--from", str(root), "--jobs", "1")
    assert (verified.exit_code, verified.stdout.splitlines()[-1]) == (0, "OK"), verified.output

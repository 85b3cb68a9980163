"""Questions to the log of a broker: the same answers as from an archive of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from fleethpa.dev.broker import PARTITIONS, EmbeddedBroker
from schemas import topics
from schemas.connection import KafkaSettings
from streams.kafka import strict_producer
from streams.replay.generate import Fleet
from streams.replay.sources import TOPICS
from tests.archive_kit import ENFORCING, Topics, in_order, topics_of, write_archive
from tests.unit.cli_kit import Cli
from tests.unit.test_cli_replay import fits

FLEET = Fleet(hpas=8, namespaces=4, minutes=3, partitions=PARTITIONS, metrics=2, seed=7, settings=ENFORCING)
SINCE = ("--since", "2025-12-31T00:00:00Z")


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(FLEET)


@pytest.fixture(scope="module")
def broker(made: Topics) -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        settings = KafkaSettings(bootstrap_servers=running.bootstrap)
        asyncio.run(_produce(settings, made))
        yield settings


async def _produce(settings: KafkaSettings, made: Topics) -> None:
    producer = strict_producer(settings, linger_ms=0)
    await producer.start()
    try:
        for topic, number, record in in_order(made):
            await producer.send_and_wait(
                TOPICS[topic],
                record.value,
                key=record.key or None,
                partition=number,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
    finally:
        await producer.stop()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("Decision", ("explain", "c0/ns1/app1")),
        ("WhatIf", ("what-if", "c0/ns1/app1", "--set", "maxReplicas=3", "--metric", "cpu=+50%")),
        ("BacktestList", ("backtest", "-A", "--set", "maxReplicas=3", *SINCE)),
        ("BacktestList", ("backtest", "-A", "--set", "maxReplicas=3", *SINCE, "--model", "open")),
        ("RevisionList", ("history", "c0/ns1/app1")),
        ("DecisionList", ("audit", "list", "-A", "--changes", *SINCE)),
    ],
    ids=["explain", "what-if", "backtest", "backtest in the open loop", "history", "audit list"],
)
def test_the_broker_and_its_archive_answer_the_same(
    broker: KafkaSettings,
    made: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    archive = write_archive(tmp_path / "archive", FLEET, topics=made)
    run = Cli(monkeypatch)
    until = ("--until", "2027-01-01T00:00:00Z") if "--since" in arguments else ()
    answers: list[Any] = []
    for reach in (("--brokers", broker.bootstrap_servers), ("--from", str(archive))):
        done = run(*arguments, *until, "-o", "json", *reach)
        assert done.exit_code == 0, done.output
        answers.append(fits(kind, done.stdout))
    assert answers[0] == answers[1]
    assert answers[0].get("items", [answers[0]])
    assert orjson.dumps(answers[0])

"""A small world for questions to the log, on both sources: the topics of a broker, and an archive of them.

A generated fleet that fleethpa enforces, an HPA in shadow beside a native controller, two HPAs of one name, and one
that was made, edited and deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson

from runtime.kafkaclients import strict_producer
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.entries import Body, Entry, LogRecord, Source
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import CHANGELOG, DECISIONS, EMBEDDED_PARTITIONS, LOG
from streams.partition import Partition
from tests.kit.archive import ENFORCING, as_record
from tests.kit.generated_log import START_MS, Fleet, GeneratedRecord, generate
from tests.kit.partition import make_hpa
from tests.kit.shadow import ShadowWorld

FLEET = Fleet(hpas=8, namespaces=4, minutes=3, partitions=EMBEDDED_PARTITIONS, metrics=2, seed=7, settings=ENFORCING)
APP = "c0/ns1/app1"
"""An HPA of the fleet; `c9` has one of the same namespace and name."""
GONE = "c0/ns2/gone"
SHADOWED = "eu/shop/web"
BEGIN, LATE, END = "2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z", "2026-01-01T00:10:00Z"


@dataclass(frozen=True)
class TopicRecord:
    """A record for a topic of the broker."""

    topic: str
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


def world() -> list[TopicRecord]:
    """Log, decisions and state rows of the world, in an order in which they could have come."""
    number, found = FLEET.partitions, list[TopicRecord]()
    folds = {each: Partition.empty(each) for each in range(number)}
    offsets, decided = dict.fromkeys(folds, 0), dict.fromkeys(folds, 0)
    for record in sorted(_log(), key=lambda each: each.timestamp_ms):
        part, time_ms = record.partition, record.timestamp_ms
        found.append(TopicRecord(LOG, part, time_ms, None, record.value))
        for decision in folds[part].apply(offsets[part], time_ms, record.value):
            made = as_record(decided[part], time_ms, decision)
            found.append(TopicRecord(DECISIONS, part, time_ms, made.key, made.value, made.headers))
            decided[part] += 1
        offsets[part] += 1
        if folds[part].due_checkpoint:
            found += [TopicRecord(CHANGELOG, part, time_ms, *row) for row in folds[part].checkpoint()]
    return found


def _log() -> list[GeneratedRecord]:
    return [*_settings(), *generate(FLEET), *_shadow(), *_extra()]


def _record(key: str, time_ms: int, source: int, *bodies: Body, partition: int | None = None) -> GeneratedRecord:
    entries = [
        Entry(key=key, body=body, source=Source(topic="more", partition=0, offset=source, index=at, time=time_ms))
        for at, body in enumerate(bodies)
    ]
    part = partition_for(key, FLEET.partitions) if partition is None else partition
    return GeneratedRecord(part, 0, time_ms, encode(LogRecord(v=1, entries=entries)))


def _settings() -> Iterator[GeneratedRecord]:
    shadow = SettingsSet(cluster="eu", settings=ClusterSettings(default_mode="shadow"))
    for number in range(FLEET.partitions):
        yield _record(WHOLE, START_MS, 0, shadow, partition=number)


def _shadow() -> Iterator[GeneratedRecord]:
    part = partition_for("eu/shop", FLEET.partitions)
    for record in ShadowWorld().run(3).records:
        yield GeneratedRecord(part, 0, record.timestamp_ms, record.value)


def _extra() -> Iterator[GeneratedRecord]:
    offsets = count(1)

    def at(second: int, key: str, body: Body) -> GeneratedRecord:
        return _record(key, START_MS + second * 1_000, next(offsets), body)

    yield at(20, "c0/ns2", AutoscalerSet(hpa=_named("gone", "ns2"), origin="central", author="anna", reason="PAY-1"))
    yield at(30, "c9/ns1", AutoscalerSet(hpa=_named("app1", "ns1")))
    edited = AutoscalerSet(hpa=_named("gone", "ns2", maxReplicas=7), origin="central", author="ben", reason="PAY-2")
    yield at(60, "c0/ns2", edited)
    yield at(90, "c0/ns2", AutoscalerDeleted(name="gone", origin="central", author="carl", reason="PAY-3"))
    yield at(100, "c0/ns1", Command(command="pause", name="app1", author="dora", reason="INC-1"))
    yield at(110, "c0/ns1", Command(command="resume", name="app1", author="dora"))


def _named(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    made = make_hpa(name, f"uid-{name}-{namespace}", **spec)
    made["metadata"]["namespace"] = namespace
    return made


def newest_id(records: Iterable[TopicRecord], hpa: str) -> str:
    """Id of the newest evaluation of an HPA."""
    bodies = [orjson.loads(each.value) for each in records if each.topic == DECISIONS]
    own = [body for body in bodies if f"{body['cluster']}/{body['namespace']}/{body['name']}" == hpa]
    return str([body["id"] for body in own if not body["id"].endswith("-c")][-1])


def produce(settings: KafkaSettings, records: Iterable[TopicRecord]) -> None:
    """Write records to their topics, as ingest and the decider would."""
    asyncio.run(_produce(settings, records))


async def _produce(settings: KafkaSettings, records: Iterable[TopicRecord]) -> None:
    producer = strict_producer(settings, linger_ms=0)
    await producer.start()
    try:
        sent = [
            await producer.send(
                each.topic,
                each.value,
                key=each.key,
                partition=each.partition,
                timestamp_ms=each.timestamp_ms,
                headers=list(each.headers),
            )
            for each in records
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()

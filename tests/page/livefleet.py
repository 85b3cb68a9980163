"""Topics of a fleet that has run for hours, on Apache Kafka: one partition that holds many HPAs.

The last hour is decided by the core in closed loop. Before it the topics repeat that hour's decisions, moved back in
time, and the log's records are empty: only the numbers of log records and decisions count there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heappush
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.codec import encode
from schemas.entries import LogRecord
from schemas.keys import HpaId
from schemas.topicconfigs import TOPICS
from schemas.topics import CHANGELOG, DECISIONS, LOG
from streams.partition import Partition
from tests.kit.closedloop import ENFORCED, WRITE_MS, ClosedLoop
from tests.kit.generated_log import Fleet

HOUR_MS: Final = 3_600_000
WARM_MINUTES: Final = 10
EMPTY: Final = encode(LogRecord(v=1, entries=[]))
PLACES: Final = re.compile(rb'"(id|completes)":"0-(\d+)-')
SEQ: Final = re.compile(rb'"seq":(\d+)')
TIME: Final = re.compile(rb'"time":"([^"]+)"')
MOST_LOG_RECORDS: Final = 25_000
"""In an hour of 500 HPAs."""


class Written(NamedTuple):
    """A record of a topic."""

    topic: str
    time_ms: int
    key: bytes | None
    value: bytes


def decided(hpas: int, end_ms: int, offset: int, seq: int) -> Iterator[Written]:
    """Log, decisions and state rows of the last minutes before a moment, in the order in which they are written."""
    minutes = 60 + WARM_MINUTES
    fleet = Fleet(
        hpas=hpas,
        namespaces=max(1, hpas // 10),
        minutes=minutes,
        churn=0.002,
        noise=0.03,
        settings=ENFORCED,
        start_ms=end_ms - minutes * 60_000,
    )
    loop = ClosedLoop(fleet)
    loop.offsets = [offset]
    loop.partition = partition = Partition.empty(0)
    partition.state.row.offset, partition.state.row.seq = offset - 1, seq
    for record in loop.run():
        yield Written(LOG, record.timestamp_ms, None, record.value)
        for made in partition.apply(*record[1:]):
            yield Written(DECISIONS, record.timestamp_ms, made.key.encode(), made.value)
            if b'"wants":' in made.value and (wanted := msgspec.json.decode(made.value)).get("wants") is not None:
                heappush(loop.writes, (loop.now_ms + WRITE_MS, made.key, wanted["name"], made.seq, wanted))
        if partition.due_checkpoint:
            for key, value in partition.checkpoint():
                yield Written(CHANGELOG, record.timestamp_ms, key, value)


def moved(made: Written, by_ms: int, offsets: int, seq: int) -> Written:
    """A decision as if it had been made earlier, of an earlier log record, as number `seq`."""

    def earlier(found: re.Match[bytes]) -> bytes:
        at = datetime.fromtimestamp(datetime.fromisoformat(found[1].decode()).timestamp() - by_ms / 1000, UTC)
        return f'"time":"{at.isoformat(timespec="milliseconds")[:-6]}Z"'.encode()

    value = PLACES.sub(lambda found: b'"%s":"0-%d-' % (found[1], int(found[2]) - offsets), made.value)
    value = SEQ.sub(b'"seq":%d' % seq, value, count=1)
    return made._replace(time_ms=made.time_ms - by_ms, value=TIME.sub(earlier, value, count=1))


def fill(bootstrap: str, hpas: int, decisions: int) -> HpaId:
    """Make the topics, with one partition each, and write an hour and so many decisions before it; gives an HPA."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    own = {"max.message.bytes": "1048576", "retention.ms": "-1"}
    for made in admin.create_topics([NewTopic(topic.name, 1, 1, config=own) for topic in TOPICS]).values():
        made.result(30)
    offset = (1 + decisions // (200 * hpas)) * MOST_LOG_RECORDS
    end_ms = time.time_ns() // 1_000_000_000 * 1000
    newest = list(decided(hpas, end_ms, offset, decisions))
    again = [each for each in newest if each.topic == DECISIONS and each.time_ms >= end_ms - HOUR_MS]
    log = [each for each in newest if each.topic == LOG]
    length = sum(each.time_ms >= end_ms - HOUR_MS for each in log)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50, "batch.size": 131_072,
         "enable.idempotence": True, "queue.buffering.max.messages": 500_000}
    )  # fmt: skip

    def send(each: Written) -> None:
        while True:
            try:
                producer.produce(each.topic, each.value, each.key, partition=0, timestamp=each.time_ms)
                return
            except BufferError:
                producer.poll(0.1)

    first_ms = newest[0].time_ms
    for number in range(offset):
        send(Written(LOG, first_ms - (offset - number) * HOUR_MS // length, None, EMPTY))
    for number in range(decisions):
        cycle, at = divmod(decisions - 1 - number, len(again))
        by_ms = (end_ms - first_ms) + cycle * HOUR_MS
        send(moved(again[-1 - at], by_ms, len(log) + cycle * length, number + 1))
    for each in newest:
        send(each)
    producer.flush(120)
    return HpaId("c0", "ns7", "app7")

"""Rebuild the state when the changelog was lost and the log's first records have expired.

From an archive, which outlives the topics, the state is what it was, and nothing restarts. Without one, what was before
the log's first record is lost: a restart entry in the log records that windows and scale events begin anew, as after a
restart of upstream's controller. With the whole log there is nothing to do, since the decider folds it by itself.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from runtime.kafkaclients import OffsetBounds, bounds_of, read_range, reader, strict_producer
from schemas.codec import encode
from schemas.decisions import links_of, log_offset_of
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.settings import Restart
from schemas.topics import CHANGELOG, DECISIONS, LOG
from streams.archive.layout import LOG as ARCHIVED_LOG
from streams.archive.layout import ArchiveError
from streams.decider.assignment import DeciderConfig
from streams.decider.strict import StartError
from streams.decider.tail import Exit, TailHead
from streams.history.archivepast import ArchivePast
from streams.history.past import LogGoneError, Past
from streams.partition import Partition
from streams.state.ledger import CoreError

WITHOUT = "without --archive, --rebuild begins anew from what the log still holds, and a restart entry says so"


class ArchivedState(NamedTuple):
    """All state rows of a log partition, the log offset that they have applied, and the decision they follow from."""

    rows: Mapping[bytes, bytes]
    applied_offset: int
    head: TailHead


async def archived_state(past: Past, number: int, upto: int) -> ArchivedState:
    """Fold an archived log partition up to offset `upto`, or as far as the archive reaches.

    Raises ArchiveError, CoreError: the archive is damaged. Raises StartError: it begins later than the log did, and
    holds no snapshot.
    """
    try:
        folded = await past.fold_to(number, offset=upto)
    except LogGoneError as error:
        raise StartError(Exit.NEEDS_OPERATOR, f"{error}; {WITHOUT}") from error
    partition = folded.partition
    return ArchivedState(folded.rows(), partition.applied_offset, TailHead(partition.seq, partition.prev))


def check_reach(past: Past, number: int, state: ArchivedState, log: OffsetBounds, newest: TailHead) -> None:
    """Check that the log continues where the archived state ends, and that the topic has all decisions of the state.

    Raises StartError: it does not.
    """
    if state.applied_offset + 1 < log.first:
        ends = f"ends at log offset {state.applied_offset}" if state.applied_offset >= 0 else "holds no log record"
        raise _unfit(past, number, f"{ends}, the log begins at {log.first}: what lies between is lost")
    if state.head.seq > newest.seq:
        raise _unfit(
            past,
            number,
            f"leads to decision number {state.head.seq} at log offset {state.applied_offset}, the decisions topic "
            f"ends with number {newest.seq}: those between were never published, or are lost",
        )


async def check_decision(
    consumer: AIOKafkaConsumer, tp: TopicPartition, bounds: OffsetBounds, past: Past, state: ArchivedState
) -> None:
    """Check that the decisions topic has the decision that the state follows from.

    Raises StartError: there is another decision in its place, or none: the archive is not of this log.
    """
    number, head = tp.partition, state.head
    if not head.seq:
        return
    first = max(bounds.first, await past.first_decision(number, head.seq))
    async with aclosing(read_range(consumer, tp, first, bounds.end)) as records:
        async for record in records:
            if links_of(record.value).seq == head.seq:
                if hashlib.sha256(record.value).hexdigest() == head.digest:
                    return
                raise _unfit(
                    past,
                    number,
                    f"leads to another decision number {head.seq} than the topic has: it is of another log",
                )
    raise _unfit(past, number, f"leads to decision number {head.seq}, which {tp.topic} does not hold")


async def check_record(consumer: AIOKafkaConsumer, tp: TopicPartition, log: OffsetBounds, past: Past) -> None:
    """Check that the archive has the log's first record, where every decision that could be compared has expired.

    Raises StartError: there is another record in its place, or none: the archive is not of this log.
    """
    async with aclosing(past.records(ARCHIVED_LOG, tp.partition, log.first)) as archived:
        known = await anext(archived, None)
    async with aclosing(read_range(consumer, tp, log.first, log.first + 1)) as records:
        async for record in records:
            if known is not None and (known.offset, known.value) == (record.offset, record.value):
                return
    what = f"does not hold the record at log offset {log.first}, and every decision has expired"
    raise _unfit(past, tp.partition, f"{what}: nothing shows that it is of this log")


def _unfit(past: Past, number: int, what: str) -> StartError:
    return StartError(Exit.NEEDS_OPERATOR, f"log partition {number}: the archive {past.name} {what}; {WITHOUT}")


log = logging.getLogger("fleethpa.decider")

TAIL_RECORDS = 20_000
"""How many records back the newest decision is looked for; a paused worker repeats at most what one batch produced."""

AFTERWARDS = (
    "What only older records had is gone: give central HPAs, FleetHPAs, CapacityGroups, settings, modes and pauses "
    "again (`fleethpa settings CLUSTER` shows what is in force), and restart the observers, so that they list all"
)


class Tail(NamedTuple):
    """The end of a decisions partition: the newest decision, and the ids of it and those before it.

    `log_offset`: of the log record that the newest decision follows from; -1 if there is no decision.
    """

    newest: TailHead
    ids: frozenset[str]
    log_offset: int = -1


async def rebuild(config: DeciderConfig, partitions: int, archive: Path | None = None) -> None:
    """Rebuild the state of every partition of which the log has lost its beginning; no decider may run meanwhile.

    Args:
        config: of the decider.
        partitions: how many the log has.
        archive: folder of an archive of the log; None: make do with what the log holds.

    Raises:
        StartError: the changelog is not empty, or the archive does not reach to what the log holds.
    """
    source = None if archive is None else await _opened(archive, partitions)
    tps = [TopicPartition(topic, number) for topic in (LOG, DECISIONS, CHANGELOG) for number in range(partitions)]
    async with reader(config.kafka, tps) as consumer, strict_producer(config.kafka) as producer:
        bounds = await bounds_of(consumer, tps)
        check_empty(bounds)
        lost = [n for n in range(partitions) if bounds[TopicPartition(LOG, n)].first > 0]
        for number in lost:
            if source is None:
                await _rebuild(number, bounds, consumer, producer)
            else:
                await _from_archive(number, source, bounds, consumer, producer)
    if lost and source is None:
        log.warning("rebuilt log partitions %s. %s", lost, AFTERWARDS)


async def _opened(archive: Path, partitions: int) -> ArchivePast:
    source = ArchivePast(archive, checked=True)
    with _archive_faults():
        count = await source.partitions()
    if count != partitions:
        text = f"{archive} is an archive of {count} partitions, the log has {partitions}: it is of another log"
        raise StartError(Exit.NEEDS_OPERATOR, text)
    return source


@contextmanager
def _archive_faults() -> Iterator[None]:
    try:
        yield
    except (ArchiveError, CoreError) as error:
        raise StartError(Exit.NEEDS_OPERATOR, f"{error}; {WITHOUT}") from error


async def _from_archive(
    number: int,
    source: ArchivePast,
    bounds: Mapping[TopicPartition, OffsetBounds],
    consumer: AIOKafkaConsumer,
    producer: AIOKafkaProducer,
) -> None:
    decisions_tp = TopicPartition(DECISIONS, number)
    kept = bounds[TopicPartition(LOG, number)]
    decisions = bounds[decisions_tp]
    tail = await _read_tail(consumer, decisions_tp, decisions)
    # Not beyond the newest decision: what was never published is left to the decider that starts from here.
    upto = max(kept.first, tail.log_offset) - 1
    with _archive_faults():
        state = await archived_state(source, number, upto)
        check_reach(source, number, state, kept, head_after(tail.newest, decisions))
        if decisions.first < decisions.end:
            await check_decision(consumer, decisions_tp, decisions, source, state)
        else:
            await check_record(consumer, TopicPartition(LOG, number), kept, source)
    await _write(number, state.rows.items(), producer)
    log.info("log partition %d: state up to offset %d from %s", number, state.applied_offset, source.name)


def check_empty(bounds: Mapping[TopicPartition, OffsetBounds]) -> None:
    """Check that the changelog holds no row. Raises StartError: it does."""
    used = [tp.partition for tp, (first, end) in bounds.items() if tp.topic == CHANGELOG and first < end]
    if used:
        raise StartError(
            Exit.NEEDS_OPERATOR,
            f"{CHANGELOG} holds records in partitions {used}: stop all deciders, delete the topic, "
            "run `fleethpa admin topics init`, then rebuild",
        )


async def _rebuild(
    number: int, bounds: Mapping[TopicPartition, OffsetBounds], consumer: AIOKafkaConsumer, producer: AIOKafkaProducer
) -> None:
    log_tp = TopicPartition(LOG, number)
    decisions_tp = TopicPartition(DECISIONS, number)
    first = bounds[log_tp].first
    restart_at = await _mark_restart(number, first, producer)
    partition = Partition.empty(number)
    async for record in read_range(consumer, log_tp, first, restart_at):
        partition.apply(record.offset, record.timestamp, record.value)  # what it decides, it decided long ago
    tail = await _read_tail(consumer, decisions_tp, bounds[decisions_tp])
    tail = tail._replace(newest=head_after(tail.newest, bounds[decisions_tp]))
    continue_chain(partition, tail)
    await _write(number, partition.checkpoint(), producer)
    log.info("log partition %d: rebuilt from offset %d, restart at %d", number, first, restart_at)


async def _write(number: int, rows: Iterable[tuple[bytes, bytes]], producer: AIOKafkaProducer) -> None:
    await asyncio.gather(
        *[await producer.send(CHANGELOG, value or None, key=key, partition=number) for key, value in rows]
    )


def head_after(newest: TailHead, decisions: OffsetBounds) -> TailHead:
    """Return what the next decision follows. If all have expired: a number that none of them can have had.

    Each decision is a record at least, so none has a higher number than the topic has had records.
    """
    return newest if newest.seq else TailHead(decisions.end, "")


def continue_chain(partition: Partition, tail: Tail) -> None:
    """Let the next decision follow the newest published one.

    A write that only the rebuilding fold decided was never published: it is not made, and no outcome of it comes.
    """
    row = partition.state.row
    row.seq, row.prev = tail.newest
    for hpa in partition.state.hpas.values():
        if hpa.row.pending is not None and hpa.row.pending.decision not in tail.ids:
            hpa.row.pending = None
            hpa.dirty = True


async def _mark_restart(number: int, first: int, producer: AIOKafkaProducer) -> int:
    body = Restart(reason=f"state was lost; rebuilt from log offset {first}", author="decider --rebuild")
    value = encode(LogRecord(v=VERSION, entries=[Entry(key=WHOLE_PARTITION_KEY, body=body)]))
    placed = await producer.send_and_wait(LOG, value, partition=number)
    return int(placed.offset)


async def _read_tail(consumer: AIOKafkaConsumer, tp: TopicPartition, bounds: OffsetBounds) -> Tail:
    newest, log_offset, ids = TailHead(0, ""), -1, set()
    async for record in read_range(consumer, tp, max(bounds.first, bounds.end - TAIL_RECORDS), bounds.end):
        links = links_of(record.value)
        ids.add(links.id)
        if links.seq > newest.seq:
            newest = TailHead(links.seq, hashlib.sha256(record.value).hexdigest())
            log_offset = log_offset_of(links.id)
    return Tail(newest, frozenset(ids), log_offset)

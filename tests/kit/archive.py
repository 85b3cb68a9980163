"""Archives of generated fleets: the log as the generator makes it, the decisions as the core makes them of it."""

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from schemas.settings import ClusterSettings
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.archive.signing import CheckpointWriter
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from tests.kit.closedloop import ClosedLoop
from tests.kit.generated_log import Fleet, GeneratedRecord, generate

SMALL = Fleet(hpas=8, namespaces=4, minutes=4, partitions=2, metrics=2, seed=3)
ENFORCING = ClusterSettings(default_mode="enforce", native_controller="absent")
Topics = dict[tuple[str, int], list[ArchivedRecord]]
"""(topic, partition) -> its records."""


def decided(records: Iterable[GeneratedRecord], partitions: int) -> Iterator[tuple[str, int, ArchivedRecord]]:
    """(topic, partition, record) of a log and of the decisions that follow from it, in the order in which they come."""
    made = {number: Partition.empty(number) for number in range(partitions)}
    offsets = dict.fromkeys(made, 0)
    for record in records:
        yield LOG, record.partition, archived_record(record.offset, record.timestamp_ms, b"", (), record.value)
        for decision in made[record.partition].apply(record.offset, record.timestamp_ms, record.value):
            yield DECISIONS, record.partition, as_record(offsets[record.partition], record.timestamp_ms, decision)
            offsets[record.partition] += 1


def as_record(offset: int, timestamp_ms: int, decision: DecisionRecord) -> ArchivedRecord:
    """A decision as it is on its topic."""
    return archived_record(offset, timestamp_ms, decision.key.encode(), tuple(decision.headers), decision.value)


def topics_of(fleet: Fleet) -> Topics:
    """Both topics of a generated fleet, decided once in a run of tests. The lists are the caller's own."""
    return {place: list(records) for place, records in _topics_of(fleet).items()}


@cache
def _topics_of(fleet: Fleet) -> Topics:
    found: Topics = {(topic, number): [] for topic in (LOG, DECISIONS) for number in range(fleet.partitions)}
    for topic, number, record in decided(generate(fleet), fleet.partitions):
        found[topic, number].append(record)
    return found


def topics_in_closed_loop(fleet: Fleet) -> Topics:
    """Both topics of a fleet whose wanted writes are applied, so that most records are short; all in partition 0."""
    found: Topics = {(LOG, 0): [], (DECISIONS, 0): []}
    decisions = found[DECISIONS, 0]
    for (offset, time_ms, value), caused in ClosedLoop(fleet).decided():
        found[LOG, 0].append(archived_record(offset, time_ms, b"", (), value))
        decisions += [as_record(at, time_ms, each) for at, each in enumerate(caused, len(decisions))]
    return found


def in_order(made: Mapping[tuple[str, int], list[ArchivedRecord]]) -> list[tuple[str, int, ArchivedRecord]]:
    """(topic, partition, record) by time; the log record before the decisions that it causes."""
    everything = []
    for (topic, number), records in made.items():
        newest_ms = 0
        for at, record in enumerate(records):
            # A timestamp that was tampered with must not change the order within a partition.
            newest_ms = max(newest_ms, record.timestamp_ms)
            everything.append(((newest_ms, topic != LOG, number, at), (topic, number, record)))
    return [item for _, item in sorted(everything, key=lambda each: each[0])]


def write_archive(
    root: Path,
    fleet: Fleet = SMALL,
    *,
    segment_ms: int = 60_000,
    finish: bool = True,
    checkpoints: CheckpointWriter | None = None,
    topics: Mapping[tuple[str, int], list[ArchivedRecord]] | None = None,
    sign_every: int = 400,
    flush_every: int = 50,
) -> Path:
    """Write an archive of a generated fleet, or of these topics; some segments per partition.

    Each flush waits for the disk: a large archive has to flush seldom. What is asked for again is copied.
    """
    if topics is not None or checkpoints is not None:
        made = topics_of(fleet) if topics is None else topics
        return _write(root, fleet, segment_ms, finish, checkpoints, made, sign_every, flush_every)
    shutil.copytree(_written(fleet, segment_ms, finish, sign_every, flush_every), root, dirs_exist_ok=True)
    return root


@cache
def _written(fleet: Fleet, segment_ms: int, finish: bool, sign_every: int, flush_every: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fleethpa-archive-"))
    atexit.register(shutil.rmtree, folder)
    return _write(folder, fleet, segment_ms, finish, None, topics_of(fleet), sign_every, flush_every)


def _write(
    root: Path,
    fleet: Fleet,
    segment_ms: int,
    finish: bool,
    checkpoints: CheckpointWriter | None,
    made: Mapping[tuple[str, int], list[ArchivedRecord]],
    sign_every: int,
    flush_every: int,
) -> Path:
    archiver = Archiver(root, fleet.partitions, SegmentLimits(segment_ms=segment_ms), checkpoints)
    everything = in_order(made)
    for count, (topic, number, record) in enumerate(everything):
        archiver.append(topic, number, record)
        if count % flush_every == flush_every - 1:
            archiver.flush()
        if count % sign_every == sign_every - 1:
            archiver.sign()
    archiver.flush()
    if finish:
        archiver.finish()
    else:
        archiver.sign()
        archiver.release()
    return root

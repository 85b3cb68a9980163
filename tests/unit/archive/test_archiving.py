"""The process that archives, on topics whose log has lost its first records."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from schemas import topics
from streams.archive.layout import DECISIONS, LOG, ArchiveError
from streams.history import archiving
from streams.history.archivepast import ArchivePast
from streams.history.archiving import ArchiveConfig, Archived
from streams.history.replay import Task
from streams.history.verify import verify_partition
from streams.partition import Partition
from tests.kit.archive import Topics, topics_of
from tests.kit.generated_log import Fleet

LOST = 55
APPLIED = 60
"""Log records that the oldest stored state has applied."""


def test_records_that_expired_before_they_were_archived_are_named_with_what_to_do() -> None:
    error = OffsetOutOfRangeError({TopicPartition("fleethpa.decisions", 2): 29, TopicPartition("fleethpa.log", 0): 7})
    assert str(archiving.lost(error)) == (
        "the topics no longer hold what follows in the archive: fleethpa.decisions-2 from offset 29 on, fleethpa.log-0 "
        "from offset 7 on. Next: keep this archive, and begin another one: fleethpa admin archive --to NEWDIR"
    )


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(Fleet(hpas=4, namespaces=2, minutes=2, partitions=1, metrics=1, seed=6))


class LateTopics:
    """A consumer of a log without its first records, and of all decisions."""

    def __init__(self, made: Topics) -> None:
        self._records = {
            TopicPartition(topics.LOG, 0): made[LOG, 0][LOST:],
            TopicPartition(topics.DECISIONS, 0): made[DECISIONS, 0],
        }
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(parts, 0)

    def seek(self, part: TopicPartition, offset: int) -> None:
        self._positions[part] = offset

    async def beginning_offsets(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {part: self._records[part][0].offset for part in parts}

    async def end_offsets(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {part: self._records[part][-1].offset + 1 for part in parts}

    async def position(self, part: TopicPartition) -> int:
        return self._positions[part]

    async def getmany(self, *parts: TopicPartition, timeout_ms: int) -> Mapping[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        found: dict[TopicPartition, list[Any]] = {}
        for part in parts or self._records:
            found[part] = [
                SimpleNamespace(offset=r.offset, timestamp=r.timestamp_ms, key=r.key, headers=r.headers, value=r.value)
                for r in self._records[part]
                if r.offset >= self._positions[part]
            ]
            self._positions[part] = self._records[part][-1].offset + 1
        return found


async def archived(root: Path, made: Topics, rows: Mapping[bytes, bytes], monkeypatch: pytest.MonkeyPatch) -> Archived:
    """Archive all that there is; `rows`: of the oldest whole state in the changelog."""

    class Stored:
        def __init__(self, _: object) -> None:
            pass

        async def checkpoint(self, number: int) -> Mapping[bytes, bytes]:
            assert number == 0
            return rows

    async def counts(_: object) -> dict[str, int]:
        return {topics.LOG: 1, topics.DECISIONS: 1, topics.CHANGELOG: 1}

    monkeypatch.setattr(archiving, "KafkaPast", Stored)
    monkeypatch.setattr(archiving, "partition_counts", counts)
    config, consumer = ArchiveConfig(root=root, once=True), LateTopics(made)
    follower = archiving._Follower(config, consumer, asyncio.Event(), archiving.ArchiverHealth())
    return await follower.run()


async def test_a_log_without_its_first_records_is_archived_from_the_oldest_stored_state(
    made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition.empty(0)
    for record in made[LOG, 0][:APPLIED]:
        partition.apply(*record.plain)
    added, held = await archived(tmp_path, made, dict(partition.checkpoint()), monkeypatch)
    assert added == held == {LOG: len(made[LOG, 0]) - LOST, DECISIONS: len(made[DECISIONS, 0])}
    report = await asyncio.to_thread(verify_partition, Task(ArchivePast(tmp_path), 0))
    assert (report.fault, report.start) == ("", APPLIED - 1)
    assert report.decisions > 0


async def test_without_a_whole_state_the_text_says_what_to_start(
    made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArchiveError, match="holds no whole state to start from; start the decider"):
        await archived(tmp_path, made, {}, monkeypatch)

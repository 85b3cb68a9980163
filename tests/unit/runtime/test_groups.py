"""What a member of a consumer group commits, and when."""

import time
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError

from runtime.groups import COMMIT_S, GroupMember, Partitions

ONE, TWO = TopicPartition("topic", 1), TopicPartition("topic", 2)
Offsets = dict[TopicPartition, int]


class Committing:
    """A consumer that keeps what is committed, or raises."""

    def __init__(self) -> None:
        self.commits: list[Offsets] = []
        self.error: KafkaError | None = None
        self.topics = {"topic": {0, 1, 2}}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.topics.get(topic)

    async def commit(self, offsets: Offsets) -> None:
        if self.error is not None:
            raise self.error
        self.commits.append(offsets)


class Work:
    """A worker that learns how far it has come."""

    def __init__(self) -> None:
        self.done: Offsets = {}
        self.consumer = Committing()
        consumer: Any = self.consumer
        self.member = GroupMember(consumer, done=lambda: self.done, revoked=self._revoked, assigned=self._assigned)

    def _revoked(self, _: Partitions) -> None:
        self.done = {}

    async def _assigned(self, assigned: Partitions) -> None:
        self.done = dict.fromkeys(assigned, -1)


async def test_only_what_is_new_is_committed() -> None:
    work = Work()
    await work.member.on_partitions_assigned([ONE, TWO])
    for done in ({ONE: -1, TWO: -1}, {ONE: 5, TWO: -1}, {ONE: 5, TWO: -1}, {ONE: 5, TWO: 7}, {ONE: 2, TWO: 7}):
        work.done = done
        await work.member.commit()
    assert work.consumer.commits == [{ONE: 5}, {TWO: 7}, {ONE: 2}]


async def test_nothing_is_committed_of_a_topic_that_was_deleted_and_the_others_are() -> None:
    work = Work()
    work.done = {ONE: 5, TopicPartition("gone", 1): 3}  # the driver would try that one without end
    await work.member.on_partitions_revoked([ONE])
    assert work.consumer.commits == [{ONE: 5}]


async def test_what_was_done_is_committed_before_the_partitions_go() -> None:
    work = Work()
    work.done = {ONE: 5}
    await work.member.on_partitions_revoked([ONE])
    assert (work.consumer.commits, work.done) == ([{ONE: 5}], {})
    work.done = {ONE: 5}  # after another assignment nothing is known of what the group has committed
    await work.member.commit()
    assert work.consumer.commits == [{ONE: 5}, {ONE: 5}]


async def test_a_commit_that_another_member_made_vain_is_tried_again_and_no_error() -> None:
    work = Work()
    work.done, work.consumer.error = {ONE: 5}, CommitFailedError()
    await work.member.commit()
    work.consumer.error = None
    await work.member.commit()
    assert work.consumer.commits == [{ONE: 5}]
    work.done, work.consumer.error = {ONE: 6}, KafkaTimeoutError()
    with pytest.raises(KafkaTimeoutError):
        await work.member.commit()


async def test_offsets_are_committed_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    work = Work()
    for after_s, offset in ((0.0, 1), (COMMIT_S - 0.1, 2), (0.1, 3), (0.5, 4), (0.5, 5)):
        now_s[0] += after_s
        work.done = {ONE: offset}
        await work.member.commit(only_if_due=True)
    assert work.consumer.commits == [{ONE: 3}, {ONE: 5}]

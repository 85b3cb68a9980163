"""A member of a consumer group: what it is assigned, how far its work has come, and what it commits."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from runtime.kafkaclients import bounds_of, new_consumer
from schemas.connection import KafkaSettings

log = logging.getLogger(__name__)

Partitions = Collection[TopicPartition]

COMMIT_S = 1.0
"""How often offsets are committed, unless a worker says otherwise; what was done since is repeated after a crash."""
LOST_ASSIGNMENT = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""Commits that fail because the partitions are another member's now, which reads again what was not committed."""
LOOK_BACK = 500
"""Records of a partition that are read again where the group has committed nothing yet: older wanted writes have long
been stale.
"""


def group_consumer(
    settings: KafkaSettings, group: str, *, begin: Literal["earliest", "latest"], session_timeout_ms: int, **own: Any
) -> AIOKafkaConsumer:
    """A member of a consumer group that commits by itself, not started yet; `begin`: where a new group begins."""
    return new_consumer(
        settings,
        group_id=group,
        auto_offset_reset=begin,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=max(session_timeout_ms // 4, 100),
        **own,
    )


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits what a worker has done, in time and before its partitions go to another member.

    A worker holds `lock` for as long as a rebalance must not come between its steps.

    Args:
        consumer: subscribed with this object as its listener.
        done: the offset of each partition below which all work has ended, so that it is not read again; -1: none.
        revoked: called with partitions that are given up; work that has not ended is read again by the next owner.
        assigned: called with the partitions that are this member's from now on.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        *,
        done: Callable[[], Mapping[TopicPartition, int]],
        revoked: Callable[[Partitions], None],
        assigned: Callable[[Partitions], Awaitable[None]],
        commit_s: float = COMMIT_S,
    ) -> None:
        self.lock = asyncio.Lock()
        self._consumer, self._done = consumer, done
        self._revoked, self._assigned = revoked, assigned
        self._commit_s = commit_s
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Wait for the step under way, give the partitions up, and commit what was done of them."""
        async with self.lock:
            done = dict(self._done())
            self._revoked(revoked)
            await self._commit(done)
            self._committed.clear()

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        """Hand the new partitions to the worker."""
        await self._assigned(assigned)

    async def commit(self, *, only_if_due: bool = False) -> None:
        """Commit what is done and not committed yet. Raises KafkaError: for another reason than a lost assignment."""
        if not only_if_due or time.monotonic() - self._committed_at >= self._commit_s:
            self._committed_at = time.monotonic()
            await self._commit(self._done())

    async def _commit(self, done: Mapping[TopicPartition, int]) -> None:
        # One that is lower than before is that of a topic that was created again.
        offsets = {part: offset for part, offset in done.items() if offset not in (-1, self._committed.get(part))}
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except LOST_ASSIGNMENT as error:
            log.info("not committed, the partitions moved", extra={"reason": type(error).__name__})
        else:
            self._committed |= offsets


async def begin_of(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Where an assigned partition is read from: what its group has committed, else LOOK_BACK records before its end."""
    committed: int | None = await consumer.committed(partition)
    if committed is not None:
        return committed
    first, end = (await bounds_of(consumer, [partition]))[partition]
    begin = max(first, end - LOOK_BACK)
    consumer.seek(partition, begin)
    return begin

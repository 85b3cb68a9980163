"""A member of a consumer group: what it is assigned, how far its work has come, and what it commits; heartbeats.

Processes that write nothing while nothing happens (`schemas.topics.QuietProcess`) commit the present time to a consumer
group of their own without members, in the metadata of an offset. Kafka keeps the newest only, and a process needs no
right to write to a topic for it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final, Literal, get_args

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata

from runtime.ending import first_of
from runtime.kafkaclients import aiokafka_kwargs, bounds_of, new_consumer, started_patiently
from runtime.log import Clock
from runtime.records import Unacknowledged
from schemas.connection import KafkaSettings
from schemas.topics import ALIVE_GROUPS, DECISIONS, QuietProcess

log = logging.getLogger(__name__)

Partitions = Collection[TopicPartition]

COMMIT_S = 1.0
"""How often offsets are committed, unless a worker says otherwise; what was done since is repeated after a crash."""
COMMITTED_WITHIN_S = 45.0
"""How long a commit is waited for: a topic that is deleted in the meantime would be waited for without end. What was
not committed is committed later, or read again. It is more than the driver's 40 s for one request, which it shields
from being cancelled, so that an error of it would be nobody's.
"""
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

    def _is_there(self, part: TopicPartition) -> bool:
        return part.partition in (self._consumer.partitions_for_topic(part.topic) or ())

    async def _commit(self, done: Mapping[TopicPartition, int]) -> None:
        # One that is lower than before is that of a topic that was created again. To a topic that was deleted the
        # driver would commit for ever, and nothing else would be read.
        offsets = {
            part: offset
            for part, offset in done.items()
            if offset not in (-1, self._committed.get(part)) and self._is_there(part)
        }
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMITTED_WITHIN_S):
                await self._consumer.commit(offsets)
        except TimeoutError:
            log.warning("not committed, the brokers did not take it", extra={"partitions": sorted(map(str, offsets))})
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


# --- heartbeats of the processes that write nothing while nothing happens ---------------------------------------------


SIGN_EVERY_S: Final = 5.0
FAREWELL_S: Final = 1.0
"""How long the commit at the end may take."""
_OFFSET: Final = TopicPartition(DECISIONS, 0)
"""A partition that each of them and every reader may read; the offset itself means nothing."""


class Signs(Unacknowledged):
    """How long the heartbeats of a process have not been taken. `error`: of the last one; empty: none was answered."""

    error = ""

    @property
    def problem(self) -> str:
        """As of every record, with the error."""
        problem = super().problem
        return f"{problem}: {self.error}" if problem and self.error else problem


async def keep_signing(
    settings: KafkaSettings, process: QuietProcess, clock: Clock, stop: asyncio.Event, waits: Signs | None = None
) -> None:
    """Commit the present every 5 s until `stop` is set, and then that the process ended on purpose.

    Brokers that are away are waited for, but not at the end. `clock`: Unix milliseconds. `waits`: knows how long.
    """
    async with asyncio.TaskGroup() as group:
        signing = group.create_task(_signing(settings, process, clock, stop, waits or Signs()))
        stopped = group.create_task(stop.wait())
        await asyncio.wait({signing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({signing}, timeout=FAREWELL_S)
        signing.cancel()
        stopped.cancel()


async def _signing(
    settings: KafkaSettings, process: QuietProcess, clock: Clock, stop: asyncio.Event, waits: Signs
) -> None:
    """Sign, and ignore errors of the brokers: a process must not end because its sign could not be written."""
    with ExitStack() as waiting:  # until a sign is written, however often it is tried
        waiting.enter_context(waits.waiting())
        while not stop.is_set():
            try:
                async with marks(settings, group_of(process), [_OFFSET]) as consumer:
                    while not stop.is_set():
                        await _commit(consumer, str(clock()))
                        waiting.close()
                        waits.error = ""
                        await first_of(stop.wait(), asyncio.sleep(SIGN_EVERY_S))
                        waiting.enter_context(waits.waiting())
                    await _commit(consumer, "")
            except KafkaError as error:
                waits.error = str(error)
                log.warning("no heartbeat was committed: %s", error)
                await first_of(stop.wait(), asyncio.sleep(SIGN_EVERY_S))


async def _commit(consumer: AIOKafkaConsumer, text: str) -> None:
    """Commit; raises KafkaError. The driver shields its request, so that a cancellation would leave the request's error
    to nobody, and asyncio would log it: here it is looked at.
    """
    committing = asyncio.ensure_future(consumer.commit({_OFFSET: OffsetAndMetadata(0, text)}))
    committing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.shield(committing)


@asynccontextmanager
async def marks(
    settings: KafkaSettings, group: str, partitions: Collection[TopicPartition]
) -> AsyncIterator[AIOKafkaConsumer]:
    """The committed offsets of a group without members, to be read and changed."""
    async with started_patiently(lambda: new_consumer(settings, group_id=group)) as consumer:
        consumer.assign(list(partitions))
        yield consumer


async def last_signs(settings: KafkaSettings) -> Mapping[QuietProcess, int]:
    """When each process sent its last heartbeat (Unix milliseconds), without those that never ran or were stopped.

    Raises KafkaError: the brokers do not answer, or this user may not see the groups.
    """
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    try:
        await admin.start()
        processes = get_args(QuietProcess)
        texts = await asyncio.gather(*(_sign_of(admin, process) for process in processes))
    except GroupCoordinatorNotAvailableError:  # brokers on which no group has ever committed anything, or for a moment
        return {}
    finally:
        await admin.close()
    return {process: int(text) for process, text in zip(processes, texts, strict=True) if text.isdecimal()}


def group_of(process: QuietProcess) -> str:
    """The group that keeps a process's heartbeats."""
    return f"{ALIVE_GROUPS}{process}"


async def _sign_of(admin: AIOKafkaAdminClient, process: QuietProcess) -> str:
    offsets = await admin.list_consumer_group_offsets(group_of(process), partitions=[_OFFSET])
    return (offsets[_OFFSET].metadata if _OFFSET in offsets else None) or ""

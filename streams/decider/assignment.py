"""The log partitions that this worker owns: how their state is loaded, given up and checked against the topics."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from runtime.kafkaclients import OffsetBounds
from runtime.log import without_cycle_search
from runtime.process import PartConfig
from schemas.connection import KafkaSettings
from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.decider.owned import OwnedPartition
from streams.decider.tail import (
    BrokenChainError,
    Exit,
    Fence,
    LastRecord,
    LostDecisionsError,
    RecordedTail,
    TailHead,
    TailReader,
    die,
)
from streams.partition import Partition
from streams.state.ledger import StateError
from streams.state.partition import stored_row
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import WholeCheckpoints, row_partition, rows_by_partition


@dataclass(frozen=True, kw_only=True)
class DeciderConfig(PartConfig):
    """Settings of one decider process.

    Attributes:
        instance_id: the name of this worker for Kafka's static membership (a StatefulSet's pod name); None: a dynamic
            member, whose partitions wait for the session time-out when it dies.
        hub: the name of the hub, which signs the ticks; empty: they are not signed.
        ticks: append a tick a second to each owned partition. Off in playback.
        playback: log time is source time; refuses a log topic with append time.
        session_timeout_s: how long a worker may be silent before its partitions go to another.
        stall_s: end the process after this time without an applied record although there are records to apply.
        recovery_s: end the process when recovery takes longer.
    """

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    instance_id: str | None = None
    hub: str = ""
    ticks: bool = True
    playback: bool = False
    session_timeout_s: float = 15.0
    stall_s: float = 90.0
    recovery_s: float = 300.0

    @property
    def fence_s(self) -> float:
        """Stalled for longer than this, a worker must assume that it has lost its partitions."""
        return 0.6 * self.session_timeout_s


log = logging.getLogger("fleethpa.decider")


class Waiting(NamedTuple):
    """An assigned partition whose state is not read yet: its own row, the decisions published after it, the end of its
    log; all its rows, and which of them a checkpoint that has not ended left copies of.
    """

    row: PartitionRow
    published: RecordedTail
    log_end: int
    rows: Mapping[bytes, bytes]
    torn: Collection[bytes]


class Assignment:
    """The partitions that this worker owns.

    They are recovered one after another: the state of each is read when those before it have applied what the log held
    when they were assigned. So the first one decides again after a part of the time, and none later than if all were
    recovered at once. The one with the shortest way to go is the first.

    `epoch` rises whenever ownership changes; a task that awaited something compares it before it acts on the result.
    `lock` is held for the length of a batch and of a hand-over, so a hand-over waits for the batch that is under way.

    Args:
        checkpoints: gives the rows that Faust's table holds. Those of an owned partition are taken out of it, since its
            state is the same, and put back when it is given up: Faust does not read a partition again that stays here.
    """

    def __init__(
        self, config: DeciderConfig, partitions: int, fence: Fence, checkpoints: Callable[[], WholeCheckpoints]
    ) -> None:
        self.epoch = 0
        self.lock = asyncio.Lock()
        self.owned: dict[int, OwnedPartition] = {}
        self.waiting: dict[int, Waiting] = {}
        """Partitions whose turn to be recovered has not come, in order; none of their log records are to be fetched."""
        self._config = config
        self._partitions = partitions
        self._fence = fence
        self._checkpoints = checkpoints
        self._loaded: tuple[int, dict[int, OwnedPartition], dict[int, Waiting]] = (0, {}, {})
        self._reader: TailReader | None = None
        self._caught_up = True

    async def load(self, numbers: Iterable[int]) -> Mapping[int, int] | None:
        """Restore the state of the first of these partitions; return the log offset from which each continues.

        Ends the process if state and topics are inconsistent. None: another assignment has arrived meanwhile.
        """
        async with self.lock:  # the rows are not back before the hand-over has ended
            if self.owned:
                die(Exit.STALLED, "log partitions were assigned anew before the ones before were given up")
            self._disown()
        epoch = self.epoch
        self._fence.start()
        await self._close_reader()
        wanted = sorted(numbers)
        stored, torn = rows_by_partition(self._checkpoints().rows, wanted), {**self._checkpoints().torn}
        rows = [partition_row(number, stored[number]) for number in wanted]
        self._reader = reader = TailReader(self._config.kafka)
        await reader.start(rows)
        rows.sort(key=lambda row: reader.log[row.number].end - row.offset)
        waiting, owned = dict[int, Waiting](), dict[int, OwnedPartition]()
        for row in rows:
            number, own_rows = row.number, stored[row.number]
            published = await self._published(reader, row, empty=not own_rows)
            waiting[number] = Waiting(row, published, reader.log[number].end, own_rows, torn.get(number, ()))
        await self._read_states(owned, waiting)
        if epoch != self.epoch:
            return None
        self._loaded = (epoch, owned, waiting)
        return {row.number: row.offset + 1 for row in rows}

    async def _read_states(self, owned: dict[int, OwnedPartition], waiting: dict[int, Waiting]) -> None:
        """Own the partitions that wait, one after another, until one has to catch up with the log."""
        while waiting and all(one.has_caught_up for one in owned.values()):
            number, rows = next(iter(waiting.items()))
            with without_cycle_search():  # seconds with thousands of HPAs; the loop turns
                partition = await asyncio.to_thread(restored, number, rows.rows, rows.torn)
            owned[number] = OwnedPartition(partition, rows.published, rows.log_end)
            del waiting[number]

    def own_loaded(self) -> None:
        """Own the loaded partitions from now on, unless another assignment has arrived meanwhile."""
        epoch, owned, waiting = self._loaded
        if epoch == self.epoch:
            self.owned, self.waiting = owned, waiting
            self._remove_rows()
            self._caught_up = False
            log.info("owning log partitions %s", sorted({*owned, *waiting}))

    async def leave(
        self, checkpoint_all: Callable[[Iterable[OwnedPartition]], Awaitable[None]], *, for_good: bool = False
    ) -> None:
        """Give up the partitions: let the current batch finish, checkpoint, own nothing.

        `for_good`: no partition will be loaded again.
        """
        async with self.lock:
            self._fence.check()
            await checkpoint_all(list(self.owned.values()))
            if not for_good:
                await self._put_rows_back()
            self._disown()

    def _remove_rows(self) -> None:
        checkpoints = self._checkpoints()
        for key in [key for key in checkpoints.rows if row_partition(key) in self.owned]:
            del checkpoints.rows[key]
        for number in self.owned:
            checkpoints.torn.pop(number, None)

    async def _put_rows_back(self) -> None:
        rows = self._checkpoints().rows
        for owned in list(self.owned.values()):
            if owned.partition.applied_offset >= 0:
                rows.update(owned.partition.rows())
            await asyncio.sleep(0)  # thousands of HPAs take a while; the loop turns

    def check_partitions(self) -> None:
        """End the process where an entry of the log records another partition count than the log has."""
        for owned in self.owned.values():
            if (recorded := owned.partition.state.row.partitions) not in (0, self._partitions):
                die(
                    Exit.NEEDS_OPERATOR,
                    f"the log was made with {recorded} partitions and has {self._partitions}: the count is fixed for "
                    "life, as keys would move; go back to the old log, or create all topics again",
                )

    async def after_batch(self) -> None:
        """Recover the next partition where it is its turn, drop the reader of published decisions once it has read all,
        and log once all of them have been re-derived; the caller holds the lock.

        A batch of what was fetched before a rebalance may end while the new partitions are loaded: it owns nothing, and
        the reader is theirs.
        """
        if self.waiting:
            await self._read_states(self.owned, self.waiting)
            self._remove_rows()
        reader = self._reader
        if self.owned and reader is not None and await reader.stop_when_exhausted() and self._reader is reader:
            self._reader = None
        if not self._caught_up and not self.waiting and all(one.published.finished for one in self.owned.values()):
            self._caught_up = True
            log.info("folded %d records again; %d decisions were there", *self._refolded())

    def _refolded(self) -> tuple[int, int]:
        owned = self.owned.values()
        return sum(one.reread for one in owned), sum(one.suppressed for one in owned)

    def _disown(self) -> None:
        self.epoch += 1
        self.owned, self.waiting = {}, {}
        # The same states, or those of an assignment that was superseded: hundreds of megabytes.
        self._loaded = (0, {}, {})

    async def _close_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            with contextlib.suppress(asyncio.CancelledError):
                await reader.stop()

    async def _published(self, reader: TailReader, row: PartitionRow, *, empty: bool) -> RecordedTail:
        check_log(row, reader.log[row.number], empty=empty)
        check_same_log(row, reader.applied.get(row.number))
        published = reader.published(row.number, TailHead(row.seq, row.prev))
        try:
            await published.at(-1)  # a short tail is read whole here, a long one as the fold reaches it
        except BrokenChainError as error:
            end_of_chain(error)
        return published


def end_of_chain(error: BrokenChainError) -> NoReturn:
    """End the process, as the decisions topic does not continue the state."""
    if isinstance(error, LostDecisionsError):
        die(Exit.NEEDS_OPERATOR, f"{error}. {RECOVER_HINT}. {REPUBLISH_HINT}")
    die(Exit.SOFTWARE, str(error))


def check_log(row: PartitionRow, log: OffsetBounds, *, empty: bool) -> None:
    """End the process if the log lacks the record that follows the state."""
    following = row.offset + 1
    if log.first <= following <= log.end:
        return
    what = "no state rows" if empty else f"state up to offset {row.offset}"
    die(
        Exit.NEEDS_OPERATOR,
        f"log partition {row.number}: there is {what}, but the log holds offsets {log.first} to {log.end - 1}: "
        f"what lies between is lost. {RECOVER_HINT}",
    )


def check_same_log(row: PartitionRow, last: LastRecord | None) -> None:
    """End the process if the log has another record than the one up to which the state goes.

    `last`: what the log has at that offset; None: it expired, or the state has applied nothing.
    """
    known = LastRecord(row.last_ms, row.last_hash)
    if last is None or last == known:
        return
    die(
        Exit.NEEDS_OPERATOR,
        f"log partition {row.number}: the record at offset {row.offset} is not the one that the state was made from. "
        f"State: SHA-256 {known.digest.hex()}, {rfc3339_seconds(known.timestamp_ms)}; log: SHA-256 "
        f"{last.digest.hex() or '(no record)'}, {rfc3339_seconds(last.timestamp_ms)}. The log was cut below offset "
        f"{row.offset} and has grown again, for example by an unclean election of a leader or from a backup. Next: put "
        f"back the log as it was. If it cannot be had: {RECOVER_HINT}",
    )


def restored(number: int, rows: Mapping[bytes, bytes], torn: Collection[bytes]) -> Partition:
    """The state machine that these rows describe; ends the process if they are incomplete."""
    if not rows:
        return Partition.empty(number)
    with ending_where_rows_lack(number):
        return Partition.restore(number, rows, torn)


def partition_row(number: int, rows: Mapping[bytes, bytes]) -> PartitionRow:
    """The partition's own row among these; ends the process if it cannot be read."""
    with ending_where_rows_lack(number):
        return stored_row(number, rows)


@contextlib.contextmanager
def ending_where_rows_lack(number: int) -> Iterator[None]:
    """End the process where the stored rows of a partition are not whole."""
    try:
        yield
    except StateError as error:
        die(Exit.NEEDS_OPERATOR, f"log partition {number}: the state rows are not whole: {error}. {RECOVER_HINT}")


RECOVER_HINT = (
    "Stop all deciders, delete the changelog topic and run `fleethpa admin topics init`. If the log still begins at "
    "offset 0, start again: the state is then folded anew from the log. If it does not, run `fleethpa run decider "
    "--rebuild --archive DIR` before: the archive has what the log has lost. Without one, `fleethpa run decider "
    "--rebuild` marks the gap with a restart entry"
)
REPUBLISH_HINT = (
    "If the log begins at offset 0 and the same decisions are missing again, delete the decisions topic with "
    "the changelog: the decider then computes and publishes all decisions from the log"
)

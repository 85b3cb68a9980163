"""A worker that crashes at any time, and inside checkpoints, and continues from what the changelog has then."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from streams.history.checkpointrows import NewestCheckpoint
from streams.partition import Partition
from streams.state.partitionstate import Message
from streams.state.rowcodec import APPLIED_BYTES, WholeCheckpoints, partition_key
from tests.kit.partition import LogBuilder, Record

Row = tuple[bytes, bytes]


class Crashing:
    """A worker that checkpoints, crashes inside checkpoints, and continues from what the changelog has then.

    Meanwhile the changelog is compacted, but for what is newer than an hour: in that time a whole checkpoint comes, or
    `MOST_TORN` of them are torn, and not each of them as early as in the rows that a takeover writes again.

    Args:
        records: of the log.
        seed: of all that happens to the worker.
        sums: log offset -> what each cluster stores after that record, for each record at which it is compared.
        torn: how many of its checkpoints are torn.
        number: of the log partition.
    """

    MOST_TORN = 6

    def __init__(
        self, records: list[Record], seed: int, sums: dict[int, Any] | None = None, torn: float = 0.5, number: int = 0
    ) -> None:
        self.records = records
        self.number, self.own = number, partition_key(number)
        self.sums = sums or {}
        self.random = random.Random(seed)
        self.torn = torn
        self.changelog: dict[int, Row] = {}
        """Offset -> row, in the order of the offsets."""
        self.compactable = [0] * self.MOST_TORN
        """Up to where it is compacted: the first of the offsets at which the last torn checkpoints began."""
        self.early = 0
        """How many of them were torn early in a row."""
        self.topic: dict[int, dict[str, bytes]] = {}
        """Log offset -> number -> decision: two HPAs of one uid may have decisions of the same id."""
        self.values: list[bytes] = []
        self.crashes = 0
        self.messages: dict[int, list[Message]] = {}
        """Log offset -> what that record says to other partitions, the same each time it is folded."""
        self.partition = Partition.empty(number)
        """At the end of the run."""

    def run(self) -> list[bytes]:
        partition = Partition.empty(self.number)
        while partition.applied_offset < len(self.records) - 1:
            partition = self._take(partition)
            if self.random.random() < 0.25:
                partition = self._checkpoint(partition)
            elif self.random.random() < 0.1:
                partition = self._crash()
        self.partition = partition
        return self.values

    def _take(self, partition: Partition) -> Partition:
        first = partition.applied_offset + 1
        for record in self.records[first : first + self.random.randrange(1, 12)]:
            made, messages = partition.apply(*record, self.topic.get(record.offset, {})), partition.pop_messages()
            assert self.messages.setdefault(record.offset, messages) == messages, record.offset
            if record.offset in self.sums:
                assert usage(partition) == self.sums[record.offset], record.offset
            torn = bool(made) and self.random.random() < 0.05
            for decision in made[: self.random.randrange(len(made))] if torn else made:
                self.topic.setdefault(record.offset, {})[f"{decision.seq}"] = decision.value
                self.values.append(decision.value)
            if torn:
                return self._crash()
        return partition

    def _checkpoint(self, partition: Partition) -> Partition:
        written = partition.checkpoint()
        if self.random.random() < self.torn:
            self._write(written[: self._cut([key for key, _ in written])])
            return self._crash()
        self._write(written)
        self.compactable = [self.end] * self.MOST_TORN
        again = dict(partition.rows())  # what a partition that is given up puts back
        stored = taken(self.changelog.values()).rows
        assert bodies(again).items() <= bodies(stored).items()
        # What is stored beside them is of a checkpoint that did not end.
        assert not {key.decode() for key in stored.keys() - again.keys()} & partition.state.index.written.keys()
        return Partition.restore(self.number, again) if self.random.random() < 0.2 else partition

    def _cut(self, keys: list[bytes]) -> int:
        """After how many rows a checkpoint is torn."""
        early = keys.index(self.own) + 1
        cut = self.random.randrange(
            early if self.early >= self.MOST_TORN - 2 and self.own in keys[early:] else 0, len(keys)
        )
        self.early = 0 if cut >= early else self.early + 1
        return cut

    def _write(self, rows: Iterable[Row]) -> None:
        first = self.end
        self.changelog |= dict(enumerate(rows, first))
        self.compactable = [*self.compactable[1:], first]

    @property
    def end(self) -> int:
        return max(self.changelog, default=-1) + 1

    def _crash(self) -> Partition:
        self.crashes += 1
        if self.random.random() < 0.3:
            self._compact(self.random.randrange(self.compactable[0] + 1))
        restored = restored_from(self.changelog.values(), self.number)
        assert dict(as_a_reader_restores(self.changelog.values(), self.number).rows()) == dict(restored.rows())
        return restored

    def _compact(self, below: int) -> None:
        """Keep of each key the newest of the rows below this offset."""
        newest = {key: at for at, (key, _) in self.changelog.items() if at < below}
        self.changelog = {at: row for at, row in self.changelog.items() if at >= below or newest[row[0]] == at}


def taken(changelog: Iterable[Row]) -> WholeCheckpoints:
    """What a worker has read that has read all of these rows."""
    checkpoints = WholeCheckpoints({})
    for key, value in changelog:
        checkpoints.add(key, value)
    checkpoints.end()
    return checkpoints


def restored_from(changelog: Iterable[Row], number: int = 0) -> Partition:
    """A partition as a worker restores it that has read these rows."""
    checkpoints = taken(changelog)
    return Partition.restore(number, checkpoints.rows, checkpoints.torn.get(number, ()))


def as_a_reader_restores(changelog: Iterable[Row], number: int) -> Partition:
    """The same as the verbs restore it, which read backwards and no more than they need."""
    wanted = NewestCheckpoint(number)
    for key, value in reversed(list(changelog)):
        if wanted.own is not None and not wanted.missing:
            break
        wanted.add(key, value)
    wanted.end()
    return Partition.restore(number, wanted.rows)


def bodies(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Rows without the offsets that they have applied."""
    return {key: value[APPLIED_BYTES:] for key, value in rows.items()}


def usage(partition: Partition) -> list[Any]:
    """The sums of what is stored of each cluster."""
    return [(name, each.bytes, each.hpas, each.namespaces) for name, each in sorted(partition.state.usage.items())]


def stored(partition: Partition) -> list[Any]:
    """What is stored of namespaces and clusters, and the sums of it."""
    state = partition.state
    spaces = [
        (
            key,
            sorted(space.pods),
            space.directory,
            space.scales,
            space.answers,
            space.series,
            space.arrivals,
            space.conflicting,
            space.commands,
            (space.held.bytes, space.held.hpas),
            {row: size for row, size in space.held.sums.items() if size},
        )
        for key, space in sorted(state.namespaces.items())
    ]
    return [usage(partition), *[each for each in spaces if any(each[1:])]]


def assert_no_crash_changes_a_byte(
    records: list[Record], seed: int, *, torn: float = 0.5, number: int = 0, with_sums: bool = False
) -> None:
    """Check that a worker that crashes again and again decides, stores and says to others what one does that never
    crashes.

    `with_sums`: what each cluster stores is compared after each record, too.
    """
    whole, messages, values, sums = Partition.empty(number), dict[int, list[Message]](), list[bytes](), dict[int, Any]()
    for record in records:
        values += [decision.value for decision in whole.apply(*record)]
        messages[record.offset] = whole.pop_messages()
        if with_sums:
            sums[record.offset] = usage(whole)
    crashing = Crashing(records, seed, sums, torn, number)
    assert crashing.run() == values
    assert crashing.messages == messages
    assert (crashing.partition.seq, crashing.partition.prev) == (whole.seq, whole.prev)
    assert stored(crashing.partition) == stored(whole)


def assert_the_same_after_crashes(logs: Mapping[str, LogBuilder], chosen: random.Random) -> None:
    """Check it for log partitions that say something to each other."""
    for log in logs.values():
        assert_no_crash_changes_a_byte(log.records, chosen.randrange(1_000_000), number=log.partition.number)

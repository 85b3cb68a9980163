"""One partition of the log: apply records, make decisions, write and read checkpoints.

PURE: the decisions are a function of the records (offset, timestamp, value), and do not depend on how records are
grouped or which checkpoint was restored.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Any, Self

from schemas.decisions import ENGINE
from schemas.keys import HpaId
from streams.state import rowcodec
from streams.state.answers import FoldedRecord, read_record
from streams.state.attached import Attached
from streams.state.clusterhpa import ClusterHpa
from streams.state.fold import EntryFold
from streams.state.forgetting import LONG_MS, SWEEP_MS, expire, forget
from streams.state.hpastate import Hpa
from streams.state.inputs import Probe
from streams.state.ledger import DecisionRecord, Ledger, LogError, StateError, UnknownEngineError
from streams.state.logtime import advance, bound
from streams.state.namespace import Namespace
from streams.state.partitionrow import IndexRow, PartitionRow, check_written, index_key
from streams.state.partitionstate import Message, State
from streams.state.processing import plan_sampled, process
from streams.state.rowcodec import DELETED, applied_offset, load_namespace
from streams.state.rows import NOTHING_APPLIED, SIDES, HpaRow, NamespaceRow
from streams.state.subject import accounts_of

CHECKPOINT_EVERY_MS = 30_000
"""Longer than a sync period, in which every HPA changes: half the rows of one per period, for which a restart and the
present that read verbs show fold 8 s more of the log on average.
"""
_TURNS = 4
"""Partitions write their checkpoints in four turns: no decider writes all its rows at once, and one that was killed has
partitions that have little to fold again. Those of a turn wait for the brokers once.
"""
WHOLE_EVERY_MS = 60_000
"""How often (log time) a checkpoint writes all parts of the namespaces that it writes, changed or not.

So the pods of a namespace that is at work are not far behind the end of the changelog: reading the present reads a
minute back, and a broker that keeps the changelog by size loses no row that is still needed.
"""
CHECKPOINT_EVERY_RECORDS = 2_000
_NONE_PUBLISHED: Mapping[str, bytes] = {}


def checkpoint_period(number: int, time_ms: int) -> int:
    """Return the period (CHECKPOINT_EVERY_MS) of a log partition that a moment of log time is in: in each, the
    partition writes a checkpoint.
    """
    # Neighbours have different turns, and so have partitions of which a decider has every fourth.
    turn = (number + number // _TURNS) % _TURNS
    return (time_ms + turn * CHECKPOINT_EVERY_MS // _TURNS) // CHECKPOINT_EVERY_MS


def log_hash(before: bytes, timestamp_ms: int, value: bytes) -> bytes:
    """Return the running hash of a log partition after a record.

    SHA-256 over the hash before it, the record's timestamp (Unix milliseconds, 8 bytes big-endian) and its value: both
    are input of what is decided.
    """
    digest = sha256(before)
    digest.update(timestamp_ms.to_bytes(8, "big", signed=True))
    digest.update(value)
    return digest.digest()


class PartitionKernel:
    """The state of one log partition and the decisions that follow from it. What is attached to it, if anything, a
    subclass says: `streams.partition.Partition` for all that fleethpa has.
    """

    @classmethod
    def attached(cls) -> Attached:
        """Return what decides beside upstream's rules."""
        raise NotImplementedError("streams.partition.Partition has everything attached")

    @classmethod
    def _with_kernel(cls) -> Attached:
        """Return it with the kind of HPAs that the kernel has itself."""
        attached = cls.attached()
        return attached._replace(kinds=(*attached.kinds, ClusterHpa()))

    def __init__(self, state: State, again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.state = state
        self._again = again
        """Rows that the next checkpoint writes again, before its own."""
        self._since_checkpoint = 0
        self._last_value = b""
        """The newest record since the last checkpoint; empty: none came."""

    @classmethod
    def empty(cls, number: int) -> Self:
        """A partition of which no record has been applied."""
        return cls(State(PartitionRow(number=number), cls._with_kernel()))

    @classmethod
    def restore(cls, number: int, stored: Mapping[bytes, bytes], torn: Collection[bytes] = ()) -> Self:
        """Read a partition back from the rows of its newest checkpoint (`rowcodec.WholeCheckpoints`).

        Args:
            number: partition of the log.
            stored: rows by key; deleted ones and those of other partitions are ignored.
            torn: keys of which a later checkpoint, that has not ended, left copies. Compaction would leave only those,
                if no later checkpoint ended either, so the next one begins with the rows that count.

        Raises:
            StateError: a row is missing, unreadable, or older than the index says.
            UnknownEngineError: the rows were made under an engine that this version lacks.
        """
        own = {key: value for key, value in stored.items() if value and key.startswith(b"%d|" % number)}
        last = rowcodec.partition_key(number)
        again = [(key, own[key]) for key in (*sorted({*torn} - {last}), last) if key in own] if torn else []
        return cls(_load(number, own, cls._with_kernel()), again)

    @property
    def number(self) -> int:
        return self.state.row.number

    @property
    def applied_offset(self) -> int:
        """Offset of the last record applied; -1: none."""
        return self.state.row.offset

    @property
    def seq(self) -> int:
        """Number of the last decision; 0: none."""
        return self.state.row.seq

    @property
    def prev(self) -> str:
        """SHA-256 (hex) of the last decision's value; empty: none."""
        return self.state.row.prev

    @property
    def log_hash(self) -> bytes:
        """Running hash of the records applied (`log_hash`)."""
        return self.state.row.log_hash

    @property
    def engine(self) -> int:
        return self.state.row.engine

    @property
    def clock_ms(self) -> int:
        """Log time: the newest record timestamp so far that others agree with (`streams.state.logtime`)."""
        return self.state.row.clock_ms

    @property
    def every(self) -> int:
        """Sync periods from one evaluation of an HPA to the next, as the newest tick says."""
        return self.state.row.every

    def apply(
        self,
        offset: int,
        timestamp_ms: int,
        value: bytes,
        published: Mapping[str, bytes] = _NONE_PUBLISHED,
        probe: Probe | None = None,
        only: Callable[[HpaId], bool] | None = None,
    ) -> list[DecisionRecord]:
        """Fold one record and evaluate what is due, in key order.

        Args:
            offset: of the record; one above the last one applied (any, if none was).
            timestamp_ms: of the record, Unix milliseconds.
            value: of the record.
            published: id -> value of the decisions of this record that are already on the decisions topic.
            probe: is called with the inputs of every evaluation of this record and with the end of every write.
            only: whether an HPA is evaluated when it is due; None: every one is. Of the partition, only these HPAs are
                true after it, as far as they do not depend on what others decide.

        Returns:
            The decisions to publish, in order of `seq`: those that are not published yet.

        Raises:
            LogError: not the next record, or not a log record.
            UnknownEngineError: the record asks for an engine that this version lacks.
            DivergenceError: a published decision differs from the re-derived one.
        """
        before_ms = self.clock_ms
        record = self._open(offset, timestamp_ms, value)
        state = self.state
        if state.messages:
            state.messages = []
        state.probe = probe
        expire(state, before_ms)
        # During a gap of the log nothing could be reported: silence counts from its end.
        if before_ms // SWEEP_MS < state.now_ms // SWEEP_MS and state.now_ms - before_ms < LONG_MS:
            forget(EntryFold(state))
        if record.entries:
            fold = EntryFold(state)
            for index, entry in enumerate(record.entries):
                fold.apply(index, entry)
            for account in accounts_of(state):
                account.folded(state)
            state.seen.clear()
            if state.sampled:
                plan_sampled(state)
        decisions = self._evaluate(published, only)
        state.row.offset = offset
        self._since_checkpoint += 1
        return decisions

    def pop_messages(self) -> list[Message]:
        """Return what the newest record says to other partitions, in order, and forget it; the next record does, too.

        They may be lost or sent again: what is made of them does not depend on either.
        """
        messages, self.state.messages = self.state.messages, []
        return messages

    def _open(self, offset: int, timestamp_ms: int, value: bytes) -> FoldedRecord:
        row = self.state.row
        if row.offset != NOTHING_APPLIED and offset != row.offset + 1:
            raise LogError(f"log partition {row.number}: offset {offset} does not follow {row.offset}")
        record = read_record(row.number, offset, value)
        if advance(row, timestamp_ms, offset):
            self.state = _after_step_back(self.state)
        self.state.offset, self.state.now_ms = offset, row.clock_ms
        row.log_hash = log_hash(row.log_hash, timestamp_ms, value)
        row.last_ms, self._last_value = timestamp_ms, value
        if record.is_tick:
            row.ticked_ms, row.every = row.clock_ms, record.every
        else:
            row.ingested_ms = row.clock_ms
        return record

    def _evaluate(self, published: Mapping[str, bytes], only: Callable[[HpaId], bool] | None) -> list[DecisionRecord]:
        state = self.state
        for hpa in state.schedule.pop(state.now_ms, state.hpas):
            state.ready_or_due.add(hpa.id)
        if only is not None:
            state.ready_or_due = set(filter(only, state.ready_or_due))
        ledger = Ledger(state.row.seq, state.row.prev, published)
        decisions = []
        for name in sorted(state.ready_or_due):
            for draft in process(state, state.hpas[name]):
                record = ledger.enter(draft)
                if record is not None:
                    decisions.append(record)
        state.ready_or_due.clear()
        ledger.close()
        state.row.seq, state.row.prev = ledger.seq, ledger.prev
        for account in accounts_of(state):
            account.ended(state)
        return decisions

    # --- checkpoints ------------------------------------------------------------------------------------------------

    @property
    def due_checkpoint(self) -> bool:
        """One is due every 30 s of log time (`checkpoint_period`), and after 2,000 records."""
        row, since = self.state.row, self._since_checkpoint
        before, now = (checkpoint_period(row.number, each_ms) for each_ms in (row.checkpoint_ms, row.clock_ms))
        return since >= CHECKPOINT_EVERY_RECORDS or (since > 0 and before != now)

    def checkpoint(self) -> list[tuple[bytes, bytes]]:
        """Return the changed rows in the order in which they must be written, and count them as written.

        HPA rows, namespace rows, index, partition row: with it the checkpoint counts. Then the deletion (`DELETED`) of
        the rows that it does not name. The first one after `restore` begins with those that are written again.
        """
        row, index = self.state.row, self.state.index
        if self._last_value:
            row.last_hash, self._last_value = sha256(self._last_value).digest(), b""
        if row.clock_ms // WHOLE_EVERY_MS != row.checkpoint_ms // WHOLE_EVERY_MS:
            for namespace in self.state.namespaces.values():
                if namespace.dirty:
                    namespace.dirty = set(SIDES)
        written = [*self._hpa_rows(), *self._namespace_rows()]
        index.write([key.decode() for key, _ in written], row.offset)
        written += [(key, rowcodec.encode_row(row.offset, piece)) for key, piece in index.pieces(row)]
        row.checkpoint_ms, row.rows_written = row.clock_ms, len(written)
        self._since_checkpoint = 0
        written.append((rowcodec.partition_key(row.number), rowcodec.encode_row(row.offset, row)))
        again, self._again = self._again, ()
        return [*again, *written, *((key.encode(), DELETED) for key in index.pop_leftovers())]

    def _hpa_rows(self) -> Iterator[tuple[bytes, bytes]]:
        row = self.state.row
        for _, hpa in sorted((name, hpa) for name, hpa in self.state.hpas.items() if hpa.dirty):
            for account in accounts_of(self.state):
                account.trim(hpa, row.checkpoint_ms)
            hpa.dirty = False
            yield rowcodec.hpa_key(row.number, hpa.id), rowcodec.encode_row(row.offset, hpa.row)

    def _namespace_rows(self) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self.state.namespaces):
            namespace = self.state.namespaces[key]
            if namespace.dirty:
                namespace.tidy()
                yield from self._rows_of(namespace)

    def _rows_of(self, namespace: Namespace) -> Iterator[tuple[bytes, bytes]]:
        row, applied = self.state.row, rowcodec.applied_prefix(self.state.row.offset)
        for side in sorted(namespace.dirty):
            bodies = rowcodec.bodies_of_namespace(namespace, side)
            for key, body in zip(rowcodec.namespace_row_keys(row.number, namespace, side), bodies, strict=False):
                yield key.encode(), applied + body
            self.state.index.remove_from(rowcodec.namespace_row_keys(row.number, namespace, side, len(bodies)))
        namespace.dirty, namespace.is_stored = set(), True

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows as the checkpoints until now wrote them; call it right after one, while nothing has
        changed.
        """
        row, written = self.state.row, self.state.index.written
        for hpa in self.state.hpas.values():
            key = rowcodec.hpa_key(row.number, hpa.id)
            if (applied := written.get(key.decode())) is not None:
                yield key, rowcodec.encode_row(applied, hpa.row)
        for namespace in self.state.namespaces.values():
            for side in SIDES if namespace.is_stored else ():
                named = rowcodec.namespace_row_keys(row.number, namespace, side)
                keys = list(takewhile(written.__contains__, named))
                bodies = rowcodec.bodies_of_namespace(namespace, side, len(keys)) if keys else []
                for name, body in zip(keys, bodies, strict=True):
                    yield name.encode(), rowcodec.applied_prefix(written[name]) + body
        for at, piece in enumerate(self.state.index.all_pieces()):
            yield index_key(row.number, len(row.index), at), rowcodec.encode_row(row.index[at], piece)
        yield rowcodec.partition_key(row.number), rowcodec.encode_row(row.offset, row)


def stored_row(number: int, stored: Mapping[bytes, bytes]) -> PartitionRow:
    """Read a partition's own row among its stored rows; without it, that of a partition of which no record has been
    applied. Raises StateError: it cannot be read.
    """
    key = rowcodec.partition_key(number)
    if key not in stored:
        return PartitionRow(number=number)
    row = rowcodec.decode_row(key, stored[key])
    if not isinstance(row, PartitionRow) or row.number != number:
        raise StateError(f"the row of partition {number} is another partition's")
    return row


def _load(number: int, stored: Mapping[bytes, bytes], attached: Attached) -> State:
    row = stored_row(number, stored)
    if not 1 <= row.engine <= ENGINE:
        raise UnknownEngineError(row.engine, ENGINE)
    state = State(row, attached)
    _load_index(state, stored)
    rows = {key.encode(): stored[key.encode()] for key in state.index.written}
    _load_namespaces(state, rows)
    _load_hpas(state, rows)
    return state


def _load_index(state: State, stored: Mapping[bytes, bytes]) -> None:
    """Read which rows count."""
    row = state.row
    parts = len(row.index)
    named = {index_key(row.number, parts, at).decode(): written for at, written in enumerate(row.index)}
    applied = {key.decode(): applied_offset(value) for key, value in stored.items()}
    check_written(named, applied)
    pieces = [_index_row(key.encode(), stored) for key in named]
    own = {*named, rowcodec.partition_key(row.number).decode()}
    state.index.load(pieces, {key: at for key, at in applied.items() if key not in own})


def _index_row(key: bytes, stored: Mapping[bytes, bytes]) -> IndexRow:
    piece = rowcodec.decode_row(key, stored[key])
    if not isinstance(piece, IndexRow):
        raise StateError(f"state row {key.decode()} is no piece of an index")
    return piece


def _load_namespaces(state: State, stored: Mapping[bytes, bytes]) -> None:
    rows_by_side: dict[tuple[str, str], dict[int, NamespaceRow]] = {}
    for key in sorted(stored):
        kind, rest = rowcodec.row_kind(key)
        if kind != "n":
            continue
        cluster, name, part = rowcodec.namespace_of_key(rest)
        row = rowcodec.decode_row(key, stored[key])
        if isinstance(row, NamespaceRow):
            rows_by_side.setdefault((cluster, name), {})[part] = row
    for (cluster, name), parts in rows_by_side.items():
        if 0 not in parts:
            continue  # the changelog has lost it (`history.checkpointrows.without`)
        _load_namespace(state, cluster, name, [parts[part] for part in sorted(parts)])


def _load_namespace(state: State, cluster: str, name: str, rows: Iterable[NamespaceRow]) -> Namespace:
    namespace = state.namespace(cluster, name)
    load_namespace(namespace, rows)
    state.count_namespaces(namespace, int(namespace.born != NOTHING_APPLIED))
    return namespace


def _load_hpas(state: State, stored: Mapping[bytes, bytes]) -> None:
    for key in sorted(stored):
        row = rowcodec.decode_row(key, stored[key]) if rowcodec.row_kind(key)[0] == "h" else None
        if isinstance(row, HpaRow):
            state.add(Hpa(row))
    state.schedule.rebuild(state.hpas)


def _after_step_back(old: State) -> State:
    """Return the state with all times that log time has not reached any more bounded by it: what is derived from rows
    is made anew, as from a checkpoint, and all of them are written at the next one.
    """
    row, offset = old.row, old.row.offset
    bound(row, row.clock_ms)
    state = State(row, old.attached)
    state.index = old.index
    for key in sorted(old.namespaces):
        before = old.namespaces[key]
        before.tidy()
        place = rowcodec.namespace_row_key(row.number, before.cluster, before.name, 0)
        rows = [_bounded(place, rowcodec.row_of_namespace(before, side), offset, row.clock_ms) for side in SIDES]
        namespace = _load_namespace(state, before.cluster, before.name, rows)
        namespace.dirty, namespace.is_stored = set(SIDES), before.is_stored
    for name in sorted(old.hpas):
        hpa = Hpa(_bounded(rowcodec.hpa_key(row.number, name), old.hpas[name].row, offset, row.clock_ms))
        state.add(hpa)
        hpa.dirty = True
    state.schedule.rebuild(state.hpas)
    return state


def _bounded(key: bytes, row: Any, offset: int, now_ms: int) -> Any:
    """Return a copy of a row, as a checkpoint would keep it, whose times are bounded."""
    return bound(rowcodec.decode_row(key, rowcodec.encode_row(offset, row)), now_ms)

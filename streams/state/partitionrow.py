"""The row of a whole log partition: its position and hash, settings, pauses, observers, agents; and the index of rows.

The index names which rows belong to a checkpoint, and as of which log offset each was last written. It has keys and
offsets in pieces of bounded size, each a row; the partition's own row has the offset of each piece, so a restore
notices a row or piece that is missing or old. A row that no piece names is a leftover: what it holds was removed from
the state.

Fields are only ever added at the end, with a default: the structs are stored as arrays (`rowcodec.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal
from zlib import crc32

from msgspec import Struct, structs

from schemas.entries import HUB_HOLDER, ControlTransferred, LeftNative
from schemas.kubernetes.gotimes import parse_time_ms, rfc3339_seconds
from schemas.limits import CLUSTER_HPAS, CLUSTER_NAMESPACES
from schemas.observed import REFUSED_PART, ObserverTrouble, Reason
from schemas.settings import ClusterSettings
from streams.state.acrossrows import CeilingRow, GroupRow
from streams.state.ledger import StateError
from streams.state.rows import NOTHING_APPLIED, Pause, RefusedRow


class ObserverSession(Struct, array_like=True, frozen=True, gc=False):
    """The observer session that is followed for one cluster and watch."""

    session: str
    reported_ms: int
    ignored: int = 0


class ReportRow(Struct, array_like=True, frozen=True, gc=False):
    """The newest report of an observer on a whole cluster, and when it arrived (log time). `stated_ms`: when it was
    made, by the observer's clock; 0: not known.
    """

    cluster: str
    instance: str
    session: str
    reported_ms: int
    started_ms: int = 0
    troubles: list[ObserverTrouble] = []
    stopped: bool = False
    stated_ms: int = 0

    @property
    def forms(self) -> list["ReportRow"]:
        """This row, and shorter forms for when it does not fit: without errors and namespaces, then one trouble."""
        brief = [ObserverTrouble(part=each.part, reason=each.reason, since=each.since) for each in self.troubles[:20]]
        error = "the reports of all clusters together are too large: this one is not kept"
        cut = ObserverTrouble(part=REFUSED_PART, reason="failing", since=self.reported_ms, error=error)
        return [self, *(structs.replace(self, troubles=each) for each in (brief, [cut] if self.troubles else []))]


class ServedRow(Struct, array_like=True, frozen=True, gc=False):
    """Newest report of a cluster's reconciler. `problem`: why it cannot write there, and `reason` in one word (empty:
    not known). `stated_ms`: when it was made, by the reconciler's clock; 0: not known.
    """

    reported_ms: int = 0
    problem: str = ""
    session: str = ""
    stated_ms: int = 0
    reason: Reason | Literal[""] = ""


class AgentRow(Struct, array_like=True, frozen=True, gc=False):
    """The newest agent of a cluster: the incarnation whose reports count. `left`: none counts any more since `left_ms`
    (log time).
    """

    incarnation: int
    left: bool = False
    max_namespaces: int = CLUSTER_NAMESPACES.most
    max_hpas: int = CLUSTER_HPAS.most
    left_ms: int = 0


class ControlRow(Struct, array_like=True, frozen=True, gc=False):
    """Who is and was in charge of a cluster: the newest change last, the oldest forgotten.

    `changes`: when (Unix ms, the agent's clock), who holds the cluster from then on, and the generation.
    `restart_offset`: log offset of the last hand-back to a hub.
    """

    changes: list[tuple[int, str, int]]
    restart_offset: int = NOTHING_APPLIED


class VersionRow(Struct, array_like=True, frozen=True, gc=False):
    """The version of a cluster, as an observer reported it (`schemas.observed.Heartbeat`), since when (log time)."""

    version: str
    since_ms: int


class LogTime(Struct, array_like=True, frozen=True, gc=False):
    """What is not settled about log time (`streams.state.logtime`).

    `doubted_ms`: timestamp of the first of the newest records, all of which are far ahead of log time, or far behind it
    (`is_back`); 0: the newest record agrees with it. `stepped_from_ms`: log time before its newest step ahead to
    `stepped_ms`, or before the first of several; 0: there was none, or it was taken back. `set_ms`: log time as an
    entry of `set_by` sets it from the next record on; 0: none.
    """

    doubted_ms: int = 0
    is_back: bool = False
    stepped_from_ms: int = 0
    stepped_ms: int = 0
    set_ms: int = 0
    set_by: str = ""


class IndexRow(Struct, array_like=True, frozen=True, gc=False):
    """One piece of the index: key -> applied offset with which the row was last written."""

    written: dict[str, int] = {}


class PartitionRow(Struct, array_like=True, kw_only=True):
    """The state of a whole log partition as of `offset`."""

    number: int
    offset: int = NOTHING_APPLIED
    seq: int = 0
    prev: str = ""
    log_hash: bytes = bytes(32)
    clock_ms: int = 0
    watermarks: dict[str, tuple[int, int]] = {}
    """`topic-partition` of a source -> (offset, index) of its last entry that was applied."""
    engine: int = 1
    partitions: int = 0
    settings: dict[str, ClusterSettings] = {}
    """Cluster -> its settings; `*`: defaults."""
    pauses: dict[str, dict[str, Pause]] = {}
    """Cluster (or `*`) -> pauses by kind."""
    sessions: dict[str, ObserverSession] = {}
    """`cluster/watch` -> followed session."""
    restart_offset: int = NOTHING_APPLIED
    restart_reason: str = ""
    index: list[int] = []
    """The pieces of the index of rows (`RowIndex`): the applied offset with which each was last written."""
    duplicates: int = 0
    checkpoint_ms: int = 0
    reports: dict[str, ReportRow] = {}
    """`cluster/instance` -> newest report; those of one cluster are all in one partition."""
    served: dict[str, ServedRow] = {}
    """Cluster -> its reconciler."""
    ingested_ms: int = 0
    """Log time of the newest record that ingest appended."""
    ticked_ms: int = 0
    """Log time of the newest tick, which a decider appended."""
    agents: dict[str, AgentRow] = {}
    """Cluster -> its agent."""
    transfers: dict[str, ControlRow] = {}
    """Cluster -> who is in charge; none: no stand-in ever reported."""
    refused: dict[str, dict[str, RefusedRow]] = {}
    """Cluster -> limit -> what was not stored because of it; for clusters above their limit the cluster is `*`."""
    last_ms: int = 0
    """Timestamp of the record at `offset`, as the broker gives it."""
    last_hash: bytes = b""
    """SHA-256 of that record's value."""
    kubernetes: dict[str, VersionRow] = {}
    """Cluster -> its version."""
    groups: dict[str, GroupRow] = {}
    """CapacityGroups; all partitions have them."""
    ceilings: dict[str, CeilingRow] = {}
    """CapacityGroup -> its members; those of one group are all in one partition."""
    rows_written: int = 0
    """How many rows its checkpoint has beside it."""
    every: int = 1
    """Sync periods from one evaluation of an HPA to the next, as the newest tick says."""
    log_time: LogTime = LogTime()


KEPT_CHANGES = 20
"""How many changes of the holder are kept of a cluster."""


def control_after(known: ControlRow | None, body: ControlTransferred, offset: int) -> ControlRow:
    """The row after a change. A change that is older than the newest is entered in its place, and moves nothing.

    A hub that gets a cluster back starts with empty windows, which do not contain what the native controller did.
    """
    known = known or ControlRow([])
    change = (body.time, body.holder, body.generation)
    if change in known.changes:
        return known
    changes = sorted([*known.changes, change], key=lambda each: each[2])[-KEPT_CHANGES:]
    is_back = body.holder.startswith(HUB_HOLDER) and len(changes) > 1 and changes[-1] == change
    return ControlRow(changes, offset if is_back else known.restart_offset)


def status_after(status: Mapping[str, Any], native: LeftNative) -> dict[str, Any]:
    """The status of a central HPA that a native one stood in for: its last scale time continues, as does a zero that a
    controller scaled to.
    """
    after = dict(status)
    known = after.get("lastScaleTime")
    if native.last_scale is not None and (not known or parse_time_ms(known) < native.last_scale):
        after["lastScaleTime"] = rfc3339_seconds(native.last_scale)
    others = [each for each in after.get("conditions") or () if each.get("type") != "ScaledToZero"]
    if native.scaled_to_zero and len(others) == len(after.get("conditions") or ()):
        after["conditions"] = [
            *others,
            {
                "type": "ScaledToZero",
                "status": "True",
                "reason": "ScaledToZero",
                "message": "the HPA controller scaled the workload to zero",
                "lastTransitionTime": after.get("lastScaleTime"),
            },
        ]
    return after


def index_key(partition: int, pieces: int, piece: int) -> bytes:
    """Key of one of so many pieces of the partition's index of rows."""
    return f"{partition}|i/{pieces}.{piece}".encode()


MOST_NAMES = 1_024
"""Names in a piece, on average: with the longest names of Kubernetes they take less than `MAX_ROW_BYTES`."""


class RowIndex:
    """The index of one partition: what the rows are that its checkpoints wrote."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}
        """Key -> applied offset with which the row was last written."""
        self._leftovers: set[str] = set()
        """Keys of rows that are stored and that nothing names."""
        self._pieces = 0
        self._changed: set[int] = set()

    def write(self, keys: Sequence[str], offset: int) -> None:
        """Note that rows were written with this applied offset."""
        self.written.update(dict.fromkeys(keys, offset))
        if self._leftovers:
            self._leftovers.difference_update(keys)
        if self._pieces > 1:
            self._changed.update([_piece_of(key, self._pieces) for key in keys])
        elif self._pieces and keys:
            self._changed.add(0)

    def remove(self, key: str) -> None:
        """Note that what a row holds was removed."""
        if self.written.pop(key, None) is not None:
            self._leftovers.add(key)
            self._record(key)

    def remove_from(self, keys: Iterable[str]) -> None:
        """Note that what rows held was removed, up to the first that was not written."""
        for key in keys:
            if key not in self.written:
                return
            self.remove(key)

    def _record(self, key: str) -> None:
        if self._pieces:
            self._changed.add(_piece_of(key, self._pieces))

    def pop_leftovers(self) -> list[str]:
        """Return the rows to delete, once: what they hold was removed, or nothing named them when they were read."""
        leftovers, self._leftovers = sorted(self._leftovers), set()
        return leftovers

    def pieces(self, row: PartitionRow) -> Iterator[tuple[bytes, IndexRow]]:
        """Yield the pieces that have changed, with their keys, and note their offset in the partition's row."""
        wanted = max(1, self._pieces)
        while len(self.written) > MOST_NAMES * wanted:
            wanted *= 2
        while wanted > 1 and len(self.written) < MOST_NAMES * wanted // 4:
            wanted //= 2
        if wanted != self._pieces:
            self._leftovers |= {index_key(row.number, self._pieces, at).decode() for at in range(self._pieces)}
            self._pieces, self._changed, row.index = wanted, set(range(wanted)), [row.offset] * wanted
        pieces = self._made(self._changed)
        self._changed = set()
        for at, piece in pieces.items():
            row.index[at], key = row.offset, index_key(row.number, wanted, at)
            self._leftovers.discard(key.decode())
            yield key, piece

    def all_pieces(self) -> list[IndexRow]:
        """Return all pieces as of the last checkpoint, in order."""
        return list(self._made(set(range(self._pieces))).values())

    def _made(self, wanted: set[int]) -> dict[int, IndexRow]:
        if wanted == {0} and self._pieces == 1:
            return {0: IndexRow(dict(self.written))}
        pieces = {at: IndexRow({}) for at in sorted(wanted)}
        for key, written in self.written.items():
            if (piece := pieces.get(_piece_of(key, self._pieces))) is not None:
                piece.written[key] = written
        return pieces

    def load(self, pieces: Iterable[IndexRow], stored: Mapping[str, int]) -> None:
        """Take up all stored pieces.

        `stored`: key -> applied offset of every row that is stored, but for these pieces and the partition's own.

        Raises StateError: a row that is named is missing, or older than it was written.
        """
        for piece in pieces:
            self._pieces += 1
            self.written |= piece.written
        check_written(self.written, stored)
        self._leftovers = stored.keys() - self.written.keys()


def check_written(named: Mapping[str, int], stored: Mapping[str, int]) -> None:
    """Check that rows are stored, none older than its name says. Raises StateError: one is missing or old.

    A newer copy, of a checkpoint that has not ended, holds the same: what changes later is written anew.
    """
    for key, written in named.items():
        applied = stored.get(key)
        if applied is None:
            raise StateError(f"state row {key} is missing; it was last written at log offset {written}")
        if applied < written:
            raise StateError(f"state row {key} is of log offset {applied}, {written} was written")


def _piece_of(key: str, pieces: int) -> int:
    return crc32(key.encode()) % pieces

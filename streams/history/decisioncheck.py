"""The decisions of one partition compared, one after the other, with those that its log gives.

What is checked of each decision: its place (offset, number, hash of the one before), its id and key and headers, the
running hash of the log it names, and its bytes. A repeated copy must be a copy. The first fault ends the partition.
"""

from collections import deque
from hashlib import sha256

from msgspec import Struct

from schemas import chain
from schemas.chain import REMEMBERED, Links, links_of
from streams.archive.segments import BAD_JSON, ArchivedRecord
from streams.history.differences import differences
from streams.state.ledger import DecisionRecord
from streams.state.logerrors import CoreError
from streams.state.partition import Partition


class FaultError(Exception):
    """The first thing found wrong; the text names the record and what differs."""


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `fault`: the first thing found wrong, empty if nothing was. `missing`: decisions that the log asks for beyond the
    newest recorded one. `engine`: in force at the end; `engineChanges`: (log offset, engine from there on).
    """

    partition: int
    start: int = -1
    log_records: int = 0
    decisions: int = 0
    duplicates: int = 0
    snapshots: int = 0
    segments: int = 0
    signed: int = 0
    engine: int = 0
    engine_changes: list[tuple[int, int]] = []
    last_log_offset: int = -1
    last_seq: int = 0
    fault: str = ""


def log_offset_of(decision_id: str) -> int:
    """The log offset that a decision id names.

    Raises:
        FaultError: not the id of a decision.
    """
    try:
        return chain.log_offset_of(decision_id)
    except ValueError as error:
        raise FaultError(str(error)) from error


class Checker:
    """Compares the decisions of one partition, as they are read, with the re-derived ones."""

    def __init__(self, partition: Partition, report: Report) -> None:
        self.partition, self.report = partition, report
        self.expected: deque[DecisionRecord] = deque()
        self._seq, self._prev = partition.seq, partition.prev
        self._digests: dict[int, str] = {partition.seq: partition.prev} if partition.seq else {}
        self._offset: int | None = None
        self._from_seq = partition.seq

    def log(self, record: ArchivedRecord) -> None:
        """Fold a log record; what it causes is expected to stand.

        Raises:
            FaultError: it is not the next one, or no log record.
        """
        where = f"log {self.report.partition}@{record.offset}"
        try:
            self.expected.extend(self.partition.apply(record.offset, record.timestamp_ms, record.value))
        # Whatever the fold of a record that was tampered with stumbles over, the record is what is wrong.
        except Exception as error:
            text = str(error) if isinstance(error, CoreError) else f"cannot be folded: {type(error).__name__}: {error}"
            raise FaultError(f"{where}: {text}") from error
        self.report.log_records += 1
        self.report.last_log_offset = record.offset
        engine = self.partition.engine
        if engine != self.report.engine:
            self.report.engine = engine
            self.report.engine_changes.append((record.offset, engine))

    def decision(self, record: ArchivedRecord) -> bool:
        """Check one record of the decisions; False for a copy, or one before the part that is checked.

        Raises:
            FaultError: something is wrong with it.
        """
        where = f"decision {self.report.partition}@{record.offset}"
        if self._offset is not None and record.offset != self._offset + 1:
            raise FaultError(f"{where}: stands where offset {self._offset + 1} belongs")
        self._offset = record.offset
        try:
            links = links_of(record.value)
        except BAD_JSON as error:
            raise FaultError(f"{where}: is not a decision: {error}") from error
        digest = sha256(record.value).hexdigest()
        if links.seq <= self._seq:
            self._copy(where, links, digest)
            return False
        where = f"{where} ({links.id})"
        if links.seq != self._seq + 1:
            raise FaultError(f"{where}: is number {links.seq} and follows number {self._seq}: records are missing")
        if links.prev != self._prev:
            raise FaultError(
                f"{where}: names {links.prev[:16]}… as the hash of the one before, which is {self._prev[:16]}…"
            )
        self._compare(where, record, links)
        self._seq, self._prev = links.seq, digest
        self._digests[links.seq] = digest
        self._digests.pop(links.seq - REMEMBERED, None)
        self.report.decisions += 1
        self.report.last_seq = links.seq
        return True

    def _copy(self, where: str, links: Links, digest: str) -> None:
        if self._digests.get(links.seq, digest) != digest:
            raise FaultError(f"{where} ({links.id}): is another version of decision number {links.seq}")
        if links.seq > self._from_seq:
            self.report.duplicates += 1

    def _compare(self, where: str, record: ArchivedRecord, links: Links) -> None:
        if log_offset_of(links.id) > self.report.last_log_offset and not self.expected:
            raise FaultError(f"{where}: names log offset {log_offset_of(links.id)}; the log ends before it")
        if not self.expected:
            raise FaultError(f"{where}: does not follow from the log")
        made = self.expected.popleft()
        if record.value != made.value:
            raise FaultError(f"{where}: {_what_differs(record.value, made)}")
        if record.key != made.key.encode():
            raise FaultError(f"{where}: key is {record.key!r}, {made.key!r} was written")
        if list(record.headers) != made.headers:
            raise FaultError(f"{where}: headers are {list(record.headers)}, {made.headers} were written")


def _what_differs(standing: bytes, made: DecisionRecord) -> str:
    found = differences(standing, made.value)
    if not found:
        return f"the bytes differ from those of {made.id}, though not their meaning"
    if found[0].path == "input.hash":
        return (
            f"names another hash of the log than its records give: a log record up to offset {log_offset_of(made.id)} "
            "and after the last decision that was right has been changed"
        )
    more = f" (and {len(found) - 1} more fields)" if len(found) > 1 else ""
    return f"recomputation differs in {found[0]}{more}"

"""Decision records as the topic or an archive holds them: decoded, and each once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from schemas.codec import WireError, decode
from schemas.decisions import Decision, uid_of
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from streams.archive.layout import ArchivedRecord
from streams.archive.segmentreader import names_of


class Recorded(Struct, frozen=True, gc=False):
    """A decision and the place of its record."""

    decision: Decision
    partition: int
    offset: int
    value: bytes
    """The record, of which `decision` is what it says."""
    time_ms: int
    """Log time of the decision. The record's time on the topic is another: the decider may lag hours behind."""

    @property
    def hpa(self) -> HpaId:
        return HpaId(self.decision.cluster, self.decision.namespace, self.decision.name)


def read_decision(value: bytes) -> Decision:
    """Decode all of a record. Raises WireError: it is no decision."""
    return decode(value, Decision)


def recorded_at(
    partition: int, offset: int, value: bytes, read: Callable[[bytes], Decision] = read_decision
) -> Recorded:
    """Decode a record; `read` may leave out fields that nobody asks for (`schemas.decisionfields.reader_of`).

    Raises WireError: it is no decision; the text names partition and offset.
    """
    try:
        decision = read(value)
        uid_of(decision.id)
        return Recorded(decision, partition, offset, value, parse_time_ms(decision.time))
    except IndexError as error:
        raise _unreadable(partition, offset, f"{decision.id!r} is not a decision id") from error
    except ValueError as error:  # a WireError is one
        raise _unreadable(partition, offset, error) from error


def _unreadable(partition: int, offset: int, error: object) -> WireError:
    return WireError(f"decision at {partition}@{offset}: {error}")


_ID: Final = b'{"id":"'
"""How a record begins: its id is its first field (`schemas.decisions`)."""
_IN_ID: Final = len(_ID)


def place_of(partition: int, offset: int, value: bytes) -> tuple[int, bytes]:
    """Log offset and uid of a record, without decoding it. Raises WireError: it is no decision."""
    try:
        parts = value[_IN_ID : value.find(b'"', _IN_ID)].split(b"-", 2) if value.startswith(_ID) else []
        _, log_offset, uid = parts
        return int(log_offset), uid.removesuffix(b"-c")
    except ValueError as error:
        raise _unreadable(partition, offset, error) from error


class DecisionSequence:
    """Decodes the records of one partition, in order; a sequence number seen before is passed over.

    `wanted`: of which HPAs; None: of all.
    """

    def __init__(self, wanted: Callable[[HpaId], bool] | None = None) -> None:
        self._wanted = wanted
        self._seq = 0
        self.position = 0
        """Offset after the last record that was taken; 0: none was."""

    def next_decision(self, partition: int, offset: int, value: bytes) -> Recorded | None:
        """Return the decision of a record, or None for a repeated one and for one of an HPA that is not wanted.

        Raises WireError: the record is no decision; the text names partition and offset.
        """
        return self.pick(recorded_at(partition, offset, value))

    def pick(self, recorded: Recorded) -> Recorded | None:
        """The same of a record that is decoded already."""
        self.position = recorded.offset + 1
        seq = recorded.decision.seq
        if seq <= self._seq or (self._wanted is not None and not self._wanted(recorded.hpa)):
            return None
        self._seq = seq
        return recorded


def in_sequence(partition: int, records: Iterable[tuple[int, bytes]]) -> list[Recorded]:
    """Decode a stretch of one partition, given as offsets and values. Raises WireError: a record is no decision."""
    sequence = DecisionSequence()
    taken = [sequence.next_decision(partition, offset, value) for offset, value in records]
    return [recorded for recorded in taken if recorded is not None]


class DecisionWindow:
    """Decisions of a log partition from log time `since_ms` to before `until_ms`, read from an offset on, in order."""

    def __init__(
        self,
        number: int,
        first: int,
        since_ms: int,
        until_ms: int | None,
        wanted: Callable[[HpaId], bool] | None = None,
    ) -> None:
        self._sequence = DecisionSequence(wanted)
        self.hpa: HpaId | None = None
        """Of which HPA all decisions are that are asked for: few others are decoded. None: of more than one."""
        self.read: Callable[[bytes], Decision] = read_decision
        """As of `recorded_at`."""
        self.is_over = False
        """Whether the rest is too late to be asked for."""
        self.begins_late = False
        """Whether what is asked for may begin before offset `first`; nothing has been given then."""
        self.number, self.first, self.position = number, first, first
        """Partition of the log, offset from which on it reads, and the offset of the next record to take."""
        self._since_ms, self._until_ms = since_ms, until_ms

    @property
    def is_complete(self) -> bool:
        """Whether nothing that is asked for can be before offset `first`."""
        return not self.first or (not self.begins_late and self._sequence.position > 0)

    def add(self, stretch: Sequence[ArchivedRecord]) -> list[Recorded]:
        """Return those of the next records; what comes after `is_over` or `begins_late` is not to be taken."""
        complete: list[Recorded] = []
        names = b"" if self.hpa is None else names_of(self.hpa)
        for record in stretch:
            # The first one says where the records begin, the last of a stretch whether the rest is too late.
            if names not in record.value and self._sequence.position and record is not stretch[-1]:
                self.position = record.offset + 1
                continue
            recorded = recorded_at(self.number, record.offset, record.value, self.read)
            if self._until_ms is not None and recorded.time_ms >= self._until_ms:
                self.is_over = True
                break
            is_first = not self._sequence.position
            taken = self._sequence.pick(recorded)
            if recorded.time_ms >= self._since_ms:
                if is_first and self.first:
                    self.begins_late = True
                    break
                if taken is not None:
                    complete.append(taken)
            self.position = record.offset + 1
        return complete


class NewestEvaluations:
    """Takes the records of one partition, the newest first, until it has the newest evaluation of each of some HPAs.

    Args:
        partition: of the log.
        uids: of the HPAs.
        since_ms: evaluations from before this log time are not looked for.
        upto_ms: evaluations after this log time are passed over; None: none are.
    """

    def __init__(self, partition: int, uids: Collection[str], since_ms: int, upto_ms: int | None = None) -> None:
        self.found: dict[str, Recorded] = {}
        """By uid."""
        self.passed_over = False
        """Whether a record was later than `upto_ms`."""
        self._partition, self._since_ms, self._upto_ms = partition, since_ms, upto_ms
        self._wanted = set(uids)

    def add(self, offset: int, value: bytes) -> bool:
        """Add a record; False: no earlier one can matter. Raises WireError: it is no decision."""
        recorded = recorded_at(self._partition, offset, value)
        uid, decision = uid_of(recorded.decision.id), recorded.decision
        if self._upto_ms is not None and recorded.time_ms > self._upto_ms:
            self.passed_over = True
            return True
        is_in_time = recorded.time_ms >= self._since_ms
        if uid in self._wanted and decision.kind == "evaluation" and is_in_time:
            self._wanted.discard(uid)
            self.found[uid] = recorded
        return bool(self._wanted) and is_in_time

"""Decision records as the topic or an archive holds them: decoded, each once, short ones expanded to whole ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from schemas.codec import WireError, decode
from schemas.decisions import Decision, DecisionOutline, ShortDecision, ShortOutline, expand, outlined, uid_of
from schemas.keys import HpaId
from streams.archive.layout import ArchivedRecord

_FULL_KEPT: Final = 4
_HPAS_KEPT: Final = 65_536
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class RecordHead(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What a record is, short or full, and nothing more. A short one does not name its HPA."""

    id: str
    seq: int
    time: Annotated[datetime, msgspec.Meta(tz=True)]
    same_as: str = ""
    kind: Literal["evaluation", "completion"] = "evaluation"
    completes: str = ""
    cluster: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def time_ms(self) -> int:
        """Log time. The record's time on the topic is another: the decider may lag hours behind."""
        return (self.time - _EPOCH) // _MILLISECOND


def head_of(partition: int, offset: int, value: bytes) -> RecordHead:
    """Read the head of a record. Raises WireError: it is no decision; the text names partition and offset."""
    try:
        return _HEADS.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(partition, offset, error) from error


_HEADS: Final = msgspec.json.Decoder(RecordHead)


class Recorded:
    """A decision record and its place. It is decoded when, and as far as, it is asked for.

    Args:
        full: the full record that a short one repeats; None: it is a full one itself.
    """

    __slots__ = ("_decision", "_outline", "full", "head", "offset", "partition", "time_ms", "value")

    def __init__(
        self, head: RecordHead, partition: int, offset: int, value: bytes, full: Recorded | None = None
    ) -> None:
        self.head, self.partition, self.offset, self.value, self.full = head, partition, offset, value, full
        self.time_ms: Final = head.time_ms
        """Log time of the decision."""
        self._decision: Decision | None = None
        self._outline: DecisionOutline | None = None

    @property
    def short(self) -> bool:
        """Whether it repeats an earlier full record and was expanded."""
        return self.full is not None

    @property
    def hpa(self) -> HpaId:
        head = self.head if self.full is None else self.full.head
        return HpaId(head.cluster, head.namespace, head.name)

    @property
    def decision(self) -> Decision:
        """The whole decision. Raises WireError: the record is no decision; the text names partition and offset."""
        if self._decision is None:
            self._decision = self._decoded()
        return self._decision

    def _decoded(self) -> Decision:
        try:
            if self.full is None:
                return decode(self.value, Decision)
            return expand(decode(self.value, ShortDecision), self.full.decision)
        except WireError as error:
            raise _unreadable(self.partition, self.offset, error) from error

    @property
    def outline(self) -> DecisionOutline:
        """The part of the decision that charts and timelines show, in a third of the time; raises as `decision`."""
        if self._outline is None:
            self._outline = self._outlined()
        return self._outline

    @property
    def facts(self) -> DecisionOutline:
        """The outline but for `id`, `metrics` and the tolerance among the constraints, which are those of the full
        record that a short one repeats.
        """
        return self.outline if self.full is None else self.full.outline

    def _outlined(self) -> DecisionOutline:
        try:
            if self.full is None:
                return _OUTLINES.decode(self.value)
            return outlined(_SHORT_OUTLINES.decode(self.value), self.full.outline)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreadable(self.partition, self.offset, error) from error

    def explained_by(self, decision: Decision) -> Recorded:
        """Return the same record with another decision in the place of the one that its bytes hold."""
        made = Recorded(self.head, self.partition, self.offset, self.value, self.full)
        made._decision = decision
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorded) and self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]

    def _compared(self) -> tuple[int, int, bytes, Decision]:
        return self.partition, self.offset, self.value, self.decision


_OUTLINES: Final = msgspec.json.Decoder(DecisionOutline)
_SHORT_OUTLINES: Final = msgspec.json.Decoder(ShortOutline)


def _uid_of(head: RecordHead, partition: int, offset: int) -> str:
    try:
        return uid_of(head.id)
    except IndexError as error:
        raise _unreadable(partition, offset, f"{head.id!r} is not a decision id") from error


def _unreadable(partition: int, offset: int, error: object) -> WireError:
    return WireError(f"decision at {partition}@{offset}: {error}")


_ID: Final = b'{"id":"'
"""How a record begins: its id is its first field (`schemas.decisions`)."""
_IN_ID: Final = len(_ID)


def _id_of(value: bytes) -> list[bytes]:
    """The parts of a record's id, without decoding it; one part that is no uid: it begins in another way."""
    return value[_IN_ID : value.find(b'"', _IN_ID)].split(b"-", 2) if value.startswith(_ID) else [b""]


def place_of(partition: int, offset: int, value: bytes) -> tuple[int, bytes]:
    """Log offset and uid of a record, at a tenth of the price of its head. Raises WireError: it is no decision."""
    try:
        _, log_offset, uid = _id_of(value)
        return int(log_offset), uid.removesuffix(b"-c")
    except ValueError as error:
        raise _unreadable(partition, offset, error) from error


def _ends_of(uid: str) -> set[bytes]:
    """How the ids of an HPA's decisions end: those of evaluations, and of what completes them."""
    return {uid.encode(), f"{uid}-c".encode()}


class Expander:
    """Turns the records of one partition, in order, into decisions; a sequence number seen before is passed over.

    `wanted`: of which HPAs; of the records of others only the head is decoded. None: of all.
    """

    def __init__(self, wanted: Callable[[HpaId], bool] | None = None) -> None:
        self._is_wanted = None if wanted is None else lru_cache(_HPAS_KEPT)(wanted)
        self._unwanted: set[str] = set()
        """Uids of HPAs whose decisions are passed over."""
        self._passed: set[bytes] = set()
        """The same as ids end with them."""
        self._full: dict[str, Recorded] = {}
        self._of_hpa: dict[HpaId, list[str]] = {}
        """Ids of its newest full records: not by uid, which an HPA in a restored cluster may share."""
        self._seq = 0
        self.position = 0
        """Offset after the last record that was taken; 0: none was."""
        self.lacking: list[str] = []
        """Ids of full records that short ones repeat and that lie before the part read so far."""
        self.whole_from = 0
        """Offset from which on everything could be expanded so far."""
        self._unknown: set[str] = set()

    @property
    def can_go_on(self) -> bool:
        """Whether later records that repeat one of before can be expanded: of each HPA its newest full one is known."""
        return not self._unknown

    def passes_over(self, value: bytes) -> bool:
        """Whether a record is known to be of an HPA that is not wanted, at a tenth of the price of reading its head."""
        # As `_id_of`, in one expression: it is asked of every record of a partition.
        return value.startswith(_ID) and value[_IN_ID : value.find(b'"', _IN_ID)].split(b"-", 2)[-1] in self._passed

    def take(self, partition: int, offset: int, value: bytes, head: RecordHead | None = None) -> Recorded | None:
        """Return the decision of a record, or None for a repeated or (see `lacking`) not yet expandable one.

        `head`: of the record, if it has been read.

        Raises WireError: the record is no decision; the text names partition and offset.
        """
        if head is None:
            head = head_of(partition, offset, value)
        uid = _uid_of(head, partition, offset)
        self.position = offset + 1
        if (self._is_wanted is not None and not self._may_be_wanted(head, uid)) or head.seq <= self._seq:
            return None
        self._seq = head.seq
        if not head.same_as:
            recorded = Recorded(head, partition, offset, value)
            self._remember(recorded, uid)
            return recorded
        full = self._full.get(head.same_as)
        if full is None:
            self.lacking.append(head.same_as)
            self.whole_from = offset + 1
            self._unknown.add(uid)
            return None
        return Recorded(head, partition, offset, value, full)

    def _may_be_wanted(self, head: RecordHead, uid: str) -> bool:
        """Whether a record is of a wanted HPA; a short one does not name it, but the full one that it repeats did."""
        if head.same_as:
            return uid not in self._unwanted
        if self._is_wanted is None or self._is_wanted(HpaId(head.cluster, head.namespace, head.name)):
            self._unwanted.discard(uid)
            self._passed -= _ends_of(uid)
            return True
        self._unwanted.add(uid)
        self._passed |= _ends_of(uid)
        return False

    def _remember(self, full: Recorded, uid: str) -> None:
        self._unknown.discard(uid)
        ids = self._of_hpa.setdefault(full.hpa, [])
        if full.head.id not in self._full:
            ids.append(full.head.id)
        self._full[full.head.id] = full
        if len(ids) > _FULL_KEPT:
            self._full.pop(ids.pop(0), None)  # two HPAs of one uid may have had one record's id


def expanded(partition: int, records: Iterable[tuple[int, bytes]]) -> tuple[Expander, list[Recorded]]:
    """Expand a stretch of one partition; the expander says whether earlier records are needed to expand all of it."""
    expander = Expander()
    taken = [expander.take(partition, offset, value) for offset, value in records]
    return expander, [recorded for recorded in taken if recorded]


class HpaSieve:
    """Lets the records of one HPA pass, known by bytes that they hold before anything of them is decoded.

    A full record has cluster, namespace and name side by side. Others pass that hold the same bytes, and the first of
    all. A short record does not name its HPA: it is known by the uid in the full one before it. Where none was found
    before the records that are asked for, everything passes from there on, so that whoever takes them can see what is
    lacking.

    Args:
        due: the offset from which on records are asked for; of those before, only full ones matter.
        uids: of the HPA's decisions, or ids of some of them, where they are known.
    """

    def __init__(self, hpa: HpaId, due: int, uids: Iterable[bytes] = ()) -> None:
        self._names = f'"cluster":"{hpa.cluster}","namespace":"{hpa.namespace}","name":"{hpa.name}"'.encode()
        self._uids = set(uids)
        self._due, self._is_begun = due, False

    def may_pass(self, data: bytes | bytearray, end: int) -> bool:
        """Whether some record may pass among those whose bytes these are; `end`: the offset after them."""
        return not self._is_begun or self._names in data or self._is_named(data, end - 1)

    def passes(self, value: bytes, offset: int) -> bool:
        """Whether a record passes. They are asked for in order."""
        if self._names in value:
            self._uids.add(_id_of(value)[-1].removesuffix(b"-c"))
        if not self._is_begun:
            self._is_begun = True
            return True
        return self._is_named(value, offset)

    def _is_named(self, data: bytes | bytearray, offset: int) -> bool:
        for uid in self._uids:
            if uid in data:
                return True
        return not self._uids and offset >= self._due


class DecisionWindow:
    """Decisions of a log partition from log time `since_ms` to before `until_ms`, read from an offset on, in order."""

    def __init__(self, number: int, first: int, since_ms: int, until_ms: int | None, expander: Expander) -> None:
        self.expander = expander
        self.sieve: HpaSieve | None = None
        """Of the records that are not checked, those that do not pass it may be left out; None: all are needed."""
        self.is_over = False
        """Whether the rest is too late to be asked for."""
        self.begins_late = False
        """Whether what is asked for may begin before offset `first`; nothing has been given then."""
        self.number, self.first, self.position = number, first, first
        """Partition of the log, offset from which on it reads, and the offset of the next record to take."""
        self._since_ms, self._until_ms = since_ms, until_ms
        self._may_begin_late = self._begins_within = first > 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing that is asked for can be before offset `first`."""
        return not self.begins_late and bool(self.expander.position or not self._begins_within)

    def take(self, stretch: Iterable[ArchivedRecord]) -> list[Recorded]:
        """Return those of the next records; what comes after `is_over` or `begins_late` is not to be taken."""
        found: list[Recorded] = []
        record = None
        for record in stretch:
            # Every so often one of another HPA is read, too: its time may be that of the end.
            if record.offset % _LOOKED_AT and self.expander.passes_over(record.value):
                continue
            head = head_of(self.number, record.offset, record.value)
            time_ms = head.time_ms
            if self._until_ms is not None and time_ms >= self._until_ms:
                self.is_over = True
                break
            is_first, lacked = not self.expander.position, len(self.expander.lacking)
            taken = self.expander.take(self.number, record.offset, record.value, head)
            if time_ms < self._since_ms:
                continue
            if self._may_begin_late and (is_first or len(self.expander.lacking) > lacked):
                self.begins_late = True
                break
            if taken is not None:
                self._may_begin_late = False
                found.append(taken)
        if record is not None:
            self.position = record.offset + 1
        return found


_LOOKED_AT = 64
"""Of so many records that are passed over one is looked at for its time."""


class NewestEvaluations:
    """Takes the records of one partition, the newest first, until it has the newest evaluation of each of some HPAs.

    Of the others only the head is decoded: the rest of a long past costs next to nothing.

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
        self._repeating: dict[str, Recorded] = {}
        """Id of a full record → the newest short one, which repeats it and cannot be decoded without it."""

    def take(self, offset: int, value: bytes) -> bool:
        """Take a record; False: no earlier one can matter. Raises WireError: it is no decision."""
        head = head_of(self._partition, offset, value)
        uid, time_ms = _uid_of(head, self._partition, offset), head.time_ms
        if self._upto_ms is not None and time_ms > self._upto_ms:
            self.passed_over = True
            return True
        if repeating := self._repeating.pop(head.id, None):
            full = Recorded(head, self._partition, offset, value)
            self.found[uid] = Recorded(repeating.head, self._partition, repeating.offset, repeating.value, full)
        elif uid in self._wanted and head.kind == "evaluation" and time_ms >= self._since_ms:
            self._wanted.discard(uid)
            recorded = Recorded(head, self._partition, offset, value)
            if head.same_as:
                self._repeating[head.same_as] = recorded
            else:
                self.found[uid] = recorded
        return bool(self._repeating) or (bool(self._wanted) and time_ms >= self._since_ms)

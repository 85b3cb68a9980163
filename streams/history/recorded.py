"""Decision records as the topic or an archive holds them: decoded, each once, short ones expanded to whole ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal

import msgspec

from schemas.chain import uid_of
from schemas.codec import WireError, decode
from schemas.decisions import Decision, ShortDecision, expand
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms

_FULL_KEPT: Final = 4
_HPAS_KEPT: Final = 65_536


@dataclass(frozen=True)
class Recorded:
    """A decision and its place. `short`: it repeats an earlier full record and was expanded."""

    decision: Decision
    partition: int
    offset: int
    value: bytes
    short: bool = False

    @property
    def hpa(self) -> HpaId:
        """Whose decision it is."""
        return HpaId(self.decision.cluster, self.decision.namespace, self.decision.name)

    @cached_property
    def time_ms(self) -> int:
        """Log time of the decision."""
        return parse_time_ms(self.decision.time)


class RecordedPlace(msgspec.Struct, frozen=True):
    """Number and log time of a decision record. Its time on the topic is another: the decider may lag hours behind."""

    seq: int
    time: str

    @property
    def time_ms(self) -> int:
        """Log time."""
        return parse_time_ms(self.time)


def place_of(partition: int, offset: int, value: bytes) -> RecordedPlace:
    """Read number and time of a record, short or full, and nothing more.

    Raises:
        WireError: it is no decision.
    """
    try:
        return _PLACES.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"decision at {partition}@{offset}: {error}") from error


_PLACES: Final = msgspec.json.Decoder(RecordedPlace)


class _Head(msgspec.Struct, rename="camel"):
    """What a record is, short or full, and nothing more."""

    id: str
    time: str
    same_as: str = ""
    kind: Literal["evaluation", "completion"] = "evaluation"
    cluster: str = ""
    namespace: str = ""
    name: str = ""


_HEADS: Final = msgspec.json.Decoder(_Head)
_NO_HEAD: Final = (msgspec.DecodeError, UnicodeDecodeError, ValueError, IndexError)
"""What a record that is no decision raises where its head is read."""


class Expander:
    """Turns the records of one partition, in order, into decisions; a sequence number seen before is passed over.

    `wanted`: of which HPAs; the records of others are passed over without decoding all of them. None: of all.
    """

    def __init__(self, wanted: Callable[[HpaId], bool] | None = None) -> None:
        self._is_wanted = None if wanted is None else lru_cache(_HPAS_KEPT)(wanted)
        self._unwanted: set[str] = set()
        """Uids of HPAs whose decisions are passed over."""
        self._full: dict[str, Decision] = {}
        self._of_uid: dict[str, list[str]] = {}
        self._seq = 0
        self.position = 0
        """Offset after the last record that was taken; 0: none was."""
        self.lacking: list[str] = []
        """Ids of full records that short ones repeat and that lie before the part read so far."""

    def take(self, partition: int, offset: int, value: bytes) -> Recorded | None:
        """Return the decision of a record, or None for a repeated or (see `lacking`) not yet expandable one.

        Raises:
            WireError: the record is no decision; the text names partition and offset.
        """
        try:
            if self._is_wanted is not None and not self._may_be_wanted(value):
                self.position = offset + 1
                return None
            record = decode(value, ShortDecision) if b'"sameAs":' in value[:512] else decode(value, Decision)
        except (WireError, *_NO_HEAD) as error:
            raise WireError(f"decision at {partition}@{offset}: {error}") from error
        self.position = offset + 1
        if record.seq <= self._seq:
            return None
        self._seq = record.seq
        if isinstance(record, Decision):
            self._remember(record)
            return Recorded(record, partition, offset, value)
        full = self._full.get(record.same_as)
        if full is None:
            self.lacking.append(record.same_as)
            return None
        return Recorded(expand(record, full), partition, offset, value, short=True)

    def _may_be_wanted(self, value: bytes) -> bool:
        """Whether a record is of a wanted HPA; a short one does not name it, but the full one that it repeats did."""
        head = _HEADS.decode(value)
        uid = uid_of(head.id)
        if head.same_as:
            return uid not in self._unwanted
        if self._is_wanted is None or self._is_wanted(HpaId(head.cluster, head.namespace, head.name)):
            self._unwanted.discard(uid)
            return True
        self._unwanted.add(uid)
        return False

    def _remember(self, full: Decision) -> None:
        ids = self._of_uid.setdefault(full.uid, [])
        ids.append(full.id)
        self._full[full.id] = full
        if len(ids) > _FULL_KEPT:
            del self._full[ids.pop(0)]


def expanded(partition: int, records: Iterable[tuple[int, bytes]]) -> tuple[Expander, list[Recorded]]:
    """Expand a stretch of one partition; the expander says whether earlier records are needed to expand all of it."""
    expander = Expander()
    taken = [expander.take(partition, offset, value) for offset, value in records]
    return expander, [recorded for recorded in taken if recorded]


class NewestEvaluations:
    """Takes the records of one partition, the newest first, until it has the newest evaluation of each of some HPAs.

    Only those are decoded whole, and the full records that they repeat: the rest of a long past costs next to nothing.

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
        self._repeating: dict[str, tuple[int, bytes]] = {}
        """Id of a full record → place and value of the newest short one, which repeats it."""

    def take(self, offset: int, value: bytes) -> bool:
        """Take a record; False: no earlier one can matter.

        Raises:
            WireError: it is no decision.
        """
        try:
            head = _HEADS.decode(value)
            uid, time_ms = uid_of(head.id), parse_time_ms(head.time)
        except _NO_HEAD as error:
            raise WireError(f"decision at {self._partition}@{offset}: {error}") from error
        if self._upto_ms is not None and time_ms > self._upto_ms:
            self.passed_over = True
            return True
        if repeating := self._repeating.pop(head.id, None):
            at, short = repeating
            self.found[uid] = Recorded(
                expand(decode(short, ShortDecision), decode(value, Decision)), self._partition, at, short, short=True
            )
        elif uid in self._wanted and head.kind == "evaluation" and time_ms >= self._since_ms:
            self._wanted.discard(uid)
            if head.same_as:
                self._repeating[head.same_as] = offset, value
            else:
                self.found[uid] = Recorded(decode(value, Decision), self._partition, offset, value)
        return bool(self._repeating) or (bool(self._wanted) and time_ms >= self._since_ms)

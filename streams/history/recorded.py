"""Decision records as the topic or an archive holds them: decoded, each once, short ones expanded to whole ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from schemas.codec import WireError, decode
from schemas.decisions import Decision, ShortDecision, expand
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms

_FULL_KEPT: Final = 4


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

    @property
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


class Expander:
    """Turns the records of one partition, in order, into decisions; a sequence number seen before is passed over."""

    def __init__(self) -> None:
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
            record = decode(value, ShortDecision) if b'"sameAs":' in value[:512] else decode(value, Decision)
        except WireError as error:
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

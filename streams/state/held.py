"""How many bytes a namespace holds of each kind, in each of its rows and in all: running sums, and what is refused.

The sums follow from what is stored, so that they are counted anew when rows are read back. A limit concerns one kind in
one row. Sizes are upper bounds of MessagePack without compression, whose result depends on the library.
"""

from collections.abc import Sequence

import msgspec

from schemas import limits
from schemas.limits import Limit
from schemas.observed import Pod
from streams.state.rows import (
    AnswerRow,
    DirectoryEntry,
    DirectoryKey,
    RefusedRow,
    SampleRow,
    ScaleRow,
    SeriesKey,
    TargetName,
)

_ENCODER = msgspec.msgpack.Encoder()
_MARK = 48
"""Of what changes with every list or report, such as a mark or a number, the most is counted: what is stored already
never becomes too large by being reported again.
"""
_USUAL = 40
_SECOND_SIDE = {limits.ROW_PODS.what, limits.ROW_SAMPLES.what, limits.ROW_SERIES_ARRIVALS.what}
"""What is in the second row of a namespace of two."""
_STEP = 128
_NAME_SHOWN = 253


def encoded_size(value: object) -> int:
    """The bytes of something in a row."""
    return len(_ENCODER.encode(value)) + _MARK


def _in_steps(size: int) -> int:
    """In steps, so that something that is reported again with another number is rarely larger."""
    return (size + _STEP - 1) // _STEP * _STEP


def pod_size(pod: Pod) -> int:
    return _in_steps(encoded_size(pod))


def answers_size(rows: Sequence[AnswerRow]) -> int:
    """Those of answers, or of the parts that a slot keeps."""
    return sum(map(answer_size, rows))


def answer_size(row: AnswerRow) -> int:
    """That of an answer, or of a part of one; in steps, as `_in_steps` does it."""
    texts = _length(row.source) + _length(row.answer_id) + _STEP - 1
    return (len(row.json) + _STEP - 1) // _STEP * _STEP + texts // _STEP * _STEP + _MARK


def answer_growth(row: AnswerRow, old: AnswerRow) -> int:
    """By how much an answer is larger than the one before; nearly always by nothing, which is seen without sizes."""
    if (
        (len(row.json) + _STEP - 1) // _STEP == (len(old.json) + _STEP - 1) // _STEP
        and len(row.source) == len(old.source)
        and row.answer_id == old.answer_id
        and row.source.isascii()
        and old.source.isascii()
    ):
        return 0
    return answer_size(row) - answer_size(old)


def sample_size(key: SeriesKey, name: str, row: SampleRow) -> int:
    """A pushed sample's, with the name of its series, which a row names once."""
    return sum([_length(text) for text in key]) + _length(name) + max(_length(row.source), _USUAL) + 2 * _MARK


def hpa_size(key: DirectoryKey, entry: DirectoryEntry) -> int:
    """An HPA's in the list of its namespace."""
    uids = max(_length(entry.uid), _USUAL) + max(_length(entry.replaced), _USUAL)
    return _length(key.name) + sum([_length(text) for text in entry.target]) + uids + 2 * _MARK


def scale_size(target: TargetName, row: ScaleRow) -> int:
    usual = (row.resource_version, row.session, row.manager, row.uid)
    texts = sum([_length(text) for text in (*target, row.selector, row.error or "")])
    return texts + sum([max(_length(text), _USUAL) for text in usual]) + 3 * _MARK


def _length(text: str) -> int:
    return 3 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def refused_again(known: RefusedRow | None, name: str, now_ms: int) -> RefusedRow:
    """One more that was not stored."""
    before = known or RefusedRow(first_ms=now_ms)
    return RefusedRow(before.count + 1, name[:_NAME_SHOWN], before.first_ms, now_ms)


def side_of(limit: Limit) -> int:
    """The row in which things of a kind are while a namespace has two."""
    return int(limit.what in _SECOND_SIDE)


class Usage:
    """What a cluster stores in this partition, all of its namespaces together."""

    def __init__(self) -> None:
        self.bytes = self.hpas = self.namespaces = 0


class Held:
    """The sums of one namespace, which are added up in those of its cluster."""

    def __init__(self) -> None:
        self.cluster = Usage()
        self.sums: dict[tuple[str, int], int] = {}
        """(kind, row) -> bytes; rows as if the namespace had many."""
        self.bytes = self.hpas = 0
        self.refused: dict[int, dict[str, RefusedRow]] = {}
        """By stored part, limit -> what was not stored."""

    @property
    def is_full(self) -> bool:
        """Whether the cluster may store no more in this partition."""
        return self.cluster.bytes >= limits.CLUSTER_BYTES.most

    def has_room(self, limit: Limit, row: int, more: int) -> bool:
        """Whether so many bytes may be added; what does not grow always may be replaced."""
        return more <= 0 or (not self.is_full and self.sums.get((limit.what, row), 0) + more <= limit.most)

    def add(self, limit: Limit, row: int, more: int, own: int = 0, hpas: int = 0) -> None:
        """Count what is added (negative: removed)."""
        self.sums[limit.what, row] = self.sums.get((limit.what, row), 0) + more
        self.bytes += more + own
        self.hpas += hpas
        self.cluster.bytes += more + own
        self.cluster.hpas += hpas

    def refuse(self, limit: Limit, part: int, name: str, now_ms: int) -> None:
        """Note what is not stored."""
        refused = self.refused.setdefault(part, {})
        refused[limit.what] = refused_again(refused.get(limit.what), name, now_ms)

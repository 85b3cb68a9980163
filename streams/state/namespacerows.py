"""Where a namespace keeps things: their keys, how many bytes each takes in a row, and what is refused.

There is nearly always one name under a key, for which a `set` takes 216 bytes, a tuple 48; a partition has several of
these for each HPA. Many names are the keys of a dictionary, in the order in which they were added.

The sums of bytes, one of each kind, follow from what is stored, so that they are counted anew when rows are read back.
Sizes are upper bounds of MessagePack without compression, whose result depends on the library.
"""

from typing import Final, TypeVar

import msgspec

from schemas import limits
from schemas.answers import AnswerIdentity, is_root_scoped
from schemas.kubernetes.selectors import canonical_selector
from schemas.limits import Limit
from schemas.observed import Pod, Target
from streams.state.rows import (
    AnswerRow,
    DirectoryEntry,
    DirectoryKey,
    MetricKey,
    QueryKey,
    RefusedRow,
    SampleRow,
    ScaleRow,
    SeriesKey,
    TargetName,
    is_series,
)

Name = TypeVar("Name")
Names = tuple[Name, ...] | dict[Name, None]

MANY: Final = 16
"""More names than this are kept in a dictionary, until there are no more than half as many."""


def with_name(names: Names[Name], name: Name) -> Names[Name]:
    """Add a name, unless it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names[name] = None
        return names
    if name in names:
        return names
    added = (*names, name)
    return added if len(added) <= MANY else dict.fromkeys(added)


def without_name(names: Names[Name], name: Name) -> Names[Name]:
    """Remove a name, if it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names.pop(name, None)
        return names if len(names) > MANY // 2 else tuple(names)
    return tuple([each for each in names if each != name])


VIEW_SIDE = 2
"""The kind of rows in which what is seen for partial views is."""


def limit_of_arrival(key: MetricKey) -> limits.Limit:
    """The limit that concerns when answers or samples came."""
    return limits.NAMESPACE_SERIES_ARRIVALS if is_series(key) else limits.NAMESPACE_ARRIVALS


def target_key(target: Target) -> TargetName:
    """Identity of a scale within its namespace."""
    return target.group, target.kind, target.name


def query_key(query: AnswerIdentity) -> QueryKey:
    """Identity of a question to a metrics API and of its answers: selectors in canonical form.

    A Namespace is always the HPA's own; its name is not read.
    """
    return (
        query.api,
        _canonical(query.selector),
        query.metric,
        _canonical(query.metric_selector),
        query.group_kind,
        "" if is_root_scoped(query) else query.object,
    )


def _canonical(selector: str) -> str:
    if not selector:
        return ""
    canonical = canonical_selector(selector)
    return selector if canonical is None else canonical


# --- bytes ------------------------------------------------------------------------------------------------------------

_ENCODER = msgspec.msgpack.Encoder()
_MARK = 48
"""Of what changes with every list or report, such as a mark or a number, the most is counted: what is stored already
never becomes too large by being reported again.
"""
_USUAL = 40
_SECOND_SIDE = {limits.NAMESPACE_PODS.what, limits.NAMESPACE_SAMPLES.what, limits.NAMESPACE_SERIES_ARRIVALS.what}
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


def answer_size(row: AnswerRow) -> int:
    """That of an answer; in steps, as `_in_steps` does it."""
    return (len(row.json) + _STEP - 1) // _STEP * _STEP + (_length(row.source) + _STEP - 1) // _STEP * _STEP + _MARK


def sample_size(key: SeriesKey, name: str, row: SampleRow) -> int:
    """A pushed sample's, with the name of its series."""
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
    """The kind of rows in which things of a kind are (`SIDES`)."""
    return int(limit.what in _SECOND_SIDE)


class Usage:
    """What a cluster stores in this partition, all of its namespaces together."""

    def __init__(self) -> None:
        self.bytes = self.hpas = self.namespaces = 0


class Held:
    """The sums of one namespace, which are added up in those of its cluster."""

    def __init__(self) -> None:
        self.cluster = Usage()
        self.sums: dict[str, int] = {}
        """Limit -> bytes."""
        self.bytes = self.hpas = 0
        self.refused: dict[str, RefusedRow] = {}
        """Limit -> what was not stored."""

    @property
    def is_full(self) -> bool:
        """Whether the cluster may store no more in this partition."""
        return self.cluster.bytes >= limits.CLUSTER_BYTES.most

    def has_room(self, limit: Limit, more: int) -> bool:
        """Whether so many bytes may be added; what does not grow always may be replaced."""
        return more <= 0 or (not self.is_full and self.sums.get(limit.what, 0) + more <= limit.most)

    def add(self, limit: Limit, more: int, own: int = 0, hpas: int = 0) -> None:
        """Count what is added (negative: removed)."""
        self.sums[limit.what] = self.sums.get(limit.what, 0) + more
        self.bytes += more + own
        self.hpas += hpas
        self.cluster.bytes += more + own
        self.cluster.hpas += hpas

    def refuse(self, limit: Limit, name: str, now_ms: int) -> None:
        """Note what is not stored."""
        self.refused[limit.what] = refused_again(self.refused.get(limit.what), name, now_ms)

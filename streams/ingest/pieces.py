"""What conversion works on and what comes out of it: a raw record in, pieces for the log and refusals out. No I/O.

Also how often an agent may report one thing that goes into the log, or is computed, for each report. What deciders
store has limits of its own (`streams/state/namespacerows.py`), for every source alike.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.entries import Body
from schemas.limits import Refusal
from schemas.topics import Headers


@dataclass(frozen=True)
class SourcePlace:
    """Where a body came: the topic, the cluster and the namespace of its record (both empty: everywhere)."""

    topic: str
    cluster: str
    namespace: str


class RawRecord(NamedTuple):
    """A record of a public topic as it came. `timestamp_ms` is Kafka's; `value` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Headers = ()


HARMLESS = frozenset({"unmatched", "dropped", "noValue"})
"""Codes of points that are left out as wanted; a record is not called bad for them unless nothing else is in it."""


class Piece(NamedTuple):
    """One body and where it belongs; empty `namespace`: the cluster; empty `cluster`, too: every partition."""

    cluster: str
    namespace: str
    body: Body

    @property
    def is_whole_partition(self) -> bool:
        """Whether it concerns every partition of the log instead of one namespace or cluster."""
        return not self.cluster


@dataclass(slots=True)
class Conversion:
    """What one record gave: its format, its source time (ms), pieces in order, and what was refused."""

    format: str = "unknown"
    time_ms: int = 0
    received_ms: int = 0
    """Kafka's time of the record, not the time in its text."""
    size: int = 0
    """Bytes of its value, after decompression."""
    pieces: list[Piece] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """Texts of harmless refusals, counted; there may be thousands of equal ones in a batch."""
    points: int = 0
    """Samples taken."""

    def refuse(self, refusal: Refusal) -> None:
        """Record a refusal, harmless or not."""
        if refusal.code in HARMLESS:
            text = f"{refusal.code}: {refusal.text}"
            self.left_out[text] = self.left_out.get(text, 0) + 1
        else:
            self.refusals.append(refusal)

    @property
    def is_rejected(self) -> bool:
        """Whether the original record must go to the topic of rejected records."""
        return bool(self.refusals) or not self.pieces

    @property
    def result(self) -> str:
        """`ok`, `partial` (some of it refused), `rejected` or `unmatched` (nothing of it is wanted)."""
        if self.pieces:
            return "partial" if self.refusals else "ok"
        return "rejected" if self.refusals else "unmatched"

    @property
    def code(self) -> str:
        """The first refusal's code; empty when all went well."""
        if self.refusals:
            return self.refusals[0].code
        return "" if self.pieces else "unmatched"

    def reason(self, limit: int = 20) -> str:
        """All refusals as one text, at most `limit` of them spelled out."""
        texts = list(dict.fromkeys(refusal.text for refusal in self.refusals))
        if not texts and not self.pieces:
            texts = [f"{text} ({count} times)" for text, count in Counter(self.left_out).most_common(limit)] or [
                "the record holds nothing"
            ]
        more = len(texts) - limit
        return "; ".join(texts[:limit]) + (f"; and {more} more" if more > 0 else "")


def header(headers: Headers, name: str) -> str:
    """The first header of that name in any case, as text; empty without one."""
    for key, value in headers:
        if key.lower() == name and value is not None:
            return value.decode("utf-8", "replace").strip()
    return ""


SHOWN_S = 600.0
"""How long the reports of an agent show what was refused of it."""


class Rate(NamedTuple):
    """So many at once, and so many a second after that."""

    burst: int
    per_s: float


HPA = Rate(100, 3.0)
"""Reports on one HPA, and outcomes of its writes. Each change of an HPA brings an evaluation, whose recommendation a
decider keeps for as long as the stabilization window, an hour at most.
"""
CLUSTER = Rate(30, 1.0)
"""What ingest copies into every log partition; an agent reports it every ten seconds."""
COPIED_BYTES = Rate(64 * 1024, 1_024.0)
"""Bytes of that: with each log partition the quota of an agent counts once more for them."""
REPORTED_BYTES = Rate(32 * 2**20, 2_097_152.0)
"""Bytes of all that an agent reports, after decompression: its quota on the brokers, which is as large, counts them as
they are sent, so that compressed ones could be a hundred times as many. A full list of 50,000 pods is some 20 MB.
"""
SAMPLED_BYTES = Rate(32 * 2**20, 8_388_608.0)
"""The same of an additional topic of samples, which may have many producers, in one ingest: of 256 bytes 32,000 samples
a second, several times as many as one ingest takes.
"""
BEATS = Rate(30, 1.0)
"""Heartbeats about one namespace: a short one names a thousand, each of which a decider folds."""
SAMPLES = Rate(60_000, 4_000.0)
"""Pushed samples of one namespace: a decider keeps since its last checkpoint which ones it took."""
_PRUNED_FROM = 50_000


class Rates:
    """Counts by key. Times are seconds: those at which the brokers appended the records, where they are known, so that
    what waited for ingest is not taken for a flood.
    """

    def __init__(self) -> None:
        self._levels: dict[int, tuple[float, float, float]] = {}
        """Hash of the key → how full it was, when, and how much flows off per second."""
        self._pruned_at = _PRUNED_FROM

    def count(self, rate: Rate, key: tuple[str | int, ...], at_s: float, what: str, count: int = 1) -> None:
        """Count `count` more. Raises Refusal: `overRate`; nothing is counted then."""
        hashed = hash(key)
        level = self._level(hashed, at_s)
        if level + count > rate.burst:
            raise Refusal(
                "overRate", f"{what}: more than {rate.burst:,} at once and {rate.per_s:,.0f} per second after that"
            )
        if hashed not in self._levels and len(self._levels) >= self._pruned_at:
            self._levels = {each: at for each, at in self._levels.items() if self._level(each, at_s) > 0}
            self._pruned_at = max(_PRUNED_FROM, 2 * len(self._levels))
        self._levels[hashed] = level + count, at_s, rate.per_s

    def add(self, rate: Rate, key: tuple[str | int, ...], at_s: float, count: int) -> None:
        """Count what turned out to be more only after it was taken."""
        hashed = hash(key)
        self._levels[hashed] = self._level(hashed, at_s) + count, at_s, rate.per_s

    def _level(self, hashed: int, at_s: float) -> float:
        level, since_s, per_s = self._levels.get(hashed, (0.0, at_s, 0.0))
        return max(0.0, level - per_s * max(0.0, at_s - since_s))


class RefusedLately:
    """What was refused of an agent lately."""

    def __init__(self) -> None:
        self.count, self.text = 0, ""
        self.first_ms = 0
        self.last_s = float("-inf")

    def record(self, refusals: list[Refusal], time_ms: int, now_s: float) -> None:
        """Record what is refused of a record."""
        if now_s - self.last_s > SHOWN_S:
            self.count, self.first_ms = 0, time_ms
        self.count += len(refusals)
        self.text, self.last_s = refusals[-1].text, now_s


class AgentRates:
    """How often an agent reports, and what was refused of it; forgotten when ingest restarts."""

    def __init__(self) -> None:
        self.rates, self.refused = Rates(), RefusedLately()

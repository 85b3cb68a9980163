"""What the servers of a generated fleet saw in a stretch of time: requests, decisions, writes and their latencies."""

from collections import Counter
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import Struct

READ_WITHIN_MS = 3_000
"""How long after a decision was published it has been read here, at the latest."""


class _Metric(Struct, frozen=True, gc=False):
    newest: int | None = None


class _Seen(Struct, frozen=True, gc=False):
    """The fields of a decision that are looked at."""

    time: str
    wants: int | None = None
    metrics: list[_Metric] = []


_SEEN = msgspec.json.Decoder(_Seen)


class _Wanted(NamedTuple):
    """An evaluation: when it was published, its newest sample, and the replicas that it wants (None: no write)."""

    decided_ms: int
    newest_ms: int
    replicas: int | None


class Stats:
    """What was seen in a stretch of time."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        """HPAs that were evaluated at least once since the fleet began."""
        self._wanted: dict[str, list[_Wanted]] = {}
        """HPA -> its wanted writes in their order, and between them the first evaluation that wants none. They are read
        later than `/scale` is written, so that a write finds its decision only when the figures are asked for.
        """
        self._written: list[tuple[str, int, int]] = []
        """HPA, time and replicas of each write of `/scale`."""
        self._last_write_ms: dict[str, int] = {}
        """HPA -> when its scale was written last before this stretch."""
        self.reset()

    def reset(self) -> None:
        """Begin anew. The newest wanted write of each HPA may still be on its way."""
        self.requests: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.hpas: Counter[str] = Counter()
        self.decision_bytes = 0
        self.logged_ms: list[int] = []
        self.decided_ms: list[int] = []
        self._read_ms = 0
        """When the newest decision was published that was read."""
        self._last_write_ms |= {uid: now_ms for uid, now_ms, _ in self._written}
        self._written = []
        self._wanted = {uid: _since_none(wanted) for uid, wanted in self._wanted.items()}

    def write(self, uid: str, now_ms: int, replicas: int) -> None:
        """Note a write of `/scale`."""
        self._written.append((uid, now_ms, replicas))

    def written_ms(self) -> list[int]:
        """How long each write came after the newest sample behind its decision: the newest one that wanted so many
        replicas before it was written. Of the newest writes the decision may not have been read yet.
        """
        found = []
        for uid, now_ms, replicas in self._written:
            if now_ms + READ_WITHIN_MS > self._read_ms:
                continue
            wanted = (each for each in reversed(self._wanted.get(uid, ())) if each.decided_ms <= now_ms)
            if (mine := next((each for each in wanted if each.replicas == replicas), None)) is not None:
                found.append(now_ms - mine.newest_ms)
        return found

    def first_want_ms(self) -> list[int]:
        """How long each write came after the first decision that wanted one: since the write before, and since the HPA
        last wanted none. A wanted write that expired and was wanted again counts from the first time.
        """
        found, last_write_ms = [], dict(self._last_write_ms)
        for uid, now_ms, _ in self._written:
            since_ms, last_write_ms[uid] = last_write_ms.get(uid, 0), now_ms
            if now_ms + READ_WITHIN_MS > self._read_ms:
                continue
            before = [each for each in self._wanted.get(uid, ()) if since_ms < each.decided_ms <= now_ms]
            wanted = [each for each in _since_none(before) if each.replicas is not None]
            if wanted:
                found.append(now_ms - wanted[0].decided_ms)
        return found

    def decision(self, headers: dict[str, bytes], timestamp_ms: int, value: bytes) -> None:
        """Note a decision, and how long it came after the newest sample that it used."""
        self._read_ms = max(self._read_ms, timestamp_ms)
        identity = headers["ce_id"].decode()
        self.decision_bytes += len(value)
        if identity.endswith("-c"):
            self.kinds["completion"] += 1
            return
        uid = identity.split("-", 2)[2]
        self.hpas[uid] += 1
        self.known.add(uid)
        seen = _SEEN.decode(value)
        self.kinds["unchanged" if seen.wants is None else "wanted"] += 1
        newest_ms = max((metric.newest for metric in seen.metrics if metric.newest), default=0)
        if not newest_ms:
            return
        self.logged_ms.append(int(datetime.fromisoformat(seen.time).timestamp() * 1000) - newest_ms)
        self.decided_ms.append(timestamp_ms - newest_ms)
        wanted = self._wanted.setdefault(uid, [])
        if seen.wants is not None or (wanted and wanted[-1].replicas is not None):
            wanted.append(_Wanted(timestamp_ms, newest_ms, seen.wants))

    def reported(self) -> dict[str, object]:
        """All of it."""
        return {
            "requests": dict(self.requests),
            "bytes_out": dict(self.bytes_out),
            "bytes_in": dict(self.bytes_in),
            "decisions": dict(self.kinds),
            "decision_bytes": self.decision_bytes,
            "hpas": len(self.hpas),
            "logged_ms": quantiles(self.logged_ms),
            "decided_ms": quantiles(self.decided_ms),
            "writes": len(self._written),
            "written_ms": quantiles(self.written_ms()),
            "first_want_ms": quantiles(self.first_want_ms()),
        }


def _since_none(evaluations: list[_Wanted]) -> list[_Wanted]:
    """Give those after the last one that wants no write; a last one that wants none, alone."""
    for place in range(len(evaluations) - 1, -1, -1):
        if evaluations[place].replicas is None:
            return evaluations[place + 1 :] or evaluations[place:]
    return evaluations


def quantiles(values: list[int]) -> list[int]:
    """Give number, median, 99th percentile and maximum."""
    found = sorted(values)
    return (
        [len(found), *(found[min(len(found) - 1, round(len(found) * q))] for q in (0.5, 0.99, 1.0))] if found else [0]
    )

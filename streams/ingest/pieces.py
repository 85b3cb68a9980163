"""What conversion works on and what comes out of it: a raw record in, pieces for the log and refusals out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.entries import Body
from schemas.topics import Headers

MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, which RFC 3339 can still write."""


class RawRecord(NamedTuple):
    """A record of a public topic as it came. `timestamp_ms` is Kafka's; `value` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Headers = ()


class Refusal(Exception):  # noqa: N818 - also a value that is collected, not only raised
    """Why something was not taken.

    Args:
        code: one camelCase word of a small set, a metric label.
        text: what is wrong, naming the field, for the person who sent it.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


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
    """Kafka's time of the record, whatever it says itself."""
    pieces: list[Piece] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Texts of harmless refusals, counted; there may be thousands of equal ones in a batch."""
    points: int = 0
    """Samples taken."""

    def refuse(self, refusal: Refusal) -> None:
        """Note a refusal, harmless or not."""
        if refusal.code in HARMLESS:
            self.left_out[f"{refusal.code}: {refusal.text}"] += 1
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
            texts = [f"{text} ({count} times)" for text, count in self.left_out.most_common(limit)] or [
                "the record holds nothing"
            ]
        more = len(texts) - limit
        return "; ".join(texts[:limit]) + (f"; and {more} more" if more > 0 else "")


def header(headers: Headers, name: str) -> str:
    """The first header of that name, whatever its case, as text; empty without one."""
    for key, value in headers:
        if key.lower() == name and value is not None:
            return value.decode("utf-8", "replace").strip()
    return ""


def flat(mapping: Mapping[str, str]) -> str:
    """Labels in one text for messages: `{a="1", b="2"}`."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(mapping.items())) + "}"

"""Number decisions, chain them by hash, compare them with those already published; the errors that stop a partition."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct, structs

from schemas.decisions import DECISION_TYPE, Decision, links_of


class CoreError(Exception):
    """Base of the errors of the fold."""


class LogError(CoreError):
    """A record is not valid or not the next one. Ingest writes only valid records, so this is a fault."""


class StateError(CoreError):
    """State rows that do not fit together: one is missing, unreadable, or older than the partition row says."""


class UnknownEngineError(CoreError):
    """The log asks for an engine that this version does not have."""

    def __init__(self, engine: int, newest: int) -> None:
        super().__init__(
            f"the log is decided by engine {engine}, this version knows engines up to {newest}: "
            f"run a fleethpa release that has engine {engine}"
        )
        self.engine = engine


class DivergenceError(CoreError):
    """A re-derived decision differs from the one on the decisions topic."""

    def __init__(self, what: str, published: bytes, recomputed: bytes) -> None:
        super().__init__(
            f"{what}\n  recorded:   {published.decode(errors='replace')}\n"
            f"  recomputed: {recomputed.decode(errors='replace') or '(nothing)'}"
        )
        self.published = published
        self.recomputed = recomputed


_SPEC_VERSION = ("ce_specversion", b"1.0")
_TYPE = ("ce_type", DECISION_TYPE.encode())
_JSON = ("content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class DecisionRecord(Struct, frozen=True, gc=False):
    """A decision as it goes to the decisions topic."""

    id: str
    key: str
    """`cluster/namespace`; its partition is that of the log record, not the one that the key hashes to."""
    seq: int
    value: bytes
    headers: list[tuple[str, bytes]]
    body: Decision
    """What `value` is the JSON of."""


class Draft(Struct, frozen=True, gc=False):
    """A decision that has no number yet: `seq` and `prev` of its `body` are still to be filled in."""

    id: str
    key: str
    headers: tuple[tuple[str, bytes], ...]
    """Those that say whose decision it is."""
    body: Decision
    value: bytes = b""
    """The JSON of `body` with the number 0 and nothing before it, where that is known."""


_NO_PLACE = b'"seq":0,"prev":""'


def _numbered(value: bytes, seq: int, prev: str) -> bytes:
    """Put number and hash of the record before into the JSON of a draft."""
    # Texts hold no quote that is not escaped, so that the first of these bytes are the fields.
    return value.replace(_NO_PLACE, b'"seq":%d,"prev":"%s"' % (seq, prev.encode()), 1)


class Ledger:
    """The decisions of one log record: `seq` and `prev` go on from those of the record before."""

    def __init__(self, seq: int, prev: str, published: Mapping[str, bytes]) -> None:
        self.seq = seq
        self.prev = prev
        linked = [(links_of(value), value) for value in published.values()]
        self._published = sorted(linked, key=lambda each: each[0].seq, reverse=True)

    def enter(self, draft: Draft) -> DecisionRecord | None:
        """Number a decision; None if it is already published.

        Raises DivergenceError: another record was published in its place.
        """
        self._expect(draft.id)
        self.seq += 1
        body = draft.body
        # The draft is given up here: a copy of its forty fields would cost as much as encoding them.
        structs.force_setattr(body, "seq", self.seq)
        structs.force_setattr(body, "prev", self.prev)
        value = _numbered(draft.value, self.seq, self.prev) if draft.value else _encode(body)
        published = self._published.pop()[1] if self._published else None
        if published is not None and published != value:
            raise DivergenceError(f"decision {draft.id} was made a second time and differs", published, value)
        self.prev = sha256(value).hexdigest()
        return None if published is not None else self._record(draft, value)

    def close(self) -> None:
        """Note that all decisions of the record are made. Raises DivergenceError: one that was published is missing."""
        self._expect("")

    def _expect(self, made: str) -> None:
        if self._published and self._published[-1][0].id != made:
            links, value = self._published[-1]
            raise DivergenceError(f"decision {links.id} is on the topic but was not made a second time", value, b"")

    def _record(self, draft: Draft, value: bytes) -> DecisionRecord:
        headers = [
            _SPEC_VERSION,
            ("ce_id", draft.id.encode()),
            *draft.headers,
            _TYPE,
            ("ce_time", draft.body.time.encode()),
            _JSON,
        ]
        return DecisionRecord(draft.id, draft.key, self.seq, value, headers, draft.body)

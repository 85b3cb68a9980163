"""How much deciders keep of what one agent reports, counted as ingest passes it on.

Deciders keep what they fold in rows: one for each HPA, up to 64 for each namespace, and one for each log partition,
which lists all others. The brokers refuse a row of more than 1 MiB, and a decider that cannot write a row ends: the
decisions of every cluster in that partition end with it. So an agent, whatever it reports, must not fill a row.

Sizes are upper bounds: those of the JSON, and of the compressed JSON where an entry is large. What a deletion frees is
counted only if deciders follow the session that reports it, so that this never counts less than they keep.
"""

from typing import NamedTuple

import cramjam

from schemas.codec import encode
from schemas.keys import namespace_key, partition_for
from schemas.observersessions import parse_session
from streams.ingest.pieces import Refusal
from streams.state.foldcontext import SILENCE_MS
from streams.state.namespacekeys import spread_over

MAX_AGENT_BYTES = 256 * 1024 * 1024
"""Of one agent: 150,000 pods with their metrics, as many as Kubernetes supports in a cluster, and 10,000 HPAs."""
MAX_ROW_BYTES = 896 * 1024
"""Of one row of a namespace."""
MAX_KEY_BYTES = 256 * 1024
"""Of the names of all rows of an agent in one log partition."""
ITEM_BYTES = 300
"""What an item needs in memory beside its own text."""
_FIELD_BYTES = 64
"""What an item needs in its row beside its own text: times, marks, numbers."""
NAMES_KEPT_S = 7 * 86_400.0
"""Deciders keep names of HPAs, namespaces and scale targets for ever; a name that was not reported for a week makes
room for another one.
"""
SILENT_S = SILENCE_MS / 1000
"""A session is given up after this time without a report, as deciders do. An agent whose Lease was deleted begins anew
at a low epoch, and sends its full lists once more when deciders would follow it: no later than then they must be taken.
"""
FIRST_ROW = 0
"""What is not spread over the rows of a namespace: its HPAs, scales and rivals."""
_COMPRESSED_FROM = 4_096
FOR_EVER = float("inf")
EXPIRING = ("answer", "sample", "scale", "outcome")
_KEY_OVERHEAD = 16


def stored_bytes(value: object) -> int:
    """The bytes that a decider's row needs for something."""
    text = encode(value)
    whole = len(text) if len(text) < _COMPRESSED_FROM else len(cramjam.zstd.compress(text, level=1))
    return _FIELD_BYTES + whole


class Thing(NamedTuple):
    """Something that a decider keeps: its kind, its name, and the row of its namespace in which it is."""

    kind: str
    name: tuple[str, ...]
    row: int


def pod(name: str) -> Thing:
    """A pod."""
    return Thing("pod", (name,), spread_over(name))


def answer(query: tuple[str, ...], part: int) -> Thing:
    """An answer to a query (`streams.state.namespacekeys.query_key`), or one part of it."""
    return Thing("answer", (*query, str(part)), spread_over("|".join((*query, str(part)) if part else query)))


def sample(series: tuple[str, ...], name: str) -> Thing:
    """The newest pushed sample of a pod or label set."""
    return Thing("sample", (*series, name), spread_over(name))


def outcome(hpa: str) -> Thing:
    """What the outcome of a write to an HPA's target adds to what the scale shows."""
    return Thing("outcome", (hpa,), FIRST_ROW)


def scale(group: str, kind: str, name: str) -> Thing:
    """What a scale shows."""
    return Thing("scale", (group, kind, name), FIRST_ROW)


def hpa(name: str) -> Thing:
    """An HPA in the list of its namespace."""
    return Thing("hpa", (name,), FIRST_ROW)


RIVALS = Thing("rivals", (), FIRST_ROW)
RIVALS_COMING = Thing("rivals", ("coming",), FIRST_ROW)


class _Item(NamedTuple):
    """`size`: bytes in the row of the namespace; `own`: in a row of its own."""

    size: int
    own: int
    row: int
    era: int
    until_s: float


class _List:
    """A full list that is coming in."""

    def __init__(self, list_id: str, era: int) -> None:
        self.list_id, self.era, self.next_chunk = list_id, era, 0
        self.named: set[int] = set()


class _Space:
    """What is kept of one namespace."""

    def __init__(self) -> None:
        self.items: dict[str, dict[int, _Item]] = {}
        """Kind → hash of the name → size: names themselves would take more memory than all else."""
        self.rows: dict[int, int] = {}
        self.lists: dict[str, _List] = {}

    @property
    def bytes(self) -> int:
        """All of it, in memory."""
        return sum(_bytes(item) for items in self.items.values() for item in items.values())


def _bytes(item: _Item) -> int:
    return item.size + item.own + ITEM_BYTES


class AgentLedger:
    """What is kept of one agent. Times are seconds of a clock that does not go back."""

    def __init__(self, cluster: str, partitions: int) -> None:
        self._cluster, self._partitions = cluster, partitions
        self._spaces: dict[str, _Space] = {}
        self._names: dict[tuple[str, str], float] = {}
        """(namespace, HPA or nothing) → when it was reported last."""
        self._keys: dict[int, int] = {}
        """Log partition → bytes of names in its list of rows."""
        self._era, self._epoch, self._heard_s = 0, -1, 0.0
        self.namespaces = self.hpas = self.bytes = 0

    # --- sessions -----------------------------------------------------------------------------------------------------

    def hear(self, session: str, now_s: float) -> None:
        """Note which session reports: with another one another era begins, in which deciders may not follow at once.

        Raises:
            Refusal: `formerSession`: a later session of the agent has reported within the last 30 s.
        """
        name = parse_session(session)
        epoch = name.epoch if name is not None else 0
        if epoch < self._epoch and now_s - self._heard_s <= SILENT_S:
            raise Refusal("formerSession", f"session {session!r} has ended: session {self._epoch} reports already")
        if epoch != self._epoch:
            self._era, self._epoch = self._era + 1, epoch
        self._heard_s = now_s

    # --- names --------------------------------------------------------------------------------------------------------

    def note_namespace(self, namespace: str, limit: int, now_s: float) -> None:
        """Note a namespace, of which the agent may report `limit`.

        Raises:
            Refusal: `overLimit`.
        """
        if (namespace, "") not in self._names and self.namespaces >= limit:
            self._forget_names(now_s)
            if self.namespaces >= limit:
                raise Refusal("overLimit", f"{self._whose} reports more than {limit} namespaces")
        self._note(namespace, "", now_s)

    def note_hpa(self, namespace: str, name: str, now_s: float) -> None:
        """Note an HPA, which from now on has a row of its own, also after its end.

        Raises:
            Refusal: `overLimit`.
        """
        self._note(namespace, name, now_s)

    def _note(self, namespace: str, hpa: str, now_s: float) -> None:
        key = (namespace, hpa)
        if key not in self._names:
            partition, size = self._row_key(key)
            if self._keys.get(partition, 0) + size > MAX_KEY_BYTES:
                self._forget_names(now_s)
            if self._keys.get(partition, 0) + size > MAX_KEY_BYTES:
                text = f"names of namespaces and HPAs of more than {MAX_KEY_BYTES} bytes in one log partition"
                raise Refusal("overLimit", f"{self._whose} has reported {text} within a week")
            self._keys[partition] = self._keys.get(partition, 0) + size
            self.namespaces += not hpa
        self._names[key] = now_s

    def _row_key(self, key: tuple[str, str]) -> tuple[int, int]:
        """The log partition of a name, and its size in the list of rows there; a namespace has two rows."""
        namespace, hpa = key
        text = namespace_key(self._cluster, namespace)
        size = len(text) + len(hpa) + _KEY_OVERHEAD
        return partition_for(text, self._partitions), size if hpa else 2 * size

    def _forget_names(self, now_s: float) -> None:
        for key in [key for key, seen_s in self._names.items() if now_s - seen_s > NAMES_KEPT_S]:
            partition, size = self._row_key(key)
            self._keys[partition] -= size
            del self._names[key]
            namespace, hpa = key
            self.namespaces -= not hpa
            if not hpa and (space := self._spaces.pop(namespace, None)) is not None:
                self.bytes -= space.bytes
                self.hpas -= len(space.items.get("hpa", ()))

    @property
    def _whose(self) -> str:
        return f"the agent of cluster {self._cluster!r}"

    # --- things -------------------------------------------------------------------------------------------------------

    def put(
        self, namespace: str, thing: Thing, size: int, now_s: float, kept_s: float = FOR_EVER, own: int = 0
    ) -> None:
        """Count something, in place of what is counted of the same name.

        Args:
            size: bytes that it needs in its row of the namespace.
            kept_s: after how many seconds deciders forget it unless it comes again.
            own: bytes of the row that it has of its own.

        Raises:
            Refusal: `overLimit`: too much is kept already.
        """
        space = self._spaces.setdefault(namespace, _Space())
        items, key = space.items.setdefault(thing.kind, {}), hash(thing.name)
        if (coming := space.lists.get(thing.kind)) is not None:
            coming.named.add(key)
        item = _Item(size, own, thing.row, self._era, now_s + kept_s)
        if self._is_full(space, item, items.get(key)):
            self._expire(now_s)
            if self._is_full(space, item, items.get(key)):
                raise Refusal("overLimit", self._full(namespace, thing))
        old = items.pop(key, None)
        if old is not None:
            self._take_off(space, thing.kind, old)
        items[key] = item
        space.rows[item.row] = space.rows.get(item.row, 0) + item.size
        self.bytes += _bytes(item)
        self.hpas += thing.kind == "hpa"

    def _take_off(self, space: _Space, kind: str, item: _Item) -> None:
        space.rows[item.row] -= item.size
        self.bytes -= _bytes(item)
        self.hpas -= kind == "hpa"

    def has(self, namespace: str, thing: Thing) -> bool:
        """Whether something of this name is counted."""
        space = self._spaces.get(namespace)
        return space is not None and hash(thing.name) in space.items.get(thing.kind, ())

    def size(self, namespace: str, thing: Thing) -> int:
        """The bytes that are counted for something; 0 if it is not."""
        space = self._spaces.get(namespace)
        item = space.items.get(thing.kind, {}).get(hash(thing.name)) if space is not None else None
        return 0 if item is None else item.size

    def _is_full(self, space: _Space, item: _Item, old: _Item | None) -> bool:
        more = _bytes(item) - (0 if old is None else _bytes(old))
        more_in_row = item.size - (0 if old is None else old.size)
        in_all, in_row = self.bytes + more, space.rows.get(item.row, 0) + more_in_row
        return (more > 0 and in_all > MAX_AGENT_BYTES) or (more_in_row > 0 and in_row > MAX_ROW_BYTES)

    def _full(self, namespace: str, thing: Thing) -> str:
        what = f"{thing.kind} {' '.join(filter(None, thing.name))[:80]!r}"
        limit = f"{MAX_ROW_BYTES} bytes in one row of namespace {namespace} or {MAX_AGENT_BYTES} in all"
        return f"{what}: deciders would keep more than {limit} of what {self._whose} reports"

    def drop(self, namespace: str, thing: Thing) -> None:
        """Something is gone. It is counted further if deciders may not follow the session that reports it."""
        space = self._spaces.get(namespace)
        item = space.items.get(thing.kind, {}).get(hash(thing.name)) if space is not None else None
        if space is not None and item is not None and item.era == self._era:
            self._drop(space, thing.kind, hash(thing.name))

    def _drop(self, space: _Space, kind: str, key: int) -> None:
        self._take_off(space, kind, space.items[kind].pop(key))

    def _expire(self, now_s: float) -> None:
        for space in self._spaces.values():
            for kind in EXPIRING:
                for key in [key for key, item in space.items.get(kind, {}).items() if item.until_s < now_s]:
                    self._drop(space, kind, key)

    # --- full lists ---------------------------------------------------------------------------------------------------

    def begin_chunk(self, namespace: str, kind: str, list_id: str, chunk: int) -> None:
        """A chunk of a full list begins; what is put from now on is named by it."""
        space = self._spaces.setdefault(namespace, _Space())
        known = space.lists.get(kind)
        if chunk == 0:
            space.lists[kind] = known = _List(list_id, self._era)
        if known is None:
            return
        is_next = (known.list_id, known.era, known.next_chunk) == (list_id, self._era, chunk)
        if is_next:
            known.next_chunk += 1
        else:
            del space.lists[kind]

    def end_chunk(self, namespace: str, kind: str, is_last: bool) -> bool:
        """A chunk has ended; after the last one only what the list named is left.

        Returns:
            Whether a whole list has come.
        """
        space = self._spaces[namespace]
        if not is_last or (whole := space.lists.pop(kind, None)) is None:
            return False
        for key in [key for key in space.items.get(kind, ()) if key not in whole.named]:
            self._drop(space, kind, key)
        return True

"""What differs between a decision as recorded and as derived again: the first step, field and number."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

import msgspec

from streams.archive.layout import DECISIONS
from streams.archive.segments import BAD_JSON, ArchivedRecord
from streams.history.past import Past

LAG_S = 10.0
"""How long the newest decisions of a running fleet may be waited for."""
_POLL_S = 0.25


class Lookahead:
    """The decisions of one partition, one at a time; reads on where a running fleet has written more."""

    def __init__(self, past: Past, partition: int, first: int) -> None:
        self._past, self._partition, self._next = past, partition, first
        self._iterator: AsyncGenerator[ArchivedRecord, None] | None = None
        self._given_back: ArchivedRecord | None = None

    def back(self, record: ArchivedRecord) -> None:
        """Give a record back: it is the next one again."""
        self._given_back = record

    async def next(self) -> ArchivedRecord | None:
        """The next record; None: there is none (yet)."""
        if self._given_back is not None:
            record, self._given_back = self._given_back, None
            return record
        if self._iterator is None:
            self._iterator = self._past.records(DECISIONS, self._partition, self._next)
        found = await anext(self._iterator, None)
        if found is None:
            self._iterator = None
            return None
        self._next = found.offset + 1
        return found

    async def close(self) -> None:
        """Let go of the source."""
        if self._iterator is not None:
            await self._iterator.aclose()

    async def wait(self) -> ArchivedRecord | None:
        """The next record, waiting for it as long as a running fleet may lag."""
        deadline = asyncio.get_running_loop().time() + (LAG_S if self._past.is_live() else 0)
        while (record := await self.next()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                return None
            await asyncio.sleep(_POLL_S)
        return record


_CHAIN = ("prev", "seq")
_PLACE = {"input.hash"}
_ORDER = (
    "cluster",
    "namespace",
    "name",
    "uid",
    "time",
    "kind",
    "specHash",
    "generation",
    "engine",
    "mode",
    "origin",
    "currentReplicas",
    "metrics",
    "m",
    "steps",
    "rawDesiredReplicas",
    "constraintsApplied",
    "finalDesiredReplicas",
)
"""Fields in the order in which a decision comes about; the rest follows in the record's own order."""


class Difference(NamedTuple):
    """One field: its place, its recorded value, and the re-derived one."""

    path: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: recorded {_text(self.recorded)}, recomputed {_text(self.recomputed)}"


def _text(value: Any) -> str:
    if value is NOTHING:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "…"


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()
"""In place of a field that one of the two does not have."""


def differences(recorded: bytes, recomputed: bytes, *, chain: bool = True) -> list[Difference]:
    """The fields that differ, in the order in which a decision comes about.

    Args:
        recorded: value of the recorded decision.
        recomputed: value of the re-derived one.
        chain: also compare what only places it: number, hash of the record before, running hash of the log.
    """
    try:
        ours, theirs = msgspec.json.decode(recomputed), msgspec.json.decode(recorded)
    except BAD_JSON as error:
        return [Difference("value", f"not JSON: {error}", "a decision")]
    found = list(_compare("", theirs, ours))
    if not chain:
        found = [d for d in found if d.path not in _CHAIN and d.path not in _PLACE]
    return sorted(found, key=_rank)


def _rank(difference: Difference) -> int:
    head = difference.path.split(".")[0].split("[")[0]
    if head in _CHAIN or difference.path in _PLACE:
        return len(_ORDER) + 1
    return _ORDER.index(head) if head in _ORDER else len(_ORDER)


def _compare(path: str, recorded: Any, recomputed: Any) -> list[Difference]:
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        names = [*recomputed, *(name for name in recorded if name not in recomputed)]
        return [
            found
            for name in names
            for found in _compare(
                f"{path}.{name}" if path else name, recorded.get(name, NOTHING), recomputed.get(name, NOTHING)
            )
        ]
    if isinstance(recorded, list) and isinstance(recomputed, list) and path:
        longest = max(len(recorded), len(recomputed))
        return [
            found
            for at in range(longest)
            for found in _compare(
                f"{path}[{_label(recorded, recomputed, at)}]",
                recorded[at] if at < len(recorded) else NOTHING,
                recomputed[at] if at < len(recomputed) else NOTHING,
            )
        ]
    if type(recorded) is type(recomputed) and recorded == recomputed:
        return []
    return [Difference(path or "value", recorded, recomputed)]


def _label(recorded: list[Any], recomputed: list[Any], at: int) -> str:
    """A step or metric by its name, anything else by its number."""
    item = recomputed[at] if at < len(recomputed) else recorded[at]
    name = item.get("step") or item.get("name") if isinstance(item, dict) else None
    return str(name) if name else str(at)

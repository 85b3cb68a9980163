"""What verifying finds in a partition: decisions that come out different, from the first step, field and number on."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas.keys import HpaId
from streams.archive.segments import BAD_JSON
from streams.archive.signing import Heads
from streams.history.past import Past

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


KEPT: Final = 20
"""How many divergences of a partition are reported in full."""


class Divergence(Struct, kw_only=True, rename="camel"):
    """A decision that comes out different: where first, and what is recorded and recomputed there.

    `recordedReplicas`, `recomputedReplicas`: the final count on both sides, None where there is no decision.
    """

    id: str
    hpa: str
    time_ms: int
    engine: int
    path: str
    recorded: Any = None
    recomputed: Any = None
    fields: int = 1
    recorded_replicas: int | None = None
    recomputed_replicas: int | None = None


class Report(Struct, kw_only=True, rename="camel"):
    """What was checked of one partition. `start`: the log offset after which recomputation began (-1: the beginning).

    `decisions`: those of the HPA and the window that are asked for. `engine`: in force at the end; `engineChanges`:
    (log offset, engine from there on). `duplicates`: copies of decisions. `signed`: checkpoints that it was held to.
    `engines`: decisions by the engine that recorded them. `paths`: divergences by what differs first. `fault`: what
    ended it, empty if nothing did.
    """

    partition: int
    start: int = -1
    log_records: int = 0
    decisions: int = 0
    identical: int = 0
    diverged: int = 0
    duplicates: int = 0
    snapshots: int = 0
    segments: int = 0
    signed: int = 0
    engine: int = 0
    engine_changes: list[tuple[int, int]] = []
    last_log_offset: int = -1
    last_seq: int = 0
    engines: dict[str, int] = {}
    paths: dict[str, int] = {}
    divergences: list[Divergence] = []
    fault: str = ""


@dataclass(frozen=True)
class Task:
    """One partition to verify. `checkpoints`: heads to hold it to. `hpa`, `since_ms`, `until_ms`: decisions of others
    and of other log times are not compared; None: all are.
    """

    past: Past
    partition: int
    since_ms: int | None = None
    checkpoints: list[Heads] = field(default_factory=list)
    until_ms: int | None = None
    hpa: HpaId | None = None

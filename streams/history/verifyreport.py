"""What is verified of a partition, and what verifying finds."""

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from schemas.keys import HpaId
from streams.archive.signing import Heads
from streams.history.past import Past

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

"""Decisions of one log partition, read for what a few of their fields say: by guardrails and ceilings over the past."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from streams.archive.layout import DECISIONS
from streams.history.parallel import reported
from streams.history.past import Past

LAG_MS = 3_600_000
"""The decider may publish a decision this much later than its log time."""
_BREATH = 5_000
_HEAD_BYTES = 512


class _SeenScale(Struct, frozen=True, rename="camel"):
    ready_pods: int | None = None
    spec_replicas: int | None = None


class SeenDecision(Struct, rename="camel"):
    """What is read of a decision record; fields as in `Decision`."""

    time: str
    cluster: str = ""
    namespace: str = ""
    name: str = ""
    kind: str = "evaluation"
    mode: str = "shadow"
    current_replicas: int = 0
    final_desired_replicas: int = 0
    wants: int | None = None
    observed: _SeenScale = _SeenScale()

    @property
    def hpa(self) -> str:
        """Whose decision it is: `cluster/namespace/name`."""
        return f"{self.cluster}/{self.namespace}/{self.name}"


_DECISION = msgspec.json.Decoder(SeenDecision)


def full_evaluation(value: bytes) -> SeenDecision | None:
    """Read the full record of an evaluation; None: it is a completion, or a short record, which repeats a full one."""
    if value.find(b'"sameAs":', 0, _HEAD_BYTES) >= 0:
        return None
    seen = _DECISION.decode(value)
    return seen if seen.kind == "evaluation" else None


@dataclass(frozen=True)
class DecisionsTask:
    """One partition to read: from log time `begin_ms` to before `end_ms`."""

    past: Past
    partition: int
    begin_ms: int
    end_ms: int


async def read_decisions(task: DecisionsTask, take: Callable[[bytes], None]) -> int:
    """Give every decision record that a partition may have of a time to `take`; give how many these are."""
    read = counted = 0
    first = await task.past.offset_at(DECISIONS, task.partition, task.begin_ms)
    latest_ms = task.end_ms + LAG_MS
    async with aclosing(task.past.stretches(DECISIONS, task.partition, first)) as stretches:
        async for stretch in stretches:
            for record in stretch:
                if record.timestamp_ms > latest_ms:
                    return read
                read += 1
                take(record.value)
            if read - counted >= _BREATH:
                reported(0, read - counted)
                counted = read
    return read

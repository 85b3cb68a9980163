"""The events that guardrails look at, read from the recorded decisions of one log partition."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from streams.analysis.guardrailruns import EventReader, GuardedEvent
from streams.archive.layout import DECISIONS
from streams.history.parallel import told
from streams.history.past import Past

LAG_MS = 3_600_000
"""The decider may publish a decision this much later than its log time."""
_BREATH = 5_000


@dataclass(frozen=True)
class GuardedTask:
    """One partition to read: from log time `begin_ms` to before `end_ms`."""

    past: Past
    partition: int
    begin_ms: int
    end_ms: int


def read_guarded(task: GuardedTask) -> tuple[list[GuardedEvent], int]:
    """Read the events of a partition in a process of its own; give them and the number of decisions read."""
    return asyncio.run(guarded_events(task))


async def guarded_events(task: GuardedTask) -> tuple[list[GuardedEvent], int]:
    """Read the events of a partition; give them and the number of decisions read.

    An HPA's size from before the window counts from its begin on.
    """
    reader, events, read = EventReader(), list[GuardedEvent](), 0
    first = await task.past.offset_at(DECISIONS, task.partition, task.begin_ms)
    latest_ms, counted = task.end_ms + LAG_MS, 0
    async with aclosing(task.past.bare_records(DECISIONS, task.partition, first)) as stretches:
        async for stretch in stretches:
            for record in stretch:
                if record.timestamp_ms > latest_ms:
                    return events, read
                read += 1
                for event in reader.take(record.value):
                    if event.time_ms < task.end_ms:
                        removed = event.removed if event.time_ms >= task.begin_ms else 0
                        events.append(event._replace(time_ms=max(task.begin_ms, event.time_ms), removed=removed))
            if read - counted >= _BREATH:
                told(0, read - counted)
                counted = read
    return events, read

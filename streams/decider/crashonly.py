"""Finds the stalls that Faust does not report, and ends the process: a restart recovers from all of them.

Known ones: recovery that waits for ever after a time-out inside it, a fetch that is never sent after a rebalance, an
event loop that hangs. The last is watched from a thread, the others from the loop.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from runtime.kafkaclients import aiokafka_kwargs, started
from streams.decider.assignment import Assignment, DeciderConfig
from streams.decider.metrics import Metrics
from streams.decider.tail import Exit, Fence, die

LOOK_S = 1.0
ENDS_S = 5.0
"""How often the ends of the log are asked for; also how old the lag in /metrics may be."""


class Watchdog:
    """Watches one worker.

    Args:
        recovering: whether state is being recovered, or no assignment has come yet.
    """

    def __init__(
        self, config: DeciderConfig, assignment: Assignment, metrics: Metrics, recovering: Callable[[], bool]
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._metrics = metrics
        self._recovering = recovering
        self._recovering_since: float | None = time.monotonic()
        self._ends: Mapping[int, int] = {}

    async def watch(self) -> None:
        """Look once a second, for ever."""
        consumer = AIOKafkaConsumer(**aiokafka_kwargs(self._config.kafka), group_id=None, enable_auto_commit=False)
        async with started(consumer):
            await self._watch(consumer)

    async def _watch(self, consumer: AIOKafkaConsumer) -> None:
        asked_at = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            if time.monotonic() - asked_at >= ENDS_S:
                self.saw_ends(await self._ask_ends(consumer))
                asked_at = time.monotonic()
            self._metrics.positions(self._assignment.owned, self._ends)
            if reason := self.stall(time.monotonic()):
                die(Exit.STALLED, reason)

    def saw_ends(self, ends: Mapping[int, int]) -> None:
        """Note the end offsets of the log, by partition."""
        self._ends = ends

    def stall(self, now: float) -> str:
        """What has stalled at this monotonic time, or an empty text."""
        return self._recovery_stall(now) or self._input_stall(now)

    def _recovery_stall(self, now: float) -> str:
        if not self._recovering():
            if self._recovering_since is not None:
                self._metrics.recovery_seconds.set(now - self._recovering_since)
            self._recovering_since = None
            return ""
        if self._recovering_since is None:
            self._recovering_since = now
        elapsed = now - self._recovering_since
        return f"recovery has not ended after {elapsed:.0f} s" if elapsed > self._config.recovery_s else ""

    def _input_stall(self, now: float) -> str:
        for number, owned in self._assignment.owned.items():
            idle = now - owned.applied_at
            behind = self._ends.get(number, 0) - 1 - owned.partition.applied_offset
            if idle <= self._config.stall_s:
                continue
            if behind > 0:
                return f"log partition {number}: nothing was applied for {idle:.0f} s, but {behind} records wait"
            if self._config.ticks:
                return f"log partition {number}: no tick came for {idle:.0f} s"
        return ""

    async def _ask_ends(self, consumer: AIOKafkaConsumer) -> Mapping[int, int]:
        tps = [TopicPartition(self._config.log_topic, number) for number in self._assignment.owned]
        if not tps:
            return {}
        try:
            ends = await consumer.end_offsets(tps)
        except KafkaError:  # the broker is away: the last known ends still hold, and ticks that fail to come tell
            return self._ends
        return {tp.partition: end for tp, end in ends.items()}


def watch_loop(fence: Fence, limit_s: float) -> threading.Thread:
    """Watch from a thread that the event loop turns; a hung loop cannot watch itself."""

    def run() -> None:
        while True:
            time.sleep(LOOK_S)  # a thread of its own: the pause between two looks, not a wait for anything
            if fence.silent_s > limit_s:
                die(Exit.STALLED, f"the event loop has not turned for {fence.silent_s:.0f} s")

    thread = threading.Thread(target=run, name="loop-watchdog", daemon=True)
    thread.start()
    return thread

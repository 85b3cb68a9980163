"""What ends a decider: missing topics or permissions before Faust starts (it would idle), and stalls that Faust does
not report. A restart recovers from all of them.

Known stalls: recovery that waits for ever after a timeout inside it, a fetch that is never sent after a rebalance, an
event loop that hangs. The last is watched from a thread, the others from the loop.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from runtime.kafkaclients import reader
from runtime.topicadmin import TopicAdmin, stamp_problem
from schemas.topics import CHANGELOG, DECIDER_APP_ID, DECISIONS, LOG
from streams.decider.assignment import Assignment, DeciderConfig
from streams.decider.metrics import Metrics
from streams.decider.tail import Exit, Fence, die

_TOPICS = (LOG, DECISIONS, CHANGELOG)


class StartError(Exception):
    """The decider cannot start; the text says what to do."""

    def __init__(self, code: Exit, text: str) -> None:
        super().__init__(text)
        self.code = code


async def check(config: DeciderConfig) -> int:
    """Check what the decider needs; give the partition count of the log.

    Raises StartError: no broker answers, a topic is missing or unlike the others, a permission is denied.
    """
    try:
        partitions = await _check_topics(config)
        async with reader(config.kafka, group_id=DECIDER_APP_ID) as consumer:
            # What is not readable shows here, not as silence later.
            await consumer.end_offsets([TopicPartition(name, 0) for name in _TOPICS])
            await consumer.committed(TopicPartition(LOG, 0))
        return partitions
    except GroupAuthorizationFailedError as error:
        raise _denied("group", DECIDER_APP_ID, "READ") from error
    except TopicAuthorizationFailedError as error:
        raise _denied("topic", ", ".join(map(str, error.args)), "READ") from error
    except KafkaConnectionError as error:
        # A broker that is away and a wrong password look the same from here; the first goes by with time.
        raise StartError(Exit.STALLED, _unreachable(config, error)) from error
    except KafkaError as error:
        raise StartError(Exit.NEEDS_OPERATOR, _unreachable(config, error)) from error


async def _check_topics(config: DeciderConfig) -> int:
    async with TopicAdmin(config.kafka) as admin:
        counts = await admin.partitions(_TOPICS)
        found = await admin.config(LOG)
    if missing := [name for name in _TOPICS if name not in counts]:
        raise StartError(Exit.NEEDS_OPERATOR, f"topics are missing: {', '.join(missing)}; run `fleethpa topics init`")
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise StartError(Exit.NEEDS_OPERATOR, f"topics must have one partition count, for life; they have {listed}")
    if problem := stamp_problem(found, is_playback=config.playback, option="--playback"):
        raise StartError(Exit.NEEDS_OPERATOR, problem)
    return counts[LOG]


def _denied(kind: str, name: str, operation: str) -> StartError:
    return StartError(Exit.DENIED, f"Kafka denies {operation} on {kind} {name}; see `fleethpa topics acls`")


def _unreachable(config: DeciderConfig, error: KafkaError) -> str:
    return (
        f"cannot use the brokers {config.kafka.bootstrap_servers} with {config.kafka.security_protocol}: {error}; "
        "check the address, the security settings and that the broker runs"
    )


LOOK_S = 1.0
ENDS_S = 5.0
"""How often the ends of the log are asked for; also how old positions and lag in /metrics may be."""


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
        self.ends: Mapping[int, int] = {}
        """End offsets of the log, by partition."""

    async def watch(self) -> None:
        """Look once a second, for ever."""
        asked_at, shown = 0.0, None
        async with reader(self._config.kafka) as consumer:
            while True:
                await asyncio.sleep(LOOK_S)
                owned = self._assignment.owned
                if owned.keys() != shown or time.monotonic() - asked_at >= ENDS_S:
                    self.ends = await self._ask_ends(consumer)
                    asked_at, shown = time.monotonic(), set(owned)
                    self._metrics.positions(owned, self.ends)
                if reason := self.stall(time.monotonic()):
                    die(Exit.STALLED, reason)

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
            behind = self.ends.get(number, 0) - 1 - owned.partition.applied_offset
            if idle <= self._config.stall_s:
                continue
            if behind > 0:
                return f"log partition {number}: nothing was applied for {idle:.0f} s, but {behind} records wait"
            if self._config.ticks:
                return f"log partition {number}: no tick came for {idle:.0f} s"
        return ""

    async def _ask_ends(self, consumer: AIOKafkaConsumer) -> Mapping[int, int]:
        tps = [TopicPartition(LOG, number) for number in self._assignment.owned]
        if not tps:
            return {}
        try:
            ends = await consumer.end_offsets(tps)
        except KafkaError:  # the broker is away: the last known ends still hold, and a tick that is missing shows, too
            return self.ends
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

"""Log times as a broker gives them whose clock jumps."""

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

from streams.state.logtime import STEP_LIMIT_MS
from tests.kit.playback import Log, TimedRecord


class Jump(NamedTuple):
    """For `long_ms` from `at_ms` on, the clock is `ahead_ms` off; below zero: behind."""

    at_ms: int
    long_ms: int
    ahead_ms: int


def with_jumps(log: Log, rng: random.Random) -> Log:
    """The same records; the clock of each partition's broker goes minutes ahead and back, acts as a restart, lags."""
    return {number: _jumping(records, _jumps(records, rng)) for number, records in log.items()}


def count_steps(log: Log) -> int:
    """How often log time runs backwards or steps further ahead than the limit that acts as a restart."""
    times = [[record.timestamp_ms for record in records] for records in log.values()]
    return sum(not 0 <= later - before <= STEP_LIMIT_MS for one in times for before, later in itertools.pairwise(one))


def _jumps(records: Sequence[TimedRecord], rng: random.Random) -> list[Jump]:
    first, last = records[0].timestamp_ms, records[-1].timestamp_ms

    def jump(from_part: float, to_part: float, ahead_ms: tuple[int, int]) -> Jump:
        at_ms = first + round((last - first) * rng.uniform(from_part, to_part))
        return Jump(at_ms, rng.randrange(3_000, 30_000), rng.randrange(*ahead_ms))

    return [
        jump(0.1, 0.3, (20_000, 120_000)),
        jump(0.4, 0.6, (STEP_LIMIT_MS + 10_000, STEP_LIMIT_MS + 60_000)),
        jump(0.8, 0.9, (-60_000, -5_000)),
    ]


def _jumping(records: Sequence[TimedRecord], jumps: Sequence[Jump]) -> list[TimedRecord]:
    def ahead_ms(timestamp_ms: int) -> int:
        return sum(jump.ahead_ms for jump in jumps if 0 <= timestamp_ms - jump.at_ms < jump.long_ms)

    return [record._replace(timestamp_ms=record.timestamp_ms + ahead_ms(record.timestamp_ms)) for record in records]

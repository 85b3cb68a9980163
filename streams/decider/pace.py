"""How many evaluations a decider wants while it is behind."""

import math

from msgspec import Struct

from schemas.limits import MOST_SYNC_PERIODS

BEHIND_MS = 15_000
"""A decider so far behind wants fewer evaluations. A wanted write lives 10 s: what is decided later than that is never
made, and wanted again. A start, which brings all HPAs at once, is mostly over before.
"""
CAUGHT_UP_MS = 5_000
FALLING_MS = 2_000
"""A lag that falls by as much from one look to the next will be gone soon, as after a restart."""
SPARE = 1.3
"""How much more than what a decider has to do it must be able to do, so that its lag falls."""
LOOK_EVERY_MS = 10_000
CALM_MS = 30_000
"""For so long a decider must keep up before it wants more evaluations again."""
UNKNOWN_LAG_MS = 2**62
"""Every lag is less, so that it seems to fall."""


class EvaluationPace(Struct, frozen=True, gc=False):
    """How often a decider wants the HPAs of one log partition evaluated: once in `every` sync periods; and its lag.

    `looked_ms`: when it looked at its lag last. `lag_ms`: what that was; UNKNOWN_LAG_MS: another pace was in force.
    `busy_ms`: when it was behind last, or lowered `every`. Times are those of the log.
    """

    every: int = 1
    looked_ms: int = 0
    lag_ms: int = UNKNOWN_LAG_MS
    busy_ms: int = 0


def next_pace(pace: EvaluationPace, in_force: int, now_ms: int, lag_ms: int) -> EvaluationPace:
    """Return the pace of a decider after a look at its lag: one that is behind and does not catch up wants as many
    evaluations as it can do at its speed; after each half minute in which it keeps up, it wants one sync period less.

    Args:
        pace: so far.
        in_force: `every` of the newest tick that the decider has applied: no change shows its effect before.
        now_ms: timestamp of the newest record of the partition.
        lag_ms: from the record applied last to that one.
    """
    if now_ms < pace.looked_ms:  # its clock was ahead
        return EvaluationPace(pace.every, now_ms, UNKNOWN_LAG_MS, now_ms)
    if now_ms - pace.looked_ms < LOOK_EVERY_MS:
        return pace
    every, busy_ms = pace.every, now_ms if lag_ms > CAUGHT_UP_MS else pace.busy_ms
    if in_force != every:
        return EvaluationPace(every, now_ms, UNKNOWN_LAG_MS, busy_ms)
    if lag_ms > BEHIND_MS and CAUGHT_UP_MS < pace.lag_ms < lag_ms + FALLING_MS:
        passed_ms = now_ms - pace.looked_ms
        speed = (passed_ms - (lag_ms - pace.lag_ms)) / passed_ms
        wanted = every / speed * SPARE if speed > 0 else 2 * every
        every = min(max(every + 1, math.ceil(wanted)), MOST_SYNC_PERIODS)
    elif every > 1 and now_ms - busy_ms >= CALM_MS:
        every, busy_ms = every - 1, now_ms
    return EvaluationPace(every, now_ms, lag_ms, busy_ms)

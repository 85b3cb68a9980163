"""The clock of a process: injected where time matters, so that tests set it."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Gives milliseconds since the epoch."""


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000

"""The clock of simulated clusters: real time, faster time, or time that only moves when it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable


class SimClock:
    """Simulated time. `speed` 1.0 = real time, 10.0 = ten times as fast, 0.0 = stands still until `move`."""

    def __init__(self, *, speed: float = 1.0, start_ms: int | None = None) -> None:
        self._base_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._anchor_ns = time.monotonic_ns()
        self._speed = speed
        self._listeners: list[Callable[[], None]] = []

    @property
    def speed(self) -> float:
        """Simulated seconds per real second."""
        return self._speed

    def now_ms(self) -> int:
        """Return simulated milliseconds since the epoch."""
        return self._base_ms + int((time.monotonic_ns() - self._anchor_ns) * self._speed) // 1_000_000

    def move(self, by_ms: int) -> None:
        """Jump forward.

        Raises:
            ValueError: `by_ms` is negative.
        """
        if by_ms < 0:
            raise ValueError(f"by_ms is {by_ms}: simulated time never runs backwards")
        self._base_ms += by_ms
        self._tell()

    def set_speed(self, speed: float) -> None:
        """Run faster, slower, or (0) stand still from now on."""
        if speed < 0:
            raise ValueError(f"speed is {speed}: it must be 0 or more")
        self._base_ms, self._anchor_ns, self._speed = self.now_ms(), time.monotonic_ns(), speed
        self._tell()

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever time jumps or changes speed."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

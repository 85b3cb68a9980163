"""Free memory of the C heap, given back to the operating system."""

import ctypes
import time
from collections.abc import Callable

EVERY_S = 15.0


_HEAP_TRIM: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's; None where the C library has none."""


class FreeMemory:
    """Gives back what is free, at most every 15 s; call `give_back` when large buffers have just been dropped.

    glibc does so by itself only at the end of its heap, where something small nearly always is.
    """

    def __init__(
        self, trim: Callable[[int], int] | None = _HEAP_TRIM, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim, self._clock = trim, clock
        self._next_s = clock()

    def give_back(self) -> None:
        """Give back all whole pages that are free; takes about a millisecond per 10,000 HPAs of a decider."""
        if self._trim is not None and self._clock() >= self._next_s:
            self._trim(0)
            self._next_s = self._clock() + EVERY_S

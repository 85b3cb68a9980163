"""The brokers' time, learnt from the append times of records of one's own. No I/O, no clock.

A wanted write expires in log time, which is the brokers'. A process in a member cluster cannot trust its machine's
clock to agree with it.
"""

from collections import deque

MAX_AGE_S = 60.0
"""Without a reading younger than this the brokers' time is not known."""
_KEPT = 64


class BrokerTime:
    """The latest that the brokers' clock may show now.

    A record was appended after it was sent, so that the time passed since the sending, added to its append time, is at
    least the brokers' present: of all readings the lowest is the nearest. Erring to that side ends a write early rather
    than late. Seconds are those of a local clock that also runs while the machine sleeps.
    """

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        """(when sent, append time minus that), both in seconds."""

    def heard(self, append_ms: int, sent_s: float) -> None:
        """A record that was sent at `sent_s` was appended at `append_ms` (Unix milliseconds)."""
        self._readings.append((sent_s, append_ms / 1000 - sent_s))

    def now_ms(self, now_s: float) -> int | None:
        """The brokers' time at the local time `now_s` (Unix milliseconds); None: it is not known well enough."""
        fresh = [ahead_s for sent_s, ahead_s in self._readings if now_s - sent_s < MAX_AGE_S]
        return round((now_s + min(fresh)) * 1000) if fresh else None

"""Whether the brokers' clocks agree with this machine's: log time is the time at which a broker appends."""

import logging
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from runtime.log import wall_clock_ms

log = logging.getLogger("fleethpa.ingest")

MOST_OFF_MS: Final = 60_000
"""A larger difference is said: decisions use times of both clocks."""
SAID_EVERY_S: Final = 300.0


class AppendTimes:
    """Compares the time at which a broker appended each record of the log with this machine's clock.

    Args:
        registry: where the metric goes.
        clock: this machine's, Unix milliseconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._off = Gauge(
            "fleethpa_ingest_append_time_offset_seconds",
            "Time at which the broker appended the newest record of a log partition, less the time of this process",
            ["partition"],
            registry=registry,
        )
        self._wrong: dict[int, int] = {}
        """Log partition -> the difference (ms), where it is too large."""
        self._said_s: dict[int, float] = {}

    def appended(self, partition: int, append_ms: int) -> None:
        """Compare the append time (Unix ms) of a record that a broker has acknowledged just now."""
        off_ms = append_ms - self._clock()
        self._off.labels(str(partition)).set(off_ms / 1000)
        if abs(off_ms) <= MOST_OFF_MS:
            if self._wrong.pop(partition, None) is not None:
                self._said_s.pop(partition, None)
                log.info("log partition %d: append times agree with this machine's clock again", partition)
            return
        self._wrong[partition] = off_ms
        now_s = time.monotonic()
        if now_s - self._said_s.get(partition, -SAID_EVERY_S) >= SAID_EVERY_S:
            self._said_s[partition] = now_s
            log.error("%s", _text(partition, off_ms))

    def notes(self) -> list[str]:
        """Return what is wrong, for `/readyz`."""
        return [f"[!] {_text(partition, off_ms)}" for partition, off_ms in sorted(self._wrong.items())]


def _text(partition: int, off_ms: int) -> str:
    way = "ahead of" if off_ms > 0 else "behind"
    return (
        f"log partition {partition}: its broker's clock is {abs(off_ms) // 1000} s {way} this machine's. Next: set the "
        "clocks by NTP; once they are right, fleethpa admin topics log-time shows whether log time is"
    )

"""The brokers' time, by which wanted writes expire: a process learns it from the acknowledgements of what it sends.

The clock of the machine that writes to a cluster may differ from the one by which the decider stamped a wanted write.
"""

from collections.abc import Callable
from typing import Final

from aiokafka import ConsumerRecord
from aiokafka.structs import RecordMetadata

from runtime.log import Clock, boot_s, wall_clock_ms

APPEND_TIME: Final = 1
"""`timestampType` of a record that the broker has stamped."""
EMBEDDED_BROKER_MS: Final = 1234
"""What the embedded broker answers for every record: librdkafka's mock cluster keeps no append times."""
MAX_AGE_S: Final = 60.0
"""Without a reading younger than this the brokers' time is not known."""
_KEPT: Final = 64
UNKNOWN: Final = f"the brokers' time is not known: no record was acknowledged for {MAX_AGE_S:.0f} s"


def append_time_ms(record: ConsumerRecord | RecordMetadata) -> int | None:
    """Return when a broker appended a record that was read or acknowledged (Unix milliseconds); None: it is not known,
    as the time is the producer's.
    """
    is_stamped = record.timestamp_type == APPEND_TIME and record.timestamp != EMBEDDED_BROKER_MS
    return record.timestamp if is_stamped else None


_Reading = tuple[float, float]
"""(when sent, append time minus that), both in seconds."""


class BrokerTime:
    """The latest that the brokers' clock may show now.

    A record was appended after it was sent, so that the time passed since the sending, added to its append time, is at
    least the brokers' present: of all readings the lowest is the nearest. Erring to that side ends a write early rather
    than late. Seconds are those of a local clock that also runs while the machine sleeps.

    A virtual machine that is paused has no clock that runs meanwhile. What was read before is then too low, which the
    next acknowledgement shows, since the brokers' present is at least its append time: but for as much as the
    acknowledgement was under way.
    """

    def __init__(self) -> None:
        self._readings: list[_Reading] = []

    def received(self, append_ms: int, sent_s: float, acknowledged_s: float) -> None:
        """A record was sent at `sent_s`, appended at `append_ms` (Unix milliseconds), acknowledged at the third."""
        append_s = append_ms / 1000
        least_ahead_s = append_s - acknowledged_s
        possible = [each for each in self._readings if each[1] >= least_ahead_s]
        self._readings = [*possible, (sent_s, append_s - sent_s)][-_KEPT:]

    def now_ms(self, now_s: float) -> int | None:
        """The brokers' time at the local time `now_s` (Unix milliseconds); None: it is not known well enough."""
        fresh = [ahead_s for sent_s, ahead_s in self._readings if now_s - sent_s < MAX_AGE_S]
        return round((now_s + min(fresh)) * 1000) if fresh else None


class BrokerClock:
    """The clock of a process that carries out wanted writes.

    `is_stamped`: whether the brokers stamp the append time of what this process sends; None: the first acknowledgement
    shows it. Where they do not, as the embedded broker, the machine's own `clock` counts (Unix milliseconds).
    """

    def __init__(
        self, is_stamped: bool | None, clock: Clock = wall_clock_ms, seconds: Callable[[], float] = boot_s
    ) -> None:
        self.is_stamped, self._clock, self.seconds = is_stamped, clock, seconds
        self._time = BrokerTime()

    def acknowledged(self, ack: RecordMetadata, sent_s: float) -> None:
        """Learn from the acknowledgement of a record that was sent at `sent_s` (`seconds`)."""
        append_ms = append_time_ms(ack)
        if self.is_stamped is None:
            self.is_stamped = append_ms is not None
        if append_ms is not None:
            self._time.received(append_ms, sent_s, self.seconds())

    def now_ms(self) -> int:
        """The brokers' time (Unix milliseconds), as well as it is known; else this machine's."""
        broker_ms = self._time.now_ms(self.seconds()) if self.is_stamped else None
        return self._clock() if broker_ms is None else broker_ms

    @property
    def problem(self) -> str:
        """Why nothing may be written that expires by the brokers' time; empty: it is known, or is this machine's."""
        return UNKNOWN if self.is_stamped and self._time.now_ms(self.seconds()) is None else ""

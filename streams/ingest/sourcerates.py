"""How much of a topic that others write is read: batches beyond its rate are passed over before they are unpacked.

Each record counts for RECORD_BYTES at least, since one of a byte costs ingest as much as one of a kilobyte. Time is
what the brokers or the producer stamped, within bounds: what waited while ingest was away is not taken for a flood, and
by false times no producer gains more than the rate of an hour.
"""

from collections.abc import Callable

from aiokafka import TopicPartition

from runtime.batches import BatchHeader
from schemas.agents import agent_of_reports
from schemas.limits import RECORD_BYTES, Refusal
from schemas.topics import PUBLIC_TOPICS
from streams.ingest.pieces import REPORTED_BYTES, SAMPLED_BYTES, Rate, Rates

_OLDEST_S = 3_600.0


def is_trusted(topic: str) -> bool:
    """Whether a topic is written by observers, operators and processes of the hub only, not by agents or producers."""
    return topic in PUBLIC_TOPICS


def cost_of(size: int, records: int = 1) -> int:
    """Return for how many bytes records count that have so many."""
    return max(size, records * RECORD_BYTES.most)


class SourceGate:
    """The rates of all topics that a consumer of ingest reads and others write, kept for as long as the process runs.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rates = Rates()
        self._newest_s: dict[str, float] = {}
        """Topic -> up to which time its batches were counted."""
        self._counted_to: dict[TopicPartition, int] = {}
        """The offset behind the last batch that was counted: one that is fetched again is not counted again."""

    def refusal(self, partition: TopicPartition, batch: BatchHeader) -> Refusal | None:
        """Why a batch is passed over; None: it is within the rate of its topic, and counted."""
        if is_trusted(partition.topic) or batch.last_offset < self._counted_to.get(partition, 0):
            return None
        rate, what = _rate_of(partition.topic)
        at_s = self._at_s(partition.topic, batch.newest_ms / 1000)
        try:
            self._rates.count(rate, (partition.topic,), at_s, what, cost_of(batch.packed_bytes, batch.records))
        except Refusal as refusal:
            return refusal
        self._counted_to[partition] = batch.last_offset + 1
        return None

    def unpacked(self, partition: TopicPartition, batch: BatchHeader, unpacked_bytes: int) -> None:
        """Count what a batch is beyond what was known of it before."""
        more = unpacked_bytes - cost_of(batch.packed_bytes, batch.records)
        if more > 0 and not is_trusted(partition.topic):
            self._rates.add(_rate_of(partition.topic)[0], (partition.topic,), self._newest_s[partition.topic], more)

    def _at_s(self, topic: str, stamped_s: float) -> float:
        now_s = self._clock()
        at_s = min(now_s, max(stamped_s, now_s - _OLDEST_S))
        self._newest_s[topic] = max(at_s, self._newest_s.get(topic, at_s))
        return self._newest_s[topic]


def _rate_of(topic: str) -> tuple[Rate, str]:
    least = f"each record counts for {RECORD_BYTES.most} at least"
    if agent := agent_of_reports(topic):
        return REPORTED_BYTES, f"bytes of the reports of the agent of cluster {agent.cluster!r} ({least})"
    return SAMPLED_BYTES, f"bytes of {topic} ({least})"

"""What an observer reports goes to Kafka in order, and not all of a large cluster at once."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from reconciler.observer.observermetrics import ObserverMetrics
from reconciler.observer.publisher import AT_ONCE, RecordPublisher
from schemas.codec import encode
from schemas.entries import Body
from schemas.scales import Heartbeat
from schemas.topics import SCALES


class Slow:
    """A publisher that takes a turn of the loop for each record, and counts those under way."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.sent: list[tuple[str, bytes]] = []

    async def send(self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body], time_ms: int) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.sent.append((namespace, encode(bodies)))


async def test_a_large_cluster_goes_out_a_limited_number_of_records_at_once() -> None:
    slow = Slow()
    outlet = RecordPublisher(slow, ObserverMetrics(CollectorRegistry()), lambda: 1)  # type: ignore[arg-type]
    beats: list[Body] = [Heartbeat(session="a"), Heartbeat(session="b")]
    for number in range(3 * AT_ONCE):
        await outlet.put(SCALES, "east", f"ns-{number}", beats)
    await outlet.flush()
    assert (len(slow.sent), slow.most) == (3 * AT_ONCE, AT_ONCE)
    assert all(bodies == encode(beats) for _, bodies in slow.sent)

"""What an observer reports goes to Kafka in order, and not all of a large cluster at once."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.observertopics import AT_ONCE, RecordPublisher
from runtime.process import FreeMemory
from schemas.codec import decode, encode
from schemas.entries import Body
from schemas.fitting import CHUNK_BYTES
from schemas.limits import BEAT_NAMESPACES
from schemas.observed import Heartbeat
from schemas.topics import SCALES
from tests.patience import PATIENCE_S


class Slow:
    """A publisher that takes a turn of the loop for each record, and counts those under way. `b…` are of a second
    partition.
    """

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.sent: list[tuple[str, bytes]] = []

    async def send(self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body], time_ms: int) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.sent.append((namespace, encode(bodies)))

    async def together(self, topic: str, cluster: str, namespaces: Sequence[str]) -> list[list[str]]:
        return [[name for name in namespaces if name.startswith("b") == is_b] for is_b in (False, True)]


async def test_a_large_cluster_goes_out_a_limited_number_of_records_at_once() -> None:
    slow = Slow()
    outlet = RecordPublisher(slow, ObserverMetrics(CollectorRegistry()), lambda: 1)  # type: ignore[arg-type]
    beats: list[Body] = [Heartbeat(session="a"), Heartbeat(session="b")]
    for number in range(3 * AT_ONCE):
        await outlet.put(SCALES, "east", f"ns-{number}", beats)
    await outlet.flush()
    assert (len(slow.sent), slow.most) == (3 * AT_ONCE, AT_ONCE)
    assert all(bodies == encode(beats) for _, bodies in slow.sent)


async def test_what_waits_is_not_written_before_what_is_being_written() -> None:
    """A cluster that leaves is written out while the outlet writes anyway."""
    slow = Slow()
    outlet = RecordPublisher(slow, ObserverMetrics(CollectorRegistry()), lambda: 1)  # type: ignore[arg-type]
    large: list[Body] = [Heartbeat(session=letter * (CHUNK_BYTES // 2)) for letter in "abc"]
    late: list[Body] = [Heartbeat(session="d")]
    await outlet.put(SCALES, "east", "shop", large)
    async with asyncio.TaskGroup() as group:
        group.create_task(outlet.flush())
        await asyncio.sleep(0)
        await outlet.put(SCALES, "east", "shop", late)
        group.create_task(outlet.flush())
    assert [bodies for _, bodies in slow.sent] == [*(encode([body]) for body in large), encode(late)]


async def test_a_heartbeat_is_one_record_per_partition_and_no_larger_than_ingest_takes() -> None:
    slow = Slow()
    outlet = RecordPublisher(slow, ObserverMetrics(CollectorRegistry()), lambda: 1)  # type: ignore[arg-type]
    few = [f"b-{number}" for number in range(10)]
    many = [f"a-{number}" for number in range(2 * BEAT_NAMESPACES.most)]
    await outlet.beat("east", [*few, *many], Heartbeat(session="a@1"))
    await outlet.flush()
    sent = {name: decode(bodies, list[Heartbeat])[0].namespaces for name, bodies in slow.sent}
    assert sent.pop("b-0") == few[1:]
    assert [name for first, further in sent.items() for name in (first, *further)] == many
    assert max(map(len, sent.values())) == BEAT_NAMESPACES.most


async def test_what_lists_leave_free_is_given_back_once_they_are_written() -> None:
    slow, given_back = Slow(), asyncio.Event()

    def trim(_: int) -> int:
        assert slow.sent, "nothing is free before"
        given_back.set()
        return 1

    memory = FreeMemory(trim, lambda: 0.0)
    outlet = RecordPublisher(slow, ObserverMetrics(CollectorRegistry()), lambda: 1, memory)  # type: ignore[arg-type]
    await outlet.put(SCALES, "east", "shop", [Heartbeat(session="a")])
    writing = asyncio.create_task(outlet.run())
    async with asyncio.timeout(PATIENCE_S):
        await given_back.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)

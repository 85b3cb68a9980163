"""The order of records of several source partitions: by source time, while one of them is still behind."""

import heapq
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class WaitingRecord(NamedTuple, Generic[T]):
    """A record that waits for its turn."""

    time_ms: int
    item: T


class Merge(Generic[K, T]):
    """Queues of records, one per source partition, taken in order of their source times.

    Records of one partition never overtake each other, whatever their times: the fold drops duplicates by offset. Of
    the heads of all partitions, the one with the smallest time goes first. A partition that is behind and holds
    nothing here could still bring the smallest: then nothing is taken, unless `force`d.
    """

    def __init__(self) -> None:
        self._queues: dict[K, deque[WaitingRecord[T]]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def held(self, key: K) -> int:
        """Records of one partition that wait here."""
        return len(self._queues.get(key, ()))

    def add(self, key: K, time_ms: int, item: T) -> None:
        """Put a record behind the others of its partition."""
        self._queues.setdefault(key, deque()).append(WaitingRecord(time_ms, item))

    def clear(self) -> None:
        """Forget everything held: the partitions go to somebody else."""
        self._queues.clear()

    def missing(self, behind: Mapping[K, bool]) -> list[K]:
        """The partitions that hold the others up: behind, and nothing of them is here."""
        return [key for key, is_behind in behind.items() if is_behind and not self._queues.get(key)]

    def take(self, behind: Mapping[K, bool], *, force: bool = False) -> Iterator[tuple[K, T]]:
        """Records in their order, until a partition that is behind runs empty or nothing is left.

        Args:
            behind: per assigned partition, whether the broker holds more of it than was fetched.
            force: do not wait for partitions that are behind.
        """
        if not force and self.missing(behind):
            return
        heads = [(queue[0].time_ms, number, key) for number, (key, queue) in enumerate(self._queues.items()) if queue]
        heapq.heapify(heads)
        while heads:
            _, number, key = heads[0]
            queue = self._queues[key]
            yield key, queue.popleft().item
            if queue:
                heapq.heapreplace(heads, (queue[0].time_ms, number, key))
                continue
            heapq.heappop(heads)
            if behind.get(key) and not force:
                return

"""Shares: what one namespace, one cluster or one producer asks for has a bound in number and a turn in time. No I/O.

Used wherever several keys want the same slots: ingest (a producer or an agent's cluster), the observer's questions to
metrics APIs and to a Prometheus (a namespace), members of a CapacityGroup (a namespace).
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from schemas.limits import share_of

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_PRUNED_FROM = 1_000
"""Keys that have nothing to do are remembered for what they used; from this number on the settled ones are dropped."""


class Turns(Generic[K, T]):
    """Items of many keys that wait for one of `slots`: the key that has used least is next, the items of one in order.

    A key uses what its items cost: a number that is known before (bytes, records), or what `end` adds afterwards (the
    seconds that a request took). Whoever waited without using anything saves nothing up: a key that comes, or comes
    back, begins where those are that are served now. What a key used beyond that is remembered while others wait.

    Args:
        slots: how many items may be in flight at once.
        per_key: how many of them of one key; None: `share_of(slots)`.
    """

    def __init__(self, slots: int, per_key: int | None = None) -> None:
        self._slots, self._per_key = slots, share_of(slots) if per_key is None else per_key
        self._waiting: dict[K, deque[tuple[T, float]]] = {}
        self._in_flight: dict[K, int] = {}
        self._used: dict[K, float] = {}
        self._level = 0.0
        """What the key had used that was served last, before it was."""
        self._order: list[tuple[float, int, K]] = []
        """A heap of the keys that may be next; one whose number is no longer what it used is put where it belongs."""
        self._offered: set[K] = set()
        """The keys in that heap, each once."""
        self._number = 0

    def __len__(self) -> int:
        """How many items wait."""
        return sum(map(len, self._waiting.values()))

    def waiting(self, key: K) -> int:
        """How many items of a key wait."""
        return len(self._waiting.get(key, ()))

    def add(self, key: K, item: T, cost: float = 1.0) -> None:
        """Put an item behind the others of its key. `cost`, not below 0, counts as used when its turn comes."""
        queue = self._waiting.setdefault(key, deque())
        queue.append((item, cost))
        if len(queue) == 1 and key not in self._in_flight:
            self._used[key] = max(self._used.get(key, 0.0), self._level)
        self._offer(key)

    def next(self) -> tuple[K, T] | None:
        """Remove and return the item whose turn it is, which is in flight until `end`; None: none waits that may."""
        if sum(self._in_flight.values()) >= self._slots:
            return None
        while self._order:
            used, _, key = heapq.heappop(self._order)
            self._offered.discard(key)
            if not self._may_go(key) or used < self._used[key]:
                self._offer(key)  # where it belongs; one that may not go is offered again by `add` or `end`
                continue
            item, cost = self._waiting[key].popleft()
            if not self._waiting[key]:
                del self._waiting[key]
            self._level = used
            self._used[key] = used + cost
            self._in_flight[key] = self._in_flight.get(key, 0) + 1
            self._offer(key)
            return key, item
        return None

    def end(self, key: K, cost: float = 0.0) -> None:
        """Free the slot of one item of a key; `cost` is what it used beside what was known before. Raises KeyError: no
        item of it is in flight.
        """
        self._in_flight[key] -= 1
        self._used[key] += cost
        if not self._in_flight[key]:
            del self._in_flight[key]
        self._offer(key)
        self._forget()

    def drop(self, key: K, is_dropped: Callable[[T], bool] = lambda item: True) -> list[T]:
        """Remove the waiting items of a key (those that are chosen), and return them in order."""
        queue = self._waiting.pop(key, deque())
        kept = deque(entry for entry in queue if not is_dropped(entry[0]))
        if kept:
            self._waiting[key] = kept
        return [item for item, _ in queue if is_dropped(item)]

    def _may_go(self, key: K) -> bool:
        return key in self._waiting and self._in_flight.get(key, 0) < self._per_key

    def _offer(self, key: K) -> None:
        if self._may_go(key) and key not in self._offered:
            self._offered.add(key)
            self._number += 1
            heapq.heappush(self._order, (self._used[key], self._number, key))

    def _forget(self) -> None:
        if not self._waiting and not self._in_flight:
            self._used.clear()
            self._order.clear()
            self._offered.clear()
            self._level = 0.0
        elif len(self._used) > _PRUNED_FROM + 2 * (len(self._waiting) + len(self._in_flight)):
            busy = self._waiting.keys() | self._in_flight.keys()
            self._used = {key: used for key, used in self._used.items() if used > self._level or key in busy}

"""When an HPA is visited: a heap by time, so that a record costs as much as the HPAs that are due."""

from heapq import heapify, heappop, heappush

from schemas.keys import HpaId
from streams.state.hpastate import Hpa

OUTCOME_WAIT_MS = 5_000
"""Log time after a write's time to live at which it counts as failed."""
WRITE_TTL_MS = 10_000
"""How long a wanted write may be made."""
NEVER = 2**62


class Schedule:
    """HPAs by the time of their next visit."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, HpaId]] = []

    def plan(self, hpa: Hpa) -> None:
        """Plan the visit of `hpa` at the time that its state gives."""
        row = hpa.row
        if row.gone:
            hpa.deadline = NEVER
        elif row.pending is not None:
            self.at(hpa, row.pending.expires_ms + OUTCOME_WAIT_MS)
        else:
            self.at(hpa, min(row.next_due_ms, row.early_ms) if row.early_ms else row.next_due_ms)

    def at(self, hpa: Hpa, time_ms: int) -> None:
        """Plan the visit of `hpa` at `time_ms`, not earlier."""
        if hpa.deadline != time_ms:
            hpa.deadline = time_ms
            heappush(self._heap, (time_ms, hpa.id))

    def pop(self, now_ms: int, hpas: dict[HpaId, Hpa]) -> list[Hpa]:
        """Remove and give the HPAs that are due; the caller plans each again."""
        due, heap = [], self._heap
        while heap and heap[0][0] <= now_ms:
            time_ms, name = heappop(heap)
            hpa = hpas.get(name)
            if hpa is not None and hpa.deadline == time_ms:
                hpa.deadline = -1
                due.append(hpa)
        return due

    def rebuild(self, hpas: dict[HpaId, Hpa]) -> None:
        """Plan all HPAs again, after a restore."""
        self._heap.clear()
        for hpa in hpas.values():
            hpa.deadline = -1
            self.plan(hpa)
        heapify(self._heap)

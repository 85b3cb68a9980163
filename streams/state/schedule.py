"""When an HPA is visited: a heap by time, so that a record costs as much as the HPAs that are due."""

from heapq import heappop, heappush

from schemas.keys import HpaId
from streams.state.hpastate import Hpa

OUTCOME_WAIT_MS = 5_000
"""Log time after a write's time to live at which it counts as failed."""
WRITE_TTL_MS = 10_000
"""How long a wanted write may be made."""
NEVER = 2**62


class Schedule:
    """HPAs by the time of their next visit. The HPAs of a namespace mostly share theirs, so times are few."""

    __slots__ = ("_names", "_times")

    def __init__(self) -> None:
        self._names: dict[int, list[HpaId]] = {}
        self._times: list[int] = []
        """A heap of the times in `_names`."""

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
            names = self._names.get(time_ms)
            if names is None:
                self._names[time_ms] = [hpa.id]
                heappush(self._times, time_ms)
            else:
                names.append(hpa.id)

    def pop(self, now_ms: int, hpas: dict[HpaId, Hpa]) -> list[Hpa]:
        """Remove and give the HPAs that are due; the caller plans each again."""
        due, times = [], self._times
        while times and times[0] <= now_ms:
            time_ms = heappop(times)
            for name in self._names.pop(time_ms):
                hpa = hpas.get(name)
                # One that was planned anew since has another deadline.
                if hpa is not None and hpa.deadline == time_ms:
                    hpa.deadline = -1
                    due.append(hpa)
        return due

    def rebuild(self, hpas: dict[HpaId, Hpa]) -> None:
        """Plan all HPAs again, after a restore."""
        self._names.clear()
        self._times.clear()
        for hpa in hpas.values():
            hpa.deadline = -1
            self.plan(hpa)

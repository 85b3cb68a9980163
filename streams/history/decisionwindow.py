"""Which of a partition's decisions are in a stretch of log time, while they are read in order."""

from collections.abc import Iterable

from streams.archive.segments import ArchivedRecord, BareRecord
from streams.history.recorded import Expander, Recorded, head_of


class DecisionWindow:
    """Decisions of a log partition from log time `since_ms` to before `until_ms`, read from an offset on, in order."""

    def __init__(self, number: int, first: int, since_ms: int, until_ms: int | None, expander: Expander) -> None:
        self.expander = expander
        self.is_over = False
        """Whether the rest is too late to be asked for."""
        self.begins_late = False
        """Whether what is asked for may begin before offset `first`; nothing has been given then."""
        self._number, self._first, self._since_ms, self._until_ms = number, first, since_ms, until_ms
        self._may_begin_late = first > 0

    def take(self, stretch: Iterable[ArchivedRecord | BareRecord]) -> list[Recorded]:
        """Return those of the next records; what comes after `is_over` or `begins_late` is not to be taken."""
        found: list[Recorded] = []
        for record in stretch:
            head = head_of(self._number, record.offset, record.value)
            time_ms = head.time_ms
            if self._until_ms is not None and time_ms >= self._until_ms:
                self.is_over = True
                break
            is_first, lacked = not self.expander.position, len(self.expander.lacking)
            taken = self.expander.take(self._number, record.offset, record.value, head)
            if time_ms < self._since_ms:
                continue
            if self._may_begin_late and (is_first or len(self.expander.lacking) > lacked):
                self.begins_late = True
                break
            if taken is not None:
                self._may_begin_late = False
                found.append(taken)
        return found

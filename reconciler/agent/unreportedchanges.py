"""Changes of hands until they are in the log: the Lease names them, too, so that none is lost with an agent."""

import asyncio
from collections.abc import Awaitable, Callable

from reconciler.standin.objects import unreported
from schemas.hands import HandsChanged
from schemas.kubernetes.jsontypes import Json

LOOK_EVERY_S = 0.25

_Change = tuple[int, int, str]


class UnreportedChanges:
    """The changes of hands of one cluster that are still to be reported, and those that were.

    Attributes:
        unsent: those that are not in the log yet, in their order.
    """

    def __init__(self) -> None:
        self.unsent: list[HandsChanged] = []
        self._sent: set[_Change] = set()

    def add(self, change: HandsChanged) -> None:
        """A change was made."""
        self.unsent.append(change)

    def note(self, lease: Json) -> None:
        """Take those that the Lease names, which another leader could not report, or whose request had no answer."""
        known = self._sent | {_change(each) for each in self.unsent}
        self.unsent += [each for each in unreported(lease) if _change(each) not in known]
        self.unsent.sort(key=lambda each: each.generation)

    def is_reported(self, lease: Json) -> bool:
        """Whether the Lease names a change that is in the log by now."""
        return any(_change(each) in self._sent for each in unreported(lease))

    async def report(self, publish: Callable[[HandsChanged], Awaitable[None]]) -> None:
        """Add each change to the log, later where Kafka is away, until cancelled."""
        while True:
            if self.unsent:
                change = self.unsent[0]
                await publish(change)
                self._sent.add(_change(change))
                self.unsent = [each for each in self.unsent if _change(each) != _change(change)]
            else:
                await asyncio.sleep(LOOK_EVERY_S)


def _change(change: HandsChanged) -> _Change:
    """What tells one change from all others, whether its native HPAs are named or were left out."""
    return change.generation, change.time, change.holder

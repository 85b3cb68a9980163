"""`fleethpa`, with marked steps at which `FLEETHPA_CRASH_AT` kills the process, as kill -9 does.

`FLEETHPA_CRASH_AT` is `<step>` or `<step>*<n>`: die on the n-th time the step is reached. The steps are put in here:
decider `before-publish`, `after-publish`, `checkpoint-row:<number of the row>`, `before-commit`; ingest `before-log`,
`after-log`, `before-commit`; reconciler `before-outcome` (the write is done, its outcome is not), `after-outcome`,
`before-commit`; observer `before-send`, `after-send`.
"""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from fleethpa.cli.main import main
from runtime.groups import GroupMember
from runtime.records import Publisher
from schemas import topics
from streams.decider.batches import Batches
from streams.decider.owned import BatchWriter, all_written
from streams.decider.strict import StrictConsumer
from streams.ingest.logwriter import LogWriter

ENVIRONMENT = "FLEETHPA_CRASH_AT"


class CrashPoint:
    """The one armed step of a process, if any."""

    def __init__(self, text: str = "") -> None:
        step, _, times = text.partition("*")
        self._step = step
        self._left = int(times or 1)

    def is_due(self, step: str) -> bool:
        """Whether the process is to die here; counts the visits of the armed step."""
        if step != self._step:
            return False
        self._left -= 1
        return self._left == 0

    def reach(self, step: str) -> None:
        """Die here if the step is armed and due."""
        if self.is_due(step):
            crash()


def crash() -> None:
    """End the process without clean-up or flush."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(owner: Any, name: str, point: CrashPoint, before: str = "", after: str = "", when: Any = None) -> None:
    """Let a method of a class pass the step `before` it works and `after` it has, where `when(arguments)` holds."""
    method: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(method)
    async def wrapped(self: Any, *arguments: Any) -> Any:
        counts = when is None or when(*arguments)
        if counts and before:
            point.reach(before)
        result = await method(self, *arguments)
        if counts and after:
            point.reach(after)
        return result

    setattr(owner, name, wrapped)


def arm_rows(owner: Any, point: CrashPoint, topic: str) -> None:
    """Let each writer of a topic pass the step of a row once the broker has that row and those before it."""
    add: Callable[..., Any] = owner.add

    @functools.wraps(add)
    async def wrapped(self: Any, *arguments: Any) -> None:
        await add(self, *arguments)
        if self._topic != topic:
            return
        self.rows_added = getattr(self, "rows_added", 0) + 1
        if point.is_due(f"checkpoint-row:{self.rows_added}"):
            await self.flush()
            await all_written([self])
            crash()

    owner.add = wrapped


def arm_all(point: CrashPoint) -> None:
    """Put the steps in."""
    arm(Batches, "_publish", point, "before-publish", "after-publish", bool)
    arm_rows(BatchWriter, point, topics.CHANGELOG)
    arm(StrictConsumer, "_commit", point, "before-commit")
    arm(LogWriter, "write", point, "before-log", "after-log")
    arm(GroupMember, "_commit", point, "before-commit")
    arm(Publisher, "send", point, "before-outcome", "after-outcome", lambda topic, *_: topic == topics.OUTCOMES)
    arm(Publisher, "send", point, "before-send", "after-send", lambda topic, *_: topic != topics.OUTCOMES)


if __name__ == "__main__":
    arm_all(CrashPoint(os.environ.get(ENVIRONMENT, "")))
    main()

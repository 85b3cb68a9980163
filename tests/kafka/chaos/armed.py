"""`fleethpa`, with marked steps at which `FLEETHPA_CRASH_AT` kills the process (see `streams.decider.recordbatches`).

The decider has its steps built in. Those of the other parts are put in here: ingest `before-log`, `after-log`,
`before-commit`; reconciler `before-outcome` (the write is done, its outcome is not), `after-outcome`, `before-commit`;
observer `before-send`, `after-send`.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from fleethpa.cli.main import main
from runtime.groups import GroupMember
from runtime.records import Publisher
from schemas import topics
from streams.decider.recordbatches import CrashPoint, armed
from streams.ingest.logwriter import LogWriter


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


def arm_all() -> None:
    """Put the steps in."""
    point = armed()
    arm(LogWriter, "write", point, "before-log", "after-log")
    arm(GroupMember, "_commit", point, "before-commit")
    arm(Publisher, "send", point, "before-outcome", "after-outcome", lambda topic, *_: topic == topics.OUTCOMES)
    arm(Publisher, "send", point, "before-send", "after-send", lambda topic, *_: topic != topics.OUTCOMES)


if __name__ == "__main__":
    if sys.argv[2] != "decider":
        arm_all()
    main()

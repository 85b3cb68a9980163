"""Marked steps at which a test kills the process. Inert unless `FLEETHPA_CRASH_AT` is set.

`FLEETHPA_CRASH_AT` is `<step>` or `<step>*<n>`: die on the n-th time the step is reached. Steps: `before-publish`,
`after-publish`, `checkpoint-row:<number of the row>`, `before-commit`.
"""

import os
import signal

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
    """What kill -9 does: no clean-up, no flush."""
    os.kill(os.getpid(), signal.SIGKILL)


def armed() -> CrashPoint:
    """The step that the environment arms."""
    return CrashPoint(os.environ.get(ENVIRONMENT, ""))

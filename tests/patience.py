"""How long a test waits for what has to happen."""

from typing import Final

PATIENCE_S: Final = 300.0
"""Longest wait for an event, in any tier. Waits end with the event, so a generous limit costs nothing where all is
well; it is at least ten times what each of these events takes on an idle machine. A test whose subject is a time limit
of fleethpa's own has that limit, not this one."""

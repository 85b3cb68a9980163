"""Ways in which the decider ends. It is crash-only: every unexpected error ends the process, and a restart recovers."""

import enum
import logging
import os
import sys
from typing import NoReturn

from runtime.jsonlog import clean_lines

log = logging.getLogger("fleethpa.decider")


class Exit(enum.IntEnum):
    """Exit codes; those of sysexits.h where it defines one for the case."""

    SOFTWARE = 70
    """An unexpected error, or a decision that came out different: a bug."""

    FENCED = 71
    """The process was suspended until another worker may have taken its partitions."""

    STALLED = 75
    """A watchdog fired (nothing comes, recovery does not end), or no broker answers. A restart usually helps."""

    DENIED = 77
    """Kafka refused a permission."""

    NEEDS_OPERATOR = 78
    """Topics, state or settings are such that a restart alone does not help; the text says what to run."""


def die(code: Exit, reason: str, *, error: BaseException | None = None) -> NoReturn:
    """End the process at once, without the clean-up that a broken process could get wrong."""
    log.critical(reason, exc_info=error)
    print(clean_lines(f"fleethpa decider: {reason}"), file=sys.stderr, flush=True)
    logging.shutdown()
    os._exit(code)


def leave() -> NoReturn:
    """End the process in order, after everything is written, without the second that tearing down a full heap takes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(os.EX_OK)

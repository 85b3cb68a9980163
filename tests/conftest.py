"""What holds for every test."""

import gc
import signal

import pytest
from hypothesis import settings

# A time limit for one example would measure the machine; pytest's time-out bounds every test as a whole.
settings.register_profile("fleethpa", deadline=None)
settings.load_profile("fleethpa")

SLOW_TIMEOUT_S = 900
GC_THRESHOLDS = (50_000, 20, 20)
"""Python's own (700, 10, 10) look for cycles so often that thousands of tests took a sixth longer for it."""


def pytest_configure() -> None:
    """Look for cycles of garbage less often; let Ctrl-C reach the processes that tests start in background jobs, too.

    A shell starts such a job with SIGINT ignored, and what is ignored stays so in every process that it starts: a
    test that interrupts one would wait for it in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(*GC_THRESHOLDS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have their longer time limit however they are called, unless they name one themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_collection_finish() -> None:
    """Modules and collected tests live to the end: no later search for garbage walks them."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """What was left out of the search for garbage is taken apart at the end, as libraries expect."""
    gc.unfreeze()

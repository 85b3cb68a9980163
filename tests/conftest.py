"""What holds for every test."""

import atexit
import gc
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.laws import register_profiles

register_profiles()

SLOW_TIMEOUT_S = 1_200
LONGEST = ("test_documented_commands_run.py", "test_several_reconcilers.py")
"""They wait longer than other files of their tier: begun late, they would run on alone at the end."""
WAITING = ("slow", "pipeline", "reconciler")
"""Folders of tests that mostly wait, first that whose files take longer."""
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


def _end_without_taking_apart() -> None:
    """End a worker of pytest-xdist, which has reported everything: taking all its modules apart shows nothing."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


# What is registered first is run last: what libraries have to do at the end is done by then. Elsewhere than in a worker
# what was left out of the search for garbage is taken apart at the end, as libraries expect.
atexit.register(_end_without_taking_apart if "PYTEST_XDIST_WORKER" in os.environ else gc.unfreeze)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have their longer time limit however they are called, unless they name one themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    items[:] = _waiting_beside_computing(items)


def _waiting_beside_computing(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread the files that mostly wait (for processes, brokers, clusters) among those that compute.

    Several workers take files in this order. One kind after the other, they would all wait first, then compete.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.parent.name in WAITING]
    waiting.sort(key=lambda path: (path.name not in LONGEST, WAITING.index(path.parent.name)))
    computing = [path for path in files if path.parent.name not in WAITING]
    # None of them comes late: the last would run on alone.
    between = max(1, len(computing) * 3 // 4 // max(1, len(waiting)))
    order = list(computing)
    for number, path in reversed(list(enumerate(waiting))):
        order.insert(number * between, path)
    return [item for path in order for item in files[path]]


def pytest_collection_finish() -> None:
    """Modules and collected tests live to the end: no later search for garbage walks them."""
    gc.freeze()

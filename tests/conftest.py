"""What holds for every test."""

import signal

import pytest
from hypothesis import settings

# A time limit for one example would measure the machine; pytest's time-out bounds every test as a whole.
settings.register_profile("fleethpa", deadline=None)
settings.load_profile("fleethpa")

SLOW_TIMEOUT_S = 900


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, also where the tests run as a background job of a script.

    A shell starts such a job with SIGINT ignored, and what is ignored stays so in every process that it starts: a
    test that interrupts one would wait for it in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have their longer time limit however they are called, unless they name one themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))

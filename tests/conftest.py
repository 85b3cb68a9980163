"""What holds for every test."""

import pytest
from hypothesis import settings

# A time limit for one example would measure the machine; pytest's time-out bounds every test as a whole.
settings.register_profile("fleethpa", deadline=None)
settings.load_profile("fleethpa")

SLOW_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have their longer time limit however they are called, unless they name one themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))

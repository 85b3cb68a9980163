"""How many examples of a law are tried: all in the slow tier, fewer in the fast one (profiles in `conftest`)."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

WHOLE: Final = "whole"
"""The profile of the slow tier."""
FAST: Final = "fast"
WHOLE_EXAMPLES: Final = 100
FAST_EXAMPLES: Final = 10
LEAST: Final = 2
"""The first example is the simplest one, which shows little."""


def register_profiles() -> None:
    """Make both profiles, and load the one of the fast tier."""
    # A time limit for one example would measure the machine; pytest's time-out bounds every test as a whole.
    settings.register_profile(WHOLE, deadline=None, max_examples=WHOLE_EXAMPLES)
    settings.register_profile(FAST, deadline=None, max_examples=FAST_EXAMPLES)
    settings.load_profile(FAST)


def examples(whole: int) -> int:
    """How many examples of a law to try now of which the slow tier tries `whole`."""
    return min(whole, max(LEAST, whole * settings().max_examples // WHOLE_EXAMPLES))


def one_of(every: int, values: Iterable[Any]) -> list[Any]:
    """The values of a parameter, of which the fast tier tries one in so many, beginning with the first."""
    return [
        value if at % every == 0 else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)
    ]

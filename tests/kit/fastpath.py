"""The fast path of evaluations in tests: never checked, or not taken at all."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.state import memo as memos

NEVER = 2**40


@contextmanager
def checking(every: int) -> Iterator[pytest.MonkeyPatch]:
    """Check one of so many evaluations on the fast path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memos, "CHECK_EVERY", every)
        yield patch


@contextmanager
def without_fast_path() -> Iterator[pytest.MonkeyPatch]:
    """Take the general path for each evaluation."""
    with checking(1) as patch:
        patch.setattr("streams.state.fastpath.find", lambda *_: None)
        yield patch

"""A fault in the middle of an analysis, for one HPA of several."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from schemas.keys import HpaId


class BrokenError(Exception):
    """A fault in an analysis."""


def break_for(patch: pytest.MonkeyPatch, victim: HpaId, place: str, whose: Callable[..., HpaId]) -> None:
    """Give the function at `place` a fault for one HPA. `whose`: the HPA that a call of it is about."""
    owner, _, name = place.rpartition(".")
    function = getattr(pkgutil.resolve_name(owner), name)

    def called(*arguments: Any, **options: Any) -> Any:
        if whose(*arguments, **options) == victim:
            raise BrokenError("here")
        return function(*arguments, **options)

    patch.setattr(place, called)

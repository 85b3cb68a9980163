"""Why a reconciler cannot write in a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.observed import Reason, WriteProblem


class FailedWrite(NamedTuple):
    """When the last write of an HPA failed (Unix ms), the error, and whether a right is missing."""

    at_ms: int
    error: str
    is_forbidden: bool = False


_ORDER: Final[tuple[Reason, ...]] = ("identity", "forbidden", "failing", "unreachable")
"""The reason of several problems is the first of these: a wrong cluster or a missing right says what to mend."""


def joined_problem(problems: Iterable[WriteProblem | None]) -> WriteProblem | None:
    """Join the problems of a cluster into one; None if it has no problem."""
    known = [each for each in problems if each is not None]
    if not known:
        return None
    reason = min((each.reason for each in known), key=_ORDER.index)
    return WriteProblem("; ".join(each.error for each in known), reason)

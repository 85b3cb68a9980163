"""Why a reconciler cannot write in a cluster: a text, and the reason as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from schemas.observed import Reason


class FailedWrite(NamedTuple):
    """When the last write of an HPA failed (Unix ms), the error, and whether a right is missing."""

    at_ms: int
    error: str
    is_forbidden: bool = False


class WriteProblem(NamedTuple):
    """Why not everything is written in a cluster."""

    text: str
    reason: Reason


_ORDER: Final[tuple[Reason, ...]] = ("identity", "forbidden", "failing", "unreachable")
"""The reason of several problems is the first of these: a wrong cluster or a missing right says what to mend."""


def joined_problem(problems: Iterable[WriteProblem | None]) -> WriteProblem | None:
    """Join the problems of a cluster into one; None if it has no problem."""
    known = [each for each in problems if each is not None]
    if not known:
        return None
    reason = min((each.reason for each in known), key=_ORDER.index)
    return WriteProblem("; ".join(each.text for each in known), reason)


def stated(problems: Mapping[str, WriteProblem]) -> tuple[dict[str, str], dict[str, Reason]]:
    """The texts and the reasons by cluster, as a report has them."""
    texts = {cluster: problem.text for cluster, problem in problems.items()}
    return texts, {cluster: problem.reason for cluster, problem in problems.items()}

"""What keeps a reconciler from writing in a cluster: in words, and why as a value."""

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
"""What is known to be wrong comes first: another cluster, a missing right."""


def joined_problem(problems: Iterable[WriteProblem | None]) -> WriteProblem | None:
    """Several problems of a cluster as one; None: there is none."""
    known = [each for each in problems if each is not None]
    if not known:
        return None
    reason = min((each.reason for each in known), key=_ORDER.index)
    return WriteProblem("; ".join(each.text for each in known), reason)


def stated(problems: Mapping[str, WriteProblem]) -> tuple[dict[str, str], dict[str, Reason]]:
    """The texts and the reasons by cluster, as a report has them."""
    texts = {cluster: problem.text for cluster, problem in problems.items()}
    return texts, {cluster: problem.reason for cluster, problem in problems.items()}

"""Which problems many HPAs of a cluster share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fleethpa.cli.common.views import HpaView, Problem
from fleethpa.cli.output import words
from schemas.keys import HpaId


class Shared(NamedTuple):
    """HPAs of one cluster that have the same problem for the same cause."""

    cluster: str
    views: list[HpaView]
    text: str

    @property
    def name(self) -> str:
        """The cluster and how many HPAs, for a column of names."""
        return f"{self.cluster} ({words.counted(len(self.views), 'HPA')})"


def by_cause(views: Iterable[HpaView]) -> tuple[dict[HpaId, list[Problem]], list[Shared]]:
    """Split the problems of HPAs: those that each has of its own, and those that several of a cluster have in common.

    An HPA whose problems are all shared is not among the first; one without a problem is, with none.
    """
    found = {view.id: (view, view.problems) for view in views}
    groups: dict[tuple[str, str], list[HpaView]] = {}
    for view, problems in found.values():
        for problem in problems:
            if problem.cause:
                groups.setdefault((view.id.cluster, problem.cause), []).append(view)
    shared = {key: group for key, group in groups.items() if len(group) > 1}
    own: dict[HpaId, list[Problem]] = {}
    for hpa, (_, problems) in found.items():
        left = [problem for problem in problems if (hpa.cluster, problem.cause) not in shared]
        if left or not problems:
            own[hpa] = left
    return own, [Shared(cluster, group, text) for (cluster, text), group in shared.items()]

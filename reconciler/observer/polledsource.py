"""Sources of metrics that an observer polls in place of the metrics APIs: each is attached by its name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.clusters.nativehpas import Resource
from reconciler.observer.troubles import ReadProblem
from runtime.log import Clock
from schemas.answers import MetricAnswer, Query
from schemas.observed import Pod


class PolledSource(Protocol):
    """What answers some of the questions for the metrics of one cluster."""

    def answers(self, query: Query) -> bool:
        """Whether it is asked this question, and the metrics APIs are not."""

    async def ask(self, namespace: str, asked: Sequence[Query]) -> list[MetricAnswer]:
        """Answer the questions of a namespace in one sync period; an error is an answer. What cannot be asked yet is
        left out: the answer before holds for two sync periods.

        It is called without questions, too, and says that all is well then (`SourceContext.note`): so a trouble of
        questions that nobody has any more is cleared.
        """

    async def close(self) -> None:
        """End what is being asked, and close the connections."""


@dataclass(frozen=True, kw_only=True)
class SourceContext:
    """What a source may know of its cluster."""

    cluster: str
    pods: Callable[[str], Mapping[str, Pod] | None]
    """The pods of a namespace by name; None: they are not known yet."""
    resource_of: Callable[[str], Awaitable[Resource]]
    """The resource of a `Kind.group`. Raises ClusterError: the cluster has none, or cannot be asked."""
    period_ms: Callable[[str], int]
    """How often the questions of a namespace are asked now."""
    clock: Clock
    note: Callable[[str, ReadProblem | None], None]
    """In a namespace the source cannot be asked, and why; None: it can. It is a trouble of the source's name.

    To be called in every period, by each `ask`, for its namespace: what is not noted as well stays a trouble, and a
    trouble counts as one of the whole cluster while no namespace is noted as well.
    """


OpenSource = Callable[[SourceContext], PolledSource | None]
"""Open a source for one cluster; None: it has nothing for this one."""
Share = tuple[PolledSource, list[Query]]


def divide(asked: Sequence[Query], sources: Sequence[PolledSource]) -> tuple[list[Query], list[Share]]:
    """Return what the metrics APIs are asked, and what each source is: of several that answer a question the first."""
    left, shares = list(asked), []
    for source in sources:
        shares.append((source, [query for query in left if source.answers(query)]))
        left = [query for query in left if not source.answers(query)]
    return left, shares

"""The costs of HPAs, read from their decisions on all cores, a task for each log partition."""

from __future__ import annotations

from collections.abc import Sequence

from fleethpa.fleet.shards import by_partitions
from fleethpa.fleet.views import HpaView
from fleethpa.frame.session import Session
from fleethpa.frame.sources import by_partition
from schemas.keys import HpaId
from schemas.partitioning import partition_for
from streams.analysis.costs import Cost, CostTask, costs
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask, Faults
from streams.history.past import Past


async def costs_of(
    session: Session, past: Past, views: Sequence[HpaView], window: tuple[int, int]
) -> tuple[dict[HpaId, Cost], Faults]:
    """Return what some HPAs cost in a window, in their order, and the faults; those without an evaluation are left
    out.
    """
    count, hpas = await past.partitions(), by_partitions(views)
    numbers = [partition_for(min(each).namespace_key, count) for each in hpas]
    tasks = [CostTask(DecisionsTask(past, at, *window), each) for at, each in zip(numbers, hpas, strict=True)]
    parts = await by_partition(session, past, costs, tasks, DECISIONS)
    by_hpa = {each.hpa: each for part, _ in parts for each in part}
    return {view.id: by_hpa[view.id] for view in views if view.id in by_hpa}, Faults.of_parts(parts)

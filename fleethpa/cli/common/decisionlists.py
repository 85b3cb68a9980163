"""Lists of decisions: the newest of those that are asked for, what every list shows of one, and following new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from fleethpa.cli.common.filters import Filter
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session
from fleethpa.cli.common.views import HpaView
from fleethpa.cli.output.formats import to_json_line
from fleethpa.cli.output.table import Column
from schemas.decisions import Decision
from schemas.keys import HpaId, partition_for
from streams.history.past import Past
from streams.history.recorded import Recorded

DEFAULT_LAST: Final = 50
RECENT_MS: Final = 15 * 60_000
Test = Callable[[Recorded], bool]


def newest(everything: Iterable[Recorded], matches: Test, limit: int | None) -> list[Recorded]:
    """The newest `limit` (None: all) that match, oldest first."""
    found = sorted(filter(matches, everything), key=lambda each: (each.time_ms, each.partition, each.decision.seq))
    return found[-limit:] if limit else found


async def read_back(past: Past, wanted: Filter, limit: int | None) -> list[Recorded]:
    """Decisions as far back as the newest `limit` that are wanted need it, or the time from which on they are.

    Where an HPA, a namespace or clusters are named, only the partitions of those that exist or existed are read.
    """

    def enough(_: int, decisions: list[Recorded]) -> bool:
        return wanted.reached(decisions) or (limit is not None and sum(map(wanted.matches, decisions)) >= limit)

    tails = await past.tail(enough, await _where(past, wanted.selection), wanted.until_ms)
    return [recorded for tail in tails.values() for recorded in tail]


async def _where(past: Past, selection: Selection) -> list[int] | None:
    """The partitions of what is selected; None: all."""
    count = await past.partitions()
    if (places := selection.places()) is not None:
        return sorted({partition_for(place, count) for place in places})
    if not (selection.refs or selection.namespace or selection.clusters):
        return None
    state = await read_state(past)
    known = filter(selection.matches, (*state.hpas, *state.forgotten))
    return sorted({partition_for(hpa.namespace_key, count) for hpa in known})


async def decided(past: Past, views: Sequence[HpaView]) -> list[HpaView]:
    """The views with their newest evaluations, where one was made in the last quarter of an hour."""
    awaited: dict[int, set[HpaId]] = {}
    for view in views:
        if view.last_decision and view.mode != "off":
            awaited.setdefault(view.partition, set()).add(view.id)
    since_ms = min((view.clock_ms for view in views), default=0) - RECENT_MS
    found: dict[HpaId, Recorded] = {}

    def enough(number: int, decisions: list[Recorded]) -> bool:
        passed = bool(decisions) and decisions[0].time_ms < since_ms
        return passed or awaited[number] <= {each.hpa for each in decisions if each.decision.kind == "evaluation"}

    for tail in (await past.tail(enough, awaited)).values():
        found |= {recorded.hpa: recorded for recorded in tail if recorded.decision.kind == "evaluation"}
    return [replace(view, decision=found.get(view.id)) for view in views]


def document(decision: Decision) -> dict[str, Any]:
    """A decision as machine formats show it: the record itself, its headline fields also where they are defaults."""
    body: dict[str, Any] = msgspec.to_builtins(decision)
    # The record's own `kind` says evaluation or completion; an API object's says what type of object it is.
    record = body.pop("kind", "evaluation")
    headline: dict[str, Any] = {
        "mode": decision.mode,
        "origin": decision.origin,
        "currentReplicas": decision.current_replicas,
        "rawDesiredReplicas": decision.raw_desired_replicas,
        "finalDesiredReplicas": decision.final_desired_replicas,
        "direction": decision.direction,
        "constraintsApplied": list(decision.constraints_applied),
    }
    return {"record": record} | body | headline


def positioned(recorded: Recorded) -> dict[str, Any]:
    """A decision as machine formats show it, with its place on the topic."""
    return document(recorded.decision) | {"position": {"partition": recorded.partition, "offset": recorded.offset}}


async def follow(
    session: Session,
    past: Past,
    matches: Test,
    columns: Sequence[Column[Recorded]],
    widths: Sequence[int],
    output: str,
    *,
    headers: bool,
) -> None:
    """Print decisions as they are made: as JSON lines, or as lines of a table whose first columns have these widths."""
    told = [column for column in columns if output == "wide" or not column.wide]
    if output != "jsonl" and headers:
        session.out(_aligned([column.header for column in told], widths))
    async for recorded in past.follow():
        if not matches(recorded):
            continue
        if output == "jsonl":
            session.out(to_json_line(positioned(recorded)))
        else:
            session.out(_aligned([column.cell(recorded) for column in told], widths))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of a table whose later rows are not known yet: usual widths, and never cut."""
    padded = [cell.ljust(widths[i]) if i < len(widths) else cell for i, cell in enumerate(cells)]
    return "  ".join(padded).rstrip()

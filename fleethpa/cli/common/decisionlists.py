"""Lists of decisions: the newest of those that are asked for, what every list shows of one, and following new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from fleethpa.cli.common.decisionreading import Recorded, document
from fleethpa.cli.common.filters import Filter
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.readers import Reader
from fleethpa.cli.common.session import Session
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import to_json_line
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.times import shown
from schemas.keys import partition_for

DEFAULT_LAST: Final = 50
Test = Callable[[Recorded], bool]


def newest(everything: Iterable[Recorded], matches: Test, limit: int | None) -> list[Recorded]:
    """The newest `limit` (None: all) that match, oldest first."""
    found = sorted(filter(matches, everything), key=lambda each: (each.time_ms, each.partition, each.decision.seq))
    return found[-limit:] if limit else found


async def read_back(reader: Reader, wanted: Filter, limit: int | None) -> list[Recorded]:
    """Decisions as far back as the newest `limit` that are wanted need it, or the time from which on they are.

    Where an HPA, a namespace or clusters are named, the partitions of those that exist are read first: the others then
    matter no further back than what was found there.
    """

    def enough(_: int, decisions: list[Recorded]) -> bool:
        return wanted.reached(decisions) or (limit is not None and sum(map(wanted.matches, decisions)) >= limit)

    first = await _likely(reader, wanted)
    found = _flat(await reader.tail(enough, first, wanted.until_ms))
    if first is None or wanted.selection.places() is not None:
        return found
    matching = newest(found, wanted.matches, limit)
    oldest_ms = matching[0].time_ms if limit is not None and len(matching) == limit else None

    def far_enough(number: int, decisions: list[Recorded]) -> bool:
        passed = oldest_ms is not None and bool(decisions) and decisions[0].time_ms < oldest_ms
        return passed or enough(number, decisions)

    others = [number for number in range(await reader.count()) if number not in first]
    return found + (_flat(await reader.tail(far_enough, others, wanted.until_ms)) if others else [])


def _flat(tails: Mapping[int, list[Recorded]]) -> list[Recorded]:
    return [recorded for tail in tails.values() for recorded in tail]


async def _likely(reader: Reader, wanted: Filter) -> list[int] | None:
    """The partitions in which to look first; None: all at once, for a time bounds them or everything is asked for."""
    selection = wanted.selection
    if (places := selection.places()) is not None:
        return sorted({partition_for(place, await reader.count()) for place in places})
    if wanted.since_ms is not None or not (selection.refs or selection.namespace or selection.clusters):
        return None
    living = [hpa for hpa in (await read_state(reader)).hpas if selection.matches(hpa)]
    return sorted({partition_for(hpa.namespace_key, await reader.count()) for hpa in living}) or None


def positioned(recorded: Recorded) -> dict[str, Any]:
    """A decision as machine formats show it, with its place on the topic."""
    return document(recorded.decision) | {"position": {"partition": recorded.partition, "offset": recorded.offset}}


def first_columns(session: Session) -> tuple[Column[Recorded], ...]:
    """When, whose, and from how many replicas to how many."""
    return (
        Column("TIME", lambda r: shown(r.time_ms, session.time_style, session.now_ms())),
        Column("HPA", lambda r: str(r.hpa)),
        Column("FROM", lambda r: _replicas(r, r.decision.current_replicas)),
        Column("TO", lambda r: _replicas(r, r.decision.final_desired_replicas)),
    )


def _replicas(recorded: Recorded, count: int) -> str:
    return str(count) if words.scale_is_known(recorded.decision) else "-"


async def follow(
    session: Session,
    reader: Reader,
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
    async for recorded in reader.follow():
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

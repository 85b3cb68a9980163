"""Lists of decisions: the newest of those that are asked for, what every list shows of one, and following new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fleethpa.decisions import Recorded, document
from fleethpa.output import words
from fleethpa.output.formats import to_json_line
from fleethpa.output.table import Column
from fleethpa.output.times import shown
from fleethpa.readers import Reader
from fleethpa.session import Session

DEFAULT_LAST: Final = 50
Test = Callable[[Recorded], bool]


def newest(everything: Iterable[Recorded], matches: Test, limit: int | None) -> list[Recorded]:
    """The newest `limit` (None: all) that match, oldest first."""
    found = sorted(filter(matches, everything), key=lambda each: (each.time_ms, each.partition, each.decision.seq))
    return found[-limit:] if limit else found


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

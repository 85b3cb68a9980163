"""`fleethpa doctor`: is everything there, and does it do its work?"""

from __future__ import annotations

from typing import Any

import click

from fleethpa.doctoring import AREAS, Check, examine
from fleethpa.errors import ANSWER_IS_NO, OK, usage
from fleethpa.output.formats import Listing, render
from fleethpa.output.table import Column, paint
from fleethpa.output.words import counted
from fleethpa.session import Session, command_options, output_option

_STYLES = {"ok": "green", "warning": "yellow", "failure": "red"}


@click.command()
@click.option("--only", metavar="AREA,…", help=f"Only these of {', '.join(AREAS)}.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options(reads=True)
def doctor(session: Session, only: str | None, output: str) -> int:
    """Look at Kafka, topics, log, clusters, HPAs and permissions; exit 1 where something keeps fleethpa from its work.

    Nothing is changed anywhere. Each trouble comes with the command to run next.
    """
    areas = tuple(part for part in (only or "").split(",") if part) or AREAS
    if odd := [area for area in areas if area not in AREAS]:
        raise usage(f"--only {odd[0]!r} is unknown", cause=f"Known are {', '.join(AREAS)}.")

    async def work() -> list[Check]:
        found = []
        async for check in examine(session, areas):
            found.append(check)
            if output == "table":
                session.out(line(session, check))
        return found

    found = session.run(work())
    if output != "table":
        session.out(render(listing(found), output))
    return tell_sum(session, found)


def tell_sum(session: Session, found: list[Check]) -> int:
    """Count them on stderr; the exit code."""
    counts = {level: sum(each.level == level for each in found) for level in ("warning", "failure")}
    session.note(f"{counted(counts['failure'], 'failure')}, {counted(counts['warning'], 'warning')}")
    return ANSWER_IS_NO if counts["failure"] else OK


def line(session: Session, check: Check) -> str:
    """A check for people."""
    level = paint(f"{check.level:<8}", _STYLES[check.level], color=session.color)
    step = f"\n{'':<19} Next: {check.next_step}" if check.next_step else ""
    return f"{level} {check.area:<10} {check.subject}  {check.message}{step}"


def listing(found: list[Check]) -> Listing[Check]:
    """Checks for machines."""
    columns: tuple[Column[Check], ...] = (Column("LEVEL", lambda c: c.level), Column("MESSAGE", lambda c: c.message))
    return Listing(kind="Check", items=found, columns=columns, document=_document, name=lambda c: f"check/{c.area}")


def _document(check: Check) -> dict[str, Any]:
    return {
        "level": check.level,
        "area": check.area,
        "subject": check.subject,
        "message": check.message,
        "nextStep": check.next_step,
    }

"""`fleethpa doctor`: check every part; what is wrong, and what to do."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.fleet.doctor import AREAS, examine, lines, listing, report_sum
from fleethpa.fleet.members import fixed_options, found_options
from fleethpa.frame.errors import usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options


@click.command()
@click.option("--only", metavar="AREA,…", help=f"Only these of {', '.join(AREAS)}.")
@found_options
@fixed_options
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options(reads=True)
async def doctor(session: Session, /, only: str | None, output: str, **options: Any) -> int:
    """Check Kafka, topics, log, clusters, HPAs and permissions; exit 1 if something keeps fleethpa from working.

    Nothing is changed. Each problem comes with the command to run next. Member clusters are those of the kubeconfig;
    with discovery options (those of `run observer`), the clusters found at this moment.
    """
    areas = tuple(part for part in (only or "").split(",") if part) or AREAS
    if odd := [area for area in areas if area not in AREAS]:
        raise usage(f"--only {odd[0]!r} is unknown", cause=f"Known are {', '.join(AREAS)}.")
    checks = []
    async for check in examine(session, areas, options):
        checks.append(check)
        if output == "table":
            session.lines(lines(session, check))
    if output != "table":
        session.listing(listing(checks), output)
    return report_sum(session, checks)

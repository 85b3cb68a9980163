"""`fleethpa pause`: stop writing replicas; decisions are still made and recorded."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue, until_ms
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.errors import usage
from fleethpa.frame.session import Session, command_options
from schemas.observed import Command


@click.command()
@scope_options()
@click.option("--for", "lasting", metavar="DURATION", help="End the pause after this time.")
@click.option("--scale-in", is_flag=True, help="Only stop scaling down.")
@click.option("--scale-out", is_flag=True, help="Only stop scaling up.")
@write_options
@command_options()
async def pause(
    session: Session, /, scope: Scope, lasting: str | None, scale_in: bool, scale_out: bool, options: WriteOptions
) -> int:
    """Stop writing replicas; decisions are still made and recorded. `pause --all` stops the whole fleet: at once with
    --reason, else after a confirmation.
    """
    if scale_in and scale_out:
        raise usage(
            "--scale-in and --scale-out exclude each other", cause="Without either, both directions are paused."
        )
    words = "paused" + (" for scale-in" if scale_in else " for scale-out" if scale_out else "")
    command = Command(
        command="pause",
        pause_kind="scaleDown" if scale_in else "scaleUp" if scale_out else "all",
        until=0 if lasting is None else until_ms(session, lasting),
        author=session.config.author,
        reason=options.reason,
    )
    return await issue(session, scope, command, words + (f" for {lasting}" if lasting else ""), options)

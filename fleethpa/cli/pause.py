"""`fleethpa pause`: stop writing replicas; decisions are still made and recorded."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue, pause_command
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options


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
    command, words = pause_command(session, lasting, scale_in, scale_out, options.reason)
    return await issue(session, scope, command, words, options)

"""`fleethpa mode`: set off, shadow or enforce."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options
from schemas.observed import Command, Mode


@click.command()
@click.argument("wanted", type=click.Choice(["off", "shadow", "enforce"]))
@scope_options()
@write_options
@command_options()
async def mode(session: Session, /, wanted: Mode, scope: Scope, options: WriteOptions) -> int:
    """Set the mode: off (do nothing), shadow (decide and record) or enforce (also write replicas)."""
    command = Command(command="mode", mode=wanted, author=session.config.author, reason=options.reason)
    return await issue(session, scope, command, f"set to {wanted}", options)

"""`fleethpa resume`: end a pause."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options
from schemas.observed import Command


@click.command()
@scope_options()
@write_options
@command_options()
async def resume(session: Session, /, scope: Scope, options: WriteOptions) -> int:
    """End a pause of the same scope."""
    command = Command(command="resume", author=session.config.author, reason=options.reason)
    return await issue(session, scope, command, "resumed", options)

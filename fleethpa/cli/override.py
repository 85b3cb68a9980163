"""`fleethpa override`: scale HPAs to a number of replicas for a while."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue, override_command
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.session import Session, command_options


@click.command()
@click.option("--replicas", type=click.IntRange(1, 2**31 - 1), metavar="N", help="The replicas to scale to.")
@click.option("--for", "lasting", metavar="DURATION", help="End the override after this time, such as 2h.")
@click.option("--end", is_flag=True, help="End an override now.")
@scope_options("[CLUSTER/][NAMESPACE/]NAME…")
@write_options
@command_options()
async def override(
    session: Session, /, scope: Scope, replicas: int | None, lasting: str | None, end: bool, options: WriteOptions
) -> int:
    """Scale HPAs to a number of replicas for a while, in place of what their metrics ask for.

    It stays within minReplicas and maxReplicas; pauses, freezes, budgets and the other limits hold or cut it as any
    other change. It ends after --for, with --end, and when the HPA leaves mode enforce (`mode`, `release`).
    """
    command, words = override_command(session, scope, replicas, lasting, end, options.reason)
    return await issue(session, scope, command, words, options)

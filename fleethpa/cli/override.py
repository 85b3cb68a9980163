"""`fleethpa override`: scale HPAs to a number of replicas for a while."""

from __future__ import annotations

import click

from fleethpa.changes.issuing import issue, until_ms
from fleethpa.changes.settings import Scope, scope_options
from fleethpa.changes.writing import WriteOptions, write_options
from fleethpa.frame.errors import usage
from fleethpa.frame.session import Session, command_options
from schemas.observed import Command


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
    if not scope.names or scope.everything:
        raise usage("an override is of HPAs that are named", next_step="fleethpa override NAME --replicas N --for 2h")
    if end == (replicas is not None) or end == (lasting is not None):
        raise usage(
            "--replicas and --for belong together, and exclude --end",
            next_step="fleethpa override NAME --replicas N --for 2h, or fleethpa override NAME --end",
        )
    author, reason = session.config.author, options.reason
    if lasting is None or replicas is None:
        command = Command(command="override", author=author, reason=reason)
        return await issue(session, scope, command, "override ended", options)
    until = until_ms(session, lasting)
    command = Command(command="override", replicas=replicas, until=until, author=author, reason=reason)
    return await issue(session, scope, command, f"overridden to {replicas} replicas for {lasting}", options)

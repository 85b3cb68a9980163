"""`pause`, `resume`, `mode`: per HPA, namespace, cluster or everything; recorded with author and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import usage
from fleethpa.cli.common.scopes import Scope, scope_options, writes_of
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import confirm, dry_run, write_all, write_options
from fleethpa.cli.output.times import LATEST_MS, parse_duration_ms

if TYPE_CHECKING:
    from schemas.autoscalers import Command


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@click.option("--for", "lasting", metavar="DURATION", help="End by itself after so long.")
@click.option("--scale-in", is_flag=True, help="Only stop scaling down.")
@click.option("--scale-out", is_flag=True, help="Only stop scaling up.")
@write_options
@command_options()
def pause(
    session: Session, /, scope: Scope, lasting: str | None, scale_in: bool, scale_out: bool, **written: Any
) -> int:
    """Stop writing replicas; deciding and recording go on. `pause --all` is the stop button."""
    from schemas.autoscalers import Command

    if scale_in and scale_out:
        raise usage(
            "--scale-in and --scale-out exclude each other", cause="Without either, both directions are paused."
        )
    lasting_ms = parse_duration_ms(lasting, "--for") if lasting is not None else None
    if lasting_ms == 0:
        raise usage(f"--for {lasting} is no time at all", cause="Leave --for out for a pause that ends with `resume`.")
    until = session.now_ms() + lasting_ms if lasting_ms else 0
    if until > LATEST_MS:
        raise usage(f"--for {lasting} is too long", cause="Leave --for out for a pause that ends with `resume`.")
    words = "paused" + (" for scale-in" if scale_in else " for scale-out" if scale_out else "")
    command = Command(
        command="pause",
        pause_kind="scaleDown" if scale_in else "scaleUp" if scale_out else "all",
        until=until,
        author=session.config.author,
        reason=written["reason"],
    )
    # Stopping must not wait for an answer.
    return _issue(session, scope, command, words + (f" for {lasting}" if lasting else ""), written | {"yes": True})


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@write_options
@command_options()
def resume(session: Session, /, scope: Scope, **written: Any) -> int:
    """End a pause of the same scope."""
    from schemas.autoscalers import Command

    command = Command(command="resume", author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, "resumed", written)


@click.command()
@click.argument("wanted", type=click.Choice(["off", "shadow", "enforce"]))
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@write_options
@command_options()
def mode(session: Session, /, wanted: Any, scope: Scope, **written: Any) -> int:
    """Set the mode: off (do nothing), shadow (decide and record) or enforce (also write)."""
    from schemas.autoscalers import Command

    command = Command(command="mode", mode=wanted, author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, f"set to {wanted}", written)


def _issue(session: Session, scope: Scope, command: Command, words: str, written: dict[str, Any]) -> int:
    from fleethpa.cli.common.writer import open_writer

    scope.check(command.command)

    async def work() -> int:
        writes = await writes_of(session, scope, command, words)
        if written["dry_run"]:
            return dry_run(session, writes)
        confirm({write.cluster for write in writes}, written["yes"], command.command)
        async with open_writer(session.config) as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())

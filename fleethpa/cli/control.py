"""`pause`, `resume`, `mode`: per HPA, namespace, cluster or everything; recorded with author and reason."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.durations import parse_duration_ms
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, usage
from fleethpa.cli.common.foresight import Present, concerns, refusal_errors
from fleethpa.cli.common.scopes import Scope, named_clusters, scope_options, writes_of
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import Concern, PlannedRecord, confirm, dry_run, show, write_all, write_options
from fleethpa.cli.output.times import LATEST_MS
from schemas.autoscalers import Command
from schemas.guardrailpauses import GuardrailResume
from schemas.keys import EVERY_CLUSTER


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@click.option("--for", "lasting", metavar="DURATION", help="End the pause after this time.")
@click.option("--scale-in", is_flag=True, help="Only stop scaling down.")
@click.option("--scale-out", is_flag=True, help="Only stop scaling up.")
@write_options
@command_options()
def pause(
    session: Session, /, scope: Scope, lasting: str | None, scale_in: bool, scale_out: bool, **written: Any
) -> int:
    """Stop writing replicas; decisions are still made and recorded. `pause --all` stops the whole fleet at once."""
    if scale_in and scale_out:
        raise usage(
            "--scale-in and --scale-out exclude each other", cause="Without either, both directions are paused."
        )
    lasting_ms = parse_duration_ms(lasting, "--for") if lasting is not None else None
    if lasting_ms == 0:
        raise usage(f"--for {lasting} would end at once", cause="Leave --for out for a pause that ends with `resume`.")
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
    return _issue(session, scope, command, words + (f" for {lasting}" if lasting else ""), written)


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@click.option(
    "--guardrails",
    is_flag=True,
    help="End what guardrails paused in these clusters (with -n: of that namespace alone), not what people paused.",
)
@write_options
@command_options()
def resume(session: Session, /, scope: Scope, guardrails: bool, **written: Any) -> int:
    """End a pause of the same scope. Pauses made by guardrails stay, unless --guardrails is given."""
    if guardrails:
        return _resume_guardrails(session, scope, written)
    command = Command(command="resume", author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, "resumed", written)


@click.command()
@click.argument("wanted", type=click.Choice(["off", "shadow", "enforce"]))
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@write_options
@command_options()
def mode(session: Session, /, wanted: Any, scope: Scope, **written: Any) -> int:
    """Set the mode: off (do nothing), shadow (decide and record) or enforce (also write replicas)."""
    command = Command(command="mode", mode=wanted, author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, f"set to {wanted}", written)


def _resume_guardrails(session: Session, scope: Scope, written: dict[str, Any]) -> int:
    if scope.names or (scope.namespace and not scope.clusters):
        raise usage(
            "--guardrails needs clusters, and takes no names",
            cause="A guardrail pauses scale-downs of a whole cluster, or of a namespace in it.",
            next_step="fleethpa resume -C CLUSTER [-n NAMESPACE] --guardrails",
        )
    scope.check("resume")
    where = f"namespace {scope.namespace} of cluster" if scope.namespace else "cluster"

    async def work() -> int:
        clusters = [EVERY_CLUSTER] if scope.everything else await named_clusters(session, scope)
        async with session.past() as past:
            standing = (await Present.read(past)).guardrails(clusters, scope.namespace)
        writes = [
            PlannedRecord(
                f"{where} {name} resumed; it was: {text}",
                GuardrailResume(
                    cluster=name,
                    namespace=scope.namespace or "",
                    author=session.config.author,
                    reason=written["reason"],
                ),
                name,
            )
            for name, text in sorted(standing.items())
        ]
        if not writes:
            session.note("no guardrail pauses anything there")
            return OK
        if written["dry_run"]:
            return dry_run(session, writes)
        concern = "scale-downs go on, through removal budgets where they are set: " + ", ".join(sorted(standing))
        confirm(session, [Concern(concern)], written["yes"], "resume")
        async with session.writer() as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


def _issue(session: Session, scope: Scope, command: Command, words: str, written: dict[str, Any]) -> int:
    scope.check(command.command)

    async def work() -> int:
        code, writes, concerns = OK, await writes_of(session, scope, command, words), list[Concern]()
        if command.command != "pause":  # stopping must not wait for an answer, nor for what has to be read for one
            code, writes, concerns = await _looked_ahead(session, scope, command, writes)
        if written["dry_run"]:
            show(session, concerns)
            return max(code, dry_run(session, writes))
        if not writes:
            return code
        confirm(session, concerns, written["yes"], command.command)
        async with session.writer() as writer:
            return max(code, await write_all(session, writer, writes, written["wait"]))

    return session.run(work())


async def _looked_ahead(
    session: Session, scope: Scope, command: Command, writes: list[PlannedRecord]
) -> tuple[int, list[PlannedRecord], list[Concern]]:
    """Leave out what would be refused, and say what has to be agreed to; with the exit code so far."""
    async with session.past() as past:
        present = await Present.read(past)
    if command.command == "resume":
        for cluster, text in sorted(present.guardrails(write.cluster for write in writes).items()):
            session.warn(f"cluster {cluster}: {text}. It stays. Next: fleethpa resume -C {cluster} --guardrails")
    foresight = present.foresee(writes)
    touched = foresight.touched(writes)
    refused = foresight.refusals(touched) if command.mode == "enforce" else {}
    if not refused:
        return OK, writes, concerns(command.command, foresight, writes)
    if scope.names:
        # Of HPAs that are named, those that would be refused keep their mode.
        writes = [write for write in writes if not refused.keys() & set(foresight.touched([write]))]
        foresight = present.foresee(writes)
    elif len(refused) == len(touched):
        writes = []
    what = "cannot be enforced, and nothing was changed" if scope.names or not writes else "will be refused for now"
    for error in refusal_errors(refused, what):
        session.tell(error)
    return ANSWER_IS_NO, writes, concerns(command.command, foresight, writes)

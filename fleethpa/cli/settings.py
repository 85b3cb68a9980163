"""`fleethpa settings`, `pause`, `resume` and `mode`, each recorded with author and reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from fleethpa.changes.foresight import Present, concerns, needs_agreement, read_present, refusal_errors
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.settings import (
    SETTINGS,
    Changes,
    Scope,
    parse_changes,
    remarks,
    scope_options,
    settings_help,
    settings_in,
    writes_of,
    written_settings,
)
from fleethpa.changes.writing import Concern, WriteOptions, change, write_options
from fleethpa.fleet.finding import nearest_cluster, no_such_cluster
from fleethpa.fleet.state import fleet_now, has_own
from fleethpa.fleet.views import FleetState, resume_command
from fleethpa.frame.errors import OK, CommandError, not_found, usage
from fleethpa.frame.options import output_option, parse_duration_ms
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import one
from fleethpa.show.text import LATEST_MS, layout
from fleethpa.show.words import counted, listed
from schemas.keys import EVERY_CLUSTER, FLEET, HpaId
from schemas.observed import Command, Mode
from schemas.settings import ClusterSettings, SettingsSet, settings_of


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
        until=0 if lasting is None else _until(session, lasting),
        author=session.config.author,
        reason=options.reason,
    )
    return await _issue(session, scope, command, words + (f" for {lasting}" if lasting else ""), options)


@click.command()
@scope_options()
@write_options
@command_options()
async def resume(session: Session, /, scope: Scope, options: WriteOptions) -> int:
    """End a pause of the same scope."""
    command = Command(command="resume", author=session.config.author, reason=options.reason)
    return await _issue(session, scope, command, "resumed", options)


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
        return await _issue(session, scope, command, "override ended", options)
    until = _until(session, lasting)
    command = Command(command="override", replicas=replicas, until=until, author=author, reason=reason)
    return await _issue(session, scope, command, f"overridden to {replicas} replicas for {lasting}", options)


@click.command()
@click.argument("wanted", type=click.Choice(["off", "shadow", "enforce"]))
@scope_options()
@write_options
@command_options()
async def mode(session: Session, /, wanted: Mode, scope: Scope, options: WriteOptions) -> int:
    """Set the mode: off (do nothing), shadow (decide and record) or enforce (also write replicas)."""
    command = Command(command="mode", mode=wanted, author=session.config.author, reason=options.reason)
    return await _issue(session, scope, command, f"set to {wanted}", options)


def _until(session: Session, lasting: str) -> int:
    """When `--for` ends. Raises CommandError (exit 2): it cannot be read, is zero, or is too long."""
    lasting_ms = parse_duration_ms(lasting, "--for")
    until = session.now_ms() + lasting_ms
    if not lasting_ms or until > LATEST_MS:
        raise usage(f"--for {lasting} cannot be used", cause="It must be a time such as 30m or 2h.")
    return until


async def _issue(session: Session, scope: Scope, command: Command, words: str, options: WriteOptions) -> int:
    scope.check(command.command)
    code, concerns = OK, list[Concern]()
    state = None if scope.everything and command.command != "mode" else await fleet_now(session)
    writes = writes_of(state, session.config.contexts, scope, command, words)
    if command.command == "override":
        for text in _overridden(state or FleetState(), command, writes):
            session.warn(text)
    elif command.command != "pause":
        code, writes, concerns = await _looked_ahead(session, state, scope, command, writes)
    elif scope.everything and not command.reason.strip():  # it may be a slip
        concerns.append(Concern("every cluster would be paused, and no --reason says why", harmful=True))
    return await change(session, command.command, writes, concerns, options, code=code)


def _overridden(state: FleetState, command: Command, writes: list[PlannedRecord]) -> Iterator[str]:
    """What an override will not do as it is asked for, or what it ends."""
    for write in writes:
        view = state.hpas[HpaId(write.cluster, write.namespace, command.name or write.body.name)]  # type: ignore[union-attr]
        if command.replicas is None:
            if view.override is None:
                yield f"hpa {view.id} has no override"
            continue
        least, most = view.spec.get("minReplicas", 1), view.spec.get("maxReplicas", 0)
        if not least <= command.replicas <= most:
            yield f"hpa {view.id}: minReplicas {least} and maxReplicas {most} bound the override"
        if view.whole is not None:
            yield (
                f"hpa {view.id} has the share that FleetHPA {view.whole} allots, so an override has no effect. "
                f"Next: fleethpa override {view.whole} --replicas N --for 2h"
            )
        if view.mode != "enforce":
            yield f"hpa {view.id} is in mode {view.mode}, in which an override has no effect"
        if view.paused:
            yield f"hpa {view.id} is paused, which holds the override: {view.paused}"


def _beside_own(state: FleetState, writes: list[PlannedRecord]) -> list[tuple[PlannedRecord, CommandError]]:
    """The FleetHPAs whose clusters have HPAs of their own: enforced, they would allot shares that no HPA wants."""
    found = []
    for write in writes:
        view = state.hpas.get(HpaId(write.cluster, write.namespace, getattr(write.body, "name", "")))
        if view is None or view.fleet is None:
            continue
        names = [each.name for each in view.fleet.clusters]
        if own := [each for each in names if has_own(state, view.id, each)]:
            problem = CommandError(
                f"{view.id} cannot be enforced, and keeps its mode: {listed(own)} "
                f"{'has an HPA of its' if len(own) == 1 else 'have HPAs of their'} own",
                cause="Those scale the workloads, so the shares of the FleetHPA would have no effect.",
                next_step=f"fleethpa shadow-report {view.id}, then fleethpa adopt {view.id} -C {','.join(names)}",
            )
            found.append((write, problem))
    return found


async def _looked_ahead(
    session: Session, state: FleetState | None, scope: Scope, command: Command, writes: list[PlannedRecord]
) -> tuple[int, list[PlannedRecord], list[Concern]]:
    """Leave out what would be refused, and say what has to be agreed to; with the exit code so far."""
    async with session.past() as past:
        present = Present(await past.fleet())
    if command.command == "resume":
        for (text, end), hpas in _still_paused(state or await fleet_now(session), present, writes).items():
            session.warn(f"{listed(map(str, hpas))} stays paused: {text}. Next: {end}")
    code = OK
    if state is not None and command.mode == "enforce":
        beside = _beside_own(state, writes)
        code = session.report(*(problem for _, problem in beside))
        held = [write for write, _ in beside]
        writes = [write for write in writes if write not in held]
    foresight = present.foresee(writes)
    touched = foresight.touched(writes)
    refused = foresight.refusals(touched) if command.mode == "enforce" else {}
    if not refused:
        return code, writes, concerns(command.command, foresight, writes)
    if scope.names:
        # Of HPAs that are named, those that would be refused keep their mode.
        writes = [write for write in writes if not refused.keys() & set(foresight.touched([write]))]
        foresight = present.foresee(writes)
    elif len(refused) == len(touched):
        writes = []
    what = "cannot be enforced, and nothing was changed" if scope.names or not writes else "will be refused for now"
    code = session.report(*refusal_errors(refused, what))
    return code, writes, concerns(command.command, foresight, writes)


def _still_paused(
    state: FleetState, present: Present, writes: list[PlannedRecord]
) -> dict[tuple[str, str], list[HpaId]]:
    """The pauses that a resume does not end, with their commands, and the HPAs that they hold. A pause of all clusters
    is named anyway.
    """
    ended = {resume_command(write.cluster, write.namespace, getattr(write.body, "name", "")) for write in writes}
    found: dict[tuple[str, str], list[HpaId]] = {}
    for hpa in present.foresee(writes).touched(writes):
        for text, end in state.hpas[hpa].pauses if hpa in state.hpas else ():
            if end not in ended and not end.endswith(" --all"):
                found.setdefault((text, end), []).append(hpa)
    return found


class _Settings(click.Command):
    """Its help lists the settings as they are declared; one that is written as an option is answered with how it is
    written.
    """

    def listed(self) -> list[tuple[str, str]]:
        """Return what the help lists beside the options; the reference has it, too."""
        return settings_help()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Settings [without them]"):
            formatter.write_dl(self.listed())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").lower().replace("_", "-")
            if name.partition(".")[0] not in (*SETTINGS, "namespace", "source"):
                raise
            raise usage(
                f"{name} is a setting, not an option",
                cause="Settings are written as NAME=VALUE after the cluster.",
                next_step=f"fleethpa settings CLUSTER {name}=VALUE",
            ) from error


@click.command(cls=_Settings)
@click.argument("cluster")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@click.option(
    "-f", "--filename", "file", metavar="FILE", type=click.Path(path_type=Path), help="NAME: VALUE pairs (YAML)."
)
@click.option("--remove", is_flag=True, help="Remove all settings of the cluster.")
@write_options
@output_option(formats=("table", "json", "yaml"))
@command_options()
async def settings(
    session: Session,
    /,
    cluster: str,
    changes: tuple[str, ...],
    file: Path | None,
    remove: bool,
    output: str,
    options: WriteOptions,
) -> int:
    """Show or change the settings of CLUSTER; '*' names the defaults of all clusters.

    NAME= or NAME=default removes a setting; then the one of '*' applies, or else upstream's default.
    """
    changes = (*(settings_in(file) if file is not None else ()), *changes)
    if remove and changes:
        raise usage("--remove excludes changes", cause="--remove removes all settings.")
    if not (remove or changes):
        return await _show(session, cluster, output)
    wanted = parse_changes(changes)
    for remark in remarks(wanted):
        session.warn(remark)
    wanted = Changes({}, ClusterSettings.__struct_fields__, {}) if remove else wanted
    subject = f"settings of {cluster} " + ("removed" if remove else f"changed: {', '.join(changes)}")
    return await _change(session, cluster, wanted, subject, remove, options)


async def _change(
    session: Session, cluster: str, wanted: Changes, subject: str, remove: bool, options: WriteOptions
) -> int:
    async with session.past() as past:
        state, present = await read_present(past)
    _check_known(session, state, cluster, wanted, options.yes)
    if remove:
        _check_removal(state, cluster, options.yes)
    held = state.settings.get(cluster, ClusterSettings())
    body = SettingsSet(
        cluster=cluster,
        settings=wanted.settings(held),
        author=session.config.author,
        reason=options.reason,
        unset=wanted.unset_names(held),
    )
    writes = [PlannedRecord(subject, body, cluster)]
    foresight = present.foresee(writes)
    found = concerns("settings", foresight, writes)
    return await change(session, "settings", writes, found, options, asks=needs_agreement(foresight, found))


def _check_known(session: Session, state: FleetState, cluster: str, wanted: Changes, yes: bool) -> None:
    """See that settings are of a cluster that is known, or that they are meant all the same.

    Raises:
        CommandError: --yes is missing to settings of an unknown cluster (exit 2), or there is nothing to take away (4).
    """
    if cluster in (EVERY_CLUSTER, FLEET) or cluster in state.clusters or cluster in session.config.contexts:
        return
    if not (wanted.values or any(wanted.members.values())):
        raise no_such_cluster(cluster, state)
    if yes:
        session.warn(f"cluster {cluster} has not reported yet: the settings apply once its observer runs")
        return
    raise usage(
        f"no cluster {cluster} is known",
        cause=nearest_cluster(cluster, state.clusters),
        next_step="check the name; add --yes if its observer will be started later",
    )


def _check_removal(state: FleetState, cluster: str, yes: bool) -> None:
    """See that there are settings to remove, and that those of HPAs in use are removed on purpose.

    Raises CommandError: no such settings (exit 4), or --yes is missing (exit 2).
    """
    if cluster not in state.settings:
        raise not_found(f"{cluster} has no settings of its own", next_step=f"fleethpa settings {cluster}")
    count = sum(cluster in (EVERY_CLUSTER, hpa.cluster) for hpa in state.hpas)
    if count and not yes:
        raise usage(
            f"{counted(count, 'HPA')} would get other settings",
            cause="That includes modes, guards and the proof that the native controller is absent.",
            next_step="remove single settings with NAME=, or add --yes",
        )


async def _show(session: Session, cluster: str, output: str) -> int:
    state = await fleet_now(session)
    if cluster not in (EVERY_CLUSTER, FLEET) and cluster not in state.clusters:
        raise no_such_cluster(cluster, state)
    effective = settings_of(state.settings, cluster)
    body = msgspec.to_builtins(effective)
    if output == "table":
        rows = [("SETTING", "VALUE"), *written_settings(effective)]
        session.lines(layout(rows))
        session.note("Settings that are not listed have upstream's default.")
    else:
        session.out(one("Settings", {"cluster": cluster, "settings": body}, output))
    return 0

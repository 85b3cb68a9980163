"""`fleethpa rollout`: a changed spec is applied in waves of clusters, each judged by recorded decisions.

The state of a rollout is in the log: every HPA that was changed carries the plan (`fleethpa.changes.rollouts`), and
a wave is judged by the decisions recorded since it began. When the command ends early, nothing more changes, and
anybody can continue the rollout (`resume`) or revert it (`abort`). If a wave fails, all waves so far are reverted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.changes.manifests import FieldValidation, Input, no_hpas, read_input, validate_option, warn_about_fields
from fleethpa.changes.rolloutdrive import (
    WaveDrive,
    found_rollout,
    measured_waves,
    reverting,
    rollout_columns,
    rollout_document,
    rollout_lines,
    rollout_next,
    state_now,
    wave_documents,
    wave_named,
    why_stopped,
)
from fleethpa.changes.rolloutplan import RolloutPlan, check_others, concerns, rollout_plan
from fleethpa.changes.rollouts import RolloutMark, StagedRollout, digest, in_order, members, rollouts_in, waves_of
from fleethpa.changes.writing import Concern, change, change_options, confirm, show
from fleethpa.fleet.finding import matching_clusters
from fleethpa.fleet.selection import cluster_globs
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.frame.errors import OK, CommandError, SuggestingGroup, not_found, usage
from fleethpa.frame.options import WAVE_MEASURES, output_option, parse_duration_ms, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing, one, render
from fleethpa.show.table import layout
from fleethpa.show.words import counted, listed
from schemas.kubernetes.shape import Json

if TYPE_CHECKING:
    from streams.analysis.measures import WaveMeasures

DEFAULT_GATES: Final = ("replicas_removed>30%", "at_max>+20%", "failing>+10%")


class Rollouts(SuggestingGroup):
    """`rollout` itself begins one, its subcommands look after those that were begun."""


@click.group(cls=Rollouts, invoke_without_command=True, subcommand_metavar="[COMMAND …]")
@click.option("-f", "--filename", "filenames", multiple=True, metavar="FILE|DIR|-", help="Manifests of changed HPAs.")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters, in this order: 'canary-*,prod-*'.")
@click.option("-n", "--namespace", help="Namespace for manifests without one [default: default].")
@click.option(
    "--wave",
    "sizes",
    default="1,25%,100%",
    show_default=True,
    metavar="N|N%,…",
    help="How many clusters have the spec after each wave.",
)
@click.option("--wait", default="15m", show_default=True, metavar="DURATION", help="How long each wave is watched.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help=f"Revert when this is met [default: {', '.join(DEFAULT_GATES)}].",
)
@validate_option
@change_options
@command_options()
@click.pass_context
def rollout(
    context: click.Context,
    session: Session,
    /,
    filenames: tuple[str, ...],
    clusters: str | None,
    namespace: str | None,
    sizes: str,
    wait: str,
    conditions: tuple[str, ...],
    validate: FieldValidation,
    **written: Any,
) -> int | None:
    """Change central HPAs in waves of clusters; revert all of them when a wave fails.

    Conditions: replicas_removed, recommended_removal (what the metrics asked for, before windows), at_max and failing
    are percentages; scale_events and direction_flips are per HPA. With a sign they are compared with the same HPAs
    before the wave: 'at_max>+20%', 'scale_events>+2'.

    If the command is interrupted, nothing more changes: see `rollout status`, `rollout resume`, `rollout abort`.
    """
    if context.invoked_subcommand is not None:
        return None
    if not filenames:
        raise usage(
            "no manifest is named",
            cause="A rollout needs the manifests of the changed HPAs.",
            next_step="fleethpa rollout -f hpa.yaml -C 'prod-*'",
        )
    globs = cluster_globs(clusters)
    if not globs:
        raise usage("no cluster is named", cause="The waves consist of clusters.", next_step="add -C 'prod-*'")
    wait_ms = parse_duration_ms(wait, "--wait")
    waves_of(("any",), sizes)  # whether it can be read, before anything else is
    gates = list(conditions or DEFAULT_GATES)
    for text in gates:
        parse_fail_if(text, WAVE_MEASURES)
    read = read_input(filenames, validate)
    if not read.hpas:
        raise no_hpas(filenames, read)
    warn_about_fields(session, read)
    return session.run(_begin(session, read, globs, namespace, sizes, wait_ms, gates, written))


@rollout.command()
@click.argument("rollout_id", metavar="[ROLLOUT]", required=False)
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def status(session: Session, /, rollout_id: str | None, no_headers: bool, output: str) -> int:
    """List rollouts, or show the waves of one with their results."""
    return session.run(_status(session, rollout_id, no_headers, output))


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@change_options
@command_options()
def resume(session: Session, /, rollout_id: str, **written: Any) -> int:
    """Continue a rollout whose command has ended: judge the newest wave by what was recorded, then begin the next."""
    return session.run(_resume(session, rollout_id, written))


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@change_options
@command_options()
def abort(session: Session, /, rollout_id: str, **written: Any) -> int:
    """Give all HPAs of a rollout their earlier spec again; a command that is watching it ends."""
    return session.run(_abort(session, rollout_id, written))


# --- beginning --------------------------------------------------------------------------------------------------------


async def _begin(
    session: Session,
    read: Input,
    globs: tuple[str, ...],
    namespace: str | None,
    sizes: str,
    wait_ms: int,
    gates: list[str],
    written: dict[str, Any],
) -> int:
    state = await fleet_now(session)
    names = in_order(matching_clusters(state, globs, session.config.contexts), globs)
    plan = rollout_plan(state, read, names, namespace, sizes)
    for hpa in plan.missing:
        session.warn(f"{hpa} is not a central HPA, and takes no part. Next: fleethpa get hpa {hpa}")
    if not plan.parts:
        return _nothing_to_do(session, plan)
    check_others(state, plan, session.now_ms())
    mark = RolloutMark(
        id=secrets.token_hex(3),
        waves=plan.waves,
        hpas=sorted({f"{hpa.namespace}/{hpa.name}" for hpa in plan.parts}),
        wave=1,
        begun_ms=0,
        wait_ms=wait_ms,
        fail_if=gates,
        spec_digest={f"{hpa.namespace}/{hpa.name}": digest(part["spec"]) for hpa, part in plan.parts.items()},
        author=session.config.author,
        reason=written["reason"],
    )
    stated = concerns(state, plan, mark)
    if written["dry_run"]:
        show(session, stated)
        for number, clusters in enumerate(plan.waves, 1):
            session.out(f"{wave_named(mark, number)}: {listed(clusters)} (dry run)")
        return OK
    confirm(session, stated, written["yes"], "rollout")
    session.out(f"rollout {mark.id} begins")
    examples = {f"{hpa.namespace}/{hpa.name}": part for hpa, part in plan.parts.items()}
    return await WaveDrive(session, mark, examples, written).run(1)


def _nothing_to_do(session: Session, plan: RolloutPlan) -> int:
    if not plan.unchanged:
        raise not_found(
            "no central HPA with these names exists in these clusters",
            cause="A rollout changes HPAs that live in fleethpa.",
            next_step="fleethpa apply -f …, or fleethpa adopt",
        )
    session.out(f"nothing to roll out: {counted(len(plan.unchanged), 'HPA')} unchanged")
    return OK


# --- continuing and taking back ---------------------------------------------------------------------------------------


async def _resume(session: Session, rollout_id: str, written: dict[str, Any]) -> int:
    state = await state_now(session)
    rollout = found_rollout(state, rollout_id)
    if rollout.reverted:
        raise CommandError(
            f"rollout {rollout_id} was reverted ({rollout.reverted})",
            next_step=f"fleethpa rollout abort {rollout_id}" if rollout.running() else "fleethpa rollout -f …",
        )
    wave = rollout.wave
    if stopped := why_stopped(state, rollout.plan, rollout, wave - 1):
        raise CommandError(
            f"rollout {rollout_id} cannot continue: {stopped}", next_step=f"fleethpa rollout abort {rollout_id}"
        )
    lacking = [view for view in members(rollout.plan, state, wave) if view.id not in rollout.marks]
    left = [
        view for number in range(wave + 1, len(rollout.plan.waves) + 1) for view in members(rollout.plan, state, number)
    ]
    stated = [
        Concern(f"resume judges wave {wave} of {len(rollout.plan.waves)}, then changes {counted(len(left), 'HPA')}")
    ]
    if lacking:
        names = listed([str(view.id) for view in lacking])
        stated.append(Concern(f"wave {wave} has not reached {names}: resume begins with them"))
    show(session, stated) if written["dry_run"] else confirm(session, stated, written["yes"], "rollout resume")
    if written["dry_run"]:
        return OK
    examples = {named: rollout.example(named) for named in rollout.plan.hpas}
    return await WaveDrive(session, rollout.plan, examples, written).run(wave)


async def _abort(session: Session, rollout_id: str, written: dict[str, Any]) -> int:
    rollout = found_rollout(await state_now(session), rollout_id)
    why = f"aborted by {session.config.author}" + (f": {written['reason']}" if written["reason"] else "")
    writes = reverting(rollout, session.config.author, why)
    for hpa in rollout.marks:
        if rollout.is_overtaken(hpa):
            session.warn(f"{hpa} was changed since and stays as it is. Next: fleethpa history {hpa}")
    if not writes:
        session.out(f"rollout {rollout_id}: nothing to revert")
        return OK
    stated = [Concern(f"abort gives {counted(len(writes), 'HPA')} the earlier spec again")]
    return await change(session, "rollout abort", writes, stated, written)


# --- showing ----------------------------------------------------------------------------------------------------------


async def _status(session: Session, rollout_id: str | None, no_headers: bool, output: str) -> int:
    async with session.past() as past:
        state = await read_state(past)
        if rollout_id is not None:
            rollout = found_rollout(state, rollout_id)
            waves = await measured_waves(past, rollout)
            document = rollout_document(rollout, state.clock_ms) | {"waves": wave_documents(rollout, waves)}
            _show_one(session, rollout, state.clock_ms, document, waves, output)
            return OK
    found = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms)
    if not found and output in ("table", "wide"):
        session.note("No HPA carries a rollout.")
        return OK
    listing = Listing(
        kind="Rollout",
        items=found,
        columns=rollout_columns(session.time_style, session.now_ms(), state.clock_ms),
        document=lambda each: rollout_document(each, state.clock_ms),
        name=lambda each: f"rollout/{each.id}",
    )
    session.out(render(listing, output, headers=not no_headers, color=session.color))
    return OK


def _show_one(
    session: Session,
    rollout: StagedRollout,
    now_ms: int,
    document: Json,
    waves: Sequence[tuple[WaveMeasures, WaveMeasures]],
    output: str,
) -> None:
    if output not in ("table", "wide"):
        session.out(f"rollout/{rollout.id}" if output == "name" else one("Rollout", document, output))
        return
    session.lines(layout(rollout_lines(rollout, now_ms, waves)))
    if next_step := rollout_next(rollout, now_ms):
        session.note(f"Next: {next_step}")

"""`fleethpa rollout`: a changed spec is applied in waves of clusters, each judged by recorded decisions.

The state of a rollout is in the log: every HPA that was changed carries the plan (`fleethpa.rollouts.marks`), and
a wave is judged by the decisions recorded since it began. When the command ends early, nothing more changes, and
anybody can continue the rollout (`resume`) or revert it (`abort`). If a wave fails, all waves so far are reverted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from fleethpa.changes.lintrules import rules_in, version_errors
from fleethpa.changes.manifests import FieldValidation, Input, checked_hpa, read_hpas, validate_option
from fleethpa.changes.owners import owned_hpa
from fleethpa.changes.schedules import renewed
from fleethpa.changes.writing import Concern, WriteOptions, change, change_options, confirm
from fleethpa.fleet.finding import cluster_globs, matching_clusters
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, PARTIAL, CommandError, SuggestingGroup, not_found, usage
from fleethpa.frame.options import WAVE_MEASURES, output_option, parse_duration_ms, parse_fail_if
from fleethpa.frame.session import Session, command_options
from fleethpa.rollouts import wavedrive as drive
from fleethpa.rollouts.marks import RolloutMark, digest, in_order, members, part_of, rollouts_in, waves_of
from fleethpa.rollouts.undo import undo
from fleethpa.show.formats import Listing, one
from fleethpa.show.text import layout, span
from fleethpa.show.words import counted, listed
from schemas.keys import HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from streams.analysis.revisions import differences

DEFAULT_GATES: Final = ("replicas_removed>30%", "at_max>+20%", "failing>+10%")


@click.group(cls=SuggestingGroup, invoke_without_command=True, subcommand_metavar="[COMMAND …]")
@click.option("-f", "--filename", "filenames", multiple=True, metavar="FILE|DIR|-", help="Manifests of changed HPAs.")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters, in this order: 'canary-*,prod-*'.")
@click.option("-n", "--namespace", help="Namespace for manifests without one [default: default].")
@click.option(
    "--wave", "sizes", default="1,25%,100%", metavar="N|N%,…", help="How many clusters have the spec after each wave."
)
@click.option("--wait", default="15m", metavar="DURATION", help="How long each wave is watched.")
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
    options: WriteOptions,
) -> int | None:
    """Change central HPAs in waves of clusters; revert all of them when a wave fails.

    Conditions: replicas_removed, recommended_removal (what the metrics asked for, before windows), at_max and failing
    are percentages; scale_events and direction_flips are per HPA. With a sign they are compared with the same HPAs
    before the wave: 'at_max>+20%', 'scale_events>+2'.

    If the command is interrupted, nothing more changes: see `rollout status`, `rollout resume`, `rollout abort`. For a
    single HPA `rollout undo` brings an earlier spec back.
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
    read = read_hpas(session, filenames, validate)
    return session.run(_begin(session, read, globs, namespace, sizes, wait_ms, gates, options))


@rollout.command()
@click.argument("rollout_id", metavar="[ROLLOUT]", required=False)
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
async def status(session: Session, /, rollout_id: str | None, no_headers: bool, output: str) -> int:
    """List rollouts, or show the waves of one with their results."""
    async with session.past() as past:
        state = await read_state(past)
        if rollout_id is not None:
            rollout = drive.rollout_of_id(state, rollout_id)
            waves = await drive.measured_waves(past, rollout)
            document = drive.rollout_document(rollout, state.clock_ms) | {"waves": drive.wave_documents(rollout, waves)}
            if output in ("table", "wide"):
                session.lines(layout(drive.rollout_lines(rollout, state.clock_ms, waves)))
                if next_step := drive.rollout_next(rollout, state.clock_ms):
                    session.note(f"Next: {next_step}")
            else:
                session.out(f"rollout/{rollout.id}" if output == "name" else one("Rollout", document, output))
            return OK
    rollouts = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms)
    if not rollouts and output in ("table", "wide"):
        if state.is_last_known:
            session.note("There was no rollout when it was last known.")
            return PARTIAL
        session.note("There is no rollout to show. Next, to begin one: fleethpa rollout -f FILE -C CLUSTERS --dry-run")
        return OK
    listing = Listing(
        kind="Rollout",
        items=rollouts,
        columns=drive.rollout_columns(session.time_style, session.now_ms(), state.clock_ms),
        document=lambda each: drive.rollout_document(each, state.clock_ms),
        name=lambda each: f"rollout/{each.id}",
    )
    session.listing(listing, output, headers=not no_headers)
    return PARTIAL if state.is_last_known else OK


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@change_options
@command_options()
async def resume(session: Session, /, rollout_id: str, options: WriteOptions) -> int:
    """Continue a rollout whose command has ended: judge the newest wave by what was recorded, then begin the next."""
    state = await drive.state_now(session)
    rollout = drive.rollout_of_id(state, rollout_id)
    if rollout.reverted:
        raise CommandError(
            f"rollout {rollout_id} was reverted ({rollout.reverted})",
            next_step=f"fleethpa rollout abort {rollout_id}" if rollout.running() else "fleethpa rollout -f …",
        )
    wave = rollout.wave
    if stopped := drive.why_stopped(state, rollout.plan, rollout, wave - 1):
        raise CommandError(
            f"rollout {rollout_id} cannot continue: {stopped}", next_step=f"fleethpa rollout abort {rollout_id}"
        )
    unmarked = [view for view in members(rollout.plan, state, wave) if view.id not in rollout.marks]
    left = [
        view for number in range(wave + 1, len(rollout.plan.waves) + 1) for view in members(rollout.plan, state, number)
    ]
    for view in (*unmarked, *left):
        if (problem := owned_hpa(view)) is not None:
            raise problem
    stated = [
        Concern(f"resume judges wave {wave} of {len(rollout.plan.waves)}, then changes {counted(len(left), 'HPA')}")
    ]
    if unmarked:
        names = listed(str(view.id) for view in unmarked)
        stated.append(Concern(f"wave {wave} has not reached {names}: resume begins with them"))
    confirm(session, stated, options, "rollout resume")
    if options.dry_run:
        return OK
    examples = {named: rollout.example(named) for named in rollout.plan.hpas}
    return await drive.WaveDrive(session, rollout.plan, examples, options).run(wave)


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@change_options
@command_options()
async def abort(session: Session, /, rollout_id: str, options: WriteOptions) -> int:
    """Give all HPAs of a rollout their earlier spec again; a command that is watching it ends."""
    state = await drive.state_now(session)
    rollout = drive.rollout_of_id(state, rollout_id)
    why = f"aborted by {session.config.author}" + (f": {options.reason}" if options.reason else "")
    writes = drive.reverting(rollout, session.config.author, why)
    for hpa in rollout.marks:
        if rollout.is_overtaken(hpa):
            session.warn(f"{hpa} was changed since and stays as it is. Next: fleethpa history {hpa}")
    if not writes:
        session.out(f"rollout {rollout_id}: nothing to revert")
        return OK
    stated = [Concern(f"abort gives {counted(len(writes), 'HPA')} the earlier spec again")]
    return await change(session, "rollout abort", writes, stated, options, state=state)


# --- beginning --------------------------------------------------------------------------------------------------------


async def _begin(
    session: Session,
    read: Input,
    globs: tuple[str, ...],
    namespace: str | None,
    sizes: str,
    wait_ms: int,
    gates: list[str],
    options: WriteOptions,
) -> int:
    state = await fleet_now(session)
    names = in_order(matching_clusters(state, globs, session.config.contexts), globs)
    plan = rollout_plan(state, read, names, namespace, sizes)
    if not plan.parts and not plan.unchanged:
        raise _none_to_change(plan)
    for hpa in plan.foreign:
        session.warn(f"{hpa} belongs to its cluster, and takes no part. Next: fleethpa adopt {hpa}")
    for hpa in plan.missing:
        session.warn(f"{hpa} does not exist, and takes no part. Next: fleethpa apply -f FILE -C {hpa.cluster}")
    if not plan.parts:
        session.out(f"nothing to roll out: {counted(len(plan.unchanged), 'HPA')} unchanged")
        return OK
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
        reason=options.reason,
    )
    stated = concerns(state, plan, mark)
    confirm(session, stated, options, "rollout")
    if options.dry_run:
        for number, clusters in enumerate(plan.waves, 1):
            session.out(f"{drive.wave_named(mark, number)}: {listed(clusters)} (dry run)")
        return OK
    session.out(f"rollout {mark.id} begins")
    examples = {f"{hpa.namespace}/{hpa.name}": part for hpa, part in plan.parts.items()}
    return await drive.WaveDrive(session, mark, examples, options).run(1)


def _none_to_change(plan: RolloutPlan) -> CommandError:
    foreign, missing = (listed(map(str, each)) for each in (plan.foreign, plan.missing))
    whose = "belongs to its cluster" if len(plan.foreign) == 1 else "belong to their clusters"
    whether = "does not exist" if len(plan.missing) == 1 else "do not exist"
    texts = [f"{foreign} {whose}"] * bool(foreign) + [f"{missing} {whether}"] * bool(missing)
    step = f"fleethpa adopt {plan.foreign[0]}" if foreign else f"fleethpa apply -f FILE -C {plan.missing[0].cluster}"
    cause = "A rollout changes HPAs that live in fleethpa."
    return not_found(f"no central HPA to roll out: {'; '.join(texts)}", cause=cause, next_step=step)


# --- planning ---------------------------------------------------------------------------------------------------------


@dataclass
class RolloutPlan:
    """What a rollout would change: the new part of each HPA, those that have it already, those that belong to their
    clusters (`foreign`), and those that do not exist. `scheduled`: those of the changed ones that keep a schedule of
    their own.
    """

    parts: dict[HpaId, Json] = field(default_factory=dict)
    unchanged: list[HpaId] = field(default_factory=list)
    foreign: list[HpaId] = field(default_factory=list)
    missing: list[HpaId] = field(default_factory=list)
    scheduled: list[HpaId] = field(default_factory=list)
    waves: list[list[str]] = field(default_factory=list)


def rollout_plan(
    state: FleetState, read: Input, clusters: Sequence[str], namespace: str | None, sizes: str
) -> RolloutPlan:
    """Return which HPAs a rollout would change, and in which waves. `clusters`: all that are meant, in their order.

    Raises CommandError: a manifest is not valid, or would move an HPA to another target (exit 2).
    """
    plan = RolloutPlan()
    for manifest in read.hpas:
        body = checked_hpa(manifest, namespace)
        metadata = body["metadata"]
        part = part_of(metadata.get("labels") or {}, metadata.get("annotations") or {}, body["spec"])
        for cluster in clusters:
            hpa = HpaId(cluster, metadata["namespace"], manifest.name)
            view = state.hpas.get(hpa)
            if view is None:
                plan.missing.append(hpa)
            elif view.origin != "central":
                plan.foreign.append(hpa)
            elif view.spec.get("scaleTargetRef") != part["spec"]["scaleTargetRef"]:
                raise usage(
                    f"{hpa}: a rollout does not change what an HPA scales",
                    cause="Its spec.scaleTargetRef differs from the manifest's.",
                    next_step="fleethpa apply -f …",
                )
            elif semantically_equal_spec(view.spec, part["spec"]):
                plan.unchanged.append(hpa)
            elif errors := version_errors(part["spec"], rules_in(state, hpa.cluster), view.spec):
                raise usage(f"{hpa} would be invalid in its cluster", cause="\n".join(errors))
            else:
                plan.parts[hpa] = part
                plan.scheduled += [hpa] if renewed(view.hpa, body) is not None else []
    changed = {hpa.cluster for hpa in plan.parts}
    plan.waves = waves_of([name for name in clusters if name in changed], sizes) if changed else []
    return plan


def check_others(state: FleetState, plan: RolloutPlan, now_ms: int) -> None:
    """Check that no other rollout is changing these HPAs, and that no object of the hub's API makes them.

    Raises CommandError: it is so (exit 1).
    """
    for hpa in plan.parts:
        if (problem := owned_hpa(state.hpas[hpa])) is not None:
            raise problem
    for other in rollouts_in(state).values():
        held = [hpa for hpa in other.running() if hpa in plan.parts]
        if held and other.state(now_ms) in ("watching", "waiting", "reverting"):
            raise CommandError(
                f"rollout {other.id} by {other.plan.author} is changing {listed(map(str, held))}",
                cause=f"It is in wave {other.wave} of {len(other.plan.waves)}.",
                next_step=f"fleethpa rollout status {other.id}, or to end it: fleethpa rollout abort {other.id}",
            )


def concerns(state: FleetState, plan: RolloutPlan, mark: RolloutMark) -> list[Concern]:
    """Return what a rollout would do, for the confirmation."""
    changes = {"; ".join(differences(state.hpas[hpa].spec, part["spec"])) for hpa, part in plan.parts.items()}
    reported = sorted(changes)[0] + (f" (and {len(changes) - 1} other changes)" if len(changes) > 1 else "")
    clusters = counted(sum(map(len, plan.waves)), "cluster")
    texts = [
        f"rollout changes {counted(len(plan.parts), 'HPA')} in {clusters}: {reported}",
        f"{counted(len(plan.waves), 'wave')} of {span(mark.wait_ms)} each; reverted if {' or '.join(mark.fail_if)}",
    ]
    if plan.scheduled:
        hpas = listed(map(str, plan.scheduled))
        texts.append(f"schedules are kept ({hpas}): the manifest holds until the last wave is over, then their rules")
    return [Concern(text) for text in texts]


rollout.add_command(undo)

"""`fleethpa settings`: the settings of a cluster, shown or changed; recorded with author and reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from fleethpa.cli.common.failures import not_found, usage
from fleethpa.cli.common.finding import nearest_cluster, no_such_cluster
from fleethpa.cli.common.fleetstate import fleet_now, read_state
from fleethpa.cli.common.foresight import Present, concerns
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.settingfiles import settings_in
from fleethpa.cli.common.settingwords import Changes, needed_engine, parse_changes, remarks, written_settings
from fleethpa.cli.common.writing import PlannedRecord, confirm, dry_run, show, write_all, write_options
from fleethpa.cli.output.formats import one
from fleethpa.cli.output.table import layout
from fleethpa.cli.output.words import counted
from schemas.keys import EVERY_CLUSTER
from schemas.settings import ClusterSettings, SettingsSet, merge

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState


@click.command()
@click.argument("cluster")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@click.option(
    "-f", "--filename", "file", metavar="FILE", type=click.Path(path_type=Path), help="NAME: VALUE pairs (YAML)."
)
@click.option("--remove", is_flag=True, help="Remove all settings of the cluster.")
@write_options
@output_option(formats=("table", "json", "yaml"))
@command_options()
def settings(
    session: Session,
    /,
    cluster: str,
    changes: tuple[str, ...],
    file: Path | None,
    remove: bool,
    output: str,
    **written: Any,
) -> int:
    """Show or change the settings of CLUSTER; '*' names the defaults of all clusters.

    NAME= or NAME=default removes a setting; then the one of '*' applies, or else upstream's default.

    Names: sync-period, tolerance, downscale-stabilization, cpu-initialization-period, initial-readiness-delay,
    sample-age-limit, default-mode, frozen, native-controller, max-step, hold-on-overflow, status-every, partial-view,
    evaluate-on (period, or sample: as soon as a pushed sample moves a metric past its tolerance), evaluate-floor,
    removal-budget, addition-budget (of the whole cluster, such as 30%/10m), removal-budget.NAMESPACE,
    addition-budget.NAMESPACE (NAMESPACE '*': each one without a budget of its own), namespace.NAME, source.TYPE.
    """
    changes = (*(settings_in(file) if file is not None else ()), *changes)
    if remove and changes:
        raise usage("--remove excludes changes", cause="--remove removes all settings.")
    if not (remove or changes):
        return _show(session, cluster, output)
    wanted = parse_changes(changes)
    for remark in remarks(wanted):
        session.warn(remark)
    wanted = Changes({}, ClusterSettings.__struct_fields__, {}) if remove else wanted
    subject = f"settings of {cluster} " + ("removed" if remove else f"changed: {', '.join(changes)}")
    return _change(session, cluster, wanted, subject, remove, written)


def _change(
    session: Session, cluster: str, wanted: Changes, subject: str, remove: bool, written: dict[str, Any]
) -> int:
    async def work() -> int:
        async with session.past() as past:
            state, present = await read_state(past), await Present.read(past)
        _check_known(session, state, cluster, wanted, written["yes"])
        _check_engine(present, wanted)
        if remove:
            _check_removal(state, cluster, written["yes"])
        held = state.settings.get(cluster, ClusterSettings())
        body = SettingsSet(
            cluster=cluster,
            settings=wanted.settings(held),
            author=session.config.author,
            reason=written["reason"],
            unset=wanted.unset_names(held),
        )
        writes = [PlannedRecord(subject, body, cluster)]
        foresight = present.foresee(writes)
        found = concerns("settings", foresight, writes)
        if written["dry_run"]:
            show(session, found)
            return dry_run(session, writes)
        if foresight.changed_modes() or any(concern.harmful for concern in found):
            confirm(session, found, written["yes"], "settings")
        else:
            show(session, found)
        async with session.writer() as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


def _check_known(session: Session, state: FleetState, cluster: str, wanted: Changes, yes: bool) -> None:
    """See that settings are of a cluster that is known, or that they are meant all the same.

    Raises:
        CommandError: nobody said yes to settings of an unknown cluster (exit 2), or there is nothing to take away (4).
    """
    if cluster == EVERY_CLUSTER or cluster in state.clusters or cluster in session.config.contexts:
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


def _check_engine(present: Present, wanted: Changes) -> None:
    """See that the engine that decides knows the settings: an older one would pass over them.

    Raises:
        CommandError: it does not (exit 2).
    """
    needed = needed_engine(wanted)
    known = present.engine() if needed > 1 else needed
    if known < needed:
        raise usage(
            f"these settings count from engine {needed} on, and the log records engine {known}",
            cause="Workers of an older release would pass over them.",
            next_step=f"when every worker runs this release: fleethpa topics engine {needed}",
        )


def _check_removal(state: FleetState, cluster: str, yes: bool) -> None:
    """See that there are settings to remove, and that those of HPAs in use are removed on purpose.

    Raises:
        CommandError: no such settings (exit 4), or nobody said yes (exit 2).
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


def _show(session: Session, cluster: str, output: str) -> int:

    state = session.run(fleet_now(session))
    if cluster != EVERY_CLUSTER and cluster not in state.clusters:
        raise no_such_cluster(cluster, state)
    nothing = ClusterSettings()
    effective = merge(state.settings.get(EVERY_CLUSTER, nothing), state.settings.get(cluster, nothing))
    body = msgspec.to_builtins(effective)
    if output == "table":
        rows = [("SETTING", "VALUE"), *written_settings(effective)]
        session.lines(layout(rows))
        session.note("Settings that are not listed have upstream's default.")
    else:
        session.out(one("Settings", {"cluster": cluster, "settings": body}, output))
    return 0

"""`fleethpa settings`: show or change the settings of a cluster."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from fleethpa.changes.foresight import concerns, needs_agreement, read_present
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.settings import (
    SETTINGS,
    Changes,
    parse_changes,
    remarks,
    settings_help,
    settings_in,
    written_settings,
)
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.finding import nearest_cluster, no_such_cluster
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import not_found, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import one
from fleethpa.show.text import layout
from fleethpa.show.words import counted
from schemas.keys import EVERY_CLUSTER, FLEET
from schemas.settings import ClusterSettings, SettingsSet, settings_of


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
    all_concerns = concerns("settings", foresight, writes)
    return await change(
        session, "settings", writes, all_concerns, options, asks=needs_agreement(foresight, all_concerns), state=state
    )


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

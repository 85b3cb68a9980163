"""`fleethpa settings`: the settings of a cluster, shown or changed; recorded with author and reason."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.writing import Write, dry_run, write_all, write_options
from schemas.keys import EVERY_CLUSTER


@click.command()
@click.argument("cluster")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@write_options
@output_option(formats=("table", "json", "yaml"))
@command_options()
def settings(session: Session, /, cluster: str, changes: tuple[str, ...], output: str, **written: Any) -> int:
    """Show the settings of CLUSTER ('*': the defaults of all), or change them.

    Names: sync-period, tolerance, downscale-stabilization, cpu-initialization-period, initial-readiness-delay,
    sample-age-limit, default-mode, frozen, native-controller, max-step, hold-on-overflow, namespace.NAME, source.TYPE.
    """
    return _change(session, cluster, changes, written) if changes else _show(session, cluster, output)


def _change(session: Session, cluster: str, changes: tuple[str, ...], written: dict[str, Any]) -> int:
    from fleethpa.cli.common.settingwords import parse_settings
    from fleethpa.cli.common.writer import open_writer
    from schemas.settings import SettingsSet

    body = SettingsSet(
        cluster=cluster,
        settings=parse_settings(changes),
        author=session.config.author,
        reason=written["reason"],
    )
    writes = [Write(f"settings of {cluster} changed: {', '.join(changes)}", body, cluster)]
    if written["dry_run"]:
        return dry_run(session, writes)

    async def work() -> int:
        if cluster != EVERY_CLUSTER:
            await _known(session, cluster)
        async with open_writer(session.config) as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


async def _known(session: Session, cluster: str) -> None:
    from fleethpa.cli.common.fleetstate import fleet_now

    state = await fleet_now(session)
    if cluster not in state.clusters and cluster not in session.config.contexts:
        session.warn(f"cluster {cluster} has not been heard of yet (known: {', '.join(state.clusters) or 'none'})")


def _show(session: Session, cluster: str, output: str) -> int:
    import msgspec

    from fleethpa.cli.common.finding import no_such_cluster
    from fleethpa.cli.common.fleetstate import fleet_now
    from fleethpa.cli.common.settingwords import written_settings
    from fleethpa.cli.output.formats import one
    from fleethpa.cli.output.table import layout
    from schemas.settings import ClusterSettings
    from streams.state.clustersettings import merge

    state = session.run(fleet_now(session))
    if cluster != EVERY_CLUSTER and cluster not in state.clusters:
        raise no_such_cluster(cluster, state)
    nothing = ClusterSettings()
    effective = merge(state.settings.get(EVERY_CLUSTER, nothing), state.settings.get(cluster, nothing))
    body = msgspec.to_builtins(effective)
    if output == "table":
        rows = [("SETTING", "VALUE"), *written_settings(effective)]
        session.out("\n".join(layout(rows)))
        session.note("What is not listed has upstream's default.")
    else:
        session.out(one("Settings", {"cluster": cluster, "settings": body}, output))
    return 0

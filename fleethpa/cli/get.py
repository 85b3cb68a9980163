"""`fleethpa get`: HPAs or clusters in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import OK, PARTIAL, usage
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option, travel_option
from fleethpa.cli.output.formats import render
from fleethpa.cli.output.times import span

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState, HpaView
    from streams.history.past import Past

WATCH_EVERY_S: Final = 2.0


@click.group()
def get() -> None:
    """List HPAs or clusters."""


@get.command("hpa")
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option("-w", "--watch", is_flag=True, help="Go on and print what changes.")
@click.option("--problem", is_flag=True, help="Only those at max, paused, refused, fought over or not scaling.")
@click.option("--ignore-not-found", is_flag=True, help="Exit 0 also where a named HPA does not exist.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@travel_option
@command_options(reads=True)
def get_hpa(
    session: Session,
    selection: Selection,
    watch: bool,
    problem: bool,
    ignore_not_found: bool,
    no_headers: bool,
    output: str,
) -> int:
    """List HPAs with kubectl's columns, and CLUSTER and MODE."""
    from fleethpa.cli.common.decisionlists import decided
    from fleethpa.cli.common.finding import chosen, nothing_found
    from fleethpa.cli.common.fleetstate import read_state, remark
    from fleethpa.cli.output.hpatable import hpa_listing

    if watch and session.at_ms is not None:
        raise usage("--at and --watch exclude each other", cause="The past does not change.")

    def pick(state: FleetState) -> list[HpaView]:
        if ignore_not_found and selection.refs:
            return [view for hpa, view in state.hpas.items() if selection.matches(hpa, view.labels)]
        views = chosen(state, selection)
        return [view for view in views if view.problems] if problem else views

    def show(views: list[HpaView], headers: bool) -> str:
        listing = hpa_listing(views, session.now_ms(), namespaces=selection.namespace is None or bool(selection.refs))
        return render(listing, output, headers=headers, color=session.color)

    async def work() -> int:
        async with session.past(watching=watch) as past:
            state = await read_state(past)
            remark(session, past, state)
            views = pick(state)
            if output in ("wide", "csv"):
                views = await decided(past, views)
            if not views and output in ("table", "wide"):
                session.note(nothing_found(selection, state, "get hpa"))
            else:
                session.out(show(views, not no_headers))
            code = _silent_clusters(session, state, views)
            if watch:
                await _watch(session, past, pick, lambda v: show(v, False), views)
            return code

    return session.run(work(), brief=not watch)


async def _watch(
    session: Session,
    past: Past,
    pick: Callable[[FleetState], list[HpaView]],
    show: Callable[[list[HpaView]], str],
    before: list[HpaView],
) -> None:
    import asyncio
    import time

    from fleethpa.cli.common.fleetstate import read_state
    from fleethpa.cli.output.hpatable import visible

    seen = {view.id: visible(view) for view in before}
    while True:
        started = time.monotonic()
        changed = []
        for view in pick(await read_state(past)):
            if seen.get(view.id) != visible(view):
                seen[view.id] = visible(view)
                changed.append(view)
        if changed:
            session.out(show(changed))
        await asyncio.sleep(max(0.0, WATCH_EVERY_S - (time.monotonic() - started)))


def _silent_clusters(session: Session, state: FleetState, views: list[HpaView]) -> int:
    silent = [cluster for cluster in state.clusters.values() if cluster.silent]
    code = OK
    for cluster in silent:
        shown = sum(view.id.cluster == cluster.name for view in views)
        if shown:
            quiet = span((cluster.clock_ms - (cluster.heard_ms or 0)) // 1000 * 1000)
            session.warn(f"cluster {cluster.name} has not been heard for {quiet} ({shown} HPAs shown as last known)")
            code = PARTIAL
    return code


@get.command("clusters")
@click.argument("names", nargs=-1, metavar="[CLUSTER]…")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@travel_option
@command_options(reads=True)
def get_clusters(session: Session, names: tuple[str, ...], no_headers: bool, output: str) -> int:
    """List clusters: whether their observer is heard, modes, problems."""
    from fleethpa.cli.common.finding import no_such_cluster
    from fleethpa.cli.common.fleetstate import fleet_now
    from fleethpa.cli.output.clustertable import cluster_listing

    state = session.run(fleet_now(session), brief=True)
    views = [view for name, view in state.clusters.items() if not names or name in names]
    if missing := [name for name in names if name not in state.clusters]:
        raise no_such_cluster(missing[0], state)
    if not views and output in ("table", "wide"):
        session.note("No cluster has been heard of. Next: fleethpa run observer --kubeconfig FILE")
    if views or output not in ("table", "wide"):
        session.out(render(cluster_listing(views), output, headers=not no_headers, color=session.color))
    return PARTIAL if any(view.silent for view in views) else OK

"""`fleethpa get`: HPAs, clusters and CapacityGroups as tables; `--watch` keeps running and prints what changes."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from fleethpa.fleet.capacity import group_listing, named_groups
from fleethpa.fleet.decisions import decided
from fleethpa.fleet.finding import TYPE_WORDS, Selection, chosen, no_such_cluster, nothing_found, selection_options
from fleethpa.fleet.hung import is_of_hung
from fleethpa.fleet.lists import beyond, cluster_listing, hpa_listing, visible
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.fleet.views import FleetState, HpaView, by_cause
from fleethpa.frame.errors import OK, PARTIAL, CommandError, SuggestingGroup, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.show.text import Widths
from fleethpa.show.words import counted

if TYPE_CHECKING:
    from streams.history.past import Past

WATCH_EVERY_S: Final = 2.0
_TYPES: Final = {
    **dict.fromkeys(TYPE_WORDS, "hpa"),
    **dict.fromkeys(("cluster", "clusters"), "clusters"),
    **dict.fromkeys(("capacitygroup", "capacitygroups"), "capacitygroups"),
}


class ListedTypes(SuggestingGroup):
    """The types that `get` lists, by every name that kubectl users give them, and with a name behind a slash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            cause = f"The type comes before {args[0].partition('=')[0]}: `hpa`, `clusters` or `capacitygroups`."
            raise usage("`get` needs a type to list", cause=cause, next_step="fleethpa get hpa")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        type_, slash, name = args[0].partition("/")
        known = _TYPES.get(type_.lower())
        if known is not None:
            return super().resolve_command(ctx, [known, *([name] if slash else []), *args[1:]])
        if not args[0].startswith("-"):
            raise _unlisted(type_)
        return super().resolve_command(ctx, args)


def _unlisted(type_: str) -> CommandError:
    if type_.lower() in ("decision", "decisions"):
        return usage("`get` does not list decisions", next_step="fleethpa decisions -A")
    near = difflib.get_close_matches(type_.lower(), _TYPES, n=1, cutoff=0.75)
    if near:
        meant = _TYPES[near[0]]
        return usage(f"unknown type {type_!r}", cause=f"Did you mean `{meant}`?", next_step=f"fleethpa get {meant}")
    return usage(
        f"`get` does not list {type_}",
        cause="It lists `hpa`, `clusters` and `capacitygroups`; everything else is listed by kubectl.",
        next_step=f"kubectl --context CLUSTER get {type_}",
    )


@click.group(cls=ListedTypes)
def get() -> None:
    """List HPAs, clusters or CapacityGroups."""


class _HpaTable:
    """HPAs in the format that is asked for. Under -w later lines stay under the first ones, so all have their columns.

    `by_cause`: only problems are asked for, so that those of several HPAs share a line.
    """

    def __init__(self, session: Session, output: str, by_cause: bool, *, namespaces: bool) -> None:
        self._session, self._output, self._by_cause, self._namespaces = session, output, by_cause, namespaces
        self._widths = Widths()
        self._left_out: frozenset[str] | None = None
        self.is_plain = output in ("table", "wide")

    def show(self, views: list[HpaView], *, headers: bool) -> None:
        """Print some HPAs, and the problems that several of them share."""
        alone = {view.id: list(view.problems) for view in views}
        own, shared = by_cause(views) if self._by_cause and self._output == "table" else (alone, [])
        listed, now_ms = [view for view in views if view.id in own], self._session.now_ms()

        def problems(view: HpaView) -> list[str]:
            return [
                each.text if self._by_cause or self._output != "table" else each.brief or each.label
                for each in own[view.id]
            ]

        if self._left_out is None:
            width = self._session.width if self._output == "table" else None
            self._left_out = beyond(listed, now_ms, width, namespaces=self._namespaces, problems=problems)
        if listed or not self.is_plain:
            listing = hpa_listing(
                listed, now_ms, namespaces=self._namespaces, left_out=self._left_out, problems=problems
            )
            self._session.listing(listing, self._output, headers=headers, widths=self._widths)
        self._session.lines(f"{group.name}: {group.text}" for group in shared)


@get.command("hpa")
@selection_options()
@click.option("-w", "--watch", is_flag=True, help="Keep running and print the HPAs that change.")
@click.option("--problem", is_flag=True, help="Only HPAs with a problem, one line for each cause.")
@click.option("--ignore-not-found", is_flag=True, help="Exit 0 even if a named HPA does not exist.")
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
    """List HPAs with kubectl's columns, and CLUSTER, MODE and PROBLEM.

    On a narrow terminal REFERENCE, AGE, MINPODS and MAXPODS are left out, in this order, and then rows have several
    lines; -o wide leaves nothing out.
    """
    if watch and session.at_ms is not None:
        raise usage("--at and --watch exclude each other", cause="The past does not change.")

    def pick(state: FleetState) -> list[HpaView]:
        if ignore_not_found and selection.refs:
            return [view for hpa, view in state.hpas.items() if selection.matches(hpa, view.labels)]
        return chosen(state, selection)

    async def shown(past: Past, picked: list[HpaView]) -> list[HpaView]:
        views = [view for view in picked if view.problems or not problem]
        if problem or output not in ("table", "name"):
            views = await decided(past, views)
        return [view for view in views if view.problems or not problem]

    async def again(past: Past) -> list[HpaView]:
        return await shown(past, pick(await read_state(past)))

    table = _HpaTable(session, output, problem, namespaces=selection.namespace is None or bool(selection.refs))

    async def work() -> int:
        async with session.past(watching=watch) as past:
            state = await read_state(past)
            picked = pick(state)
            views = await shown(past, picked)
            if not views and table.is_plain:
                healthy = problem and picked
                is_old = any(state.is_known_of_before(view) for view in picked)
                none = "No HPA had a problem when it was last known." if is_old else "No HPA has a problem."
                session.note(none if healthy else nothing_found(selection, state, "get hpa"))
            else:
                table.show(views, headers=not no_headers)
            code = _cluster_troubles(session, state, picked)
            if watch:
                await _watch(lambda: again(past), table, views)
            return code

    return session.run(work(), brief=not watch, follows=watch)


async def _watch(read: Callable[[], Awaitable[list[HpaView]]], table: _HpaTable, before: list[HpaView]) -> None:
    seen = {view.id: visible(view) for view in before}
    while True:
        started = time.monotonic()
        changed = []
        for view in await read():
            if seen.get(view.id) != visible(view):
                seen[view.id] = visible(view)
                changed.append(view)
        if changed:
            table.show(changed, headers=False)
        await asyncio.sleep(max(0.0, WATCH_EVERY_S - (time.monotonic() - started)))


def _cluster_troubles(session: Session, state: FleetState, views: list[HpaView]) -> int:
    """Warn of what is wrong in the clusters of these HPAs; `PARTIAL` where some are shown only as last known."""
    for cluster in state.clusters.values():
        count = sum(view.id.cluster == cluster.name for view in views)
        blind = [trouble for trouble in cluster.troubles if trouble.blinds]
        for trouble in cluster.troubles if count else ():
            known = f"; {counted(count, 'HPA')} shown as last known" if trouble.hides_the_present else ""
            # A remark on the state names it, but of what is not watched only the first.
            is_named = trouble.is_named_first and trouble not in blind[1:]
            if not is_named and not is_of_hung(trouble, state.hung):
                session.warn(f"cluster {cluster.name}: {trouble.text}{known}. Next: {trouble.next_step}")
    is_partial = any(view.is_past or any(each.is_away for each in view.members) for view in views)
    return PARTIAL if is_partial else OK


@get.command("clusters")
@click.argument("names", nargs=-1, metavar="[CLUSTER]…")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@travel_option
@command_options(reads=True)
def get_clusters(session: Session, names: tuple[str, ...], no_headers: bool, output: str) -> int:
    """List clusters: state, last report of the observer, modes and problems."""
    state = session.run(fleet_now(session), brief=True)
    views = [view for name, view in state.clusters.items() if not names or name in names]
    if missing := [name for name in names if name not in state.clusters]:
        raise no_such_cluster(missing[0], state)
    if not views and output in ("table", "wide"):
        session.note("No observer has reported a cluster yet. Next: fleethpa run observer --kubeconfig FILE")
    if views or output not in ("table", "wide"):
        # The reader's clock goes on while the log stands still; in the past, the log's is the only one.
        now_ms = session.now_ms() if session.at_ms is None else state.clock_ms
        session.listing(cluster_listing(views, now_ms), output, headers=not no_headers)
    if output in ("table", "wide"):
        for view in views:
            for trouble in (each for each in view.troubles if not is_of_hung(each, state.hung)):
                session.note(f"{view.name}: {trouble.text}. Next: {trouble.next_step}")
    is_old = state.is_last_known or bool(state.short_ms)
    return PARTIAL if is_old or any(view.hidden for view in views) else OK


@get.command("capacitygroups")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@travel_option
@command_options(reads=True)
def get_capacity_groups(session: Session, names: tuple[str, ...], no_headers: bool, output: str) -> int:
    """List CapacityGroups: limit, how much of it members may use, and how many HPAs are held back.

    What -o yaml prints is put back by `apply -f`. Exit 5: what is shown of an HPA is only the last that was known.
    """
    views = named_groups(session.run(fleet_now(session), brief=True), names)
    if not views and output in ("table", "wide"):
        session.note("No CapacityGroup is in force. Next: fleethpa limits test -f FILE, then fleethpa apply -f FILE")
    else:
        session.listing(group_listing(views), output, headers=not no_headers)
    return PARTIAL if any(view.is_old for view in views) else OK

"""`fleethpa get`: HPAs or clusters in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa import selection as selecting
from fleethpa.completing import hpa_names
from fleethpa.errors import OK, PARTIAL, CommandError, usage
from fleethpa.output.formats import Listing, render
from fleethpa.output.table import Column
from fleethpa.output.times import age, parse_time_ms, rfc3339, span
from fleethpa.selection import Selection
from fleethpa.session import Session, command_options, output_option, travel_option

if TYPE_CHECKING:
    from fleethpa.views import ClusterView, FleetState, HpaView
    from streams.core.moves import Fight

WATCH_EVERY_S: Final = 2.0


@click.group()
def get() -> None:
    """List HPAs or clusters."""


@get.command("hpa")
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option("-w", "--watch", is_flag=True, help="Go on and print what changes.")
@click.option("--problem", is_flag=True, help="Only those at max, stale, paused, refused or not scaling.")
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
    from fleethpa.finding import chosen, nothing_found
    from fleethpa.state import read_state

    if watch and session.at_ms is not None:
        raise usage("--at and --watch exclude each other", cause="The past does not change.")

    def pick(state: FleetState) -> list[HpaView]:
        if ignore_not_found and selection.refs:
            return [view for hpa, view in state.hpas.items() if selection.matches(hpa, view.labels)]
        views = chosen(state, selection)
        return [view for view in views if view.problems] if problem else views

    def show(views: list[HpaView], headers: bool) -> str:
        listing = _listing(views, session.now_ms(), namespaces=selection.namespace is None or bool(selection.refs))
        return render(listing, output, headers=headers, color=session.color)

    async def work() -> int:
        async with session.reader(watching=watch) as reader:
            state = await read_state(reader)
            views = pick(state)
            if not views and output in ("table", "wide"):
                session.note(nothing_found(selection, state, "get hpa"))
            else:
                session.out(show(views, not no_headers))
            code = _silent_clusters(session, state, views)
            if watch:
                await _watch(session, reader, pick, lambda v: show(v, False), views)
            return code

    return session.run(work())


async def _watch(
    session: Session,
    reader: Any,
    pick: Callable[[FleetState], list[HpaView]],
    show: Callable[[list[HpaView]], str],
    before: list[HpaView],
) -> None:
    import asyncio
    import time

    from fleethpa.state import read_state

    seen = {view.id: _visible(view) for view in before}
    while True:
        started = time.monotonic()
        changed = []
        for view in pick(await read_state(reader)):
            if seen.get(view.id) != _visible(view):
                seen[view.id] = _visible(view)
                changed.append(view)
        if changed:
            session.out(show(changed))
        await asyncio.sleep(max(0.0, WATCH_EVERY_S - (time.monotonic() - started)))


def _visible(view: HpaView) -> tuple[str, ...]:
    return tuple(
        column.cell(view) for column in _columns(0, True)[:-1] if column.header not in ("AGE", "STALE", "LAST SCALE")
    )


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


# --- HPAs -------------------------------------------------------------------------------------------------------------


def _style(view: HpaView) -> str:
    if view.at_max:
        return "red"
    if view.problems:
        return "yellow"
    return "dim" if view.mode != "enforce" else ""


def _mode_text(view: HpaView) -> str:
    """The mode, and what keeps it from having its effect."""
    if view.refused:
        return f"{view.mode} (refused)"
    return f"{view.mode} (paused)" if view.paused else view.mode


def _columns(now_ms: int, namespaces: bool) -> list[Column[HpaView]]:
    from fleethpa import kubectl
    from fleethpa.output import words

    first: list[Column[HpaView]] = [Column("NAMESPACE", lambda v: v.id.namespace)] if namespaces else []
    return [
        *first,
        Column("NAME", lambda v: v.id.name),
        Column("CLUSTER", lambda v: v.id.cluster),
        Column("REFERENCE", lambda v: kubectl.reference(v.hpa)),
        Column("TARGETS", lambda v: kubectl.targets(v.hpa)),
        Column("MINPODS", lambda v: str(v.spec.get("minReplicas", "<unset>"))),
        Column("MAXPODS", lambda v: str(v.spec.get("maxReplicas", 0))),
        Column("REPLICAS", lambda v: str(v.status.get("currentReplicas", 0))),
        Column("MODE", _mode_text),
        Column("DESIRED", lambda v: str(v.status.get("desiredReplicas", 0)), wide=True),
        Column("LAST SCALE", lambda v: _since(v.status.get("lastScaleTime"), now_ms), wide=True),
        Column(
            "WINNER", lambda v: words.short(v.decision.decision.selected_metric if v.decision else "") or "-", wide=True
        ),
        Column("LIMITED", lambda v: (words.held_by(v.decision.decision) if v.decision else "") or "-", wide=True),
        Column("STALE", lambda v: _stale(v, now_ms), wide=True),
        Column("PROBLEM", lambda v: ", ".join(v.problems) or "-", wide=True),
        Column("AGE", lambda v: _since((v.hpa.get("metadata") or {}).get("creationTimestamp"), now_ms)),
    ]


def _since(text: str | None, now_ms: int) -> str:
    return age(max(0, now_ms - parse_time_ms(text))) if text else "<unknown>"


def _stale(view: HpaView, now_ms: int) -> str:
    """Age of the oldest sample that the newest evaluation used."""
    if view.decision is None:
        return "-"
    times = [metric.newest for metric in view.decision.decision.metrics if metric.newest is not None]
    return age(max(0, now_ms - min(times))) if times else "-"


def _fight(fight: Fight | None) -> dict[str, Any] | None:
    if fight is None:
        return None
    return {
        "writers": list(fight.writers),
        "turns": fight.turns,
        "since": rfc3339(fight.since),
        "until": rfc3339(fight.until),
        "lowest": fight.lowest,
        "highest": fight.highest,
    }


def _document(view: HpaView) -> dict[str, Any]:
    """An HPA as JSON: the object as kubectl has it, and what fleethpa knows beside."""
    return {
        "cluster": view.id.cluster,
        "mode": view.mode,
        "origin": view.origin,
        "paused": view.paused,
        "refused": view.refused,
        "lastDecision": view.decision.decision.id if view.decision else "",
        "moves": [
            {"time": rfc3339(move.time_ms), "from": move.before, "to": move.after, "by": move.writer}
            for move in view.moves
        ],
        "fight": _fight(view.fight),
        "metadata": view.hpa.get("metadata") or {},
        "spec": view.spec,
        "status": view.status,
    }


def _listing(views: list[HpaView], now_ms: int, *, namespaces: bool) -> Listing[HpaView]:
    return Listing(
        kind="Hpa",
        items=views,
        columns=_columns(now_ms, namespaces),
        document=_document,
        name=lambda view: f"hpa/{view.id}",
        style=_style,
    )


# --- clusters ---------------------------------------------------------------------------------------------------------


@get.command("clusters")
@click.argument("names", nargs=-1, metavar="[CLUSTER]…")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@travel_option
@command_options(reads=True)
def get_clusters(session: Session, names: tuple[str, ...], no_headers: bool, output: str) -> int:
    """List clusters: whether their observer is heard, modes, problems."""
    from fleethpa.state import fleet_now

    state = session.run(fleet_now(session))
    views = [view for name, view in state.clusters.items() if not names or name in names]
    if missing := [name for name in names if name not in state.clusters]:
        known = ", ".join(state.clusters) or "none"
        raise CommandError(
            f"no cluster {missing[0]}", cause=f"Known are {known}.", next_step="fleethpa get clusters", code=4
        )
    if not views and output in ("table", "wide"):
        session.note("No cluster has been heard of. Next: fleethpa run observer --kubeconfig FILE")
    listing = Listing(
        kind="Cluster",
        items=views,
        columns=_cluster_columns(),
        document=_cluster_document,
        name=lambda view: f"cluster/{view.name}",
        style=lambda view: "red" if view.silent else "yellow" if view.problems or view.paused else "",
    )
    if views or output not in ("table", "wide"):
        session.out(render(listing, output, headers=not no_headers, color=session.color))
    return PARTIAL if any(view.silent for view in views) else OK


def _cluster_columns() -> list[Column[ClusterView]]:
    return [
        Column("NAME", lambda c: c.name),
        Column("STATE", _cluster_state),
        Column("HEARD", lambda c: "never" if c.heard_ms is None else age(max(0, c.clock_ms - c.heard_ms))),
        Column("NAMESPACES", lambda c: str(c.namespaces)),
        Column("HPAS", lambda c: str(c.hpas)),
        Column("ENFORCE", lambda c: str(c.modes.get("enforce", 0))),
        Column("SHADOW", lambda c: str(c.modes.get("shadow", 0))),
        Column("NATIVE CONTROLLER", lambda c: c.settings.native_controller or "unknown"),
        Column("PROBLEMS", _problem_text),
    ]


def _cluster_state(cluster: ClusterView) -> str:
    """`up`, `silent`, `frozen`, `paused` or `unknown` (only settings are known)."""
    if cluster.heard_ms is None:
        return "unknown"
    if cluster.silent:
        return "silent"
    return "frozen" if cluster.settings.frozen else "paused" if cluster.paused else "up"


def _problem_text(cluster: ClusterView) -> str:
    from fleethpa.output import words

    texts = [f"{watch}: {words.first_line(text)}" for watch, text in sorted(cluster.problems.items())]
    if cluster.paused:
        texts.insert(0, f"paused {cluster.paused}")
    return "; ".join(texts) or "-"


def _cluster_document(cluster: ClusterView) -> dict[str, Any]:
    import msgspec

    return {
        "name": cluster.name,
        "state": _cluster_state(cluster),
        "heard": None if cluster.heard_ms is None else rfc3339(cluster.heard_ms),
        "namespaces": cluster.namespaces,
        "hpas": cluster.hpas,
        "modes": dict(cluster.modes),
        "paused": cluster.paused,
        "problems": dict(cluster.problems),
        "settings": msgspec.to_builtins(cluster.settings),
    }

"""The fleet as a picture: tiles, a cell for each HPA, problems by cause, last moves, and how full its groups are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest, nsmallest
from itertools import groupby
from math import inf
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import Struct

from fleethpa.fleet.capacity import GroupView, groups_of
from fleethpa.fleet.lists import is_known_up
from fleethpa.fleet.troubles import ClusterView, shared_troubles
from fleethpa.fleet.views import FleetState, HpaView, Problem, Shared, by_cause, cost_per_hour, price_of
from fleethpa.page.fleetview import cluster_rows
from fleethpa.show.words import counted, listed
from schemas.keys import HpaId
from streams.across.allotments import used
from streams.across.capacity import LASTS_MS
from streams.state.acrossrows import CapacityMember
from streams.state.moves import KEPT_MOVES, Move

# --- CapacityGroups ---------------------------------------------------------------------------------------------------

MOST_ROWS: Final = 200
"""Members that the view shows; the others need least."""
_BOUND: Final = ("held", "paused", "off", "refused", "ignored", "saturated")
"""Labels of problems that say why an HPA has not what it wants, for a reason beside its metrics."""


def group_row(group: GroupView) -> dict[str, Any]:
    """Return what the list of the fleet shows of a group. `state` and `style`: as in `GroupView`. `bar`: places in a
    bar of 100: what is in use, what may be used, and the limit.
    """
    may, most = used(group.members), group.limit.count
    widest = max(1, may, most)
    has = sum([each.has * each.weight for each in group.members.values()])
    at = [round(100 * each / widest, 1) for each in (has, may, most)]
    state, style = group.state
    return {
        "name": group.name,
        "use": f"{group.limit.number(may).normalize():f} of {group.limit.text()}",
        "bar": (at[0], at[1], min(99.6, at[2])),  # a mark at the end is within the picture
        "state": state,
        "style": style,
    }


def group_view(group: GroupView, state: FleetState) -> dict[str, Any]:
    """Return what the template shows of a group."""
    known = [(hpa, group.members.get(str(hpa))) for hpa in group.hpas]
    known.sort(key=lambda each: _need(group, each[1]))
    widest = max([1, *[max(each.has, each.wants, group.allotted(each) or 0) for each in group.members.values()]])
    row = group_row(group)
    return {
        "group": group,
        "row": row,
        "title": _title(group, row["use"]),
        "is_weighed": group.limit.kind != "replicas",
        "has_priorities": bool(group.row.spec.priorities),
        "rows": [_row(group, hpa, member, state, widest) for hpa, member in known[:MOST_ROWS]],
        "more": max(0, len(known) - MOST_ROWS),
    }


def _title(group: GroupView, use: str) -> str:
    """How much of the limit is used, and who wants more, as a sentence."""
    wanting, silent = len(group.held), sum([str(hpa) not in group.members for hpa in group.hpas])
    missing = sum([group.missing(each) for each in group.members.values()])
    more = "all have what they want"
    if wanting:
        more = f"{counted(wanting, 'HPA')} {'wants' if wanting == 1 else 'want'} {counted(missing, 'replica')} more"
    elif silent:
        more = f"{silent} {'has' if silent == 1 else 'have'} not reported"
    return f"{use} in {counted(len(group.hpas), 'HPA')}: {more}"


def _need(group: GroupView, member: CapacityMember | None) -> tuple[int, int, int]:
    """The order of the rows: who misses most, then who comes first, then who has most; who has not reported last."""
    return (1, 0, 0) if member is None else (-group.missing(member), -member.priority, -member.has)


def _row(group: GroupView, hpa: HpaId, member: CapacityMember | None, state: FleetState, widest: int) -> dict[str, Any]:
    """A member; `has_at`, `may_have_at` and `wants_at` are places in a bar of 100."""
    text, style = _state(group, hpa, member, state)
    row: dict[str, Any] = {
        "hpa": hpa,
        "state": text,
        "style": style,
        "has_at": 0.0,
        "may_have_at": 0.0,
        "wants_at": None,
    }
    if member is None:
        return row | dict.fromkeys(("has", "wants", "may_have", "priority", "weight"), "-")
    most = group.allotted(member)
    return row | {
        "has": str(member.has),
        "wants": str(member.wants),
        "may_have": "-" if most is None else str(most),
        "priority": str(member.priority),
        "weight": group.limit.text(member.weight) if member.weight else "unknown",
        "has_at": round(100 * member.has / widest, 1),
        "may_have_at": round(100 * max(member.has, most or 0) / widest, 1),
        "wants_at": min(99.0, max(1.0, 100 * member.wants / widest)),
    }


def _state(group: GroupView, hpa: HpaId, member: CapacityMember | None, state: FleetState) -> tuple[str, str]:
    """Return what holds a member back, in words, and the style of that."""
    if member is None:
        return "has not reported", "held"
    if not member.weight:
        return "not bounded: what it uses is not known", ""
    if group.clock_ms - member.taken_ms > LASTS_MS:
        return "silent: counted, and gets nothing", "trouble"
    view = state.hpas.get(hpa)
    text = next((each.text for each in view.problems if each.label in _BOUND), "") if view is not None else ""
    if group.missing(member):
        return text or f"wants {group.missing(member)} more than it may have", "held"
    return (text, "") if text else ("has what it wants", "")


# --- the fleet --------------------------------------------------------------------------------------------------------

HOUR_MS: Final = 3_600_000
REPLAYED_MS: Final = 24 * HOUR_MS
BUCKETS: Final = 96
"""Steps of the slider: a quarter of an hour each."""
CAUSES: Final = 10
ALIKE: Final = 3
NAMED: Final = 3
LATEST: Final = 6
MOST_CLUSTERS: Final = 12
"""Clusters of which the cells are shown at once; of more, those without a problem are folded away."""
NEAREST: Final = 3
"""HPAs that are shown where none has a problem."""
TOP_LEVEL: Final = 4
"""The level of an HPA that has all that it may have; 0: it has its least."""
COLUMNS: Final = 10
"""Cells of a strip that are beside each other in one picture. The pictures of a cluster wrap as words do; an element
for each cell would take a browser longer than the rest of the view.
"""
WIDE_PX: Final = 1_050
"""The pictures have so many rows that they fit beside each other in this width."""
HELD: Final = frozenset({"held", "paused"})
MARKS: Final = frozenset({"bad", "kept"})
"""Classes of what is drawn over a cell."""
NO_TROUBLE: Final = HELD | {"off"}
"""Labels of problems that somebody or a brake wants."""
SHAPES: Final = {"held": "held", "paused": "held", "off": "held", "flapping": "held", "scale-down disabled": "held"}
"""Label of a problem -> the class of its colour and shape, where it is not trouble."""


class Density(NamedTuple):
    """How large cells are drawn up to a number of HPAs: their size, and the space between two of them, in pixels."""

    most: float
    cell: int
    gap: int


DENSITIES: Final = (Density(30, 22, 3), Density(600, 13, 3), Density(2_500, 10, 2), Density(inf, 7, 1))


class Tile(NamedTuple):
    """A count of the fleet. `about`: what is beside it, in the colour and shape `style`; `query`: the HPAs that it
    counts, as a filter.
    """

    name: str
    value: str
    about: str = ""
    style: str = ""
    query: str = ""


class FleetCause(NamedTuple):
    """What several HPAs have wrong, or one, or (0) a cluster itself.

    `hpa`: the one; `cluster`: where the several are; empty: anywhere.
    """

    problem: Problem
    style: str
    hpas: int
    cluster: str = ""
    hpa: HpaId | None = None

    @property
    def text(self) -> str:
        """The text beside its label; empty: the label says it all."""
        label, text = self.problem.label, self.problem.text
        return "" if text == label else text.removeprefix(f"{label}: ")


def level(count: int, least: int, most: int) -> int:
    """The place of a count between two bounds, from 0 (least) to TOP_LEVEL (most)."""
    if count <= least or most <= least:
        return 0
    if count >= most:
        return TOP_LEVEL
    return 1 + (count - least) * (TOP_LEVEL - 1) // (most - least)


def strip_view(state: FleetState, rate: float | None, now_ms: int) -> dict[str, Any]:
    """Return what the template shows beside the list. `rate`: decisions per second; None: not known. `now_ms`: what
    ages refer to.
    """
    views = list(state.hpas.values())
    causes = [*_of_clusters(state.clusters.values()), *_causes(views)]
    density = next(each for each in DENSITIES if len(views) <= each.most)
    return {
        "tiles": list(_tiles(state, views, sum(each.problem.waits and each.hpas > 0 for each in causes), rate)),
        "strip": (rows := unfolded(_rows(state, density, now_ms)))[0],
        "folded": rows[1],
        "groups": [group_row(group) for group in groups_of(state).values()],
        "density": density,
        "causes": causes[:CAUSES],
        "more_causes": max(0, len(causes) - CAUSES),
        "nearest": [] if causes or state.is_last_known else nearest(state),
        "latest": nlargest(LATEST, _moves(views), key=lambda each: (each[1].time_ms, each[0])),
        "moved": _histogram(views, state.clock_ms),
        "buckets": BUCKETS,
        "replayed_ms": REPLAYED_MS,
    }


class NearMax(NamedTuple):
    """An HPA by how much of maxReplicas it has. `cost`: of its replicas per hour; empty: its cluster has no price."""

    hpa: HpaId
    text: str
    cost: str


def nearest(state: FleetState) -> list[NearMax]:
    """Return the HPAs that have the largest part of their maxReplicas: where the next problem is most likely."""
    by_share = []
    for view in state.hpas.values():
        has, most = view.has, view.spec.get("maxReplicas")
        if view.fleet is None and has and most:
            by_share.append((-has / most, view.id, has, most))
    rows = []
    for _, hpa, has, most in nsmallest(NEAREST, by_share):
        price = price_of(state.settings, hpa.cluster)
        rows.append(
            NearMax(hpa, f"{has:,} of at most {most:,}", "" if price is None else f"{price * has:,.2f} per hour")
        )
    return rows


# --- tiles ------------------------------------------------------------------------------------------------------------


def _tiles(state: FleetState, views: Sequence[HpaView], causes: int, rate: float | None) -> Iterator[Tile]:
    modes = Counter(view.mode for view in views)
    others = ", ".join(f"{modes[mode]:,} {mode}" for mode in ("enforce", "shadow", "off") if modes[mode])
    yield Tile("HPAs", f"{len(views):,}", others)
    yield _replicas(state, views)
    yield _changes(state, views)
    yield _saturated(state, views)
    yield _held([{problem.label for problem in view.problems} for view in views])
    yield _problems(views, causes)
    yield _clusters(state)
    if (cost := cost_per_hour(state)) is not None:
        yield Tile("Cost", f"{cost:,.2f}", "per hour")
    if rate is not None:
        yield Tile("Decisions", f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}", "per second")


def _seen(state: FleetState, views: Sequence[HpaView]) -> list[HpaView]:
    """Those that are shown as they are now, and not as they were known last."""
    hidden = {name for name, cluster in state.clusters.items() if cluster.hidden is not None}
    return [] if state.is_last_known else [view for view in views if view.id.cluster not in hidden]


_UNWRITTEN: Final = frozenset({"write failed", "not written"})


def _replicas(state: FleetState, views: Sequence[HpaView]) -> Tile:
    statuses = [view.status for view in views if view.fleet is None]  # a FleetHPA's replicas are in its clusters
    current: list[int] = [status.get("currentReplicas") or 0 for status in statuses]
    wanted: list[int] = [status.get("desiredReplicas") or 0 for status in statuses]
    moves = [after - before for before, after in zip(current, wanted, strict=True) if after]
    more, fewer = sum(move for move in moves if move > 0), -sum(move for move in moves if move < 0)
    unseen = len(views) - len(_seen(state, views))
    if unseen:
        about = "as last known" if unseen == len(views) else f"{counted(unseen, 'HPA')} as last known"
        return Tile("Replicas", f"{sum(current):,}", about)
    # Their statuses show as desired what they have.
    if unwritten := sum(any(each.label in _UNWRITTEN for each in view.problems) for view in views):
        return Tile("Replicas", f"{sum(current):,}", f"{counted(unwritten, 'HPA')} not written", "trouble")
    about = f"{more:,} more decided" if more else f"{fewer:,} fewer decided" if fewer else "as decided"
    return Tile("Replicas", f"{sum(current):,}", about, "up" if more else "down" if fewer else "")


def _problems(views: Sequence[HpaView], causes: int) -> Tile:
    """The HPAs with a problem, as the verdict counts them, and how many of them wait for what they want."""
    troubled, waiting = sum(view.weight > 0 for view in views), sum(view.weight > 1 for view in views)
    about = "none waits for replicas" if troubled else "none"
    if waiting:
        some = f"{waiting:,} {'waits' if waiting == 1 else 'wait'} for replicas"
        about = f"in {counted(causes, 'cause')}" if waiting == troubled else some
    return Tile("Problems", f"{troubled:,}", about, "trouble" if waiting else "", "problem:any")


def _saturated(state: FleetState, views: Sequence[HpaView]) -> Tile:
    """The HPAs that ask for more than maxReplicas, beside those that are there and have enough."""
    seen = _seen(state, views)
    if (views and not seen) or state.is_last_known:  # what metrics ask for is not known
        return Tile("Saturated", "?", "not known now")
    saturated = sum(view.is_saturated for view in seen)
    content = sum(view.is_content_at_max for view in seen)
    if saturated:
        about = f"ask for more; {content:,} at max with enough" if content else "ask for more than max"
    else:
        about = f"{content:,} at max with enough" if content else "none"
    if len(seen) < len(views):
        about += f"; {counted(len(views) - len(seen), 'HPA')} not known"
    return Tile("Saturated", f"{saturated:,}", about, "trouble" if saturated else "", "problem:saturated")


def _clusters(state: FleetState) -> Tile:
    known = len(state.clusters)
    if state.is_last_known:
        return Tile("Clusters", f"?/{known}", "not known now", "trouble")
    away = [name for name, cluster in state.clusters.items() if not is_known_up(cluster)]
    if not away:
        return Tile("Clusters", str(known), "up")
    names = f"{', '.join(away[:2])}{' …' if len(away) > 2 else ''}"
    return Tile("Clusters", f"{known - len(away)}/{known}", f"{names} not seen", "trouble")


def _held(labels: Sequence[set[str]]) -> Tile:
    """The HPAs that a pause or a brake holds; its link leads to all of them, or to every problem where it is both."""
    paused = sum("paused" in own for own in labels)
    braked = sum("held" in own and "paused" not in own for own in labels)
    about = ", ".join([f"{paused} paused"] * bool(paused) + [f"{braked} by a brake"] * bool(braked)) or "none"
    query = "problem:any" if paused and braked else "problem:paused" if paused else "problem:held"
    return Tile("Held", f"{paused + braked:,}", about, "held" if paused or braked else "", query)


def _changes(state: FleetState, views: Sequence[HpaView]) -> Tile:
    """The moves of the last hour. Of each HPA the newest few are known: where these are all of this hour, there may
    have been more, and no number is known.
    """
    recent = [[move for move in view.moves if move.time_ms > state.clock_ms - HOUR_MS] for view in views]
    up = sum(move.after > move.before for moves in recent for move in moves)
    count = sum(map(len, recent))
    if any(len(moves) >= KEPT_MOVES for moves in recent):
        return Tile("Changes in 1 h", "many", "more than are kept; see Changes")
    return Tile("Changes in 1 h", f"{count:,}", f"▲ {up:,} ▼ {count - up:,}" if count else "none")


# --- the strip --------------------------------------------------------------------------------------------------------


def _rows(state: FleetState, density: Density, now_ms: int) -> list[dict[str, Any]]:
    """The clusters as `cluster_rows` gives them. `label`: what the cells of one say in words; `picture`: the cells."""
    by_cluster = {name: list(views) for name, views in groupby(state.hpas.values(), key=lambda view: view.id.cluster)}
    return [row | _drawn(by_cluster.get(row["name"], []), density) for row in cluster_rows(state, now_ms)]


def unfolded(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The clusters that are shown, and those that are folded away: of many, clusters without a problem."""
    room = max(0, MOST_CLUSTERS - sum(_is_troubled(row) for row in rows))
    shown, folded = [], []
    for row in rows:
        if _is_troubled(row) or room > 0 or len(rows) <= MOST_CLUSTERS:
            shown.append(row)
            room -= not _is_troubled(row)
        else:
            folded.append(row)
    return shown, folded


def _is_troubled(row: dict[str, Any]) -> bool:
    return bool(row["style"] != "green" or row["has_watch_problem"] or row["cells"]["PROBLEMS"] != "-")


def _drawn(views: Sequence[HpaView], density: Density) -> dict[str, Any]:
    cells = [_cell(view) for view in views]
    levels = Counter(cell.partition(" ")[0] for cell in cells)
    troubled = sum(" bad" in cell for cell in cells)
    label = (
        f"{counted(len(views), 'HPA')}: {levels[f'l{TOP_LEVEL}']} at max, {levels['l0']} at min, {troubled} in trouble"
    )
    rows = max(1, -(-len(cells) * (density.cell + density.gap) // WIDE_PX))
    at_once = COLUMNS * rows
    picture = "".join(_block(cells[first : first + at_once], density) for first in range(0, len(cells), at_once))
    # The classes are words of this module; no name of the fleet is in the markup.
    return {"label": label, "rows": rows, "picture": Markup(picture)}


def _block(cells: Sequence[str], density: Density) -> str:
    """Some cells as one picture (SVG): a path for each class, with a square for each of its cells."""
    cell, step, columns = density.cell, density.cell + density.gap, COLUMNS
    wide = round(cell * 0.3, 1)
    dot = f"a{wide} {wide} 0 1 0 {2 * wide} 0a{wide} {wide} 0 1 0-{2 * wide} 0z"
    paths: dict[str, list[str]] = {}
    for number, classes in enumerate(cells):
        x, y = step * (number % columns), step * (number // columns)
        place, _, mark = classes.partition(" ")
        paths.setdefault(place, []).append(f"M{x} {y}h{cell}v{cell}h-{cell}z")
        if mark == "kept":  # drawn with a line of two pixels, within the edges of the cell
            paths.setdefault(mark, []).append(f"M{x + 1} {y + 1}h{cell - 2}v{cell - 2}h-{cell - 2}z")
        elif mark:
            paths.setdefault(mark, []).append(f"M{x + cell / 2 - wide} {y + cell / 2}{dot}")
    drawn = "".join(
        f'<path class="{each}" d="{"".join(paths[each])}"/>' for each in sorted(paths, key=MARKS.__contains__)
    )
    width, height = step * min(len(cells), columns), step * -(-len(cells) // columns)
    return f'<svg width="{width}" height="{height}">{drawn}</svg>'


def _cell(view: HpaView) -> str:
    count, most = view.has, view.spec.get("maxReplicas") or 0
    place = "none" if count is None else f"l{level(count, view.spec.get('minReplicas', 1), most)}"
    if any(problem.waits and problem.label not in NO_TROUBLE for problem in view.problems):
        return f"{place} bad"
    return f"{place} kept" if any(problem.label in HELD for problem in view.problems) else place


class ReplayedHpa(Struct, array_like=True):
    """What a cell of the strip shows at any moment of the last day: the moves are (seconds, before, after)."""

    name: str
    least: int
    most: int
    count: int | None
    moves: list[tuple[int, int, int]]
    is_whole: bool
    """Whether these are all moves of the day."""


class Replay(Struct, rename="camel"):
    """The last day of the fleet: for each cluster, its HPAs in the order of their cells. `end`: in seconds."""

    end: int
    span: int
    clusters: dict[str, list[ReplayedHpa]]


def replay(state: FleetState) -> Replay:
    """The moves of the last day, of each HPA the newest few; the bounds are those of now."""
    by_cluster: dict[str, list[ReplayedHpa]] = {name: [] for name in state.clusters}
    since_ms = state.clock_ms - REPLAYED_MS
    for id_, view in state.hpas.items():
        moves = [(move.time_ms // 1000, move.before, move.after) for move in view.moves if move.time_ms > since_ms]
        by_cluster.setdefault(id_.cluster, []).append(
            ReplayedHpa(
                f"{id_.namespace}/{id_.name}",
                view.spec.get("minReplicas", 1),
                view.spec.get("maxReplicas") or 0,
                view.has,
                moves,
                len(moves) < KEPT_MOVES,
            )
        )
    return Replay(state.clock_ms // 1000, REPLAYED_MS // 1000, by_cluster)


def _moves(views: Iterable[HpaView]) -> Iterator[tuple[HpaId, Move]]:
    return ((view.id, move) for view in views for move in view.moves)


def _histogram(views: Iterable[HpaView], end_ms: int) -> str:
    """The moves of the last day as bars: an SVG path of BUCKETS by 20."""
    counts = [0] * BUCKETS
    for _, move in _moves(views):
        before_ms = end_ms - move.time_ms
        if 0 <= before_ms < REPLAYED_MS:
            counts[BUCKETS - 1 - before_ms * BUCKETS // REPLAYED_MS] += 1
    most = max([1, *counts])
    return "".join(f"M{at} 20h.8v{-round(19 * count / most + 1, 1)}h-.8z" for at, count in enumerate(counts) if count)


# --- problems by cause ------------------------------------------------------------------------------------------------


def _of_clusters(clusters: Iterable[ClusterView]) -> Iterator[FleetCause]:
    """The gravest trouble of each cluster, once for all that have the same; those that hide the present come first."""
    troubles = shared_troubles((cluster, trouble) for cluster in clusters for trouble in cluster.troubles[:1])
    for each in sorted(troubles, key=lambda each: (not each.trouble.hides_the_present, each.text)):
        text = each.trouble.text if len(each.clusters) == 1 else each.text
        style = "trouble" if each.trouble.hides_the_present else "held"
        yield FleetCause(Problem("cluster", text), style, 0, listed(each.clusters, NAMED))


def _causes(views: Sequence[HpaView]) -> Iterator[FleetCause]:
    """Yield what needs a look: what many HPAs of a cluster have in common first, then what each has of its own.

    Where more than ALIKE have an own problem with the same label, that is one line, and so are pauses and the like that
    many clusters have.
    """
    own, shared = by_cause(views)
    problems = {problem.cause: problem for view in views for problem in view.problems}
    groups = [(problems[each.text], each) for each in shared]
    groups.sort(key=lambda each: (_is_kept(each[0]), -len(each[1].views), each[1].cluster, each[1].text))
    alone = [(problem, hpa) for hpa, own_problems in own.items() for problem in own_problems]
    summed = _summed(groups, alone)
    for problem, group in groups:
        if not (_is_kept(problem) and problem.label in summed):
            # What one of them has of its own, such as its replicas, is not said of all.
            yield _cause(problem._replace(text=group.text), len(group.views), group.cluster)
    by_label = {problem.label: problem for problem, _ in (*groups, *alone)}
    for label, count in summed.most_common():
        yield _cause(by_label[label]._replace(text=label), count)
    for problem, hpa in sorted(alone, key=lambda each: (not each[0].waits, each[1])):
        if problem.label not in summed:
            yield _cause(problem, 1, hpa.cluster, hpa)


def _summed(groups: Sequence[tuple[Problem, Shared]], alone: Sequence[tuple[Problem, HpaId]]) -> Counter[str]:
    """The labels that are one line each, and how many HPAs have them."""
    kept = [(problem.label, len(group.views)) for problem, group in groups if _is_kept(problem)]
    singles, calm = Counter(problem.label for problem, _ in alone), Counter(label for label, _ in kept)
    summed = {label: singles[label] for label in (singles | calm) if singles[label] > ALIKE or calm[label] > NAMED}
    for label, hpas in kept:
        if label in summed:
            summed[label] += hpas
    return Counter(summed)


def _is_kept(problem: Problem) -> bool:
    """Whether somebody or a brake wants it so, or nothing is missing: what fails comes before it."""
    return problem.label in HELD or not problem.waits


def _cause(problem: Problem, hpas: int, cluster: str = "", hpa: HpaId | None = None) -> FleetCause:
    # As its row in the list is coloured: what nobody waits for is no trouble.
    style = SHAPES.get(problem.label, "trouble" if problem.waits else "held")
    return FleetCause(problem, style, hpas, cluster, hpa)

"""`fleethpa describe`: all about one HPA on one page."""

from __future__ import annotations

from typing import Any

import click

from fleethpa.fleet.decisionfinding import short_ids
from fleethpa.fleet.decisionpage import metric_health
from fleethpa.fleet.decisions import last_of, with_newest
from fleethpa.fleet.finding import Selection, chosen, selection_options
from fleethpa.fleet.lists import has_old_values, possible
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.show import words
from fleethpa.show.kubectl import describe as kubectl_describe
from fleethpa.show.text import layout, shown
from runtime.log import clean, clean_lines
from streams.history.recorded import Recorded


@click.command()
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME…")
@travel_option
@command_options(reads=True)
def describe(session: Session, selection: Selection) -> None:
    """Show HPAs as `kubectl describe hpa` does, then mode, inputs and last decisions."""

    async def work() -> list[tuple[HpaView, list[Recorded]]]:
        async with session.past() as past:
            state = await read_state(past)
            views = chosen(state, selection)
            last = await last_of(past, views)
            return [(with_newest(view, last[view.id]), last[view.id]) for view in views]

    hpas = session.run(work(), brief=True)
    if not hpas:
        session.note(f"No HPAs found in {selection}. Next: fleethpa get hpa -A")
    pages = [page(session, view, last) for view, last in hpas]
    session.lines(line for number, lines in enumerate(pages) for line in [*[""] * (2 * bool(number)), *lines])


def page(session: Session, view: HpaView, last: list[Recorded]) -> list[str]:
    """The page of one HPA: kubectl's part, a blank line, ours."""
    head = kubectl_describe(_cleaned(possible(view.hpa)))
    if has_old_values(view):
        head = head.replace("( current / target )", "( last known / target )", 1)
    return [
        *head.rstrip("\n").splitlines(),
        "",
        *_facts(view),
        *_division(view),
        *_inputs(session, view),
        *_moves(session, view),
        *_decisions(session, last),
        f"Next: fleethpa explain {view.id}",
    ]


def _cleaned(value: Any) -> Any:
    """An object whose texts keep to their lines; the lines of an annotation are kept, since kubectl indents them."""
    if isinstance(value, dict):
        cleaned = {clean(key): _cleaned(each) for key, each in value.items()}
        annotations = value.get("annotations")
        if isinstance(annotations, dict):
            cleaned["annotations"] = {clean(key): clean_lines(text) for key, text in annotations.items()}
        return cleaned
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return clean(value) if isinstance(value, str) else value


def _facts(view: HpaView) -> list[str]:
    rows = [
        ("Cluster:", view.id.cluster),
        ("Mode:", f"{view.mode} ({view.origin})"),
        ("Paused:", view.paused or "no"),
        ("Override:", view.override_text),
        ("Refused:", view.refused),
        ("FleetHPA:", str(view.fleet_hpa or "")),
        ("Incomplete:", view.incomplete),
        ("Changed by:", view.author + (f" ({view.reason})" if view.author and view.reason else "")),
    ]
    return layout([row for row in rows if row[1]])


def _division(view: HpaView) -> list[str]:
    """The clusters of a FleetHPA, with what its newest decision gives each."""
    if view.fleet is None:
        return []
    known = {} if view.decision is None else view.decision.decision.observed.get("clusters", {})
    rows = []
    for each in view.fleet.clusters:
        division = known.get(each.name, {})
        bounds, share = f"{each.min_replicas} … {each.max_replicas}", str(division.get("share", "-"))
        rows.append((f"  {each.name}", str(each.weight), bounds, share, words.of_cluster(division)))
    return ["Clusters:", *layout([("  CLUSTER", "WEIGHT", "BOUNDS", "SHARE", "NOTE"), *rows])]


def _inputs(session: Session, view: HpaView) -> list[str]:
    if view.decision is None:
        return ["Inputs:         none yet"]
    decision, now_ms = view.decision.decision, session.now_ms()
    rows = [(f"  {metric}", *others) for metric, *others in metric_health(decision, now_ms)]
    return ["Inputs:", *layout([("  METRIC", "SOURCE", "NEWEST SAMPLE", "PODS USED", "NOTE"), *rows])]


def _moves(session: Session, view: HpaView) -> list[str]:
    """Who moved the replicas."""
    if not view.moves:
        return []
    rows = [
        (f"  {shown(move.time_ms, session.time_style, session.now_ms())}", f"{move.before} → {move.after}", move.writer)
        for move in reversed(view.moves)
    ]
    fight = [f"  Fight: {words.fight(view.fight)}"] if view.fight is not None else []
    return ["Moved by:", *fight, *layout([("  TIME", "REPLICAS", "WHO"), *rows])]


def _decisions(session: Session, last: list[Recorded]) -> list[str]:
    if not last:
        return ["Last decisions: none yet"]
    ids = short_ids(recorded.decision.id for recorded in last)
    rows = [
        (
            f"  {shown(recorded.time_ms, session.time_style, session.now_ms())}",
            words.change(recorded.decision),
            ids[recorded.decision.id],
            words.why(recorded.decision),
        )
        for recorded in reversed(last)
    ]
    return ["Last decisions:", *layout([("  TIME", "REPLICAS", "ID", "WHY"), *rows])]

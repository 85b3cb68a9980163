"""`fleethpa status`: whether HPAs run the desired number of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click

from fleethpa.fleet.finding import Selection, chosen, nothing_found, selection_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView, Problem, by_cause
from fleethpa.frame.errors import ANSWER_IS_NO, OK
from fleethpa.frame.session import Session, command_options
from fleethpa.show.text import layout

EVERY_S: Final = 1.0


@click.command()
@selection_options()
@click.option("-w", "--watch", is_flag=True, help="Wait until all have the desired replicas; see --timeout.")
@command_options(reads=True)
def status(session: Session, selection: Selection, watch: bool) -> int:
    """Report whether HPAs run the desired number of replicas, and whether anything keeps them from being scaled.

    Exit 1 if one does not: an HPA that is paused, refused or off, whose scale or metrics cannot be read, that fights
    with another writer, or whose replicas are not yet as desired. HPAs of a cluster with the same cause share a line.
    """

    async def work() -> int:
        shown: list[str] = []
        async with session.past(watching=watch) as past:
            while True:
                state = await read_state(past)
                views = chosen(state, selection)
                if not views and not shown:
                    session.note(nothing_found(selection, state, "status"))
                    return OK
                lines = layout(rows(views))
                if lines != shown:
                    session.lines(line for line in lines if line not in shown)
                    shown = lines
                waiting = any(_waits(view, view.problems) for view in views)
                if not (watch and waiting):
                    return ANSWER_IS_NO if waiting else OK
                await asyncio.sleep(EVERY_S)

    return session.run(work(), brief=not watch)


def rows(views: list[HpaView]) -> list[tuple[str, str]]:
    """Name and state of each HPA, and of all HPAs of a cluster that share the cause of a problem."""
    own, shared = by_cause(views)
    listed = [(str(view.id), _row(view, own[view.id])) for view in views if view.id in own]
    return listed + [(group.name, group.text) for group in shared]


def _row(view: HpaView, own: list[Problem]) -> str:
    texts = "; ".join(problem.text for problem in own if not problem.waits)
    # One that also has a shared problem is not ok, and its replicas are not as desired because of that.
    if len(own) < len(view.problems):
        return _texts(own)
    if view.is_content_at_max:
        texts = "; ".join(filter(None, (f"at max {view.spec['maxReplicas']}, has enough", texts)))
    return _waits(view, own) or (f"ok ({texts})" if texts else "ok")


def _waits(view: HpaView, problems: Sequence[Problem]) -> str:
    """Return what keeps an HPA from having what it wants, of some problems; empty: nothing."""
    if waits := [problem for problem in problems if problem.waits]:
        return _texts(waits)
    status = view.status
    if not status.get("conditions"):
        return "not evaluated yet"
    current, desired = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    return f"{current} replicas, {desired} desired" if current != desired else ""


def _texts(problems: list[Problem]) -> str:
    return "; ".join(problem.text for problem in problems)

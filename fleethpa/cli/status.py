"""`fleethpa status`: whether HPAs run the desired number of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import click

from fleethpa.fleet.decisions import decided
from fleethpa.fleet.finding import Selection, chosen, nothing_found, selection_options
from fleethpa.fleet.lists import short_decision
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView, Problem, by_cause
from fleethpa.frame.errors import ANSWER_IS_NO, NOT_FOUND, OK, PARTIAL
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.text import layout
from fleethpa.show.words import counted
from schemas.keys import HpaId

EVERY_S: Final = 1.0
StatusRow = tuple[str, ...]
"""Name, with `-o wide` the newest decision, and state."""


@click.command()
@selection_options()
@click.option("-w", "--watch", is_flag=True, help="Wait until all have the desired replicas; see --timeout.")
@output_option(formats=("table", "wide"))
@command_options(reads=True)
def status(session: Session, selection: Selection, watch: bool, output: str) -> int:
    """Report whether HPAs run the desired number of replicas, and whether anything keeps them from being scaled.

    Exit 1 if one does not: an HPA that is paused, refused or off, whose scale or metrics cannot be read, that fights
    with another writer, or whose replicas are not yet as desired; exit 5 if it is only known that they did, since a
    process hangs or a cluster is away; exit 4 if no HPA matches. HPAs of a cluster with the same cause share a line;
    with -o wide each has its own, with the ID of its newest decision, which `fleethpa explain` takes.
    """

    async def work() -> int:
        shown: list[StatusRow] = []
        async with session.past(watching=watch) as past:
            while True:
                state = await read_state(past)
                views = chosen(state, selection)
                if not views and not shown:
                    session.note(nothing_found(selection, state, "status"))
                    return NOT_FOUND
                old = {view.id for view in views if state.is_known_of_before(view)}
                listed = wide_rows(await decided(past, views), old) if output == "wide" else rows(views, old)
                session.lines(changed_lines(listed, shown))
                shown = listed
                waiting = any(_waits(view, view.problems) for view in views)
                if not (watch and (waiting or old)):
                    return ANSWER_IS_NO if waiting else PARTIAL if old else OK
                await asyncio.sleep(EVERY_S)

    return session.run(work(), brief=not watch)


def changed_lines(listed: Sequence[StatusRow], shown: Sequence[StatusRow]) -> list[str]:
    """Return the lines of the rows whose state has changed since it was shown; a new decision alone does not count."""
    known = {(row[0], row[-1]) for row in shown}
    return [line for row, line in zip(listed, layout(listed), strict=True) if (row[0], row[-1]) not in known]


def rows(views: Sequence[HpaView], old: Collection[HpaId]) -> list[StatusRow]:
    """Name and state of each HPA, and of all HPAs of a cluster that share the cause of a problem.

    `old`: those of which only the last that was known is known.
    """
    own, shared = by_cause(views)
    listed: list[StatusRow] = [(str(view.id), _row(view, own[view.id], old)) for view in views if view.id in own]
    return listed + [(group.name, group.text) for group in shared]


def wide_rows(views: Iterable[HpaView], old: Collection[HpaId]) -> list[StatusRow]:
    """Name, newest decision and state of each HPA, as its view has them (`decided`)."""
    return [(str(view.id), short_decision(view), _row(view, list(view.problems), old)) for view in views]


def _row(view: HpaView, own: list[Problem], old: Collection[HpaId]) -> str:
    texts = "; ".join(problem.text for problem in own if not problem.waits)
    # One that also has a shared problem is not ok, and its replicas are not as desired because of that.
    if len(own) < len(view.problems):
        return _texts(own)
    if view.is_content_at_max:
        texts = "; ".join(filter(None, (f"at max {view.spec['maxReplicas']}, has enough", texts)))
    was = "ok when last known" if view.id in old else "ok"
    return _waits(view, own) or (f"{was} ({texts})" if texts else was)


def _waits(view: HpaView, problems: Sequence[Problem]) -> str:
    """Return what keeps an HPA from having what it wants, of some problems; empty: nothing."""
    if waits := [problem for problem in problems if problem.waits]:
        return _texts(waits)
    status = view.status
    if not status.get("conditions"):
        return "not evaluated yet"
    current, desired = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    return f"{counted(current, 'replica')}, {desired} desired" if current != desired else ""


def _texts(problems: list[Problem]) -> str:
    return "; ".join(problem.text for problem in problems)

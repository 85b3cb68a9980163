"""`fleethpa status`: whether HPAs have what they want; `--watch` waits until they do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.output.table import layout

if TYPE_CHECKING:
    from fleethpa.cli.common.views import HpaView

EVERY_S: Final = 1.0


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option("-w", "--watch", is_flag=True, help="Wait until all have what they want; see --timeout.")
@command_options(reads=True)
def status(session: Session, selection: Selection, watch: bool) -> int:
    """Say whether HPAs have what they want: replicas as desired, and scaling active. Exit 1 where one has not."""
    from fleethpa.cli.common.finding import chosen, nothing_found
    from fleethpa.cli.common.fleetstate import read_state, remark

    async def work() -> int:
        told: list[str] = []
        async with session.past(watching=watch) as past:
            while True:
                state = await read_state(past)
                if not told:
                    remark(session, past, state)
                rows = [(view, unsettled(view)) for view in chosen(state, selection)]
                if not rows and not told:
                    session.note(nothing_found(selection, state, "status"))
                    return OK
                lines = layout([(str(view.id), why or "ok") for view, why in rows])
                if lines != told:
                    session.out("\n".join(line for line in lines if line not in told))
                    told = lines
                waiting = any(why for _, why in rows)
                if not (watch and waiting):
                    return ANSWER_IS_NO if waiting else OK
                await asyncio.sleep(EVERY_S)

    return session.run(work(), brief=not watch)


def unsettled(view: HpaView) -> str:
    """What an HPA still lacks, in words; empty: nothing."""
    status = view.status
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    for name in ("AbleToScale", "ScalingActive"):
        if conditions.get(name, {}).get("status") == "False":
            return f"{name} is False: {conditions[name].get('reason')}"
    if not conditions:
        return "not evaluated yet"
    current, desired = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    return f"{current} replicas, {desired} desired" if current != desired else ""

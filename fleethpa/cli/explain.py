"""`fleethpa explain`: one decision, step by step, with every number that led to it and what would have changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.explaining import Again, document, evaluated_again, troubles_of
from fleethpa.cli.common.explanation import explanation
from fleethpa.cli.common.finding import find_decision, name_and_moment
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import one
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from fleethpa.cli.common.clustertroubles import ClusterTrouble


@click.command()
@click.argument("what", shell_complete=hpa_names, metavar="[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("--at", metavar="TIME|2h", help="The decision that was in force at that time.")
@click.option("--change", is_flag=True, help="The newest decision that changed the replicas.")
@click.option(
    "--counterfactuals/--no-counterfactuals", default=True, help="Search for values that would have changed the answer."
)
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def explain(
    session: Session, what: str, namespace: str | None, at: str | None, change: bool, counterfactuals: bool, output: str
) -> None:
    """Show a decision step by step, with every number that led to it.

    Name an HPA for its newest evaluation (with @TIME, the one in force at that time), or give the ID of a decision,
    which may be short. Decisions that changed nothing are explained too. What would have changed the answer is found
    by evaluating the decision again, from the log, with other values.
    """
    name, at_ms = name_and_moment(session, what, at)

    async def work() -> tuple[Recorded, Recorded | None, Again, list[ClusterTrouble]]:
        async with session.past() as past:
            found, ending = await find_decision(past, name, namespace, at_ms=at_ms, change=change)
            again = await evaluated_again(past, found) if counterfactuals else Again(found)
            if again.lacking:
                session.note(f"note: what would have changed the answer cannot be found out: {again.lacking}")
            return again.recorded, ending, again, await troubles_of(past, found, ending, session.now_ms())

    recorded, ending, again, troubles = session.run(work())
    if output != "table":
        session.out(_document(again, output))
        return
    lines = explanation(
        recorded.decision,
        ending.decision if ending else None,
        now_ms=session.now_ms(),
        time_style=session.time_style,
        color=session.color,
        would=again.would,
        fight=again.fight,
        troubles=troubles,
    )
    session.lines(lines)


def _document(again: Again, output: str) -> str:
    return one("Decision", document(again), output)

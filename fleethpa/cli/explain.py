"""`fleethpa explain`: one decision step by step."""

from __future__ import annotations

import click

from fleethpa.fleet.decisionfinding import find_decision, name_and_moment
from fleethpa.fleet.decisionpage import explanation_lines
from fleethpa.fleet.finding import hpa_names
from fleethpa.fleet.state import look_for_trouble
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.fleet.views import HpaView
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.explaining import Again, document, evaluated_again, troubles_of
from fleethpa.show.formats import one
from schemas.keys import HpaId
from streams.history.recorded import Recorded


def _warn_of_end(session: Session, view: HpaView | None, hpa: HpaId) -> None:
    """Warn where the newest decision is the last one: none follows it."""
    if view is None:
        session.warn(f"{hpa} has been deleted; this was its last decision. Next: fleethpa history {hpa}")
    elif view.mode == "off":
        session.warn(f"{hpa} is off now: nothing was decided since. Next: fleethpa history {hpa}")


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

    async def work() -> tuple[Again, Recorded | None, list[ClusterTrouble]]:
        async with session.past() as past:
            recorded, ending, state = await find_decision(past, name, namespace, at_ms=at_ms, change=change)
            if state is None:
                await look_for_trouble(past, recorded)
            elif at_ms is None and not change:
                _warn_of_end(session, state.hpas.get(recorded.hpa), recorded.hpa)
            again = await evaluated_again(past, recorded) if counterfactuals else Again(recorded)
            return again, ending, await troubles_of(past, recorded, ending, session.now_ms())

    again, ending, troubles = session.run(work())
    if again.unknown:
        session.note(f"note: what would have changed the answer cannot be found out: {again.unknown}")
    if output != "table":
        session.out(one("Decision", document(again), output))
        return
    explanation = again.explained(ending, troubles)
    now_ms = session.now_ms()
    session.lines(explanation_lines(explanation, now_ms=now_ms, time_style=session.time_style, color=session.color))

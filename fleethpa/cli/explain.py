"""`fleethpa explain`: one decision, step by step, with every number that led to it and what would have changed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.session import Session, command_options, output_option
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from fleethpa.cli.common.clustertroubles import ClusterTrouble
    from streams.analysis.counterfactual import Counterfactuals
    from streams.history.past import Past
    from streams.state.moves import Fight
    from streams.state.probe import EvaluationInputs

RECENT_MS: Final = 300_000
"""A decision that is older says nothing of how its cluster is now."""


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
    from fleethpa.cli.common.finding import find_decision, name_and_moment
    from fleethpa.cli.output.explanation import explanation

    name, at_ms = name_and_moment(session, what, at)

    async def work() -> tuple[Recorded, Recorded | None, Again, list[ClusterTrouble]]:
        async with session.past() as past:
            found, ending = await find_decision(past, name, namespace, at_ms=at_ms, change=change)
            again = await _again(session, past, found) if counterfactuals else Again(found)
            return again.recorded, ending, again, await _troubles(session, past, found, ending)

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
    session.page("\n".join(lines))


@dataclass(frozen=True)
class Again:
    """A decision that was evaluated again: the whole record, what would have changed the answer, and a fight over the
    replicas that went on then.
    """

    recorded: Recorded
    would: Counterfactuals | None = None
    fight: Fight | None = None


async def _troubles(session: Session, past: Past, found: Recorded, ending: Recorded | None) -> list[ClusterTrouble]:
    """What is wrong in the cluster of a decision of now that failed, or whose write did."""
    from fleethpa.cli.common.fleetstate import read_state

    failed = found.decision.error or (ending is not None and ending.decision.error)
    if not failed or session.now_ms() - found.time_ms > RECENT_MS:
        return []
    cluster = (await read_state(past)).clusters.get(found.decision.cluster)
    return cluster.troubles if cluster is not None else []


async def _again(session: Session, past: Past, found: Recorded) -> Again:
    """Evaluate it again: all steps of a short record, and what would have changed the answer."""
    from streams.analysis.counterfactual import counterfactuals
    from streams.history.evaluationinputs import evaluation_of
    from streams.history.past import LogGoneError
    from streams.state.moves import fight_now

    if found.decision.kind != "evaluation":
        return Again(found)
    try:
        again = await evaluation_of(past, found)
    except LogGoneError as error:
        session.note(f"note: what would have changed the answer cannot be found out: {error}")
        return Again(found)
    inputs = again.inputs
    whole = _whole(found, inputs) if found.short else found
    return Again(whole, counterfactuals(inputs), fight_now(inputs.moves, inputs.now_ms))


def _whole(found: Recorded, inputs: EvaluationInputs) -> Recorded:
    """A short record with the windows, policies and sample times of its own evaluation."""
    from dataclasses import replace

    from msgspec import structs

    from streams.analysis.answer import answer
    from streams.state import decisionrecords

    evaluation = answer(inputs).evaluation
    made = decisionrecords.steps(evaluation) + [step for step in found.decision.steps if step.step == "guard"]
    metrics = [decisionrecords.metric_decision(metric) for metric in evaluation.metrics]
    return replace(found, decision=structs.replace(found.decision, steps=made, metrics=metrics))


def _document(again: Again, output: str) -> str:
    import msgspec

    from fleethpa.cli.common.decisionlists import document
    from fleethpa.cli.output.formats import one

    body: dict[str, Any] = document(again.recorded.decision)
    if again.would is not None:
        body["counterfactuals"] = msgspec.to_builtins(again.would)
    if again.fight is not None:
        body["fight"] = msgspec.to_builtins(again.fight)
    return one("Decision", body, output)

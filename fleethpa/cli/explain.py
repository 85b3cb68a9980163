"""`fleethpa explain`: one decision, step by step, with every number that led to it and what would have changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.completing import hpa_names
from fleethpa.cli.common.session import Session, command_options, output_option
from streams.history.recorded import Recorded

if TYPE_CHECKING:
    from streams.analysis.counterfactual import Counterfactuals
    from streams.history.past import Past
    from streams.state.probe import EvaluationInputs


@click.command()
@click.argument("what", shell_complete=hpa_names, metavar="[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("--at", metavar="TIME|2h", help="The decision that stood then, not the newest.")
@click.option("--change", is_flag=True, help="The newest decision that changed the replicas.")
@click.option("--counterfactuals/--no-counterfactuals", default=True, help="Find what would have changed the answer.")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def explain(
    session: Session, what: str, namespace: str | None, at: str | None, change: bool, counterfactuals: bool, output: str
) -> None:
    """Show a decision step by step, with every number that led to it.

    WHAT names an HPA (its newest evaluation; with @TIME the one that stood then) or is the id of a decision. A decision
    that changed nothing is explained just so. What would have changed the answer is found by evaluating it again with
    other values on the inputs that the log gives.
    """
    from fleethpa.cli.common.finding import find_decision, name_and_moment
    from fleethpa.cli.output.explanation import explanation

    name, at_ms = name_and_moment(session, what, at)

    async def work() -> tuple[Recorded, Recorded | None, Counterfactuals | None]:
        async with session.past() as past:
            found, ending = await find_decision(past, name, namespace, at_ms=at_ms, change=change)
            whole, would = await _again(session, past, found) if counterfactuals else (found, None)
            return whole, ending, would

    recorded, ending, would = session.run(work())
    if output != "table":
        session.out(_document(recorded, would, output))
        return
    lines = explanation(
        recorded.decision,
        ending.decision if ending else None,
        now_ms=session.now_ms(),
        time_style=session.time_style,
        color=session.color,
        would=would,
    )
    session.page("\n".join(lines))


async def _again(session: Session, past: Past, found: Recorded) -> tuple[Recorded, Counterfactuals | None]:
    """Evaluate it again: all steps of a short record, and what would have changed the answer."""
    from streams.analysis.counterfactual import counterfactuals
    from streams.history.evaluationinputs import evaluation_of
    from streams.history.past import LogGoneError

    if found.decision.kind != "evaluation":
        return found, None
    try:
        again = await evaluation_of(past, found)
    except LogGoneError as error:
        session.note(f"note: what would have changed the answer is not known: {error}")
        return found, None
    return (_whole(found, again.inputs) if found.short else found), counterfactuals(again.inputs)


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


def _document(recorded: Recorded, would: Counterfactuals | None, output: str) -> str:
    import msgspec

    from fleethpa.cli.common.decisionlists import document
    from fleethpa.cli.output.formats import one

    body: dict[str, Any] = document(recorded.decision)
    if would is not None:
        body["counterfactuals"] = msgspec.to_builtins(would)
    return one("Decision", body, output)

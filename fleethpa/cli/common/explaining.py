"""What `explain` knows beyond the record: every step's numbers, and what would have changed the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs

from fleethpa.cli.common import decisionlists
from fleethpa.cli.common.clustertroubles import ClusterTrouble
from fleethpa.cli.common.fleetstate import read_state
from streams.analysis.answer import answer
from streams.analysis.counterfactual import Counterfactuals, counterfactuals
from streams.history.evaluationinputs import evaluation_of
from streams.history.past import LogGoneError, Past
from streams.history.recorded import Recorded
from streams.state import decisionrecords
from streams.state.moves import Fight, fight_now
from streams.state.probe import EvaluationInputs

RECENT_MS: Final = 300_000
"""A decision that is older says nothing of how its cluster is now."""


@dataclass(frozen=True)
class Again:
    """A decision that was evaluated again: the whole record, what would have changed the answer, and a fight over the
    replicas that went on then. `lacking`: why that cannot be found out, where the log no longer reaches back far
    enough.
    """

    recorded: Recorded
    would: Counterfactuals | None = None
    fight: Fight | None = None
    lacking: str = ""


async def evaluated_again(past: Past, found: Recorded) -> Again:
    """Evaluate a decision again: all steps of a short record, and what would have changed the answer."""
    if found.decision.kind != "evaluation":
        return Again(found)
    try:
        again = await evaluation_of(past, found)
    except LogGoneError as error:
        return Again(found, lacking=str(error))
    inputs = again.inputs
    whole = _whole(found, inputs) if found.short else found
    return Again(whole, counterfactuals(inputs), fight_now(inputs.moves, inputs.now_ms))


async def troubles_of(past: Past, found: Recorded, ending: Recorded | None, now_ms: int) -> list[ClusterTrouble]:
    """What is wrong in the cluster of a decision of now that failed, or whose write did."""
    failed = found.decision.error or (ending is not None and ending.decision.error)
    if not failed or now_ms - found.time_ms > RECENT_MS:
        return []
    cluster = (await read_state(past)).clusters.get(found.decision.cluster)
    return cluster.troubles if cluster is not None else []


def _whole(found: Recorded, inputs: EvaluationInputs) -> Recorded:
    """A short record with the windows, policies and sample times of its own evaluation."""
    again = answer(inputs)
    evaluation = again.evaluation
    made = decisionrecords.steps(evaluation) + [
        step for step in found.decision.steps if step.step in ("guard", "fallback")
    ]
    made += [again.brake] if again.brake is not None else []
    metrics = [decisionrecords.metric_decision(metric) for metric in evaluation.metrics]
    return found.explained_by(structs.replace(found.decision, steps=made, metrics=metrics))


def document(again: Again) -> dict[str, Any]:
    """A decision as machine formats of `explain` show it."""
    body = decisionlists.document(again.recorded.decision)
    if again.would is not None:
        body["counterfactuals"] = msgspec.to_builtins(again.would)
    if again.fight is not None:
        body["fight"] = msgspec.to_builtins(again.fight)
    return body

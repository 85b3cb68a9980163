"""The answer of one evaluation, recomputed from its inputs: the numbers of the decision and what limited them."""

from msgspec import Struct, structs

from schemas.decisions import Step
from streams.hpa.evaluation import Evaluation
from streams.hpa.reconcile import decide
from streams.state.budget import CONSTRAINT, Way
from streams.state.decisionrecords import constraints
from streams.state.fallback import CONSTRAINT as FALLBACK
from streams.state.fallback import with_fallback
from streams.state.guards import overflow
from streams.state.partialview import view_step
from streams.state.probe import EvaluationInputs


class Answer(Struct, frozen=True, kw_only=True):
    """What an evaluation gives.

    `final`: replicas, the current ones where nothing is to change. `brake`: the step of the brake that cut it, if any.
    """

    evaluation: Evaluation
    final: int
    constraints: list[str]
    brake: Step | None = None

    @property
    def current(self) -> int:
        """Replicas before it."""
        return self.evaluation.current_replicas or 0


def answer(inputs: EvaluationInputs) -> Answer:
    """Evaluate and apply the guards, as the decider does."""
    evaluation = decide(
        inputs.autoscaler, inputs.status, inputs.observation, inputs.history, inputs.settings, inputs.now_ms
    )
    evaluation, fallback = with_fallback(evaluation, inputs.autoscaler, inputs.fallback, inputs.failures)
    made = constraints(evaluation) + ([FALLBACK] if fallback is not None else [])
    current = evaluation.current_replicas or 0
    desired = current if evaluation.desired_replicas is None else evaluation.desired_replicas
    brake = None
    if evaluation.pending is not None and inputs.mode == "enforce":
        held = _held(inputs, evaluation, desired > current)
        made += held
        if "PartialView" in held:
            guards = inputs.guards
            brake = view_step(evaluation.pending, guards.partial_view, guards.partial_until_ms)
        if held:
            desired = current
        else:
            desired, brake = _within_budget(inputs, _within_step(inputs, desired, current, made), current, made)
    return Answer(evaluation=evaluation, final=desired, constraints=made, brake=brake)


def _held(inputs: EvaluationInputs, evaluation: Evaluation, up: bool) -> list[str]:
    guards = inputs.guards
    facts = {
        "Frozen": guards.frozen,
        "Paused": bool(guards.paused_up if up else guards.paused_down),
        "PartialView": bool(guards.partial_view) and not up,
        "Overflow": guards.hold_on_overflow and bool(overflow(evaluation)),
    }
    return [name for name, holds in facts.items() if holds]


def _within_step(inputs: EvaluationInputs, desired: int, current: int, made: list[str]) -> int:
    limit = inputs.guards.max_step
    if limit is None or abs(desired - current) <= limit:
        return desired
    made.append("MaxStep")
    return current + limit if desired > current else current - limit


def _within_budget(inputs: EvaluationInputs, desired: int, current: int, made: list[str]) -> tuple[int, Step | None]:
    way: Way = "removal" if desired < current else "addition"
    left = inputs.guards.removal if way == "removal" else inputs.guards.addition
    if left is None or abs(desired - current) <= left.cap:
        return desired, None
    made.append(CONSTRAINT[way])
    cut = current - left.cap if way == "removal" else current + left.cap
    return cut, left.step(way, desired, cut)


def with_answer(inputs: EvaluationInputs, index: int, changed: object) -> EvaluationInputs:
    """Give the inputs with another answer for the metric at `index`."""
    answers = list(inputs.observation.answers)
    answers[index] = changed  # type: ignore[call-overload]  # a MetricAnswer; decide checks its kind
    return structs.replace(inputs, observation=structs.replace(inputs.observation, answers=tuple(answers)))

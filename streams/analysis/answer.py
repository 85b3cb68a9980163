"""The answer of one evaluation, recomputed from its inputs, also without one of the limits that bound it."""

from collections.abc import Callable, Iterator

from msgspec import Struct, structs

from schemas.decisions import Step
from streams.hpa.autoscaler import Autoscaler, ScalingPolicy, ScalingRules
from streams.hpa.evaluation import Evaluation
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.normalize import legacy_limits
from streams.hpa.reconcile import decide
from streams.state.brakes import limited
from streams.state.inputs import CONSTRAINT as OVERRIDDEN
from streams.state.inputs import FALLBACK, EvaluationInputs, Guards, with_fallback, with_override
from streams.state.records import constraints


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
    seen = inputs.observation if inputs.fleet is None else inputs.fleet.joined
    evaluation = decide(inputs.autoscaler, inputs.status, seen, inputs.history, inputs.settings, inputs.now_ms)
    evaluation, fallback = with_fallback(evaluation, inputs.autoscaler, inputs.fallback, inputs.failures)
    evaluation, override = with_override(evaluation, inputs.autoscaler, inputs.override, inputs.status)
    made = constraints(evaluation)
    if override is not None or fallback is not None:
        made.append(FALLBACK if override is None else OVERRIDDEN)
    pending, guards = evaluation.pending, inputs.guards
    final, brake = evaluation.desired_replicas, None
    if pending is not None and inputs.mode == "enforce":
        left = limited(guards, guards.left, evaluation, pending)
        made += left.constraints
        final, brake = None if left.held else left.pending.desired_replicas, left.step
    final = (evaluation.current_replicas or 0) if final is None else final
    return Answer(evaluation=evaluation, final=final, constraints=made, brake=brake)


def with_answer(inputs: EvaluationInputs, index: int, changed: object) -> EvaluationInputs:
    """Give the inputs with another answer for the metric at `index`."""
    answers = list(inputs.observation.answers)
    answers[index] = changed  # type: ignore[call-overload]  # a MetricAnswer; decide checks its kind
    return structs.replace(inputs, observation=structs.replace(inputs.observation, answers=tuple(answers)))


_PLENTY = ScalingPolicy("Pods", 1_000_000_000, 1_000, 0.0)


def without(inputs: EvaluationInputs, recorded: Answer) -> Iterator[tuple[str, Answer, str]]:
    """Give, for each limit that bound the answer, the answer without it and how it was taken away."""
    for limit in recorded.constraints:
        if limit == "ScaleUpLimit":
            yield limit, _without_legacy_limit(inputs, recorded), "as if the doubling were not there"
            continue
        changed = _CHANGES.get(limit)
        if changed is not None:
            change, how = changed
            yield limit, answer(change(inputs)), how


def _spec(inputs: EvaluationInputs, **changes: object) -> EvaluationInputs:
    autoscaler: Autoscaler = structs.replace(inputs.autoscaler, **changes)
    return structs.replace(inputs, autoscaler=autoscaler)


def _no_window(inputs: EvaluationInputs) -> EvaluationInputs:
    old = inputs.history
    return structs.replace(inputs, history=old.with_recommendations(()))


def _no_policy(inputs: EvaluationInputs) -> EvaluationInputs:
    up, down = inputs.autoscaler.scale_up, inputs.autoscaler.scale_down
    return _spec(inputs, scale_up=_free(up), scale_down=_free(down))


def _free(rules: ScalingRules | None) -> ScalingRules | None:
    return None if rules is None else structs.replace(rules, select="Max", policies=(_PLENTY,))


def _no_tolerance(inputs: EvaluationInputs) -> EvaluationInputs:
    up, down = inputs.autoscaler.scale_up, inputs.autoscaler.scale_down
    settings = structs.replace(inputs.settings, tolerance=0.0)
    exact = _spec(inputs, scale_up=_exact(up), scale_down=_exact(down))
    return structs.replace(exact, settings=settings)


def _exact(rules: ScalingRules | None) -> ScalingRules | None:
    return None if rules is None else structs.replace(rules, tolerance=None)


def _guards(**changes: object) -> Callable[[EvaluationInputs], EvaluationInputs]:
    def changed(inputs: EvaluationInputs) -> EvaluationInputs:
        guards: Guards = structs.replace(inputs.guards, **changes)
        return structs.replace(inputs, guards=guards)

    return changed


_CHANGES: dict[str, tuple[Callable[[EvaluationInputs], EvaluationInputs], str]] = {
    "MaxReplicas": (lambda inputs: _spec(inputs, max_replicas=MAX_INT32), "with no maxReplicas"),
    "MinReplicas": (
        lambda inputs: _spec(inputs, min_replicas=min(1, inputs.autoscaler.min_replicas)),
        "with minReplicas 1",
    ),
    "StabilizationWindow": (_no_window, "with no earlier recommendation remembered"),
    "ScaleUpPolicy": (_no_policy, "with no scaling policy"),
    "ScaleDownPolicy": (_no_policy, "with no scaling policy"),
    "Tolerance": (_no_tolerance, "with a tolerance of 0"),
    "Paused": (_guards(paused_up="", paused_down=""), "without the pause"),
    "Frozen": (_guards(frozen=""), "without the freeze"),
    "Overflow": (_guards(hold_on_overflow=False), "without the overflow guard"),
    "MaxStep": (_guards(max_step=None), "without the largest step"),
    "Override": (lambda inputs: structs.replace(inputs, override=None), "without the override"),
    "Fallback": (lambda inputs: structs.replace(inputs, fallback=None), "without the fallback"),
    "PartialView": (_guards(partial_view=""), "with a whole view"),
    "RemovalBudget": (_guards(removal=None), "without the removal budget"),
    "CapacityGroup": (_guards(capacity=None), "without the CapacityGroup"),
    "AdditionBudget": (_guards(addition=None), "without the addition budget"),
}


def _without_legacy_limit(inputs: EvaluationInputs, recorded: Answer) -> Answer:
    """The legacy doubling is no input: the core's own limits, with an endless one in its place."""
    normalization = recorded.evaluation.normalization
    if normalization is None:
        return recorded
    autoscaler = inputs.autoscaler
    limited, _ = legacy_limits(normalization.stabilized, MAX_INT32, autoscaler.min_replicas, autoscaler.max_replicas)
    return structs.replace(recorded, final=limited)

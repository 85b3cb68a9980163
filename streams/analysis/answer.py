"""The answer of a recorded evaluation, made again: with another input, or without one of the limits that bound it."""

from collections.abc import Callable, Container, Iterator

from msgspec import Struct, structs

from schemas.constraints import words_of
from schemas.decisions import Step
from streams import attachments
from streams.hpa.autoscaler import Autoscaler, ScalingPolicy, ScalingRules
from streams.hpa.evaluation import Evaluation
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.normalize import legacy_limits
from streams.hpa.reconcile import decide
from streams.state.inputs import EvaluationInputs
from streams.state.limits.limit import limited
from streams.state.records import constraints
from streams.state.replacements.replacement import replaced

_NO_LIMIT = "Tolerance"


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

    @property
    def acting(self) -> list[str]:
        """The constraints that changed or held the count; a tolerance changes nothing."""
        return [name for name in self.constraints if name != _NO_LIMIT]


class DecisionBounds(Struct, frozen=True, omit_defaults=True):
    """The IDs of the first and the last of some evaluations; empty: not known."""

    first: str = ""
    last: str = ""

    def among(self, recorded: Container[str]) -> "DecisionBounds":
        """Return the same without an ID that is not among those of recorded decisions."""
        return DecisionBounds(*(id_ if id_ in recorded else "" for id_ in (self.first, self.last)))


class SpecDifference(Struct, frozen=True, kw_only=True, rename="camel"):
    """A recorded evaluation at which two specs want other replicas.

    `decision`: ID of what was recorded then; empty: nothing is. `…_asked`: what the metrics asked for (None: nothing);
    `…_held`: constraints that acted.
    """

    decision: str
    time: int
    current: int
    base: int
    changed: int
    base_asked: int | None
    changed_asked: int | None
    base_held: list[str]
    changed_held: list[str]

    def among(self, recorded: Container[str]) -> "SpecDifference":
        """Return the same without the ID of its decision if that is not among those of recorded decisions."""
        return self if self.decision in recorded else structs.replace(self, decision="")


def difference(inputs: EvaluationInputs, was: Answer, now: Answer) -> SpecDifference | None:
    """How the answers of two specs at a recorded evaluation differ; None: both want the same replicas."""
    if was.final == now.final:
        return None
    return SpecDifference(
        decision=inputs.decision,
        time=inputs.now_ms,
        current=was.current,
        base=was.final,
        changed=now.final,
        base_asked=was.evaluation.proposal,
        changed_asked=now.evaluation.proposal,
        base_held=was.acting,
        changed_held=now.acting,
    )


def answer(inputs: EvaluationInputs) -> Answer:
    """Evaluate, replace and limit, as the decider does."""
    seen = inputs.observation if inputs.fleet is None else inputs.fleet.joined
    evaluation = decide(inputs.autoscaler, inputs.status, seen, inputs.history, inputs.settings, inputs.now_ms)
    known, autoscaler = inputs.replacements, inputs.autoscaler
    replacements = attachments.REPLACEMENTS
    evaluation, by, _ = replaced(replacements, lambda each: known.of(each.name), evaluation, autoscaler, inputs.status)
    names = [*constraints(evaluation), *([by] if by else [])]
    pending, final, brake = evaluation.pending, evaluation.desired_replicas, None
    if pending is not None and inputs.mode == "enforce":
        left = limited(attachments.LIMITS, lambda each: inputs.limits.of(each.name), evaluation, pending, by)
        names += left.constraints
        final, brake = None if left.held else left.pending.desired_replicas, left.step
    final = (evaluation.current_replicas or 0) if final is None else final
    return Answer(evaluation=evaluation, final=final, constraints=names, brake=brake)


def with_answer(inputs: EvaluationInputs, index: int, changed: object) -> EvaluationInputs:
    """Return the inputs with another answer for the metric at `index`."""
    answers = list(inputs.observation.answers)
    answers[index] = changed  # type: ignore[call-overload]  # a MetricAnswer; decide checks its kind
    return structs.replace(inputs, observation=structs.replace(inputs.observation, answers=tuple(answers)))


_PLENTY = ScalingPolicy("Pods", 1_000_000_000, 1_000, 0.0)


def without(inputs: EvaluationInputs, recorded: Answer) -> Iterator[tuple[str, Answer, str]]:
    """Yield, for each limit that bound the answer, the answer without it and how it was taken away."""
    for name in recorded.constraints:
        if name == "ScaleUpLimit":
            yield name, _without_legacy_limit(inputs, recorded), "as if the doubling were not there"
        elif name in _CHANGES:
            change, how = _CHANGES[name]
            yield name, answer(change(inputs)), how
        elif (changed := lifted(inputs, name)) is not inputs:
            yield name, answer(changed), f"without {words_of(name)}"


def lifted(inputs: EvaluationInputs, name: str) -> EvaluationInputs:
    """Return the inputs without one of fleethpa's own limits or replacements; the same ones where it did nothing."""
    if inputs.limits.of(name) is not None:
        return structs.replace(inputs, limits=inputs.limits.without(name))
    if inputs.replacements.of(name) is not None:
        return structs.replace(inputs, replacements=inputs.replacements.without(name))
    return inputs


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
}


def _without_legacy_limit(inputs: EvaluationInputs, recorded: Answer) -> Answer:
    """The legacy doubling is no input: the core's own limits, with an endless one in its place."""
    normalization = recorded.evaluation.normalization
    if normalization is None:
        return recorded
    autoscaler = inputs.autoscaler
    limited, _ = legacy_limits(normalization.stabilized, MAX_INT32, autoscaler.min_replicas, autoscaler.max_replicas)
    return structs.replace(recorded, final=limited)

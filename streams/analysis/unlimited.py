"""An evaluation's answer without one of the limits that bound it, given by the core on inputs that lack the limit."""

from collections.abc import Callable, Iterator

from msgspec import structs

from streams.analysis.answer import Answer, answer
from streams.hpa.autoscaler import Autoscaler, ScalingPolicy, ScalingRules
from streams.hpa.evaluation import History
from streams.hpa.gofloat import MAX_INT32
from streams.hpa.normalize import legacy_limits
from streams.state.probe import EvaluationInputs, ProbeGuards

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


def _no_maximum(inputs: EvaluationInputs) -> EvaluationInputs:
    return _spec(inputs, max_replicas=MAX_INT32)


def _no_minimum(inputs: EvaluationInputs) -> EvaluationInputs:
    return _spec(inputs, min_replicas=min(1, inputs.autoscaler.min_replicas))


def _no_window(inputs: EvaluationInputs) -> EvaluationInputs:
    old = inputs.history
    return structs.replace(inputs, history=History((), old.scale_up_events, old.scale_down_events))


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
        guards: ProbeGuards = structs.replace(inputs.guards, **changes)
        return structs.replace(inputs, guards=guards)

    return changed


_CHANGES: dict[str, tuple[Callable[[EvaluationInputs], EvaluationInputs], str]] = {
    "MaxReplicas": (_no_maximum, "with no maxReplicas"),
    "MinReplicas": (_no_minimum, "with minReplicas 1"),
    "StabilizationWindow": (_no_window, "with no earlier recommendation remembered"),
    "ScaleUpPolicy": (_no_policy, "with no scaling policy"),
    "ScaleDownPolicy": (_no_policy, "with no scaling policy"),
    "Tolerance": (_no_tolerance, "with a tolerance of 0"),
    "Paused": (_guards(paused_up="", paused_down=""), "without the pause"),
    "Frozen": (_guards(frozen=False), "without the freeze"),
    "Overflow": (_guards(hold_on_overflow=False), "without the overflow guard"),
    "MaxStep": (_guards(max_step=None), "without the largest step"),
    "Fallback": (lambda inputs: structs.replace(inputs, fallback=None), "without the fallback"),
    "PartialView": (_guards(partial_view=""), "with a whole view"),
    "RemovalBudget": (_guards(removal=None), "without the removal budget"),
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

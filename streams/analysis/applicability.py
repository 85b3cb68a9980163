"""Which rules of another version can change the replicas of an evaluation at all: most evaluations need no second look.

Each answer is certain in one direction: where a rule does not apply, both controllers ask for the same replicas.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from streams.analysis.answer import Answer
from streams.hpa import autoscaler as kinds
from streams.hpa.metrics import tolerance_band
from streams.hpa.observation import Scale
from streams.hpa.rules import RULES, Rules
from streams.state.lostmetrics import EvaluationInputs

BAND: Final = "tolerance_is_band"
_READ_BEFORE: Final = ("conflicts_retried", "missing_container_is_missing_pod")
"""Rules about what comes before or after an evaluation: its inputs are as they were read."""


def applying(names: Iterable[str], inputs: EvaluationInputs) -> list[str]:
    """Those of the rules that may change the replicas that this evaluation asks for."""
    return [
        name
        for name in names
        if RULES[name].decides and name not in _READ_BEFORE and _APPLIES.get(name, _always)(inputs)
    ]


def is_at_edge(inputs: EvaluationInputs, target: Rules, recorded: Answer) -> bool:
    """Whether only one of both controllers takes a metric to be within the tolerance, because of how it compares."""
    now = inputs.settings.rules
    if now.tolerance_is_band == target.tolerance_is_band:
        return False
    alone = structs.replace(now, tolerance_is_band=target.tolerance_is_band)
    bands = [tolerance_band(inputs.autoscaler, structs.replace(inputs.settings, rules=rules)) for rules in (now, alone)]
    found = [each.calculation for each in recorded.evaluation.metrics if each.calculation is not None]
    ratios = [each.ratio if each.final_ratio is None else each.final_ratio for each in found]
    return any(len({low <= ratio <= high for low, high in bands}) > 1 for ratio in ratios)


def failed(recorded: Answer) -> bool:
    """Whether a metric has no ratio that could be compared."""
    return any(each.calculation is None for each in recorded.evaluation.metrics)


def _always(_: EvaluationInputs) -> bool:
    return True


def _own_tolerance(inputs: EvaluationInputs) -> bool:
    both = (inputs.autoscaler.scale_up, inputs.autoscaler.scale_down)
    return any(rules is not None and rules.tolerance is not None for rules in both)


def _at_zero(inputs: EvaluationInputs) -> bool:
    scale = inputs.observation.scale
    return not isinstance(scale, Scale) or not scale.spec_replicas


def _sidecar(inputs: EvaluationInputs) -> bool:
    return any(init.sidecar for row in inputs.observation.pods.rows for init in row.template.init_containers)


def _pod_level(inputs: EvaluationInputs) -> bool:
    return any(row.template.pod_requests for row in inputs.observation.pods.rows)


def _succeeded(inputs: EvaluationInputs) -> bool:
    return any(row.phase == "Succeeded" for row in inputs.observation.pods.rows)


def _container(inputs: EvaluationInputs) -> bool:
    return any(metric.container for metric in inputs.autoscaler.metrics)


def _no_utilization(inputs: EvaluationInputs) -> bool:
    return any(metric.calculation != kinds.UTILIZATION for metric in inputs.autoscaler.metrics)


_APPLIES: Final[dict[str, Callable[[EvaluationInputs], bool]]] = {
    "ratio_one_ignores_missing": _no_utilization,
    "sidecars_request": _sidecar,
    "external_average_saturates": _no_utilization,
    "pod_level_requests": _pod_level,
    "tolerance_field": _own_tolerance,
    "totals_saturate": _no_utilization,
    "container_must_exist": _container,
    "zero_is_pause": _at_zero,
    "scale_to_zero": _at_zero,
    "succeeded_ignored": _succeeded,
}
"""Rules that leave an evaluation as it is where this is False; the others may concern any."""

"""The parts of decision records of evaluations and completions, and what every visit of an HPA needs for them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from schemas.decisions import WITHIN_TOLERANCE, Direction, MetricDecision, Step
from schemas.observed import Target
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Calculation, Evaluation, MetricEvaluation, Normalization, ReconcileResult
from streams.hpa.normalize import WITHIN_RANGE
from streams.hpa.observation import Scale, ScaleFailure
from streams.state.hpastate import Hpa
from streams.state.partitionstate import State

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, so that `isoformat` prints none
_BOUNDS = {"TooManyReplicas": "MaxReplicas", "TooFewReplicas": "MinReplicas", "ScaleDownLimit": "ScaleDownPolicy"}
_BOUND_REASONS = ("TooManyReplicas", "TooFewReplicas")
_EXPLAINED_BY = {"metricsFailed": "ScalingActive", "disabled": "ScalingActive", "scaleUnavailable": "AbleToScale"}
"""Path of an evaluation that ends without a number -> the condition that says why."""


@lru_cache(maxsize=64)
def print_time(now_ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return (_EPOCH + timedelta(milliseconds=now_ms)).isoformat(timespec="milliseconds") + "Z"


def direction(current: int, desired: int) -> Direction:
    """Name the direction of a change."""
    if desired > current:
        return "ScaleUp"
    return "ScaleDown" if desired < current else "None"


def observed(
    scale: Scale | ScaleFailure, counted: dict[str, Any], change: dict[str, Any], restart: str, asked: Sequence[str]
) -> dict[str, Any]:
    """Return what was observed, without the scale's resource version, which may change with every record.

    `counted`: what attached accounts show of it (`HpaAccount.shown`).
    `asked`: what a polled source was asked for each metric; empty: none was.
    """
    shown: dict[str, Any] = {}
    if isinstance(scale, Scale):
        shown = {
            "specReplicas": scale.spec_replicas,
            "statusReplicas": scale.status_replicas,
            "selector": scale.selector,
            **counted,
        }
    if change:
        shown["change"] = change
    if restart:
        shown["restart"] = restart
    if asked:
        shown["asked"] = asked
    return shown


def with_version(observed: dict[str, Any], resource_version: str) -> dict[str, Any]:
    """Add the scale's resource version ("": unknown) behind what the scale shows; without a scale, nothing."""
    if not resource_version or "selector" not in observed:
        return observed
    return {
        "specReplicas": observed["specReplicas"],
        "statusReplicas": observed["statusReplicas"],
        "selector": observed["selector"],
        "resourceVersion": resource_version,
        **observed,
    }


_NOT_CALCULATED = Calculation(0, 0, 0.0)


def metric_decision(metric: MetricEvaluation) -> MetricDecision:
    """Print one metric of an evaluation. `value` is what the status shows in milli, `utilization` its percentage."""
    spec, failed = metric.spec, metric.calculation is None
    calculation = metric.calculation or _NOT_CALCULATED
    target, target_utilization = _targets(metric)
    value, utilization, proposal, ratio, note = _values_of(metric)
    return MetricDecision(
        type=spec.type,
        name=spec.name,
        value=value,
        utilization=utilization,
        target=target,
        target_utilization=target_utilization,
        ratio=ratio,
        proposal=proposal,
        note=note,
        pods_used=calculation.used,
        pods_not_ready=calculation.not_ready,
        pods_missing=calculation.missing,
        pods_ignored=calculation.ignored,
        error=metric.error,
        reason=spec.reason if failed else "",
        oldest=metric.oldest_ms,
        newest=metric.newest_ms,
    )


def _values_of(metric: MetricEvaluation) -> tuple[int | None, int | None, int | None, str, str]:
    """Return value, utilization, proposal, ratio and note. The ratio is the shortest text that reads back as the same
    double.
    """
    calculation = metric.calculation
    if calculation is None:
        return None, None, None, "", ""
    if metric.spec.calculation == kinds.UTILIZATION:
        return (
            calculation.average_milli,
            calculation.value,
            calculation.proposal,
            repr(calculation.ratio),
            calculation.kept,
        )
    return calculation.value, None, calculation.proposal, repr(calculation.ratio), calculation.kept


def _targets(metric: MetricEvaluation) -> tuple[int | None, int | None]:
    """Return the target in milli, or in percent of the request."""
    spec = metric.spec
    return (None, spec.target) if spec.calculation == kinds.UTILIZATION else (spec.target, None)


def steps_to(evaluation: Evaluation, final: int, brake: Step | None = None) -> list[Step]:
    """Return the steps, with one for fleethpa's own guards where they changed the number, and that of a brake."""
    named, desired = steps(evaluation), evaluation.desired_replicas
    guarded = final if brake is None else brake.in_
    if desired is not None and guarded != desired:
        named.append(Step(step="guard", in_=desired, out=guarded))
    return named if brake is None else [*named, brake]


def with_replaced(made: list[Step], replaced: Step | None, evaluation: Evaluation) -> list[Step]:
    """Return the steps with that of what takes the place of the metrics, after theirs and before the guards."""
    if replaced is None:
        return made
    at = len(steps(evaluation))
    return [*made[:at], replaced, *made[at:]]


def steps(evaluation: Evaluation) -> list[Step]:
    """Return the steps from the metrics' proposal to the final number of replicas."""
    current = evaluation.current_replicas or 0
    if evaluation.path in ("aboveMax", "belowMin"):
        return [
            Step(step="bounds", in_=current, out=evaluation.desired_replicas or 0, detail={"path": evaluation.path})
        ]
    normalization = evaluation.normalization
    if normalization is None:
        return []
    named = [Step(step="metrics", in_=current, out=normalization.desired)]
    named.append(_stabilization(normalization))
    named.extend(_limits(current, normalization))
    if evaluation.raised_to_min:
        named.append(Step(step="fromZero", in_=normalization.limited, out=evaluation.desired_replicas or 0))
    return named


def _stabilization(normalization: Normalization) -> Step:
    detail: dict[str, Any] = {"downWindowMs": normalization.down_window_ms}
    if not normalization.legacy:
        detail["upWindowMs"] = normalization.up_window_ms
    if normalization.held_by is not None:
        detail["recommendation"], detail["at"] = normalization.held_by
    return Step(
        step="stabilization",
        in_=normalization.desired,
        out=normalization.stabilized,
        detail=detail,
        until=normalization.held_until_ms,
    )


def _limits(current: int, normalization: Normalization) -> list[Step]:
    name = _limit_name(current, normalization)
    if not name:
        return []
    detail: dict[str, Any] = {}
    if normalization.rate_limit is not None:
        detail["limit"] = normalization.rate_limit
    if normalization.policies:
        detail["policies"] = [
            {
                "type": policy.type,
                "value": policy.value,
                "periodMs": policy.period_ms,
                "added": policy.scaled_up,
                "removed": policy.scaled_down,
                "start": policy.start,
                "limit": policy.limit,
            }
            for policy in normalization.policies
        ]
    if name == "bounds":
        detail["bound"] = normalization.bound
    return [Step(step=name, in_=normalization.stabilized, out=normalization.limited, detail=detail)]


def _limit_name(current: int, normalization: Normalization) -> str:
    """Name the step of the limits; empty: nothing was limited, and no policy was looked at."""
    if normalization.bound in _BOUND_REASONS:
        return "bounds"
    if normalization.bound == WITHIN_RANGE and not normalization.policies:
        return ""
    if normalization.legacy:
        return "scaleUpLimit"
    return "scaleUpPolicy" if normalization.stabilized > current else "scaleDownPolicy"


def constraints(evaluation: Evaluation) -> list[str]:
    """Name the limits that changed the proposal, in the order in which they applied."""
    if evaluation.path == "aboveMax":
        return ["MaxReplicas"]
    if evaluation.path == "belowMin":
        return ["MinReplicas"]
    normalization = evaluation.normalization
    if normalization is None:
        return []
    names: list[str] = []
    notes = [each.calculation.kept for each in evaluation.metrics if each.calculation is not None]
    if normalization.desired == evaluation.current_replicas and WITHIN_TOLERANCE in notes:
        names.append("Tolerance")
    if normalization.stabilized != normalization.desired:
        names.append("StabilizationWindow")
    if normalization.limited != normalization.stabilized:
        if normalization.bound == "ScaleUpLimit":
            names.append("ScaleUpLimit" if normalization.legacy else "ScaleUpPolicy")
        else:
            names.append(_BOUNDS.get(normalization.bound, normalization.bound))
    if evaluation.raised_to_min:
        names.append("MinReplicas")
    return names


def reason_of(evaluation: Evaluation, status: dict[str, Any]) -> str:
    """Return the reason of the result: upstream's text of a rescale, else that of the condition that explains it."""
    if evaluation.reason:
        return evaluation.reason
    kind = _EXPLAINED_BY.get(evaluation.path)
    if kind is None:
        return WITHIN_RANGE
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            return str(condition.get("reason", ""))
    return ""


def labels(result: ReconcileResult) -> dict[str, Any]:
    """Labels of upstream's own metrics: of the reconcile and of each metric."""
    return {"action": result.action, "error": result.error_label, "metrics": list(map(list, result.metric_results))}


def target_of(autoscaler: Autoscaler) -> Target:
    """Name the object that an HPA scales, as records have it."""
    return Target(kind=autoscaler.target_kind, name=autoscaler.target_name, group=autoscaler.target_group)


def identity(state: State, hpa: Hpa, decision: str) -> dict[str, Any]:
    """Return the fields that every record has, for one that no evaluation made."""
    row, autoscaler = hpa.row, hpa.compiled
    return {
        "id": decision,
        "seq": 0,
        "prev": "",
        "cluster": row.cluster,
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "time": print_time(state.now_ms),
        "input": state.input_position([]),
        "scale_target_ref": hpa.reference,
        "target": target_of(autoscaler),
        "origin": row.origin,
        "min_replicas": autoscaler.min_replicas,
        "max_replicas": autoscaler.max_replicas,
        "spec_hash": row.spec_hash,
        "generation": row.generation,
        "engine": state.row.engine,
    }

"""Decision records of evaluations and completions, full or short."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from schemas.decisions import Direction, InputPosition, MetricDecision, Step
from streams.hpa import autoscaler as kinds
from streams.hpa.evaluation import Evaluation, MetricEvaluation, Normalization
from streams.hpa.normalize import WITHIN_RANGE

FULL_EVERY_MS = 600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = {"TooManyReplicas": "MaxReplicas", "TooFewReplicas": "MinReplicas", "ScaleDownLimit": "ScaleDownPolicy"}
_EXPLAINED_BY = {"metricsFailed": "ScalingActive", "disabled": "ScalingActive", "scaleUnavailable": "AbleToScale"}
"""Path of an evaluation that ends without a number -> the condition that says why."""


@lru_cache(maxsize=64)
def print_time(now_ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = _EPOCH + timedelta(milliseconds=now_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def direction(current: int, desired: int) -> Direction:
    """Name the direction of a change."""
    if desired > current:
        return "ScaleUp"
    return "ScaleDown" if desired < current else "None"


def metric_decision(metric: MetricEvaluation) -> MetricDecision:
    """Print one metric of an evaluation. `value` is what the status shows in milli, `utilization` its percentage."""
    spec, calculation = metric.spec, metric.calculation
    by_share = spec.calculation == kinds.UTILIZATION
    if calculation is None:
        return MetricDecision(
            type=spec.type,
            name=spec.name,
            target=None if by_share else spec.target,
            target_utilization=spec.target if by_share else None,
            error=metric.error,
            reason=spec.reason,
            oldest=metric.oldest_ms,
            newest=metric.newest_ms,
        )
    return MetricDecision(
        type=spec.type,
        name=spec.name,
        value=calculation.average_milli if by_share else calculation.value,
        utilization=calculation.value if by_share else None,
        target=None if by_share else spec.target,
        target_utilization=spec.target if by_share else None,
        ratio=print_double(calculation.ratio),
        proposal=calculation.proposal,
        note=calculation.kept,
        pods_used=calculation.used,
        pods_not_ready=calculation.not_ready,
        pods_missing=calculation.missing,
        pods_ignored=calculation.ignored,
        oldest=metric.oldest_ms,
        newest=metric.newest_ms,
    )


def print_double(value: float) -> str:
    """Shortest text that reads back as the same double."""
    return repr(value)


def steps(evaluation: Evaluation) -> list[Step]:
    """Give the steps from the metrics' proposal to the final number of replicas."""
    current = evaluation.current_replicas or 0
    if evaluation.path in ("aboveMax", "belowMin"):
        return [
            Step(step="bounds", in_=current, out=evaluation.desired_replicas or 0, detail={"path": evaluation.path})
        ]
    normalization = evaluation.normalization
    if normalization is None:
        return []
    made = [Step(step="metrics", in_=current, out=normalization.desired)]
    made.append(_stabilization(normalization))
    made.extend(_limits(current, normalization))
    if evaluation.raised_to_min:
        made.append(Step(step="fromZero", in_=normalization.limited, out=evaluation.desired_replicas or 0))
    return made


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
    stabilized, limited, bound = normalization.stabilized, normalization.limited, normalization.bound
    by_policy = "scaleUpPolicy" if stabilized > current else "scaleDownPolicy"
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
    if bound in ("TooManyReplicas", "TooFewReplicas"):
        return [Step(step="bounds", in_=stabilized, out=limited, detail={**detail, "bound": bound})]
    if bound == WITHIN_RANGE and not normalization.policies:
        return []
    return [
        Step(step="scaleUpLimit" if normalization.legacy else by_policy, in_=stabilized, out=limited, detail=detail)
    ]


def constraints(evaluation: Evaluation) -> list[str]:
    """Name the limits that changed the proposal, in the order in which they applied."""
    if evaluation.path == "aboveMax":
        return ["MaxReplicas"]
    if evaluation.path == "belowMin":
        return ["MinReplicas"]
    normalization = evaluation.normalization
    if normalization is None:
        return []
    made = []
    if normalization.desired == evaluation.current_replicas and any(
        [
            metric.calculation is not None and metric.calculation.kept == "withinTolerance"
            for metric in evaluation.metrics
        ]
    ):
        made.append("Tolerance")
    if normalization.stabilized != normalization.desired:
        made.append("StabilizationWindow")
    if normalization.limited != normalization.stabilized:
        if normalization.bound == "ScaleUpLimit":
            made.append("ScaleUpLimit" if normalization.legacy else "ScaleUpPolicy")
        else:
            made.append(_BOUNDS.get(normalization.bound, normalization.bound))
    if evaluation.raised_to_min:
        made.append("MinReplicas")
    return made


def reason_of(evaluation: Evaluation, status: dict[str, Any]) -> str:
    """Give the reason of the result: upstream's text of a rescale, else that of the condition that explains it."""
    if evaluation.reason:
        return evaluation.reason
    kind = _EXPLAINED_BY.get(evaluation.path)
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            return str(condition.get("reason", ""))
    return "" if kind else WITHIN_RANGE


_PACK = msgspec.msgpack.Encoder()


def digest(shape: Any) -> bytes:
    """Give a digest of everything in a record except its values: records with equal digests differ only in values."""
    return sha256(_PACK.encode(shape)).digest()[:16]


def shape_of(metrics: list[MetricDecision], made: list[Step], status: dict[str, Any]) -> tuple[Any, ...]:
    """Give what must not change for a record to be short."""
    return (
        [
            (
                *(m.type, m.name, m.target, m.target_utilization, m.note, m.error, m.reason, m.proposal is None),
                *(m.pods_used, m.pods_not_ready, m.pods_missing, m.pods_ignored),
            )
            for m in metrics
        ],
        [(step.step, step.out) for step in made if step.step != "metrics"],
        [(c["type"], c["status"], c.get("reason"), c.get("message")) for c in status.get("conditions") or ()],
        status.get("currentReplicas"),
        status.get("desiredReplicas"),
        status.get("lastScaleTime"),
        status.get("observedGeneration"),
    )


def input_position(partition: int, offset: int, log_hash: bytes, sources: list[str]) -> InputPosition:
    """Say which prefix of the log a decision follows from."""
    return InputPosition(partition=partition, offset=offset, hash=log_hash.hex(), sources=sources)

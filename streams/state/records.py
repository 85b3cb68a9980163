"""Decision records of evaluations and completions, full or short, and what every visit of an HPA needs for them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct

from schemas.decisions import Decision, Direction, InputPosition, MetricDecision, ShortDecision, Step
from schemas.observed import Mode, Target
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, Evaluation, Event, MetricEvaluation, Normalization, ReconcileResult
from streams.hpa.normalize import WITHIN_RANGE
from streams.hpa.observation import Scale, ScaleFailure
from streams.state.hpastate import WRITE_TTL_MS, Hpa
from streams.state.ledger import StateError
from streams.state.rows import NOTHING_APPLIED
from streams.state.samples import State

FULL_EVERY_MS = 600_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, so that `isoformat` prints none
_BOUNDS = {"TooManyReplicas": "MaxReplicas", "TooFewReplicas": "MinReplicas", "ScaleDownLimit": "ScaleDownPolicy"}
_BOUND_REASONS = ("TooManyReplicas", "TooFewReplicas")
_EXPLAINED_BY = {"metricsFailed": "ScalingActive", "disabled": "ScalingActive", "scaleUnavailable": "AbleToScale"}
"""Path of an evaluation that ends without a number -> the condition that says why."""


class Facts(Struct, array_like=True, frozen=True, gc=False):
    """The fields of a full record that a short one repeats: the result, and how it is shown. Their order is part of
    what `digest` covers, which rows store.
    """

    mode: Mode
    current_replicas: int
    final_desired_replicas: int
    direction: Direction
    reason: str
    selected_metric: str
    constraints_applied: list[str]
    wants: int | None
    events: list[Event]
    error: str
    paused: str
    refused: str
    labels: dict[str, Any]
    shows_refusal: bool


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
    scale: Scale | ScaleFailure, change: dict[str, Any], restart: str, ready: int | None = None
) -> dict[str, Any]:
    """Give what was observed, without the scale's resource version, which may change with every record.

    `ready`: pods that are ready; they are recorded where they are fewer than half of the replicas. None: nobody asks.
    """
    made: dict[str, Any] = {}
    if isinstance(scale, Scale):
        made = {
            "specReplicas": scale.spec_replicas,
            "statusReplicas": scale.status_replicas,
            "selector": scale.selector,
        }
        if ready is not None and 2 * ready < scale.spec_replicas:
            made["readyPods"] = ready
    if change:
        made["change"] = change
    if restart:
        made["restart"] = restart
    return made


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


def values_of(metric: MetricEvaluation) -> tuple[int | None, int | None, int | None, str]:
    """Give what a short record has of a metric: value, utilization, proposal and ratio, as `metric_decision` prints."""
    calculation = metric.calculation
    if calculation is None:
        return None, None, None, ""
    if metric.spec.calculation == kinds.UTILIZATION:
        return calculation.average_milli, calculation.value, calculation.proposal, print_double(calculation.ratio)
    return calculation.value, None, calculation.proposal, print_double(calculation.ratio)


def steps_to(evaluation: Evaluation, final: int, brake: Step | None = None) -> list[Step]:
    """Give the steps, with one for fleethpa's own guards where they changed the number, and that of a brake."""
    made, desired = steps(evaluation), evaluation.desired_replicas
    guarded = final if brake is None else brake.in_
    if desired is not None and guarded != desired:
        made.append(Step(step="guard", in_=desired, out=guarded))
    return made if brake is None else [*made, brake]


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
    if kind is None:
        return WITHIN_RANGE
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            return str(condition.get("reason", ""))
    return ""


_EXPLAINED = itemgetter("type", "status", "reason", "message")
_PACK = msgspec.msgpack.Encoder()


def digest(shape: Any) -> bytes:
    """Give a digest of everything in a record except its values: records with equal digests differ only in values."""
    return sha256(_PACK.encode(shape)).digest()[:16]


def shape_of(evaluation: Evaluation, final: int, status: dict[str, Any]) -> tuple[Any, ...]:
    """Give what must not change for a record to be short, besides its facts."""
    return (
        list(map(_metric_shape, evaluation.metrics)),
        _ends(evaluation, final),
        _conditions_shape(status.get("conditions") or ()),
        status.get("currentReplicas"),
        status.get("desiredReplicas"),
        status.get("lastScaleTime"),
        status.get("observedGeneration"),
    )


def _conditions_shape(conditions: Iterable[dict[str, Any]]) -> list[tuple[str, str, str | None, str | None]]:
    try:
        return list(map(_EXPLAINED, conditions))
    except KeyError:  # some condition has no reason or no message
        return [(c["type"], c["status"], c.get("reason"), c.get("message")) for c in conditions]


def _metric_shape(metric: MetricEvaluation) -> tuple[Any, ...]:
    """Give all of a `metric_decision` but its values."""
    spec, calculation = metric.spec, metric.calculation
    target, share = (None, spec.target) if spec.calculation == kinds.UTILIZATION else (spec.target, None)
    if calculation is None:
        return spec.type, spec.name, target, share, "", metric.error, spec.reason, True, 0, 0, 0, 0
    used, not_ready, missing, ignored = (
        calculation.used,
        calculation.not_ready,
        calculation.missing,
        calculation.ignored,
    )
    return spec.type, spec.name, target, share, calculation.kept, "", "", False, used, not_ready, missing, ignored


def _ends(evaluation: Evaluation, final: int) -> list[tuple[str, int]]:
    """Give name and end of each of `steps_to` but the metrics' own, in the common case without making them."""
    normalization = evaluation.normalization
    if normalization is None or evaluation.raised_to_min or final != evaluation.desired_replicas:
        return [(step.step, step.out) for step in steps_to(evaluation, final) if step.step != "metrics"]
    made = [("stabilization", normalization.stabilized)]
    name = _limit_name(evaluation.current_replicas or 0, normalization)
    if name:
        made.append((name, normalization.limited))
    return made


def take_restart(state: State, hpa: Hpa) -> str:
    """Clear windows and scale events if the log had a restart since the last visit; give the reason."""
    hands = state.row.hands.get(hpa.row.cluster) if state.row.hands else None
    back = NOTHING_APPLIED if hands is None else hands.restart_offset
    if max(state.row.restart_offset, back) <= hpa.row.restart_seen:
        return ""
    hpa.row.restart_seen = max(state.row.restart_offset, back)
    hpa.row.history = EMPTY_HISTORY
    if back < state.row.restart_offset:
        return state.row.restart_reason
    return f"restart: the stand-in of cluster {hpa.row.cluster} gave it back to the hub"


def own_status(hpa: Hpa) -> dict[str, Any]:
    """Give the status from fleethpa's own decisions, else that of the native object."""
    return hpa.row.native_status if hpa.row.status is None else hpa.row.status


def labels(result: ReconcileResult) -> dict[str, Any]:
    """Labels of upstream's own metrics: of the reconcile and of each metric."""
    return {"action": result.action, "error": result.error_label, "metrics": list(map(list, result.metric_results))}


def identity(state: State, hpa: Hpa, decision: str) -> dict[str, Any]:
    """Fields that every full record has, for one that no evaluation made."""
    row, autoscaler = hpa.row, compiled(hpa)
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


def target_of(autoscaler: Autoscaler) -> Target:
    """Name the object that an HPA scales, as records have it."""
    return Target(kind=autoscaler.target_kind, name=autoscaler.target_name, group=autoscaler.target_group)


def compiled(hpa: Hpa) -> Autoscaler:
    """Give the compiled spec of a live HPA. Raises StateError: it has been forgotten."""
    if hpa.autoscaler is None:
        raise StateError(f"HPA {hpa.id} has no spec: its row is a tombstone")
    return hpa.autoscaler


def full_record(
    name: str,
    hpa: Hpa,
    autoscaler: Autoscaler,
    evaluation: Evaluation,
    facts: Facts,
    *,
    now_ms: int,
    position: InputPosition,
    steps: list[Step],
    observed: dict[str, Any],
    status: dict[str, Any] | None,
    engine: int,
) -> Decision:
    """Fill in a full record field by field: one made of dictionaries (`identity`) takes three times as long.

    `status`: None in the record of a wanted write, whose end decides it.
    """
    row = hpa.row
    return Decision(
        id=name,
        seq=0,
        prev="",
        cluster=row.cluster,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        time=print_time(now_ms),
        input=position,
        scale_target_ref=hpa.reference,
        target=target_of(autoscaler),
        mode=facts.mode,
        origin=row.origin,
        current_replicas=facts.current_replicas,
        raw_desired_replicas=evaluation.proposal,
        final_desired_replicas=facts.final_desired_replicas,
        direction=facts.direction,
        reason=facts.reason,
        selected_metric=facts.selected_metric,
        metrics=list(map(metric_decision, evaluation.metrics)),
        steps=steps,
        constraints_applied=facts.constraints_applied,
        wants=facts.wants,
        expires=None if facts.wants is None else now_ms + WRITE_TTL_MS,
        observed=observed,
        status=status,
        events=facts.events,
        error=facts.error,
        labels=facts.labels,
        paused=facts.paused,
        refused=facts.refused,
        min_replicas=autoscaler.min_replicas,
        max_replicas=autoscaler.max_replicas,
        spec_hash=row.spec_hash,
        generation=row.generation,
        engine=engine,
        author=row.author,
        change_reason=row.change_reason,
        shows_refusal=facts.shows_refusal,
    )


def short_record(
    name: str, same_as: str, evaluation: Evaluation, *, now_ms: int, position: InputPosition
) -> ShortDecision:
    """Make the record of an evaluation that differs from a full one, `same_as`, in the values of its metrics only."""
    return ShortDecision(
        id=name,
        seq=0,
        prev="",
        same_as=same_as,
        time=print_time(now_ms),
        input=position,
        m=list(map(values_of, evaluation.metrics)),
        raw_desired_replicas=evaluation.proposal,
        newest=[metric.newest_ms for metric in evaluation.metrics],
    )

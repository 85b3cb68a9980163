"""What every visit of an HPA needs: its spec, its status, a restart that applies to it, its name in records."""

from typing import Any

from schemas.scales import Target
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, ReconcileResult
from streams.state import decisionrecords
from streams.state.hpastate import Hpa
from streams.state.logerrors import StateError
from streams.state.partitionstate import State
from streams.state.rows import NOTHING_APPLIED


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
    return {
        "action": result.action,
        "error": result.error_label,
        "metrics": list(map(list, result.metric_results)),
    }


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
        "time": decisionrecords.print_time(state.now_ms),
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
    """Give the compiled spec of a live HPA.

    Raises:
        StateError: it has been forgotten.
    """
    if hpa.autoscaler is None:
        raise StateError(f"HPA {hpa.id} has no spec: its row is a tombstone")
    return hpa.autoscaler

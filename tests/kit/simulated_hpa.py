"""An HPA and its workload in the simulator, without a clock: what evaluations saw, and what really was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleethpa.lab.simulator.model import LoadCurve, PodProfile, SimulatedPod, SimulatedWorkload
from schemas.keys import HpaId
from streams.analysis.candidate import Candidate
from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.evaluation import EMPTY_HISTORY, ScaleApplied
from streams.hpa.observation import (
    ContainerRequests,
    Observation,
    PodRow,
    PodSamples,
    PodTemplate,
    Scale,
    TargetPods,
    pod_samples,
)
from streams.hpa.reconcile import complete, decide
from streams.state.inputs import EvaluationInputs

START_MS = 1_767_225_600_000
PERIOD_MS = 15_000
REQUEST_MILLI = 500
HPA = HpaId("bench", "shop", "web")
TEMPLATE = PodTemplate([ContainerRequests("main", {"cpu": f"{REQUEST_MILLI}m"})])
PROFILE = PodProfile(schedule_ms=2_000, ready_ms=28_000, stop_ms=5_000, noise=0.03)


def spec(target: int = 60, least: int = 2, most: int = 20, **behavior: Any) -> dict[str, Any]:
    """A defaulted spec on cpu utilization."""
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    up = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [percent, {"type": "Pods", "value": 4, "periodSeconds": 15}],
    }
    down = {"stabilizationWindowSeconds": 300, "selectPolicy": "Max", "policies": [percent]}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": HPA.name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}},
            }
        ],
        "behavior": {"scaleUp": up | behavior.get("up", {}), "scaleDown": down | behavior.get("down", {})},
    }


def live(
    load: LoadCurve,
    tried: Candidate,
    seconds: int,
    look: Callable[[SimulatedWorkload], None],
    profile: PodProfile = PROFILE,
    *,
    replicas: int = 4,
    step_s: int = 1,
) -> list[EvaluationInputs]:
    """Let the simulator live under a spec, looked at every `step_s`; give what its evaluations saw."""
    workload = SimulatedWorkload(HPA.name, START_MS, replicas=replicas, load=load, profile=profile)
    history, status = EMPTY_HISTORY, dict[str, Any]()
    recorded: list[EvaluationInputs] = []
    known: dict[str, PodRow] = {}
    for second in range(0, seconds, step_s):
        workload.advance_to(START_MS + second * 1_000)
        look(workload)
        if second % (PERIOD_MS // 1000) or not workload.samples:
            continue
        now_ms = workload.now_ms + 700
        observation = _observe(workload, known)
        recorded.append(_inputs(tried, observation, history, status, now_ms))
        made = decide(tried.autoscaler, status, observation, history, ControllerSettings(), now_ms)
        history = made.history
        if made.pending is not None:
            ended = complete(made.pending, status, history, ScaleApplied(), now_ms)
            history, status = ended.history, ended.status
            workload.replicas = made.pending.desired_replicas
        elif made.result is not None:
            status = made.result.status
    return recorded


def _observe(workload: SimulatedWorkload, known: dict[str, PodRow]) -> Observation:
    sample = workload.samples[-1]
    rows = tuple(_known_row(known, pod, workload.now_ms) for pod in workload.pods.values())
    used: PodSamples = pod_samples(
        {name: (usage.cpu_milli, sample.time_ms, 15_000) for name, usage in sample.pods.items()}
    )
    return Observation(Scale(workload.replicas, len(workload.alive()), f"app={HPA.name}"), TargetPods(rows), (used,))


def _known_row(known: dict[str, PodRow], pod: SimulatedPod, now_ms: int) -> PodRow:
    """The row as it was, where the pod has served since and continues serving."""
    row = known.get(pod.name)
    if row is None or row.ready != "True" or pod.deleting_ms is not None:
        row = known[pod.name] = _row(pod, now_ms)
    return row


def _row(pod: SimulatedPod, now_ms: int) -> PodRow:
    ready = pod.ready(now_ms)
    changed = pod.ready_at_ms if ready else pod.created_ms
    return PodRow(
        pod.name,
        TEMPLATE,
        pod.phase(now_ms),
        pod.created_ms // 1000 * 1000,
        "True" if ready else "False",
        changed // 1000 * 1000,
        pod.deleting_ms is not None,
    )


def _inputs(
    tried: Candidate, observation: Observation, history: Any, status: dict[str, Any], now_ms: int
) -> EvaluationInputs:
    return EvaluationInputs(
        decision=f"0-{now_ms}-uid",
        hpa=HPA,
        partition=0,
        offset=0,
        now_ms=now_ms,
        mode="enforce",
        origin="central",
        generation=1,
        spec=tried.spec,
        autoscaler=tried.autoscaler,
        status=status,
        observation=observation,
        history=history,
        settings=ControllerSettings(),
        period_ms=PERIOD_MS,
    )

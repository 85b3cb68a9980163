"""A log of an HPA in shadow beside a native controller: a simulated workload that the controller scales by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleethpa.lab.simulator.model import LoadCurve, PodProfile, SimulatedWorkload, SineLoad
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.observed import AutoscalerSet, Container, Heartbeat, Pod, PodList, ScaleSet, Target
from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, ScaleApplied
from streams.hpa.observation import ContainerRequests as Requests
from streams.hpa.observation import Observation, PodRow, PodTemplate, Scale, pod_samples
from streams.hpa.observation import TargetPods as Pods
from streams.hpa.reconcile import complete, decide
from streams.hpa.rules import RELEASED, rules_of
from tests.kit.partition import START_MS, LogBuilder, make_hpa

TEMPLATE = PodTemplate([Requests("main", {"cpu": "500m"})])
SPEC: dict[str, Any] = {
    "minReplicas": 2,
    "maxReplicas": 20,
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ],
}


class ShadowWorld:
    """Every second the workload lives on; the native controller and the observer act at phases of their own.

    Args:
        native_spec: changes to the spec that the native controller really follows: one that behaves otherwise.
        native_sees: what the native controller reads for a usage.
        native_away: seconds in which the native controller does not sync.
        noise: by which share usages differ from pod to pod and from moment to moment.
        minor: minor version of Kubernetes by whose rules the native controller decides.
        reported: the version that the observer reports.
        native_settings: flags of the native controller.
        joins_at: the second from which on the observer reports; the native controller runs from the start.
    """

    def __init__(
        self,
        load: LoadCurve | None = None,
        *,
        native_spec: dict[str, Any] | None = None,
        native_sees: Callable[[int], int] = lambda milli: milli,
        native_away: range = range(0),
        noise: float = 0.02,
        minor: int = RELEASED,
        reported: str = "",
        native_settings: dict[str, Any] | None = None,
        joins_at: int = 0,
    ) -> None:
        self.joins_at = joins_at
        self.log = LogBuilder()
        profile = PodProfile(schedule_ms=1_000, ready_ms=14_000, noise=noise)
        self.workload = SimulatedWorkload("web", START_MS, 4, load or SineLoad(400, 250, 1_800), profile)
        self.rules, self.reported = rules_of(minor), reported
        self.native = compile_autoscaler(make_hpa(**(SPEC | (native_spec or {}))), self.rules)
        self.settings = ControllerSettings(rules=self.rules, **(native_settings or {}))
        self.native_sees, self.native_away = native_sees, native_away
        self.history, self.status = EMPTY_HISTORY, dict[str, Any]()
        self.hand: dict[int, int] = {}
        """Second -> replicas that somebody sets with kubectl."""
        self.restarts: set[int] = set()
        """Seconds at which the native controller is started again, without its memory."""
        self.manager = ""
        self.changes_spec_at = 1 << 60
        """Second from which on the object is of another generation, with another maxReplicas."""
        self.generation = 1

    def run(self, minutes: int) -> LogBuilder:
        """Live on and write the log."""
        if not self.joins_at:
            self._tell_hpa()
            self._report_scale()
        for second in range(1, minutes * 60):
            self.workload.advance_to(START_MS + second * 1_000)
            self.log.now_ms = self.workload.now_ms
            if second == self.joins_at:
                self._tell_hpa()
                self._report_scale()
            if second == self.changes_spec_at:
                self.generation += 1
                self._tell_hpa()
            if second in self.restarts:
                self.history = EMPTY_HISTORY
            if second in self.hand:
                self.workload.replicas, self.manager = self.hand[second], "kubectl-scale"
                self._report_scale()
            if second % 15 == 4 and self.workload.samples and second not in self.native_away:
                self._native_sync()
            if second < self.joins_at:
                continue
            if second % 15 == 9 and self.workload.samples:
                self._observe()
            elif second % 5 == 0:
                watches = ["pods", "autoscalers", "scales"]
                self.log.add(Heartbeat(session="s", watches=watches, kubernetes=self.reported))
        return self.log

    def _native_sync(self) -> None:
        now_ms, sample = self.workload.now_ms, self.workload.samples[-1]
        used = {name: (self.native_sees(u.cpu_milli), sample.time_ms, 15_000) for name, u in sample.pods.items()}
        scale = Scale(self.workload.replicas, len(self.workload.alive()), "app=web")
        observation = Observation(scale, Pods(tuple(map(self._row, self._pods()))), (pod_samples(used),))
        made = decide(self.native, self.status, observation, self.history, self.settings, now_ms)
        self.history = made.history
        if made.result is not None:
            self.status = made.result.status
        if made.pending is not None:
            ended = complete(made.pending, self.status, self.history, ScaleApplied(), now_ms, rules=self.rules)
            self.history, self.status = ended.history, ended.status
            self.workload.replicas, self.manager = made.pending.desired_replicas, "kube-controller-manager"
            self._tell_hpa()
            self._report_scale()
        else:
            self._tell_hpa()

    def _tell_hpa(self) -> None:
        if self.log.now_ms < START_MS + self.joins_at * 1_000:
            return
        hpa = make_hpa(**SPEC | ({"maxReplicas": 25} if self.generation > 1 else {}))
        hpa["metadata"]["generation"] = self.generation
        self.log.add(AutoscalerSet(hpa=hpa | {"status": self.status}, session="s"))

    def _report_scale(self) -> None:
        if self.log.now_ms < START_MS + self.joins_at * 1_000:
            return
        count = self.workload.replicas
        self.log.add(
            ScaleSet(
                target=Target(group="apps", kind="Deployment", name="web"),
                spec_replicas=count,
                status_replicas=count,
                selector="app=web",
                session="s",
                manager=self.manager,
                manager_time=self.log.now_ms,
            )
        )

    def _observe(self) -> None:
        sample = self.workload.samples[-1]
        usages = [
            PodUsage(name, sample.time_ms, 15_000, [("main", {"cpu": used.cpu_milli})])
            for name, used in sample.pods.items()
        ]
        self.log.add(PodList(list_id=f"p{self.log.now_ms}", pods=self._pods(), session="s"))
        answer = MetricAnswer(api="resource", selector="app=web", pods=in_columns(usages))
        self.log.add(Answers(items=[answer], session="s"))

    def _pods(self) -> list[Pod]:
        now_ms = self.workload.now_ms
        return [
            Pod(
                name=pod.name,
                labels={"app": "web"},
                start=pod.created_ms,
                phase=pod.phase(now_ms),
                ready="True" if pod.ready(now_ms) else "False",
                ready_at=pod.ready_at_ms if pod.ready(now_ms) else pod.created_ms,
                deleting=pod.deleting_ms is not None,
                containers=[Container(name="main", requests={"cpu": "500m"})],
            )
            for pod in self.workload.pods.values()
        ]

    @staticmethod
    def _row(pod: Pod) -> PodRow:
        return PodRow(pod.name, TEMPLATE, pod.phase, pod.start, pod.ready, pod.ready_at or START_MS, pod.deleting)

"""A cluster's own HPA controller: upstream's rule for one HPA, and the task that lives by it in a simulated cluster.

Source: upstream `reconcileAutoscaler` and `updateStatus`, v1.37.1. It writes no Events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from fleethpa.lab.simulator.requests import FieldWriter, StatusError, label_matcher, not_served, parse
from fleethpa.lab.simulator.resources import RESOURCES, ResourceType, Store, by_kind
from fleethpa.lab.simulator.server import SimulatedMetricsApi, plural
from fleethpa.lab.simulator.writes import Writes, scale_of
from reconciler.core.metricanswers import custom_path, external_path, failed, fill, resource_path
from reconciler.core.objects import pod_body
from schemas.answers import Query, metric_query
from schemas.kubernetes.shape import Json, JsonView
from streams.hpa.autoscaler import INVALID, Autoscaler, ControllerSettings, MetricSpec, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, History, ScaleApplied, ScaleFailed, ScaleOutcome, Status
from streams.hpa.observation import MetricReading, Observation, Scale, ScaleFailure, TargetPods, compile_answer
from streams.hpa.reconcile import complete, decide
from streams.state.membership import pod_row

MANAGER: Final = "kube-controller-manager"
_HPA: Final = by_kind("autoscaling/v2", "HorizontalPodAutoscaler")


class NativeRule:
    """What upstream's controller remembers of one HPA, and how it syncs it: by the rules that fleethpa decides by."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._history: History = EMPTY_HISTORY

    def sync(
        self,
        autoscaler: Autoscaler,
        status: Status,
        observation: Observation,
        write: Callable[[int], ScaleOutcome],
        now_ms: int,
    ) -> Status:
        """Decide as of now and give the new status; `write` sets the replicas where others are wanted."""
        decision = decide(autoscaler, status, observation, self._history, self._settings, now_ms)
        self._history, ended = decision.history, decision.result
        if decision.pending is not None:
            outcome = write(decision.pending.desired_replicas)
            ended = complete(decision.pending, status, self._history, outcome, now_ms, rules=self._settings.rules)
            self._history = ended.history
        return status if ended is None else ended.status


class NativeController:
    """Syncs every HPA of one simulated cluster once per period, by the reads and writes that its API server offers."""

    def __init__(
        self,
        store: Store,
        writes: Writes,
        metrics: SimulatedMetricsApi,
        now_ms: Callable[[], int],
        settings: ControllerSettings,
        period_ms: int,
    ) -> None:
        self._store, self._writes, self._metrics, self._now_ms = store, writes, metrics, now_ms
        self._settings, self._period_ms = settings, period_ms
        self._rules: dict[str, NativeRule] = {}
        """By uid: an HPA that is created again begins without memory."""

    async def run(self) -> None:
        """Sync until cancelled."""
        while True:
            self.sync()
            await asyncio.sleep(self._period_ms / 1000)

    def sync(self) -> None:
        """Sync every HPA once."""
        hpas = self._store.listing(_HPA.qualified)
        self._rules = {
            uid: self._rules.get(uid) or NativeRule(self._settings) for uid in (hpa["metadata"]["uid"] for hpa in hpas)
        }
        selected = {hpa["metadata"]["uid"]: self._pods_of(hpa) for hpa in hpas}
        names = {hpa["metadata"]["uid"]: f"{_place(hpa)[0]}/{_place(hpa)[1]}" for hpa in hpas}
        for hpa in hpas:
            own = selected[hpa["metadata"]["uid"]].keys()
            sharing = sorted(names[uid] for uid, pods in selected.items() if own & pods.keys())
            self._sync(hpa, selected[hpa["metadata"]["uid"]], tuple(sharing))

    def _sync(self, hpa: Json, pods: Mapping[str, Json], sharing: tuple[str, ...]) -> None:
        autoscaler, scale = compile_autoscaler(hpa, self._settings.rules), self._scale(hpa)
        rows = TargetPods(tuple(pod_row(pod_body(pod)) for pod in pods.values()), self._settings.rules)
        answers: tuple[MetricReading | None, ...] = ()
        if isinstance(scale, Scale):
            metrics = zip(autoscaler.metrics, hpa["spec"].get("metrics") or (), strict=True)
            answers = tuple(self._answer(*each, scale.selector, autoscaler.namespace) for each in metrics)
        observation = Observation(scale, rows, answers, sharing if len(sharing) > 1 else ())
        old, rule = hpa.get("status") or {}, self._rules[hpa["metadata"]["uid"]]
        status = rule.sync(autoscaler, old, observation, lambda count: self._write(hpa, count), self._now_ms())
        self._writes.update(_HPA, *_place(hpa), hpa | {"status": status}, FieldWriter(MANAGER, subresource="status"))

    def _write(self, hpa: Json, replicas: int) -> ScaleOutcome:
        target, writer = _target(hpa), FieldWriter(MANAGER, subresource="scale")
        namespace, name = _place(hpa)[0], hpa["spec"]["scaleTargetRef"]["name"]
        try:
            if target is None:
                raise not_served()
            self._writes.write_scale(target, namespace, name, {"spec": {"replicas": replicas}}, writer)
        except StatusError as error:
            return ScaleFailed(error.message)
        return ScaleApplied()

    def _scale(self, hpa: Json) -> Scale | ScaleFailure:
        target, reference = _target(hpa), hpa["spec"]["scaleTargetRef"]
        if target is None:
            group = reference.get("apiVersion", "").rpartition("/")[0]
            return ScaleFailure(f'no matches for kind "{reference["kind"]}" in group "{group}"', unmapped=True)
        try:
            scale = scale_of(target, self._writes.read(target, _place(hpa)[0], reference["name"]))
        except StatusError as error:
            return ScaleFailure(error.message)
        return Scale(scale["spec"].get("replicas", 0), scale["status"]["replicas"], scale["status"]["selector"])

    def _pods_of(self, hpa: Json) -> dict[str, Json]:
        """The pods of an HPA's target by `namespace/name`; none where its scale or selector cannot be read."""
        scale, namespace = self._scale(hpa), _place(hpa)[0]
        if isinstance(scale, ScaleFailure) or not scale.selector:
            return {}
        matches = label_matcher(scale.selector)
        pods = self._store.listing("pods", namespace)
        return {f"{namespace}/{pod['metadata']['name']}": pod for pod in pods if matches(pod)}

    def _answer(self, compiled: MetricSpec, metric: JsonView, selector: str, namespace: str) -> MetricReading | None:
        query = None if compiled.calculation == INVALID else metric_query(metric, selector)
        if query is None:
            return None
        try:
            answer = fill(query, self._asked(query, namespace))
        except StatusError as error:
            answer = failed(query, error.message)
        return compile_answer(answer, compiled.resource, compiled.container, namespace, self._settings.rules)

    def _asked(self, query: Query, namespace: str) -> Json:
        """Return what the metrics API answers. Raises StatusError: it fails."""
        if query.api == "resource":
            path = resource_path(namespace, query.selector)
        elif query.api == "external":
            path = external_path(query, namespace)
        else:
            path = custom_path(query, namespace, "v1beta2", plural(query.group_kind.partition(".")[0]))
        url = urlsplit(path)
        ask = parse("GET", unquote(url.path), dict(parse_qsl(url.query)))
        if ask is None:
            raise not_served()
        return self._metrics.answer(ask)


def _place(hpa: JsonView) -> tuple[str, str]:
    return hpa["metadata"]["namespace"], hpa["metadata"]["name"]


def _target(hpa: JsonView) -> ResourceType | None:
    """The resource type of an HPA's target, by group and kind, as upstream maps it; None: it has no scale."""
    reference: Mapping[str, Any] = hpa["spec"]["scaleTargetRef"]
    named = (reference.get("apiVersion", "").rpartition("/")[0], reference["kind"])
    return next((each for each in RESOURCES if each.scale and (each.group, each.kind) == named), None)

"""The HPA controller of a simulated cluster, on a clock that the test moves: what it writes, and what it leaves."""

import asyncio
from typing import Any

import pytest

from fleethpa.lab.simulator.cluster import SimulatedCluster
from fleethpa.lab.simulator.server import MetricsFault
from streams.hpa.autoscaler import ControllerSettings
from tests.patience import PATIENCE_S

Json = dict[str, Any]
SIMULATION = """
load: 100
pod: {ready_ms: 1000, cpu_milli_per_unit: 4, idle_cpu_milli: 0}
metrics:
  - {type: Pods, name: rps}
  - {type: Object, name: total, object: {kind: Service, name: web}}
  - {type: External, name: waiting, labels: {queue: q}}
"""
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 40}}
CONTAINER = {"name": "cpu", "container": "main", "target": {"type": "AverageValue", "averageValue": "100m"}}
OBJECT = {
    "metric": {"name": "total"},
    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
    "target": {"type": "AverageValue", "averageValue": "20"},
}


def metric(kind: str, source: Json) -> Json:
    return {"type": kind, kind[0].lower() + kind[1:]: source}


def of_average(name: str, value: str) -> Json:
    return {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": value}}


class Town:
    """A cluster with a Deployment `web` of two replicas, one minute old."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.cluster = SimulatedCluster(
            "south", now_ms=lambda: self.now_ms, native=ControllerSettings(cpu_initialization_period_ms=5_000)
        )
        labels = {"app": "web"}
        container = {"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "500m"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        self.cluster.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop", "annotations": {"fleethpa.io/simulation": SIMULATION}},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
            }
        )
        self.pass_time(60)

    def pass_time(self, seconds: int) -> None:
        self.cluster.kubelet.sync()
        self.now_ms += seconds * 1000
        self.cluster.kubelet.sync()

    def hpa(self, *metrics: Json, name: str = "web", kind: str = "Deployment", **spec: Any) -> None:
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": "web"}
        body = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 10, "metrics": list(metrics)} | spec
        metadata = {"name": name, "namespace": "shop"}
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        self.cluster.apply(head | {"metadata": metadata, "spec": body})

    def sync(self) -> None:
        assert self.cluster.native is not None
        self.cluster.native.sync()

    def replicas(self) -> int:
        found = self.cluster.store.get(("deployments.apps", "shop", "web"))
        assert found is not None
        return int(found["spec"]["replicas"])

    def status(self, name: str = "web") -> Json:
        found = self.cluster.store.get(("horizontalpodautoscalers.autoscaling", "shop", name))
        assert found is not None
        return dict(found["status"])

    def reason(self, condition: str, name: str = "web") -> str:
        return next(str(each["reason"]) for each in self.status(name)["conditions"] if each["type"] == condition)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        pytest.param(metric("Resource", CPU), 2, id="cpu at its target: 200m of 500m in each of two pods"),
        pytest.param(metric("ContainerResource", CONTAINER), 4, id="200m in each of two containers, 100m wanted"),
        pytest.param(metric("Pods", of_average("rps", "25")), 4, id="50 in each of two pods, 25 wanted"),
        pytest.param(metric("Object", OBJECT), 5, id="100 in all, 20 for each pod"),
        pytest.param(metric("External", of_average("waiting", "1")), 1, id="an empty queue"),
    ],
)
def test_each_type_of_metric_scales_as_upstream_does(one: Json, wanted: int) -> None:
    town = Town()
    town.hpa(one, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    town.sync()
    assert (town.replicas(), town.status()["desiredReplicas"]) == (wanted, wanted)
    assert (town.status()["observedGeneration"], town.reason("ScalingActive")) == (1, "ValidMetricFound")


def test_the_stabilization_window_is_remembered_from_sync_to_sync() -> None:
    town = Town()
    town.hpa(metric("External", of_average("waiting", "1")))
    for _ in range(20):
        town.sync()
        assert town.replicas() == 2
        town.pass_time(15)
    town.sync()  # 300 s after its first look at two replicas
    town.pass_time(15)
    town.sync()
    assert town.replicas() == 1


def test_a_metrics_api_that_fails_is_shown_in_the_status_and_nothing_is_scaled() -> None:
    town = Town()
    town.cluster.set_metrics_faults([MetricsFault(metric="rps", message="away")])
    town.hpa(metric("Pods", of_average("rps", "25")))
    town.sync()
    assert (town.replicas(), town.reason("ScalingActive")) == (2, "FailedGetPodsMetric")


def test_a_target_that_does_not_exist_is_shown_in_the_status() -> None:
    town = Town()
    town.hpa(metric("Resource", CPU), kind="StatefulSet")
    town.hpa(metric("Resource", CPU), name="job", kind="Job")
    town.sync()
    for name in ("web", "job"):
        assert town.reason("AbleToScale", name) == "FailedGetScale"


def test_two_hpas_on_the_same_pods_scale_nothing() -> None:
    town = Town()
    for name in ("web", "other"):
        town.hpa(metric("Pods", of_average("rps", "25")), name=name)
    town.sync()
    assert town.replicas() == 2
    assert {town.reason("ScalingActive", name) for name in ("web", "other")} == {"AmbiguousSelector"}


def test_a_status_that_does_not_change_is_not_written_again() -> None:
    town = Town()
    town.hpa(metric("Resource", CPU))
    town.sync()
    town.sync()
    version = town.cluster.store.version
    town.sync()
    assert town.cluster.store.version == version


async def test_it_rests_while_the_api_server_is_stopped_and_syncs_when_it_is_back() -> None:
    town = Town()
    async with town.cluster as cluster:
        await cluster.stop_api()
        assert cluster._native_task is None
        town.hpa(metric("Pods", of_average("rps", "25")))
        await cluster.start_api()
        async with asyncio.timeout(PATIENCE_S):
            while town.replicas() != 4:
                await asyncio.sleep(0)

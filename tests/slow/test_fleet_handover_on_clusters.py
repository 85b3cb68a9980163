"""HPAs that native controllers of two simulated clusters scale become one FleetHPA and go back: no replica moves."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from fleethpa.lab.demo.stack import Stack, StackPlan
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from streams.hpa.autoscaler import ControllerSettings
from tests.kit.region import CART, SETTINGS, WORKLOAD
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KEPT_S: Final = 8.0
HPA: Final = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cart, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  minReplicas: 1
  maxReplicas: 12
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
"""
NATIVE: Final = ControllerSettings(
    downscale_stabilization_ms=4_000, cpu_initialization_period_ms=2_000, initial_readiness_delay_ms=1_000
)
LOADS: Final = {"east": 450, "west": 225}
"""Units of 4 milli-CPU: 6 and 3 pods of 500m have 60 % of what they request."""
SETTLED: Final = (6, 3)


class Regions:
    """Two clusters with their native controllers, and every count that their targets have had since `settled`."""

    def __init__(self) -> None:
        self.fleet = Fleet([SimulatedCluster(name, sample_ms=1_000, native=NATIVE) for name in LOADS])
        for (name, units), count in zip(LOADS.items(), SETTLED, strict=True):
            cluster, workload = self.fleet[name], WORKLOAD.replace("load: 150", f"load: {units}")
            cluster.apply_yaml(workload.replace("replicas: 2", f"replicas: {count}"))
            cluster.apply_yaml(HPA)
        self.seen: set[tuple[int, ...]] = set()

    def replicas(self) -> tuple[int, ...]:
        found = [each.store.get(CART) for each in self.fleet.clusters.values()]
        return tuple(int((each or {})["spec"]["replicas"]) for each in found)

    def natives(self) -> list[str]:
        key = ("horizontalpodautoscalers.autoscaling", "shop", "cart")
        return [name for name, each in self.fleet.clusters.items() if each.store.get(key)]

    async def settle(self) -> None:
        """Wait until the counts are as the loads ask for, and were so for longer than the window of scale-down."""
        since = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while time.monotonic() - since < KEPT_S:
                if self.replicas() != SETTLED:
                    since = time.monotonic()
                await asyncio.sleep(0.1)

    async def watch(self) -> None:
        while True:
            self.seen.add(self.replicas())
            await asyncio.sleep(0.02)


async def command(stack: Stack, folder: Path, *arguments: str, code: int = 0) -> str:
    more = ("--yes", "--reason", "a test", "--wait", "30s", "--kubeconfig", stack.config.kubeconfig)
    found, output = await question(stack, folder, *arguments, *more)
    assert found == code, output
    return output


async def question(stack: Stack, folder: Path, *arguments: str) -> tuple[int | None, str]:
    environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(folder), "FLEETHPA_BROKERS": stack.config.brokers}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fleethpa", *arguments, stdout=PIPE, stderr=STDOUT, env=environ
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_hpas_of_two_clusters_become_one_and_go_back_and_no_replica_moves(tmp_path: Path) -> None:
    regions = Regions()
    settings = structs.replace(SETTINGS, default_mode="shadow", native_controller="present")
    async with Stack(StackPlan(tmp_path, fleet=regions.fleet, settings=settings)) as stack:
        await regions.settle()
        watching = asyncio.create_task(regions.watch())
        try:
            await command(stack, tmp_path, "adopt", "@fleet/shop/cart", "-C", "east,west", "--export", str(tmp_path))
            assert regions.natives() == []
            await regions.settle()
            await command(stack, tmp_path, "release", "@fleet/shop/cart")
            assert regions.natives() == ["east", "west"]
            await regions.settle()
        finally:
            assert not watching.done(), watching
            watching.cancel()
    assert regions.seen == {SETTLED}


MANIFEST: Final = """
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {name: cart, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  minReplicas: 2
  maxReplicas: 24
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
  clusters: [{name: east, weight: 2}, {name: west}]
"""


async def test_one_in_shadow_beside_native_hpas_becomes_ready_and_is_adopted_as_it_is(tmp_path: Path) -> None:
    regions, whole = Regions(), "@fleet/shop/cart"
    settings = structs.replace(SETTINGS, default_mode="shadow", native_controller="present")
    file = tmp_path / "fleethpa.yaml"
    file.write_text(MANIFEST)
    async with Stack(StackPlan(tmp_path, fleet=regions.fleet, settings=settings)) as stack:
        await regions.settle()
        await command(stack, tmp_path, "apply", "-f", str(file), "--mode", "shadow")
        watching = asyncio.create_task(regions.watch())
        try:
            async with asyncio.timeout(300):
                while (found := await question(stack, tmp_path, "shadow-report", whole, "--since", "1h"))[0] != 0:
                    assert "internal error" not in found[1], found[1]
            assert found[1].startswith(f"READY: the total of {whole} was that of the HPAs of 2 clusters in 100.0% of")
            assert regions.natives() == ["east", "west"]
            refused = await command(stack, tmp_path, "mode", "enforce", whole, code=1)
            assert "have HPAs of their own" in refused
            await command(stack, tmp_path, "adopt", whole, "-C", "east,west", "--export", str(tmp_path))
            assert regions.natives() == []
            await regions.settle()
        finally:
            assert not watching.done(), watching
            watching.cancel()
    assert regions.seen == {SETTLED}

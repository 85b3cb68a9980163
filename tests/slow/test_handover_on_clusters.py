"""HPAs of a simulated cluster go to fleethpa and back under every part of it, killed on the way.

`tests/kubernetes/test_handover.py` has the same against a real API server and the real native controller.
"""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs

from fleethpa.fleet.state import read_state
from fleethpa.frame.sources import open_past
from fleethpa.lab.demo.stack import Stack, StackPlan
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from fleethpa.lab.simulator.model import ConstantLoad
from reconciler.clusters.answers import ApiError
from reconciler.clusters.client import ClusterClient, clusters_of
from tests.kit.region import SETTINGS as FAST
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CLUSTER: Final = "south"
NAMES: Final = tuple(f"app{number}" for number in range(4))
HPAS: Final = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
SETTINGS: Final = structs.replace(FAST, default_mode="shadow", native_controller="present")
KEPT_S: Final = 8.0
MANIFESTS: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: shop
  annotations:
    fleethpa.io/simulation: |
      load: 290
      pod: {{schedule_ms: 100, ready_ms: 500, stop_ms: 200, cpu_milli_per_unit: 4, noise: 0}}
spec:
  replicas: 4
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: server, image: "app:1", resources: {{requests: {{cpu: 500m}}}}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: shop, labels: {{team: pay}}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 2
  maxReplicas: 12
  metrics:
    - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}
"""


@dataclass
class Town:
    """One cluster under the stack."""

    stack: Stack
    fleet: Fleet
    folder: Path

    async def start(self, *arguments: str, output: int = PIPE) -> asyncio.subprocess.Process:
        """Begin a command of fleethpa."""
        config = self.stack.config
        environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(self.folder), "FLEETHPA_BROKERS": config.brokers}
        whole = [*arguments, "--yes", "--reason", "a test", "--wait", "30s", "--kubeconfig", config.kubeconfig]
        command = [sys.executable, "-m", "fleethpa", *whole]
        return await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=output, stderr=STDOUT, env=environ)

    async def command(self, *arguments: str) -> None:
        """Run a command of fleethpa, which must succeed."""
        running = await self.start(*arguments)
        output, _ = await running.communicate()
        assert running.returncode == 0, output.decode()

    def load(self, units: float) -> None:
        """Put all workloads under this load: a little less than 75 of it for each replica."""
        for name in NAMES:
            self.fleet[CLUSTER].set_load("shop", name, ConstantLoad(units))

    def counts(self) -> set[int]:
        """The counts that the targets have."""
        found = [self.fleet[CLUSTER].store.get(("deployments.apps", "shop", name)) for name in NAMES]
        return {int(each["spec"]["replicas"]) for each in found if each is not None}

    def natives(self) -> set[str]:
        """The names of the HPA objects in the cluster."""
        store = self.fleet[CLUSTER].store
        return {name for name in NAMES if store.get(("horizontalpodautoscalers.autoscaling", "shop", name))}

    async def known(self) -> set[tuple[str, str]]:
        """Origins and modes of all HPAs, as the log has them."""
        async with open_past("kafka", self.stack.config) as past:
            state = await read_state(past)
        return {(view.origin, view.mode) for view in state.hpas.values()}

    async def until_known(self, origin: str, mode: str) -> None:
        """Wait until this holds for every HPA."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.known() != {(origin, mode)}:
                await asyncio.sleep(0.3)

    async def settle(self, replicas: int) -> None:
        """Wait until every target has so many replicas, and keeps them for longer than the window of scale-down.

        While pods start, more may be asked for than is right in the end.
        """
        since = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while time.monotonic() - since < KEPT_S:
                if self.counts() != {replicas}:
                    since = time.monotonic()
                await asyncio.sleep(0.2)


async def look_after(client: ClusterClient) -> None:
    """Give every HPA a status, as a native controller does at its first look; it never scales."""
    while True:
        for each in (await client.get(HPAS))["items"]:
            if not (each.get("status") or {}).get("observedGeneration"):
                kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
                status = {"currentReplicas": 4, "desiredReplicas": 4} | (each.get("status") or {})
                body = kind | each | {"status": status | {"observedGeneration": each["metadata"]["generation"]}}
                with contextlib.suppress(ApiError):  # it was changed or deleted meanwhile
                    await client.put(f"{HPAS}/{each['metadata']['name']}/status", body)
        await asyncio.sleep(0.5)


@asynccontextmanager
async def one_cluster(folder: Path) -> AsyncIterator[Town]:
    cluster = SimulatedCluster(CLUSTER, sample_ms=1_000)
    for name in NAMES:
        cluster.apply_yaml(MANIFESTS.format(name=name))
    fleet = Fleet([cluster])
    environ = {**os.environ, "FLEETHPA_RUNTIME_DIR": str(folder)}
    async with Stack(StackPlan(folder=folder, fleet=fleet, settings=SETTINGS, environ=environ)) as stack:
        (config,) = clusters_of(stack.config.kubeconfig)
        client = ClusterClient(config)
        native = asyncio.create_task(look_after(client))
        try:
            await stack.ready(len(NAMES), 120)
            yield Town(stack, fleet, folder)
        finally:
            assert not native.done(), native
            native.cancel()
            await client.close()


async def test_a_cluster_goes_to_fleethpa_and_back(tmp_path: Path) -> None:
    async with one_cluster(tmp_path) as town:
        await town.until_known("cluster", "shadow")
        await town.command("adopt", "-C", CLUSTER, "-A", "--export", str(tmp_path))
        await town.until_known("central", "enforce")
        assert (town.natives(), town.counts()) == (set(), {4})
        town.load(580)
        await town.settle(8)

        # Killed when the first of the native HPAs is there; the central ones are refused or paused then.
        running = await town.start("release", "-C", CLUSTER, "-A", output=DEVNULL)
        async with asyncio.timeout(PATIENCE_S):
            while not town.natives():
                await asyncio.sleep(0.02)
        running.kill()
        await running.wait()
        await town.command("release", "-C", CLUSTER, "-A")
        await town.until_known("cluster", "shadow")
        assert (town.natives(), town.counts()) == (set(NAMES), {8})

        await town.command("adopt", "-C", CLUSTER, "-n", "shop", "--export", str(tmp_path))
        await town.until_known("central", "enforce")
        assert town.counts() == {8}
        town.load(290)
        await town.settle(4)

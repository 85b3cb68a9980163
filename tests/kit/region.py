"""Two clusters with one workload, a FleetHPA over both, and the command line that asks about them."""

import asyncio
import os
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import Final

import orjson
from msgspec import structs

from fleethpa.lab.demo.stack import DEV_SETTINGS, Stack
from fleethpa.lab.simulator import resources
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from fleethpa.lab.simulator.model import ConstantLoad
from fleethpa.lab.simulator.writes import key_of
from tests.patience import PATIENCE_S

MOST: Final = 12
CART: Final = key_of(resources.by_kind("apps/v1", "Deployment"), "shop", "cart")
SETTINGS: Final = structs.replace(
    DEV_SETTINGS,
    sync_period_ms=2_000,
    downscale_stabilization_ms=4_000,
    cpu_initialization_period_ms=2_000,
    initial_readiness_delay_ms=1_000,
)
WORKLOAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cart
  namespace: shop
  annotations:
    fleethpa.io/simulation: |
      load: 150
      pod: {schedule_ms: 100, ready_ms: 500, stop_ms: 200, cpu_milli_per_unit: 4, noise: 0}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers: [{name: server, image: app, resources: {requests: {cpu: 500m}}}]
"""
FLEET_MANIFEST: Final = f"""
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {{name: cart, namespace: shop}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: cart}}
  minReplicas: 4
  maxReplicas: {MOST}
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}]
  clusters: [{{name: east, minReplicas: 1}}, {{name: west, minReplicas: 1}}]
  placement: {{rebalanceAfter: 5s}}
"""


class Region:
    """Two clusters and what runs in them. `highest`: the most replicas that both had at once."""

    def __init__(self) -> None:
        self.fleet = Fleet([SimulatedCluster(name, sample_ms=1_000) for name in ("east", "west")])
        for cluster in self.fleet.clusters.values():
            cluster.apply_yaml(WORKLOAD)
        self.highest = 0

    @property
    def replicas(self) -> tuple[int, int]:
        east, west = [int((each.store.get(CART) or {})["spec"]["replicas"]) for each in self.fleet.clusters.values()]
        self.highest = max(self.highest, east + west)
        return east, west

    def load(self, east: float, west: float) -> None:
        for name, units in (("east", east), ("west", west)):
            self.fleet[name].set_load("shop", "cart", ConstantLoad(units))

    async def until(self, holds: Callable[[tuple[int, int]], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(self.replicas):
            assert time.monotonic() < deadline, f"{what}: {self.replicas}"
            await asyncio.sleep(0.05)


async def ask(stack: Stack, *words: str, stdin: str = "") -> str:
    command = [sys.executable, "-m", "fleethpa", *words, "--brokers", stack.config.brokers]
    environment = os.environ | {"FLEETHPA_CONFIG": "", "FLEETHPA_RUNTIME_DIR": os.devnull}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)
    out, errors = await process.communicate(stdin.encode())
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def until_clusters_are_known(stack: Stack) -> None:
    """Wait until the observer has reported both."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := orjson.loads(await ask(stack, "get", "clusters", "-o", "json"))["items"]) < 2:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.2)


async def until_shown(stack: Stack, pattern: str, verb: str = "describe") -> re.Match[str]:
    """Ask about the FleetHPA until the answer has this."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := re.search(pattern, page := await ask(stack, verb, "@fleet/shop/cart"))) is None:
        assert time.monotonic() < deadline, page
    return found

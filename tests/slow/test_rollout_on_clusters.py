"""A spec goes out to twelve simulated clusters under every part of fleethpa: a bad one is taken back."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pytest

from fleethpa.fleet.state import read_state
from fleethpa.frame.sources import open_past
from fleethpa.lab.demo.stack import Stack, StackPlan
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from tests.kit.region import SETTINGS
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CLUSTERS: Final = tuple(f"c{number:02}" for number in range(12))
REST: Final = 8
"""Replicas that the load asks for at a target of 60 %: 2,400m of 300m each."""
TARGET: Final = 60
GOOD, BAD = 50, 600
WORKLOAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    fleethpa.io/simulation: |
      load: 600
      pod: {schedule_ms: 100, ready_ms: 500, stop_ms: 200, cpu_milli_per_unit: 4, noise: 0}
spec:
  replicas: 8
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: server, image: "web:1", resources: {requests: {cpu: 500m}}}]
"""


def manifest(target: int) -> bytes:
    """The HPA with this target of utilization."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 16,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    metadata = {"name": "web", "namespace": "shop"}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return orjson.dumps(head | {"metadata": metadata, "spec": spec})


@dataclass
class Wide:
    """The stack over twelve clusters. `lowest`: the fewest replicas that each cluster has had."""

    stack: Stack
    fleet: Fleet
    folder: Path
    lowest: dict[str, int]

    async def command(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """Run a command of fleethpa: its exit code, and all that it printed."""
        running = await self.start(*arguments)
        output, _ = await running.communicate(stdin)
        return running.returncode or 0, output.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(self.folder), "USER": "anna"}
        environ |= {"FLEETHPA_BROKERS": self.stack.config.brokers}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fleethpa",
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ,
        )

    def counts(self) -> dict[str, int]:
        found = {}
        for name in CLUSTERS:
            live = self.fleet[name].store.get(("deployments.apps", "shop", "web"))
            assert live is not None
            found[name] = int(live["spec"]["replicas"])
        return found

    async def sample(self) -> None:
        """Note the fewest replicas, for ever."""
        while True:
            for name, count in self.counts().items():
                self.lowest[name] = min(self.lowest[name], count)
            await asyncio.sleep(0.05)

    async def settle(self, replicas: int) -> None:
        """Wait until every cluster has so many replicas."""
        async with asyncio.timeout(PATIENCE_S):
            while set(self.counts().values()) != {replicas}:
                await asyncio.sleep(0.2)

    async def seen(self) -> None:
        """Wait until every cluster is known."""
        async with asyncio.timeout(PATIENCE_S), open_past("kafka", self.stack.config) as past:
            while len((await read_state(past)).clusters) < len(CLUSTERS):
                await asyncio.sleep(0.5)

    async def targets(self) -> dict[str, int]:
        """The target of each cluster's HPA, as it is in the log."""
        async with open_past("kafka", self.stack.config) as past:
            state = await read_state(past)
        return {
            hpa.cluster: view.spec["metrics"][0]["resource"]["target"]["averageUtilization"]
            for hpa, view in state.hpas.items()
        }


@asynccontextmanager
async def twelve_clusters(folder: Path) -> AsyncIterator[Wide]:
    clusters = [SimulatedCluster(name, sample_ms=1_000) for name in CLUSTERS]
    for cluster in clusters:
        cluster.apply_yaml(WORKLOAD)
    fleet = Fleet(clusters)
    environ = {**os.environ, "FLEETHPA_RUNTIME_DIR": str(folder)}
    plan = StackPlan(folder=folder, fleet=fleet, settings=SETTINGS, environ=environ)
    async with Stack(plan) as stack:
        wide = Wide(stack, fleet, folder, dict.fromkeys(CLUSTERS, REST))
        await wide.seen()
        code, stated = await wide.command(
            "apply", "-f", "-", "-C", "c*", "--yes", "--wait", "60s", stdin=manifest(TARGET)
        )
        assert code == 0, stated
        await stack.ready(len(CLUSTERS), 120)
        await wide.settle(REST)
        sampling = asyncio.create_task(wide.sample())
        try:
            yield wide
        finally:
            sampling.cancel()


async def test_a_bad_spec_costs_replicas_in_one_wave_only_and_a_good_one_reaches_all(tmp_path: Path) -> None:
    async with twelve_clusters(tmp_path) as wide:
        waves = ("rollout", "-f", "-", "-C", "c*", "--wave", "1,25%,100%", "--yes", "--reason", "try")
        code, stated = await wide.command(*waves, "--wait", "60s", stdin=manifest(BAD))
        assert code == 1, stated
        assert "wave 1/3 failed: replicas_removed>30%" in stated
        assert await wide.targets() == dict.fromkeys(CLUSTERS, TARGET)
        await wide.settle(REST)
        harmed = {name for name, count in wide.lowest.items() if count < REST}
        assert harmed == {"c00"}, wide.lowest

        # A good one, whose command is killed in its second wave and which somebody else continues.
        running = await wide.start(*waves, "--wait", "8s")
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(manifest(GOOD))
        running.stdin.close()
        rollout = ""
        async with asyncio.timeout(PATIENCE_S):
            async for line in running.stdout:
                words = line.decode().split()
                rollout = words[1] if words[:1] == ["rollout"] else rollout
                if line.startswith(b"wave 2/3 begins"):
                    break
        running.send_signal(signal.SIGKILL)
        await running.wait()
        reached = [name for name, target in (await wide.targets()).items() if target == GOOD]
        assert "c00" in reached
        assert len(reached) <= 3
        code, stated = await wide.command("rollout", "resume", rollout, "--yes", "--author", "bob")
        assert code == 0, stated
        assert await wide.targets() == dict.fromkeys(CLUSTERS, GOOD)
        assert {count for name, count in wide.lowest.items() if name != "c00"} == {REST}

"""`python -m tests.kubernetes.fleet`: what fleethpa and Kafka cost beside a real control plane, idle costs included.

Deployments of five pods each with an HPA, whose pods the controller manager makes and a stand-in for the kubelet runs.
Their CPU changes by a few percent every period, so that most evaluations want nothing, as in a fleet at rest.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from reconciler.clusters.client import ClusterClient, ClusterConfig
from tests.bench.fleet import PERIOD_S, FleetRun, Plan, Usage, usage
from tests.kubernetes import binaries
from tests.kubernetes.backend import Demand
from tests.kubernetes.node import is_ready
from tests.kubernetes.site import Site
from tests.kubernetes.workloads import deployment

Json = dict[str, Any]

CLUSTER: Final = "real"
PODS: Final = 5
IN_NAMESPACE: Final = 20
AT_ONCE: Final = 50
"""Deployments that are made at once. More would only wait for the kubelet's stand-in."""
REQUEST_MILLI: Final = 100
"""Of each of a pod's two containers."""
TARGET_PERCENT: Final = 50
NOISE: Final = 0.04
START_S: Final = 900.0


def hpa(name: str) -> Json:
    """An HPA whose pods are at its target."""
    target = {"type": "Utilization", "averageUtilization": TARGET_PERCENT}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 20, "metrics": metrics}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


@dataclass
class RealCluster:
    """A cluster with some HPAs. `places`: namespace and name of each."""

    site: Site
    hpas: int
    places: list[tuple[str, str]] = field(default_factory=list)

    async def fill(self) -> None:
        """Make everything, and wait until all pods are ready."""
        self.places = [(f"team-{number // IN_NAMESPACE}", f"web-{number}") for number in range(self.hpas)]
        self.load(random.Random(0))
        client = ClusterClient(ClusterConfig(CLUSTER, str(self.site.plane.kubeconfig), CLUSTER))
        try:
            for namespace in sorted({namespace for namespace, _ in self.places}):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                await client.request("POST", "/api/v1/namespaces", body=body)
            for begin in range(0, self.hpas, AT_ONCE):
                made = self.places[begin : begin + AT_ONCE]
                await asyncio.gather(*(self._make(client, *place) for place in made))
                await self._until_ready(PODS * min(begin + AT_ONCE, self.hpas))
        finally:
            await client.close()

    async def _make(self, client: ClusterClient, namespace: str, name: str) -> None:
        workload = deployment(name, PODS, cpu=f"{REQUEST_MILLI}m")
        workload["metadata"]["namespace"] = namespace
        await client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body=workload)
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        await client.request("POST", path, body=hpa(name))

    async def _until_ready(self, pods: int) -> None:
        async with asyncio.timeout(START_S):
            while sum(map(is_ready, tuple(self.site.node.pods.values()))) < pods:
                await asyncio.sleep(0.5)

    def load(self, numbers: random.Random) -> None:
        """Give each workload the load of its next period."""
        wanted = PODS * 2 * REQUEST_MILLI * TARGET_PERCENT / 100
        for place in self.places:
            self.site.backend.demands[place] = Demand(cpu_milli=round(wanted * numbers.uniform(1 - NOISE, 1 + NOISE)))

    async def keep_loading(self) -> None:
        """Change the loads every period, until cancelled."""
        numbers = random.Random(1)
        while True:
            await asyncio.sleep(PERIOD_S)
            self.load(numbers)


class RealRun(FleetRun):
    """The processes of fleethpa beside a real cluster."""

    cluster: RealCluster

    async def clusters(self) -> Path:
        return self.cluster.site.plane.kubeconfig

    async def until_evaluated(self) -> tuple[float, int]:
        """Wait until there were twice as many evaluations as HPAs."""
        began = time.monotonic()
        async with asyncio.timeout(START_S):
            while (made := await self._evaluations_yet()) < 2 * self.plan.hpas:
                self.check()
                await asyncio.sleep(1)
        return time.monotonic() - began, int(made)

    async def _evaluations_yet(self) -> float:
        try:
            return await self.evaluations()
        except aiohttp.ClientConnectorError:  # a decider serves its metrics once it has started
            return 0.0

    async def evaluations(self) -> float:
        """How many evaluations the deciders have published."""
        return await self.evaluations_published()


async def measure(hpas: int, seconds: float, together: bool) -> Iterable[str]:
    """Run everything, and give the lines of a table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleethpa-real-")))
        built = await asyncio.to_thread(binaries.built)
        site = stack.enter_context(Site(CLUSTER, folder / "cluster", built, native=False))
        cluster = RealCluster(site, hpas)
        await cluster.fill()
        plan = Plan(hpas, 1, PODS, "kafka", 24, 1, seconds, START_S, 0, together=together)
        run = RealRun(plan, folder, stack)
        run.cluster = cluster
        loading = asyncio.create_task(cluster.keep_loading())
        try:
            await run.start()
            await run.until_evaluated()
            await asyncio.sleep(2 * PERIOD_S)
            evaluated, before, began = await run.evaluations(), _look(run, site), time.monotonic()
            await asyncio.sleep(seconds)
            evaluated = await run.evaluations() - evaluated
            after, took_s = _look(run, site), time.monotonic() - began
        finally:
            loading.cancel()
        return _table(hpas, evaluated, took_s, before, after)


def _look(run: FleetRun, site: Site) -> dict[str, Usage]:
    pids = {name: process.pid for name, process in site.plane._running.items()}
    return run.look() | {name: usage(pid) for name, pid in pids.items()}


def _table(
    hpas: int, evaluated: float, took_s: float, before: dict[str, Usage], after: dict[str, Usage]
) -> Sequence[str]:
    share = evaluated * PERIOD_S / took_s / hpas
    lines = [f"{hpas:,} HPAs on a real control plane: {evaluated:,.0f} evaluations, {share:.1%} per period"]
    costs = {name: 1_000 * (now.cpu_s - before[name].cpu_s) / evaluated for name, now in sorted(after.items())}
    own = sum(cost for name, cost in costs.items() if name in ("observer", "ingest", "decider", "reconciler"))
    lines.append("  process                    CPU s per 1,000 evaluations   MiB")
    for name, cost in costs.items():
        lines.append(f"  {name:<26} {cost:>27.3f} {after[name].memory_mib:>5.0f}")
    return [*lines, f"  {'fleethpa':<26} {own:>27.3f}"]


def main(arguments: Sequence[str]) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.fleet", description=__doc__)
    parser.add_argument("--hpas", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured stretch")
    parser.add_argument("--together", action="store_true", help="ingest, observer and reconciler in one process")
    given = parser.parse_args(arguments)
    for line in asyncio.run(measure(given.hpas, given.seconds, given.together)):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

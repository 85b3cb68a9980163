"""`python -m tests.experiments.brakes`: a metrics backend is wrong for 200 HPAs in 4 clusters, with and without brakes.

Every part of fleethpa runs as a process (observer, ingest, decider, reconciler) over simulated clusters with HTTP
servers. Once every target has 10 replicas, the metrics APIs answer with half of the pods, and then with zero for all of
them. What the targets had least is compared with 10. Of the 50 HPAs of a cluster 30 share a namespace. The others are
in pairs: too few for a partial view, so that something is left for the budget to do.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from msgspec import structs

from fleethpa.lab.demo.stack import DEV_SETTINGS, Stack, StackPlan
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from fleethpa.lab.simulator.requests import Ask
from schemas.kubernetes.shape import Json
from schemas.settings import ClusterSettings

CLUSTERS: Final = ("east", "north", "south", "west")
TOGETHER, PAIRS = 30, 10
HPAS: Final = TOGETHER + 2 * PAIRS
"""HPAs of a cluster."""
REPLICAS: Final = 10
WHOLE: Final = HPAS * REPLICAS
BUDGET_PERCENT: Final = 30
SETTINGS: Final = structs.replace(DEV_SETTINGS, downscale_stabilization_ms=0)
_SHARE: Final = 0.5
_HALF_S: Final = 15.0
_STILL_S: Final = 2.0


@dataclass(frozen=True)
class Arm:
    """What is on. `budget`, `view`: the two brakes."""

    name: str
    budget: bool = False
    view: bool = False

    @property
    def settings(self) -> ClusterSettings:
        """The settings of all clusters."""
        found = structs.replace(SETTINGS, partial_view=True) if self.view else SETTINGS
        return structs.replace(found, removal_budget=f"{BUDGET_PERCENT}%/10m") if self.budget else found


ARMS: Final = {arm.name: arm for arm in (Arm("none"), Arm("budget", budget=True), Arm("both", budget=True, view=True))}
_WORDS: Final = {
    "none": "no brake: upstream's answer",
    "budget": "removal budget",
    "both": "removal budget and partial view",
}


@dataclass
class Result:
    """What one arm came to. `removed`: the most replicas that a cluster's targets had too few at a time, by cluster."""

    arm: Arm
    removed: dict[str, int] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """What is not as it must be."""
        most, budget = max(self.removed.values()), WHOLE * BUDGET_PERCENT // 100
        found = []
        if self.arm.budget and most > budget:
            found.append(f"{most} replicas removed, the budget allows {budget}")
        if not self.arm.budget and most < WHOLE - HPAS:
            found.append(f"without brakes only {most} replicas were removed: the metrics were not wrong enough")
        return found


def manifests() -> str:
    """The workloads of a cluster and their HPAs."""
    places = [("shop", f"app-{number:02}") for number in range(TOGETHER)]
    places += [(f"team-{number // 2:02}", f"web-{number % 2}") for number in range(2 * PAIRS)]
    return yaml.safe_dump_all([each for place in places for each in (_deployment(*place), _hpa(*place))])


def _deployment(namespace: str, name: str) -> dict[str, object]:
    # 750 units of 4m are 3,000m: ten pods at 60 % of 500m.
    simulated = "load: 750\npod: {schedule_ms: 100, ready_ms: 500, stop_ms: 200, cpu_milli_per_unit: 4, noise: 0}\n"
    metadata = {"name": name, "namespace": namespace, "annotations": {"fleethpa.dev/simulation": simulated}}
    container = {"name": "server", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _hpa(namespace: str, name: str) -> dict[str, object]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 20,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def counts(fleet: Fleet) -> dict[str, int]:
    """The replicas that the specs of each cluster ask for."""
    return {
        name: sum(int(live["spec"]["replicas"]) for live in cluster.store.listing("deployments.apps"))
        for name, cluster in fleet.clusters.items()
    }


def damaged(cluster: SimulatedCluster, damage: Callable[[list[Json]], list[Json]]) -> None:
    """Let the resource metrics of a cluster be wrong from now on."""
    right = type(cluster.metrics).answer.__get__(cluster.metrics)

    def answer(ask: Ask) -> Json:
        found: Json = right(ask)
        return found | {"items": damage(found["items"])} if ask.group == "metrics.k8s.io" else found

    cluster.metrics.answer = answer  # type: ignore[method-assign]


def _some_pods(items: list[Json]) -> list[Json]:
    return items[: int(len(items) * _SHARE)]


def _no_usage(items: list[Json]) -> list[Json]:
    return [
        item | {"containers": [each | {"usage": each["usage"] | {"cpu": "0n"}} for each in item["containers"]]}
        for item in items
    ]


@asynccontextmanager
async def _fleet_of(folder: Path, arm: Arm) -> AsyncIterator[Fleet]:
    clusters = [SimulatedCluster(name, sample_ms=1_000) for name in CLUSTERS]
    for cluster in clusters:
        cluster.apply_yaml(manifests())
    fleet = Fleet(clusters)
    environ = {**os.environ, "FLEETHPA_RUNTIME_DIR": str(folder)}
    async with AsyncExitStack() as stacked:
        plan = StackPlan(folder=folder, fleet=fleet, settings=arm.settings, environ=environ)
        stack = await stacked.enter_async_context(Stack(plan))
        await stack.ready(len(CLUSTERS) * HPAS, 240)
        yield fleet


async def run_arm(folder: Path, arm: Arm, wrong_s: float) -> Result:
    """Let the metrics be wrong for some time under some brakes."""
    async with _fleet_of(folder, arm) as fleet:
        async with asyncio.timeout(120):
            while set(counts(fleet).values()) != {WHOLE}:
                await asyncio.sleep(0.5)
        lowest = counts(fleet)

        async def pass_by(seconds: float) -> None:
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                for name, count in counts(fleet).items():
                    lowest[name] = min(lowest[name], count)
                await asyncio.sleep(0.05)

        for damage, seconds in ((_some_pods, _HALF_S), (_no_usage, wrong_s)):
            for cluster in fleet.clusters.values():
                damaged(cluster, damage)
            await pass_by(seconds)
        await pass_by(_STILL_S)
    return Result(arm, {name: WHOLE - count for name, count in lowest.items()})


def table(results: list[Result]) -> str:
    """The table of all arms."""
    heads = ["", f"replicas removed of {WHOLE}, by cluster", "the budget"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in results:
        removed = ", ".join(str(each.removed[name]) for name in CLUSTERS)
        budget = str(WHOLE * BUDGET_PERCENT // 100) if each.arm.budget else "-"
        lines.append(f"| {_WORDS[each.arm.name]} | {removed} | {budget} |")
    return "\n".join(lines)


def main() -> int:
    """Run the arms; the exit code is 1 where more was removed than the budget allows."""
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.brakes", description=__doc__)
    parser.add_argument("--arm", action="append", choices=list(ARMS), help="only this one; repeatable")
    parser.add_argument("--wrong", type=float, default=60.0, help="seconds of zeros (default 60)")
    parser.add_argument("--folder", type=Path, help="keep what the processes write in this folder")
    arguments = parser.parse_args()
    results = []
    for name in arguments.arm or ARMS:
        with tempfile.TemporaryDirectory(prefix="brakes-") as made:
            folder = (arguments.folder or Path(made)) / name
            folder.mkdir(parents=True, exist_ok=True)
            results.append(asyncio.run(run_arm(folder, ARMS[name], arguments.wrong)))
        print(f"{results[-1]}", file=sys.stderr, flush=True)
    print(table(results))
    broken = [f"{_WORDS[each.arm.name]}: {what}" for each in results for what in each.broken]
    print(*broken, sep="\n", end="\n" if broken else "")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

"""A simulated cluster with an HPA controller of its own: it scales, fleethpa takes its HPA over and gives it back."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from fleethpa.fleet.state import read_state
from fleethpa.frame.sources import open_past
from fleethpa.lab.demo.stack import DEV_SETTINGS, Stack, StackPlan
from fleethpa.lab.simulator.cluster import NATIVE_SETTINGS, Fleet, SimulatedCluster
from fleethpa.lab.simulator.model import ConstantLoad
from streams.hpa.autoscaler import ControllerSettings
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, deployment, hpa

ONE: Final = f"south/{NAMESPACE}/web"
QUICK: Final = ControllerSettings(
    downscale_stabilization_ms=2_000, cpu_initialization_period_ms=1_000, initial_readiness_delay_ms=1_000
)
SETTINGS: Final = structs.replace(
    DEV_SETTINGS,
    sync_period_ms=1_000,
    downscale_stabilization_ms=2_000,
    cpu_initialization_period_ms=1_000,
    initial_readiness_delay_ms=1_000,
)
POD: Final = "pod: {schedule_ms: 100, ready_ms: 200, stop_ms: 100, cpu_milli_per_unit: 4, idle_cpu_milli: 0}"


def replicas(cluster: SimulatedCluster) -> int:
    found = cluster.store.get(("deployments.apps", NAMESPACE, "web"))
    assert found is not None
    return int(found["spec"]["replicas"])


def native(cluster: SimulatedCluster) -> dict[str, Any] | None:
    return cluster.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, "web"))


def writers(document: dict[str, Any] | None) -> set[tuple[str, str]]:
    entries = (document or {"metadata": {}})["metadata"].get("managedFields", ())
    return {(entry["manager"], entry.get("subresource", "")) for entry in entries}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


async def command(stack: Stack, *arguments: str) -> str:
    config = stack.config
    whole = [*arguments, "--kubeconfig", config.kubeconfig, "--brokers", config.brokers]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleethpa", *whole), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=dict(os.environ)
    )
    output, _ = await running.communicate()
    assert running.returncode == 0, output.decode()
    return output.decode()


async def mode(stack: Stack) -> tuple[str, str]:
    async with open_past("kafka", stack.config) as past:
        (view,) = (await read_state(past)).hpas.values()
    return view.origin, view.mode


@pytest.mark.slow  # many processes; the fast tier has the controller alone, and each step of adopt and release
async def test_a_native_hpa_scales_is_adopted_and_is_given_back(tmp_path: Path) -> None:
    cluster = SimulatedCluster("south", sample_ms=1_000, native=QUICK)
    cluster.apply(deployment("web", 2, simulation=f"load: 150\n{POD}"))
    cluster.apply(hpa("web"))
    environ = {**os.environ, "FLEETHPA_RUNTIME_DIR": str(tmp_path)}
    async with Stack(StackPlan(tmp_path, fleet=Fleet([cluster]), settings=SETTINGS, environ=environ)) as stack:
        await stack.ready(1)
        assert await mode(stack) == ("cluster", "shadow")
        cluster.set_load(NAMESPACE, "web", ConstantLoad(290))
        await until(lambda: replicas(cluster) == 4)
        assert (found := native(cluster)) is not None
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        assert ("kube-controller-manager", "status") in writers(found)
        target = cluster.store.get(("deployments.apps", NAMESPACE, "web"))
        assert ("kube-controller-manager", "scale") in writers(target)

        changes = ("--yes", "--reason", "a test", "--wait", "60s")
        await command(stack, "adopt", ONE, "--export", str(tmp_path), *changes)
        assert (native(cluster), await mode(stack)) == (None, ("central", "enforce"))
        cluster.set_load(NAMESPACE, "web", ConstantLoad(440))
        await until(lambda: replicas(cluster) == 6)

        await command(stack, "release", ONE, *changes)
        cluster.set_load(NAMESPACE, "web", ConstantLoad(580))
        await until(lambda: replicas(cluster) == 8)
        assert (native(cluster) is not None, await mode(stack)) == (True, ("cluster", "shadow"))


@pytest.mark.parametrize("flag", ControllerSettings.__struct_fields__)
def test_the_native_controller_of_the_dev_stack_has_the_flags_that_fleethpa_decides_by(flag: str) -> None:
    default = getattr(ControllerSettings(), flag)
    ours = getattr(DEV_SETTINGS, flag, None)
    assert getattr(NATIVE_SETTINGS, flag) == (default if ours is None else ours)

"""FleetHPAs in the fleet of a chaos run: a workload of the same name in each cluster, scaled as one whole."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from typing import Final

from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.sources import open_past
from fleethpa.lab.simulator.model import ConstantLoad, parse_load
from schemas.keys import FLEET, HpaId
from tests.kafka.fleet import Rig, World, workload

WHOLES: Final = (("n0", "whole0"), ("n1", "whole1"))
"""Namespace and name."""
MOST: Final = 14
SETTLED: Final = 275.0
"""As in the other workloads: it asks for 4 replicas in each cluster."""

IN_FORCE_S: Final = 180.0
"""How long it may take until all have reported, and until no more is there than may be."""
_WHOLE: Final = """
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 4
  maxReplicas: {most}
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}]
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 8}}}}
  clusters: [{clusters}]
  placement: {{rebalanceAfter: 10s}}
"""


class Wholes:
    """The FleetHPAs of a run. `highest`: the most replicas that each was seen with in all clusters at once; `moves`:
    how often a look found other replicas than the one before.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.highest = dict.fromkeys(WHOLES, 0)
        self.moves = 0
        self.are_in_force = False
        self._seen: list[int] = []
        for number, cluster in enumerate(world.fleet.clusters.values()):
            for namespace, name in WHOLES:
                cluster.apply_yaml(workload(namespace, name, period_s=31 + 9 * number))

    async def apply(self, rig: Rig) -> None:
        """Apply all of them, enforcing, and again where a part of the log was lost with what they had allotted; wait
        until all clusters have reported: from then on none may have more than its maxReplicas.

        Raises:
            AssertionError: the command fails (has what it printed), or not all report in time.
        """
        self.are_in_force = False
        clusters = ", ".join(f"{{name: {name}, minReplicas: 1}}" for name in self._world.fleet.clusters)
        text = "---".join(_WHOLE.format(name=n, namespace=ns, most=MOST, clusters=clusters) for ns, n in WHOLES)
        await run_command(rig, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=text)
        deadline = time.monotonic() + IN_FORCE_S
        while silent := await self._silent(rig):
            assert time.monotonic() < deadline, f"{silent} are not in force; replicas are {self._totals()}"
            rig.heal()
            await asyncio.sleep(0.5)
        self.are_in_force = True

    async def _silent(self, rig: Rig) -> list[str]:
        """What is not as it was applied: members that have not reported under the newest spec, and totals."""
        state = await state_of(rig)
        views = [state.hpas.get(HpaId(FLEET, *whole)) for whole in WHOLES]
        found = [str(whole) for whole, view in zip(WHOLES, views, strict=True) if view is None or view.incomplete]
        members = [each for view in views if view is not None for each in view.members]
        found += [each.cluster.name for each in members if each.has is None]
        return found + [str(whole) for whole, total in self._totals().items() if total > MOST]

    def members(self) -> Iterator[HpaId]:
        """Their HPAs in the clusters."""
        for namespace, name in WHOLES:
            yield from (HpaId(cluster, namespace, name) for cluster in self._world.fleet.clusters)

    def check(self) -> None:
        """Look at all clusters.

        Raises:
            AssertionError: one has more than its maxReplicas in all clusters together.
        """
        found = [self._world.replicas(hpa) for hpa in self.members()]
        self.moves += found != self._seen
        self._seen = found
        if self.are_in_force:
            for whole, total in check_wholes(self._world).items():
                self.highest[whole] = max(self.highest[whole], total)

    def _totals(self) -> dict[tuple[str, str], int]:
        return totals_of(self._world)

    def settle(self) -> None:
        """From now on the load of each cluster is constant."""
        for hpa in self.members():
            self._world.fleet[hpa.cluster].set_load(hpa.namespace, hpa.name, ConstantLoad(SETTLED))


def totals_of(world: World) -> dict[tuple[str, str], int]:
    """The replicas of each FleetHPA in all clusters together."""
    return {whole: sum(world.replicas(HpaId(name, *whole)) for name in world.fleet.clusters) for whole in WHOLES}


def check_wholes(world: World) -> dict[tuple[str, str], int]:
    """Give the replicas of each FleetHPA. Raises AssertionError: one has more than its maxReplicas."""
    found = totals_of(world)
    for whole, total in found.items():
        parts = {name: world.replicas(HpaId(name, *whole)) for name in world.fleet.clusters}
        assert total <= MOST, f"{whole} has {total} replicas of at most {MOST}: {parts}"
    return found


def swing_wholes(world: World) -> None:
    """Put the clusters of each FleetHPA under their own loads again, which swing."""
    for number, cluster in enumerate(world.fleet.clusters.values()):
        for namespace, name in WHOLES:
            load = {"shape": "sine", "base": 300, "amplitude": 250, "period_s": 31 + 9 * number}
            cluster.set_load(namespace, name, parse_load(load))


async def state_of(rig: Rig) -> FleetState:
    """The state of the fleet as read verbs show it."""
    async with open_past("kafka", rig.config) as past:
        return await read_state(past)


async def run_command(rig: Rig, *words: str, stdin: str = "") -> str:
    """Give what `fleethpa WORDS…` prints.

    Raises:
        AssertionError: the command fails; has what it printed.
    """
    command = [sys.executable, "-m", "fleethpa", *words, "--brokers", rig.settings.bootstrap_servers]
    environ = os.environ | {"FLEETHPA_CONFIG": "", "FLEETHPA_RUNTIME_DIR": os.devnull}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environ)
    printed, errors = await process.communicate(stdin.encode())
    assert process.returncode == 0, f"{' '.join(words)}: {(printed + errors).decode()}"
    return printed.decode()

"""FleetHPAs in the fleet of a chaos run: a workload of the same name in each cluster, scaled as one whole."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from typing import Final

from fleethpa.simulator.load import ConstantLoad
from schemas.keys import HpaId
from tests.kafka.fleet import Rig, World, workload

WHOLES: Final = (("n0", "whole0"), ("n1", "whole1"))
"""Namespace and name."""
MOST: Final = 14
SETTLED: Final = 275.0
"""As in the other workloads: it asks for 4 replicas in each cluster."""

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
        self._seen: list[int] = []
        for number, cluster in enumerate(world.fleet.clusters.values()):
            for namespace, name in WHOLES:
                cluster.apply_yaml(workload(namespace, name, period_s=31 + 9 * number))

    async def apply(self, rig: Rig) -> None:
        """Apply all of them, enforcing.

        Raises:
            AssertionError: the command fails; has what it printed.
        """
        clusters = ", ".join(f"{{name: {name}, minReplicas: 1}}" for name in self._world.fleet.clusters)
        text = "---".join(_WHOLE.format(name=n, namespace=ns, most=MOST, clusters=clusters) for ns, n in WHOLES)
        await run_command(rig, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=text)

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
        for whole in WHOLES:
            total = sum(self._world.replicas(hpa) for hpa in self.members() if tuple(hpa[1:]) == whole)
            self.highest[whole] = max(self.highest[whole], total)
            assert total <= MOST, f"{whole} has {total} replicas of at most {MOST}: {found}"

    def settle(self) -> None:
        """From now on the load of each cluster is constant."""
        for hpa in self.members():
            self._world.fleet[hpa.cluster].set_load(hpa.namespace, hpa.name, ConstantLoad(SETTLED))


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

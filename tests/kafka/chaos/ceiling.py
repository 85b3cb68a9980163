"""A CapacityGroup in the fleet of a chaos run, over the HPAs of one namespace in all clusters."""

import asyncio
import time
from typing import Final

from tests.kafka.chaos.wholes import IN_FORCE_S, run_command, state_of
from tests.kafka.fleet import Rig, World

NAMESPACE: Final = "n0"
LIMIT: Final = 26
"""Its HPAs want 12 to 48, and 24 (4 each) once the loads are constant."""

_GROUP: Final = f"""
apiVersion: fleethpa.io/v1alpha1
kind: CapacityGroup
metadata: {{name: ceiling}}
spec:
  selector: {{matchLabels: {{space: {NAMESPACE}}}}}
  namespaces: [{NAMESPACE}]
  limit: {{replicas: {LIMIT}}}
"""


class Ceiling:
    """The CapacityGroup of a run. `highest`: the most replicas that its HPAs were seen with while it was in force."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._members = [hpa for hpa in world.hpas if hpa.namespace == NAMESPACE]
        self.highest = 0
        self.is_in_force = False

    async def apply(self, rig: Rig) -> None:
        """Apply it, again where a part of the log was lost with it, and wait until it is in force: from then on the
        sum may not be above the limit.

        Raises:
            AssertionError: a command fails, or it is not in force in time.
        """
        self.is_in_force = False
        await run_command(rig, "apply", "-f", "-", "--yes", stdin=_GROUP)
        deadline, reported = time.monotonic() + IN_FORCE_S, 0
        while reported < len(self._members) or self._total() > LIMIT:
            assert time.monotonic() < deadline, f"{reported} HPAs have reported, they have {self._total()} replicas"
            rig.heal()
            await asyncio.sleep(0.5)
            reported = len((await state_of(rig)).capacity_members.get("ceiling", {}))
        self.is_in_force = True

    def check(self) -> None:
        """Look at all clusters.

        Raises:
            AssertionError: there are more replicas than the limit.
        """
        if self.is_in_force:
            total = self._total()
            self.highest = max(self.highest, total)
            assert total <= LIMIT, f"{total} replicas, above the limit of {LIMIT}"

    def _total(self) -> int:
        return sum(self._world.replicas(hpa) for hpa in self._members)

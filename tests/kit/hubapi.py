"""A fleet in memory whose log is written by the objects of a hub's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fleethpa.changes.foresight import read_present
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import check_writes
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.hub.kinds import API_VERSION, BY_NAME, FINALIZER, Author, HubObject, hub_object
from fleethpa.hub.scene import ObjectVerdict, Scene
from fleethpa.hub.stating import ended, stated
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerList, Heartbeat
from tests.kit.cli import Fleet

ANNA: Final = Author("anna", proven=True)
MOST_LOOKS: Final = 4


def template(name: str = "web", most: int = 8) -> Json:
    """The spec of an HPA."""
    target = {"type": "Utilization", "averageUtilization": 60}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }


class HubApi:
    """The objects, and the log that they are put into. Clusters are `east`, `west` and `north`, which say nothing."""

    def __init__(self, clusters: Sequence[str] = ("east", "west", "north")) -> None:
        self.fleet = Fleet()
        self.objects: dict[str, HubObject] = {}
        self._numbers: dict[str, tuple[str, int]] = {}
        self._made = 0
        for name in clusters:
            self.fleet.append(AutoscalerList(list_id="a", hpas=[], session=f"{name}@1"), key=f"{name}/shop")
            self.fleet.append(Heartbeat(session=f"{name}@1", watches=["pods"]), key=f"{name}/shop")

    def apply(self, kind: str, name: str, spec: Mapping[str, Any], namespace: str = "", **metadata: Any) -> str:
        """Create or change an object; gives its key."""
        body: Json = {"apiVersion": API_VERSION, "kind": kind, "spec": dict(spec)}
        key = "/".join(filter(None, (kind, namespace, name)))
        before = self.objects.get(key)
        self._made += 1
        uid = before.uid if before is not None else f"uid-{self._made}"
        is_same = before is not None and before.body["spec"] == body["spec"]
        generation = 1 if before is None else before.generation + (not is_same)
        head: Json = {"name": name, "uid": uid, "generation": generation, "finalizers": [FINALIZER]}
        head |= {"namespace": namespace} if namespace else {}
        head["creationTimestamp"] = (
            before.created[0] if before is not None else f"2026-01-01T00:00:{self._made % 60:02d}Z"
        )
        self.objects[key] = hub_object(BY_NAME[kind], body | {"metadata": head | metadata})
        return key

    def grant(self, namespace: str, *clusters: str, members: Sequence[str] | None = None) -> str:
        """Let a namespace of the hub act on clusters."""
        spec: Json = {"namespaces": [namespace], "clusters": list(clusters or ("*",))}
        return self.apply("FleetAccess", namespace, spec | ({} if members is None else {"memberNamespaces": members}))

    def delete(self, key: str) -> None:
        """Delete an object, which waits for its finalizer."""
        item = self.objects[key]
        metadata = item.metadata | {"deletionTimestamp": "2026-01-02T00:00:00Z"}
        self.objects[key] = hub_object(item.kind, item.body | {"metadata": metadata})

    async def look(self) -> dict[str, ObjectVerdict]:
        """One look: gives the verdicts, with what was written for each."""
        state, present = await read_present(self.fleet.past())
        scene = Scene(state, present, dict(self.objects), self.fleet.now_ms, lambda _: ANNA)
        verdicts = {}
        for key, item in list(self.objects.items()):
            verdict = ended(scene, item) if item.is_ending else stated(scene, item)
            verdicts[key] = verdict
            check_writes(verdict.writes)
            if item.is_ending and not verdict.writes:
                del self.objects[key]
        for verdict in verdicts.values():
            self._put(verdict.writes)
        return verdicts

    def _put(self, writes: Sequence[PlannedRecord]) -> None:
        for each in writes:
            key = f"{each.cluster}/{each.namespace}" if each.namespace else WHOLE_PARTITION_KEY
            self.fleet.append(*each.bodies, key=key)

    async def settle(self) -> dict[str, ObjectVerdict]:
        """Look until nothing is left to write; gives the last verdicts."""
        for _ in range(MOST_LOOKS):
            verdicts = await self.look()
            if not any(each.writes for each in verdicts.values()):
                return verdicts
        raise AssertionError(f"still written after {MOST_LOOKS} looks: {verdicts}")

    async def state(self) -> FleetState:
        """What read verbs see."""
        return (await read_present(self.fleet.past()))[0]

    async def hpas(self) -> dict[str, HpaView]:
        """The HPAs by their whole names."""
        return {str(hpa): view for hpa, view in (await self.state()).hpas.items()}

    async def view(self, hpa: HpaId) -> HpaView:
        """One HPA."""
        return (await self.state()).hpas[hpa]

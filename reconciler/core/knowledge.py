"""Which decision records an agent needs, and what it must know beside them: what the router sends, and what the agent
makes of it. No I/O.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import structs

from reconciler.core.events import wants_events
from reconciler.core.statuses import wants_status
from schemas.agentknowledge import AgentKnowledge, CentralHpa, KnownPause
from schemas.decisions import Decision
from schemas.entries import VERSION
from schemas.fitting import over_limits, split
from schemas.inforce import InForce
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.kubernetes.shape import Json
from schemas.settings import ClusterSettings, SettingsSet

HpaName = tuple[str, str]
"""Namespace and name."""


class Learnt(NamedTuple):
    """What is new: HPAs by name (None: gone), and whether the settings were replaced."""

    hpas: dict[HpaName, Json | None]
    has_settings: bool = False


class KnowledgeFold:
    """Keeps the newest snapshot and the changes since. `is_complete`: a whole snapshot has come."""

    def __init__(self) -> None:
        self.is_complete = False
        self.settings: list[SettingsSet] = []
        self.hpas: dict[HpaName, Json] = {}
        self.pauses: list[KnownPause] = []
        self._parts: dict[int, AgentKnowledge] = {}
        self._since: list[AgentKnowledge] = []
        """Changes that came between the parts of a snapshot: they are newer than those parts."""

    def add(self, record: AgentKnowledge) -> Learnt:
        """Add a change, or a part of a snapshot, which counts once all of its parts have come; return what is new."""
        if not record.snapshot:
            self._since.append(record)
            self._apply(record)
            changed = {(each.namespace, each.name): None if each.deleted else each.hpa for each in record.hpas}
            return Learnt(changed, bool(record.settings))
        if record.chunk == 0 or any(part.snapshot != record.snapshot for part in self._parts.values()):
            self._parts, self._since = {}, []
        self._parts[record.chunk] = record
        return self._replace() if len(self._parts) >= record.chunks else Learnt({})

    def _replace(self) -> Learnt:
        """Begin anew with a snapshot that is whole."""
        hpas, settings, is_first = self.hpas, self.settings, not self.is_complete
        self.hpas, self.settings = {}, []
        for each in (*(self._parts[number] for number in sorted(self._parts)), *self._since):
            self._apply(each)
        self.is_complete, self._parts, self._since = True, {}, []
        changed: dict[HpaName, Json | None] = dict.fromkeys(hpas.keys() - self.hpas.keys())
        changed |= {name: hpa for name, hpa in self.hpas.items() if hpas.get(name) != hpa}
        return Learnt(changed, is_first or settings != self.settings)

    def _apply(self, record: AgentKnowledge) -> None:
        for each in record.hpas:
            if each.deleted:
                self.hpas.pop((each.namespace, each.name), None)
            else:
                self.hpas[each.namespace, each.name] = each.hpa
        self.settings = record.settings or self.settings
        self.pauses = self.pauses if record.pauses is None else record.pauses


def is_order(decision: Decision) -> bool:
    """Whether an agent needs a decision: it may ask for something, or end what an earlier one asked for."""
    may_ask = decision.mode == "enforce" or decision.kind == "completion"
    # Of a central HPA also that it is no longer enforced: the stand-in of the cluster must not keep it.
    return may_ask or decision.origin == "central" or wants_status(decision) or wants_events(decision)


class FleetKnowledge:
    """What is in force in the fleet, and the central HPAs of all clusters."""

    def __init__(self) -> None:
        self.in_force = InForce()
        self._hpas: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def set_hpa(self, hpa: HpaId, manifest: dict[str, Any] | None) -> CentralHpa:
        """Record a central HPA (None: it was deleted); return the record for its agent.

        Agents get no HPA that deciders ignore for its size: a stand-in must not scale by it, either.
        """
        known = self._hpas.setdefault(hpa.cluster, {})
        if manifest is None or over_limits(manifest, hpa.namespace):
            known.pop((hpa.namespace, hpa.name), None)
            return CentralHpa(namespace=hpa.namespace, name=hpa.name, deleted=True)
        known[hpa.namespace, hpa.name] = manifest
        return CentralHpa(namespace=hpa.namespace, name=hpa.name, hpa=manifest)

    def settings_of(self, cluster: str) -> list[SettingsSet]:
        """The settings in force for a cluster: the defaults of all clusters and its own."""
        known = self.in_force.settings
        return [
            SettingsSet(cluster=name, settings=known.get(name, ClusterSettings())) for name in (EVERY_CLUSTER, cluster)
        ]

    def snapshot(self, cluster: str, name: str, now_ms: int) -> list[AgentKnowledge]:
        """Everything that the agent of a cluster is to know, in parts that fit into a record each."""
        hpas = (
            CentralHpa(namespace=namespace, name=hpa, hpa=manifest)
            for (namespace, hpa), manifest in sorted(self._hpas.get(cluster, {}).items())
        )
        return self.changes(cluster, hpas, now_ms, with_settings=True, snapshot=name)

    def changes(
        self, cluster: str, hpas: Iterable[CentralHpa], now_ms: int, *, with_settings: bool, snapshot: str = ""
    ) -> list[AgentKnowledge]:
        """Return what is new for the agent of a cluster; with the name of a `snapshot`, everything."""
        parts = list(split(hpas)) or [[]]
        first = AgentKnowledge(
            v=VERSION,
            cluster=cluster,
            time=now_ms,
            snapshot=snapshot,
            chunks=len(parts) if snapshot else 1,
            settings=self.settings_of(cluster) if with_settings else [],
            hpas=parts[0],
            pauses=self.in_force.pauses(cluster, now_ms),
        )
        rest = [
            structs.replace(first, chunk=number if snapshot else 0, settings=[], hpas=part, pauses=None)
            for number, part in enumerate(parts[1:], 1)
        ]
        return [first, *rest]

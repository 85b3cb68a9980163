"""What agents must know beside decisions (settings, pauses, central HPAs), and what of it has changed. No I/O."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from reconciler.core.routing import FleetKnowledge
from schemas.agents import AgentKnowledge, CentralHpa
from schemas.autoscalers import Command
from schemas.entries import Body
from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.kubernetes.jsontypes import Json
from schemas.settings import SettingsSet


@dataclass(frozen=True)
class FleetChanges:
    """What has changed: HPAs by cluster, and the clusters (`*`: all) whose settings or pauses did."""

    hpas: dict[str, dict[tuple[str, str], CentralHpa]] = field(default_factory=dict)
    settings: set[str] = field(default_factory=set)
    pauses: set[str] = field(default_factory=set)

    def changes_settings(self, cluster: str) -> bool:
        """Whether a cluster's settings changed."""
        return not self.settings.isdisjoint({EVERY_CLUSTER, cluster})

    def concerns(self, cluster: str) -> bool:
        """Whether a cluster's agent must be sent something."""
        affected = self.settings | self.pauses
        return cluster in self.hpas or not affected.isdisjoint({EVERY_CLUSTER, cluster})


class FleetNews:
    """Collects changes. `waiting` is set while some are not taken."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self._knowledge = FleetKnowledge()
        self._changes = FleetChanges()

    def settings_changed(self, entry: SettingsSet, _: int) -> None:
        """A cluster's settings, or those of all clusters."""
        self._knowledge.set_settings(entry)
        self._changes.settings.add(entry.cluster)
        self.waiting.set()

    def paused(self, body: Body, _: int) -> None:
        """A pause or resume of a whole cluster, or of all; other entries change nothing."""
        if isinstance(body, Command):
            self.paused_in_namespace(body.cluster, "", body)

    def paused_in_namespace(self, cluster: str, namespace: str, body: Body) -> None:
        """The same of an HPA or a namespace."""
        if isinstance(body, Command) and self._knowledge.set_pause(cluster, namespace, body):
            self._changes.pauses.add(cluster or EVERY_CLUSTER)
            self.waiting.set()

    def guardrail_paused(self, body: BreakerCommand, time_ms: int) -> None:
        """A guardrail's pause, or its end."""
        self._knowledge.guardrails.take(body, time_ms)
        self._changes.pauses.add(body.cluster)
        self.waiting.set()

    def guardrails_resumed(self, body: GuardrailResume, time_ms: int) -> None:
        """A person ends the pauses of guardrails."""
        self._knowledge.guardrails.resume(body, time_ms)
        self._changes.pauses.add(body.cluster)
        self.waiting.set()

    def hpa_changed(self, hpa: HpaId, body: Json | None) -> None:
        """A central HPA; None: it is deleted."""
        change = self._knowledge.set_hpa(hpa, body)
        self._changes.hpas.setdefault(hpa.cluster, {})[hpa.namespace, hpa.name] = change
        self.waiting.set()

    def take(self) -> FleetChanges:
        """Give what has changed since it was taken last."""
        taken, self._changes = self._changes, FleetChanges()
        return taken

    def changed_records(self, cluster: str, changes: FleetChanges, now_ms: int) -> Iterable[AgentKnowledge]:
        """The records that bring these changes to a cluster's agent."""
        hpas, with_settings = changes.hpas.get(cluster, {}).values(), changes.changes_settings(cluster)
        return self._knowledge.changes(cluster, hpas, now_ms, with_settings=with_settings)

    def all_records(self, cluster: str, snapshot_id: str, now_ms: int) -> Iterable[AgentKnowledge]:
        """The records of everything that a cluster's agent must know."""
        return self._knowledge.snapshot(cluster, snapshot_id, now_ms)

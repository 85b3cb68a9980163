"""Which decision records an agent needs, and what it must know beside them. No I/O."""

from collections.abc import Collection, Iterable
from typing import Any

from reconciler.core.chunks import split
from reconciler.core.pauses import PauseFold
from reconciler.core.statusplan import wants_events, wants_status
from schemas.agents import AgentKnowledge, CentralHpa, KnownPause
from schemas.autoscalers import Command
from schemas.decisions import Decision, ShortDecision
from schemas.entries import VERSION
from schemas.fitting import over_limits
from schemas.guardrailstanding import GuardrailStanding
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.settings import ClusterSettings, SettingsSet, take_settings

SIGN_EVERY_MS = 5_000


def is_order(decision: Decision) -> bool:
    """Whether an agent needs a full record: it may ask for something, or end what an earlier one asked for."""
    may_ask = decision.mode == "enforce" or decision.kind == "completion"
    # Of a central HPA also that it is no longer enforced: the stand-in of the cluster must not keep it.
    return may_ask or decision.origin == "central" or wants_status(decision) or wants_events(decision)


class Signs:
    """Which records are copied for no other reason than that they come: to the agent, decisions are signs of life of
    the hub, one per partition of the log and `SIGN_EVERY_MS`.
    """

    def __init__(self) -> None:
        self._copied_ms: dict[tuple[str, int], int] = {}

    def copied(self, cluster: str, partition: int, now_ms: int) -> None:
        """A record of this cluster and partition was copied."""
        self._copied_ms[cluster, partition] = now_ms

    def is_due(self, cluster: str, partition: int, now_ms: int) -> bool:
        """Whether the last record was copied SIGN_EVERY_MS ago or longer, so that the next one is to be copied."""
        return abs(now_ms - self._copied_ms.get((cluster, partition), 0)) >= SIGN_EVERY_MS


class ShortFilter:
    """Which short records are worth copying: those that repeat a full one which is shown in the cluster."""

    def __init__(self) -> None:
        self._shown: dict[HpaId, tuple[str, bool]] = {}
        self._hpa_of: dict[str, HpaId] = {}

    def take(self, decision: Decision) -> None:
        """Note a full record that short ones may repeat."""
        if decision.kind != "evaluation":
            return
        hpa = HpaId(decision.cluster, decision.namespace, decision.name)
        if (before := self._shown.get(hpa)) is not None:
            self._hpa_of.pop(before[0], None)
        self._shown[hpa] = decision.id, wants_status(decision) or wants_events(decision)
        self._hpa_of[decision.id] = hpa

    def is_order(self, short: ShortDecision) -> bool:
        """Whether to copy a short record; one that repeats an unknown record is copied, to be safe."""
        hpa = self._hpa_of.get(short.same_as)
        return hpa is None or self._shown[hpa][1]

    def forget(self, clusters: Collection[str]) -> None:
        """Forget all HPAs but those of these clusters."""
        for hpa in [hpa for hpa in self._shown if hpa.cluster not in clusters]:
            del self._hpa_of[self._shown.pop(hpa)[0]]


class FleetKnowledge:
    """Settings, central HPAs and pauses of all clusters."""

    def __init__(self) -> None:
        self._settings: dict[str, ClusterSettings] = {}
        self._hpas: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self._pauses = PauseFold()
        self.guardrails = GuardrailStanding()
        """What guardrails pause, beside what persons do."""

    def set_settings(self, entry: SettingsSet) -> None:
        """Apply a change of settings."""
        take_settings(self._settings, entry)

    def set_pause(self, cluster: str, namespace: str, command: Command) -> bool:
        """Apply `pause` or `resume`; see `PauseFold.take`."""
        return self._pauses.take(cluster, namespace, command)

    def pauses_of(self, cluster: str, now_ms: int) -> list[KnownPause]:
        """The pauses in force in a cluster."""
        guardrails = self.guardrails.in_force(now_ms, cluster)
        return self._pauses.in_force(cluster, now_ms) + [
            KnownPause(kind="scaleDown", namespace=each.namespace, until=each.until_ms) for each in guardrails
        ]

    def set_hpa(self, hpa: HpaId, manifest: dict[str, Any] | None) -> CentralHpa:
        """Note a central HPA (None: it was deleted); gives the record for its agent.

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
        return [
            SettingsSet(cluster=name, settings=self._settings.get(name, ClusterSettings()))
            for name in (EVERY_CLUSTER, cluster)
        ]

    def snapshot(self, cluster: str, name: str, now_ms: int) -> list[AgentKnowledge]:
        """Everything that the agent of a cluster is to know, in parts that fit into a record each."""
        hpas = (
            CentralHpa(namespace=namespace, name=hpa, hpa=manifest)
            for (namespace, hpa), manifest in sorted(self._hpas.get(cluster, {}).items())
        )
        parts = list(split(hpas)) or [[]]
        return [
            AgentKnowledge(
                v=VERSION,
                cluster=cluster,
                time=now_ms,
                snapshot=name,
                chunk=number,
                chunks=len(parts),
                settings=[] if number else self.settings_of(cluster),
                hpas=part,
                pauses=None if number else self.pauses_of(cluster, now_ms),
            )
            for number, part in enumerate(parts)
        ]

    def changes(
        self, cluster: str, hpas: Iterable[CentralHpa], now_ms: int, *, with_settings: bool
    ) -> list[AgentKnowledge]:
        """What is new for the agent of a cluster."""
        parts = list(split(hpas)) or [[]]
        settings = self.settings_of(cluster) if with_settings else []
        pauses = self.pauses_of(cluster, now_ms)
        return [
            AgentKnowledge(
                v=VERSION,
                cluster=cluster,
                time=now_ms,
                settings=[] if number else settings,
                hpas=part,
                pauses=None if number else pauses,
            )
            for number, part in enumerate(parts)
        ]

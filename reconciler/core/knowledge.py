"""Which decision records an agent needs, and what it must know beside them. No I/O.

What an agent knows of its cluster's settings and central HPAs, folded from the records of its topic. No I/O.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from reconciler.core.guardsettings import PauseFold
from reconciler.core.statusplan import wants_events, wants_status
from schemas.agents import AgentKnowledge, CentralHpa, KnownPause
from schemas.decisions import Decision, ShortDecision
from schemas.entries import VERSION
from schemas.fitting import over_limits, split
from schemas.guardrails import GuardrailStanding
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet, take_settings

HpaName = tuple[str, str]
"""Namespace and name."""


class Learnt(NamedTuple):
    """What is new: HPAs by name (None: gone), and whether the settings were replaced."""

    hpas: dict[HpaName, Json | None]
    has_settings: bool = False


_NOTHING = Learnt({})


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

    @property
    def has_no_native(self) -> bool:
        """Whether the settings say that no native HPA controller runs; the cluster's come after those of all."""
        known = [each.settings.native_controller for each in self.settings if each.settings.native_controller]
        return known[-1:] == ["absent"]

    def take(self, record: AgentKnowledge) -> Learnt:
        """Take a record in."""
        if not record.snapshot:
            self._since.append(record)
            return self._change(record)
        if record.chunk == 0 or any(part.snapshot != record.snapshot for part in self._parts.values()):
            self._parts, self._since = {}, []
        self._parts[record.chunk] = record
        if len(self._parts) < record.chunks:
            return _NOTHING
        return self._replace()

    def _replace(self) -> Learnt:
        parts = [self._parts[number] for number in sorted(self._parts)]
        settings = [entry for part in parts for entry in part.settings]
        for each in (*parts, *self._since):
            self.pauses = self.pauses if each.pauses is None else each.pauses
        found = {(each.namespace, each.name): each.hpa for part in parts for each in part.hpas}
        for change in self._since:
            _apply(found, change.hpas)
            settings = change.settings or settings
        before, self.hpas = self.hpas, found
        had_settings, self.settings = self.settings, settings
        new = not self.is_complete
        self.is_complete, self._parts, self._since = True, {}, []
        changed: dict[HpaName, Json | None] = dict.fromkeys(before.keys() - found.keys())
        changed |= {name: hpa for name, hpa in found.items() if before.get(name) != hpa}
        return Learnt(changed, new or settings != had_settings)

    def _change(self, record: AgentKnowledge) -> Learnt:
        _apply(self.hpas, record.hpas)
        if record.settings:
            self.settings = record.settings
        if record.pauses is not None:
            self.pauses = record.pauses
        changed = {(each.namespace, each.name): None if each.deleted else each.hpa for each in record.hpas}
        return Learnt(changed, bool(record.settings))


def _apply(known: dict[HpaName, Json], changes: list[CentralHpa]) -> None:
    for each in changes:
        if each.deleted:
            known.pop((each.namespace, each.name), None)
        else:
            known[each.namespace, each.name] = each.hpa


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

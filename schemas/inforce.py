"""What is in force in the fleet now (settings, pauses and agents), folded from the public records that state it.

The log has the truth (`streams.state`). This is for those who must know it beside the log: observers, reconcilers,
routers, agents and ingest. It ends up with what the log has.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from schemas.agentknowledge import KnownPause
from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet
from schemas.entries import Body
from schemas.keys import EVERY_CLUSTER
from schemas.observed import Command
from schemas.pauses import ScalingDirection, is_in_force, pauses_after, stopping_kinds
from schemas.settings import ClusterSettings, SettingsSet, apply_settings, settings_of
from schemas.syncperiods import SHORTEST_PERIOD_MS, StatedPeriod, asked_sooner_ms

SHORTEST_REPORT_MS: Final = 5_000


def report_every_ms(sync_period_ms: int, longest_ms: int) -> int:
    """How often an observer or a reconciler reports: once per sync period, but at least every `longest_ms` and at most
    every 5 s. So two reports that do not come are noticed within three sync periods.
    """
    return min(longest_ms, max(SHORTEST_REPORT_MS, sync_period_ms))


def covers(pause: KnownPause, namespace: str, name: str, direction: ScalingDirection) -> bool:
    """Whether a pause, while it is in force, stops changes of an HPA in a direction."""
    return pause.kind in stopping_kinds(direction) and pause.namespace in ("", namespace) and pause.name in ("", name)


def stopping(
    pauses: Iterable[KnownPause], namespace: str, name: str, direction: ScalingDirection, now_ms: int
) -> KnownPause | None:
    """The first pause in force that stops changes of an HPA in a direction, or None."""
    covering = (pause for pause in pauses if covers(pause, namespace, name, direction))
    return next((pause for pause in covering if is_in_force(pause.until, now_ms)), None)


class InForceChange(NamedTuple):
    """What an entry changed, and in which cluster (`*`: all)."""

    of: Literal["settings", "pauses", "agents"]
    cluster: str


class InForce:
    """The fold of `fleethpa.settings` (`take`), and a function per question.

    Entries that ingest rejects change nothing.
    """

    def __init__(self, settings: Iterable[SettingsSet] = (), time_ms: int = 0) -> None:
        self.settings: dict[str, ClusterSettings] = {}
        """Cluster (or `*`) -> its own settings."""
        self._merged: dict[str, ClusterSettings] = {}
        """Cluster -> its settings, made when they are first asked for: an observer asks per namespace and period."""
        self.agents = AgentRegistry()
        self._native_ms: dict[str, int] = {}
        """Cluster (or `*`) -> when its `nativeController` was set last."""
        self._pauses: dict[tuple[str, str, str], dict[str, KnownPause]] = {}
        """(cluster or `*`, namespace, name) -> pauses by kind."""
        for entry in settings:
            self.apply(entry, time_ms)

    # --- folding ------------------------------------------------------------------------------------------------------

    def apply(self, body: Body, time_ms: int, cluster: str = "", namespace: str = "") -> InForceChange | None:
        """Apply an entry of `fleethpa.settings`.

        Args:
            time_ms: the time of its record.
            cluster, namespace: what its record is about; empty for one that is about whole clusters.

        Returns what it changed, or None.
        """
        match body:
            case Command():
                return self._command(cluster, body, namespace) if namespace else self._command(body.cluster, body)
            case SettingsSet() if not namespace:
                apply_settings(self.settings, body)
                self._merged.clear()
                if body.settings.native_controller is not None:
                    self._native_ms[body.cluster] = time_ms
                return InForceChange("settings", body.cluster)
            case AgentSet() if not namespace and self.agents.apply(body):
                return InForceChange("agents", body.cluster)
        return None

    def _command(self, cluster: str, command: Command, namespace: str = "") -> InForceChange | None:
        if not (command.is_about_pauses and cluster):
            return None
        is_override = command.command == "override"
        if is_override and not command.name:
            return None
        if command.name and not namespace:
            return None
        scope = cluster, namespace, command.name
        pause = KnownPause(
            kind="override" if is_override else command.pause_kind,
            namespace=namespace,
            name=command.name,
            until=command.until,
            replicas=command.replicas or 0,
        )
        if left := pauses_after(self._pauses.get(scope, {}), command, pause):
            self._pauses[scope] = left
        else:
            self._pauses.pop(scope, None)
        return InForceChange("pauses", cluster)

    # --- pauses -------------------------------------------------------------------------------------------------------

    def pauses(self, cluster: str, now_ms: int) -> list[KnownPause]:
        """All pauses and overrides in force in a cluster."""
        return [
            pause
            for (where, _, _), known in sorted(self._pauses.items())
            if where in (cluster, EVERY_CLUSTER)
            for pause in known.values()
            if is_in_force(pause.until, now_ms)
        ]

    # --- settings -----------------------------------------------------------------------------------------------------

    def of(self, cluster: str) -> ClusterSettings:
        """The settings of a cluster: its own, else those of `*`."""
        merged = self._merged.get(cluster)
        if merged is None:
            merged = self._merged[cluster] = settings_of(self.settings, cluster)
        return merged

    def cluster_uid(self, cluster: str) -> str:
        """The UID that a cluster must show, by its own settings; empty: any is taken."""
        return self.settings.get(cluster, ClusterSettings()).cluster_uid or ""

    def pushed(self, cluster: str) -> frozenset[str]:
        """The metric types that are pushed in a cluster: no decision uses what a metrics API answers about them."""
        return frozenset(kind for kind, source in (self.of(cluster).sources or {}).items() if source == "samples")

    def sync_period_ms(self, cluster: str, default: int, stated: Iterable[StatedPeriod] = ()) -> int:
        """How often a cluster's metrics are asked for; in a namespace whose HPAs state periods of their own (`stated`)
        as often as the shortest of them that counts.
        """
        settings = self.of(cluster)
        period_ms = max(settings.sync_period_ms or default, SHORTEST_PERIOD_MS)
        return min((asked_sooner_ms(each, settings, period_ms) or period_ms for each in stated), default=period_ms)

    def status_every_ms(self, cluster: str) -> int:
        """How often a status in which only metric values have changed is written; 0: with each evaluation."""
        return self.of(cluster).status_every_ms or 0

    def native_absent_since_ms(self, cluster: str) -> int | None:
        """When it was proven or set that no native controller runs in the cluster, or None if that does not hold."""
        if self.of(cluster).native_controller != "absent":
            return None
        own = self.settings.get(cluster)
        return self._native_ms[cluster if own is not None and own.native_controller else EVERY_CLUSTER]

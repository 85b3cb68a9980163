"""What is in force in the fleet now (settings, pauses and agents), folded from the public records that state it.

The log has the truth (`streams.state`). This is for those who must know it beside the log: observers, reconcilers,
routers, agents, the breaker and ingest. It ends up with what the log has, in either order of the two topics.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from schemas.agents import AgentRegistry, AgentSet, KnownPause
from schemas.entries import Body, BreakerCommand, GuardrailResume
from schemas.keys import EVERY_CLUSTER
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet, below_minimum, settings_of, take_settings

P = TypeVar("P")
ScalingDirection = Literal["scaleUp", "scaleDown"]

MOST_PAUSES: Final = 1_000
"""How many pauses of guardrails are kept, so that a false breaker can fill neither a row nor a process."""
SHORTEST_PERIOD_MS: Final = 1_000
"""Metrics APIs are not asked more often, even if the settings ask for a shorter period."""
SHORTEST_REPORT_MS: Final = 5_000
_NEVER: Final = -1


def report_every_ms(sync_period_ms: int, longest_ms: int) -> int:
    """How often an observer or a reconciler reports: once per sync period, but at least every `longest_ms` and at most
    every 5 s. So two reports that do not come are noticed within three sync periods.
    """
    return min(longest_ms, max(SHORTEST_REPORT_MS, sync_period_ms))


def is_in_force(until_ms: int, now_ms: int) -> bool:
    """Whether a pause, of a person or a guardrail, has not ended by itself; one without an end (0) never does."""
    return not until_ms or now_ms < until_ms


OVERRIDE: Final = "override"
"""The kind of an override among the pauses of an HPA. It stops nothing, and a `resume` does not end it."""


def pauses_after(known: Mapping[str, P], command: Command, pause: P) -> dict[str, P]:
    """The pauses of a scope by kind after a `pause` or `override`, which adds `pause`, or what ends one."""
    if command.command == "pause":
        return {**known, command.pause_kind: pause}
    if command.command == "override":
        others = {kind: each for kind, each in known.items() if kind != OVERRIDE}
        return others if command.replicas is None else {**others, OVERRIDE: pause}
    return {kind: each for kind, each in known.items() if kind == OVERRIDE or command.pause_kind not in ("all", kind)}


def covers(pause: KnownPause, namespace: str, name: str, direction: ScalingDirection) -> bool:
    """Whether a pause, while it is in force, stops changes of an HPA in a direction."""
    return pause.kind in ("all", direction) and pause.namespace in ("", namespace) and pause.name in ("", name)


def stopping(
    pauses: Iterable[KnownPause], namespace: str, name: str, direction: ScalingDirection, now_ms: int
) -> KnownPause | None:
    """The first pause in force that stops changes of an HPA in a direction, or None."""
    found = (pause for pause in pauses if covers(pause, namespace, name, direction))
    return next((pause for pause in found if is_in_force(pause.until, now_ms)), None)


class StandingPause(NamedTuple):
    """A pause by a guardrail.

    Args:
        namespace: the only namespace that is paused; empty if the whole cluster is.
        until_ms: 0 if the pause waits for a person.
        since_ms: time of the record that made it.
    """

    cluster: str
    namespace: str
    guardrail: str
    until_ms: int
    since_ms: int


class InForceChange(NamedTuple):
    """What an entry changed, and in which cluster (`*`: all)."""

    of: Literal["settings", "pauses", "agents"]
    cluster: str


class _Tripped(Struct):
    """What the breaker recorded of one guardrail and scope, as far as it still matters: when the last pause began that
    waits for a person, which only a person ends, and the last one that ends by itself, unless the breaker ended it.
    """

    waits_ms: int = _NEVER
    until_ms: int = 0
    since_ms: int = _NEVER


class InForce:
    """The fold of `fleethpa.settings` (`take`) and of `fleethpa.breaker` (`take_breaker`), and a function per question.

    Entries that ingest rejects change nothing. Pauses of guardrails and what ends them are on different topics, so
    the end of a pause may be read before the pause or long after it: the times of their records decide.
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
        self._tripped: dict[tuple[str, str, str], _Tripped] = {}
        """(cluster, namespace, guardrail) -> what the breaker recorded."""
        self._resumed_ms: dict[tuple[str, str], int] = {}
        """(cluster or `*`, namespace) -> when a person ended what guardrails had paused until then."""
        for entry in settings:
            self.take(entry, time_ms)

    # --- folding ------------------------------------------------------------------------------------------------------

    def take(self, body: Body, time_ms: int, cluster: str = "", namespace: str = "") -> InForceChange | None:
        """Take an entry of `fleethpa.settings` in.

        Args:
            time_ms: the time of its record.
            cluster, namespace: what its record is about; empty for one that is about whole clusters.

        Returns what it changed, or None.
        """
        match body:
            case Command():
                return self._command(cluster, body, namespace) if namespace else self._command(body.cluster, body)
            case SettingsSet() if not namespace and not below_minimum(body.settings):
                take_settings(self.settings, body)
                self._merged.clear()
                if body.settings.native_controller is not None:
                    self._native_ms[body.cluster] = time_ms
                return InForceChange("settings", body.cluster)
            case AgentSet() if not namespace and self.agents.apply(body):
                return InForceChange("agents", body.cluster)
            case GuardrailResume() if not namespace:
                scope = body.cluster, body.namespace
                self._resumed_ms[scope] = max(time_ms, self._resumed_ms.get(scope, _NEVER))
                return InForceChange("pauses", body.cluster)
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

    def take_breaker(self, body: Body, time_ms: int, cluster: str = "", namespace: str = "") -> InForceChange | None:
        """Take an entry of `fleethpa.breaker` in, as `take` does. Whoever may write there may only pause and resume.

        What comes after a pause that waits for a person counts only if a person has ended that one in between, which
        may be read later.
        """
        if not isinstance(body, BreakerCommand) or namespace:
            return None
        key = body.cluster, body.namespace, body.guardrail
        if key not in self._tripped:
            if body.command != "pause" or not self._has_room(time_ms):
                return None
            self._tripped[key] = _Tripped()
        tripped = self._tripped[key]
        if body.command == "resume":
            tripped.since_ms = _NEVER
        elif body.until:
            tripped.until_ms, tripped.since_ms = body.until, time_ms
        else:
            tripped.waits_ms = time_ms
        return InForceChange("pauses", body.cluster)

    def _has_room(self, now_ms: int) -> bool:
        if len(self._tripped) >= MOST_PAUSES:
            self._tripped = {key: each for key, each in self._tripped.items() if self._pause(key, now_ms) is not None}
        return len(self._tripped) < MOST_PAUSES

    # --- pauses -------------------------------------------------------------------------------------------------------

    def guardrail_pauses(self, now_ms: int, cluster: str | None = None) -> list[StandingPause]:
        """The pauses of guardrails in force, of one cluster or (None) of all, by cluster and name."""
        keys = sorted(key for key in self._tripped if cluster in (None, key[0]))
        return [pause for key in keys if (pause := self._pause(key, now_ms)) is not None]

    def _pause(self, key: tuple[str, str, str], now_ms: int) -> StandingPause | None:
        tripped = self._tripped[key]
        scopes = {(EVERY_CLUSTER, ""), (key[0], ""), key[:2]}
        resumed_ms = max(self._resumed_ms.get(scope, _NEVER) for scope in scopes)
        if tripped.waits_ms > resumed_ms:
            return StandingPause(*key, 0, tripped.waits_ms)
        if tripped.since_ms > resumed_ms and now_ms < tripped.until_ms:
            return StandingPause(*key, tripped.until_ms, tripped.since_ms)
        return None

    def pauses(self, cluster: str, now_ms: int) -> list[KnownPause]:
        """All pauses and overrides in force in a cluster, those of persons first."""
        own = [
            pause
            for (where, _, _), known in sorted(self._pauses.items())
            if where in (cluster, EVERY_CLUSTER)
            for pause in known.values()
            if is_in_force(pause.until, now_ms)
        ]
        guardrails = self.guardrail_pauses(now_ms, cluster)
        return own + [
            KnownPause(kind="scaleDown", namespace=each.namespace, until=each.until_ms) for each in guardrails
        ]

    # --- settings -----------------------------------------------------------------------------------------------------

    def of(self, cluster: str) -> ClusterSettings:
        """The settings of a cluster: its own, else those of `*`."""
        found = self._merged.get(cluster)
        if found is None:
            found = self._merged[cluster] = settings_of(self.settings, cluster)
        return found

    def is_frozen(self, cluster: str) -> bool:
        """Whether nothing may be written in a cluster. A frozen fleet is frozen everywhere."""
        return any((found := self.settings.get(name)) and found.frozen for name in (cluster, EVERY_CLUSTER))

    def pushed(self, cluster: str) -> frozenset[str]:
        """The metric types that are pushed in a cluster: no decision uses what a metrics API answers about them."""
        return frozenset(kind for kind, source in (self.of(cluster).sources or {}).items() if source == "samples")

    def sync_period_ms(self, cluster: str, default: int) -> int:
        """How often a cluster's metrics are asked for."""
        return max(self.of(cluster).sync_period_ms or default, SHORTEST_PERIOD_MS)

    def status_every_ms(self, cluster: str) -> int:
        """How often a status in which only metric values have changed is written; 0: with each evaluation."""
        return self.of(cluster).status_every_ms or 0

    def native_absent_since_ms(self, cluster: str) -> int | None:
        """When it was proven or set that no native controller runs in the cluster, or None if that does not hold."""
        if self.of(cluster).native_controller != "absent":
            return None
        own = self.settings.get(cluster)
        return self._native_ms[cluster if own is not None and own.native_controller else EVERY_CLUSTER]

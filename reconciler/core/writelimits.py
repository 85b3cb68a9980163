"""The settings that guard writes, folded from `fleethpa.settings`."""

from collections.abc import Iterable
from typing import Any

from reconciler.core.plan import WriteGuards
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SettingsSet

WRITE_TIMEOUT_S = 4
"""The API server ends a write that takes longer. What waits for an earlier write to be over relies on it."""
SHORTEST_PERIOD_MS = 1_000
"""Metrics APIs are not asked more often, whatever the settings say."""


class GuardSettings:
    """Guards per cluster; settings that a cluster does not have are taken from `*`."""

    def __init__(self) -> None:
        self._frozen: dict[str, bool] = {}
        self._max_step: dict[str, int] = {}
        self._sync_period_ms: dict[str, int] = {}
        self._status_every_ms: dict[str, int] = {}
        self._sources: dict[str, dict[str, str]] = {}
        self._native: dict[str, str] = {}
        self._by_name: dict[str, dict[str, Any]] = {
            "frozen": self._frozen,
            "maxStep": self._max_step,
            "syncPeriodMs": self._sync_period_ms,
            "statusEveryMs": self._status_every_ms,
            "sources": self._sources,
        }

    def replace(self, entries: Iterable[SettingsSet]) -> None:
        """Forget all settings, and what was noted of native controllers, and apply these."""
        self._native.clear()
        for field in self._by_name.values():
            field.clear()
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: SettingsSet) -> None:
        """Apply a change; fields that it does not name stay, and so do fields whose new value is invalid.

        Ingest rejects such an entry, but it is still on the public topic.
        """
        for name in entry.unset:
            if (field := self._by_name.get(name)) is not None:
                field.pop(entry.cluster, None)
        if entry.settings.frozen is not None:
            self._frozen[entry.cluster] = entry.settings.frozen
        if entry.settings.max_step is not None and entry.settings.max_step >= 0:
            self._max_step[entry.cluster] = entry.settings.max_step
        if entry.settings.sync_period_ms is not None and entry.settings.sync_period_ms > 0:
            self._sync_period_ms[entry.cluster] = entry.settings.sync_period_ms
        if entry.settings.status_every_ms is not None and entry.settings.status_every_ms >= 0:
            self._status_every_ms[entry.cluster] = entry.settings.status_every_ms
        if entry.settings.sources is not None:
            self._sources[entry.cluster] = {str(kind): source for kind, source in entry.settings.sources.items()}

    def note_native(self, cluster: str, evidence: str) -> None:
        """A native controller runs in a cluster, whatever the settings say: HPAs of origin cluster are its own."""
        self._native[cluster] = evidence

    def status_every_ms(self, cluster: str) -> int:
        """How often a status in which only metric values have changed is written; 0: with each evaluation."""
        return self._status_every_ms.get(cluster, self._status_every_ms.get(EVERY_CLUSTER, 0))

    def guards(self, cluster: str) -> WriteGuards:
        """What holds for a cluster now. A frozen fleet is frozen everywhere; maxStep 0 means no limit."""
        step = self._max_step.get(cluster, self._max_step.get(EVERY_CLUSTER, 0))
        frozen = self._frozen.get(EVERY_CLUSTER, False) or self._frozen.get(cluster, False)
        native = self._native.get(cluster, "")
        return WriteGuards(frozen=frozen, max_step=step if step > 0 else None, native=native)

    def pushed(self, cluster: str) -> frozenset[str]:
        """The metric types that are pushed there: no decision uses what a metrics API answers about them."""
        known = {**self._sources.get(EVERY_CLUSTER, {}), **self._sources.get(cluster, {})}
        return frozenset(kind for kind, source in known.items() if source == "samples")

    def sync_period_ms(self, cluster: str, default: int) -> int:
        """How often a cluster's metrics are asked for."""
        set_ms = self._sync_period_ms.get(cluster, self._sync_period_ms.get(EVERY_CLUSTER, default))
        return max(set_ms, SHORTEST_PERIOD_MS)

"""The settings that guard writes, folded from `fleethpa.settings`."""

from reconciler.core.plan import Guards
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SettingsSet


class GuardSettings:
    """Guards per cluster; what a cluster's own settings leave open holds from `*`."""

    def __init__(self) -> None:
        self._frozen: dict[str, bool] = {}
        self._max_step: dict[str, int] = {}
        self._sync_period_ms: dict[str, int] = {}

    def apply(self, entry: SettingsSet) -> None:
        """Take a change in; a field that it does not name stays."""
        if entry.settings.frozen is not None:
            self._frozen[entry.cluster] = entry.settings.frozen
        if entry.settings.max_step is not None:
            self._max_step[entry.cluster] = entry.settings.max_step
        if entry.settings.sync_period_ms is not None:
            self._sync_period_ms[entry.cluster] = entry.settings.sync_period_ms

    def guards(self, cluster: str) -> Guards:
        """What holds for a cluster now. A frozen fleet is frozen everywhere; maxStep 0 or less means no limit."""
        step = self._max_step.get(cluster, self._max_step.get(EVERY_CLUSTER, 0))
        frozen = self._frozen.get(EVERY_CLUSTER, False) or self._frozen.get(cluster, False)
        return Guards(frozen=frozen, max_step=step if step > 0 else None)

    def sync_period_ms(self, cluster: str, default: int) -> int:
        """How often a cluster's metrics are asked for."""
        return self._sync_period_ms.get(cluster, self._sync_period_ms.get(EVERY_CLUSTER, default))

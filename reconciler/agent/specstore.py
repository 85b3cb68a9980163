"""The specs that a stand-in would need, stored in its cluster and tried out while the hub is in charge."""

import asyncio
from collections.abc import Callable, Mapping

from reconciler.agent.clusterstore import ClusterStore
from reconciler.clusters.clustererrors import ApiError, ClusterError
from reconciler.standin.effective import KeptSpec
from reconciler.standin.protocol import HpaKey

SAVE_EVERY_S = 5.0
TRIED_AT_ONCE = 16
"""Specs tried out between two looks at the Lease."""


class SpecStore:
    """Keeps what is stored of one cluster equal to what is to be kept.

    Attributes:
        saved: what is stored.
    """

    def __init__(self, store: ClusterStore, now_ms: Callable[[], int], clock_s: Callable[[], float]) -> None:
        self._store, self._now_ms, self._clock_s = store, now_ms, clock_s
        self.saved: dict[HpaKey, KeptSpec] = {}
        self._saved_at_s = -SAVE_EVERY_S
        self._tried: dict[HpaKey, KeptSpec] = {}
        self._refused: dict[HpaKey, str] = {}

    async def load(self) -> dict[HpaKey, KeptSpec]:
        """Read what is stored."""
        self.saved = await self._store.load()
        return self.saved

    async def keep(self, kept: Mapping[HpaKey, KeptSpec], *, is_calm: bool) -> list[str]:
        """Store what has changed and, while it is calm, try it out; gives what is refused."""
        changed = [key for key in kept if not kept[key].same_as(self.saved.get(key))]
        is_gone = self.saved.keys() - kept.keys()
        if (changed or is_gone) and self._clock_s() - self._saved_at_s >= SAVE_EVERY_S:
            self._saved_at_s = self._clock_s()
            try:
                await self._store.save(kept)
                self.saved = dict(kept)
            except ClusterError as error:
                return [f"specs for the stand-in cannot be stored: {error}"]
        untried = [key for key in kept if not kept[key].same_as(self._tried.get(key)) and kept[key].floor is None]
        if is_calm:  # together, so that a slow webhook does not keep the Lease from being read
            await asyncio.gather(*(self._try_out(kept[key]) for key in untried[:TRIED_AT_ONCE]))
        self._refused = {key: why for key, why in self._refused.items() if key in kept}
        return [f"the stand-in could not keep {key.namespace}/{key.name}: {why}" for key, why in self._refused.items()]

    async def _try_out(self, kept: KeptSpec) -> None:
        try:
            await self._store.try_out(kept, self._now_ms())
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                return
            self._refused[kept.key] = str(error)
        except ClusterError:
            return
        else:
            self._refused.pop(kept.key, None)
        self._tried[kept.key] = kept

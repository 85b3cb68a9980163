"""What a stand-in does with the native HPAs of its cluster, and the specs that it keeps while the hub works."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.standin.effective import KeptSpec, floor_now
from reconciler.agents.standin.objects import is_scaled_to_zero
from reconciler.agents.standin.protocol import CloseNative, CreateNative, DeleteNative, HpaKey, OpenNative
from reconciler.clusters.answers import ApiError, ClusterError
from schemas.entries import LeftNative
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.shape import Json

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
        """Store what has changed and, while it is calm, try it out; return what is refused."""
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


log = logging.getLogger(__name__)

AT_ONCE = 16
PER_LOOK = 100
"""Requests about native HPAs between two looks at the Lease."""
BEGIN_FOR_S = 1.0
"""How long after the first of such requests others are begun; the rest waits for the next look. Where each takes its
longest, as with a webhook that hangs, the Lease is still read often enough for the time in between to count.
"""

NativeStep = CreateNative | OpenNative | CloseNative | DeleteNative


class NativeWork:
    """Carries out the steps about native HPAs, and what belongs to them, during one term of the agent.

    Attributes:
        natives: the native HPAs that the last list showed.
        left: what those that were deleted leave to the hub.
    """

    def __init__(self, store: ClusterStore, now_ms: Callable[[], int], clock_s: Callable[[], float]) -> None:
        self._store, self._now_ms, self._clock_s = store, now_ms, clock_s
        self.natives: dict[HpaKey, Json] = {}
        self.left: dict[HpaKey, LeftNative] = {}
        self._refusals: dict[HpaKey, int] = {}
        """How often the last requests about an HPA failed, one after the other."""
        self._unwoken: set[HpaKey] = set()
        """Native HPAs whose creation was begun and not seen to its end: a target at zero may not be awake."""
        self._raised: dict[HpaKey, tuple[int, int]] = {}
        """Generation and floor to which a target was raised last."""
        self._has_fence = False

    async def due(self, steps: Sequence[NativeStep]) -> tuple[list[NativeStep], str]:
        """The steps that are carried out before the next look, and the trouble that excludes others.

        The fence is looked for before HPAs are created, as it can be removed at any time, and their creation is
        recorded, by which they are known as ours afterwards; where one of both fails, none is created.
        """
        first = sorted(steps, key=lambda step: self._refusals.get(step.key, 0))[:PER_LOOK]
        others: list[NativeStep] = [step for step in first if not isinstance(step, CreateNative)]
        created = [step for step in first if isinstance(step, CreateNative)]
        if created:
            try:
                self._has_fence = await self._store.has_fence()
            except ClusterError as error:
                return others, f"the admission policies cannot be looked up: {error}"
        try:
            if created:
                keys = {step.key for step in created}
                await self._store.plan_natives(keys, created[0].generation, self.natives.keys())
            else:
                await self._store.record_uids()
        except ClusterError as error:
            return others, f"which native HPAs are the stand-in's cannot be recorded: {error}"
        return first, ""

    async def carry_out(
        self, steps: Sequence[NativeStep], kept: Mapping[HpaKey, KeptSpec], generation: int | None
    ) -> list[str]:
        """Carry out steps that are due; return the troubles, empty texts among them.

        `generation`: that of the Lease while the stand-in is in charge and no sign of the hub is seen: targets are
        raised to their floors and woken, too. None: they are not.
        """
        turns = _Turns(self._clock_s)
        work = [(step.key, self._step(step, kept, turns)) for step in steps]
        if generation is not None:
            work += [
                (each.key, self._floor(each, turns, generation)) for each in kept.values() if each.floor is not None
            ]
            asleep = sorted(self._unwoken & kept.keys() & self.natives.keys())
            work += [(key, self._rouse(kept[key], turns, generation)) for key in asleep]
        work.sort(key=lambda each: self._refusals.get(each[0], 0))
        return await asyncio.gather(*(each for _, each in work))

    async def _step(self, step: NativeStep, kept: Mapping[HpaKey, KeptSpec], turns: "_Turns") -> str:
        error = await self._in_turn(step.key, turns, partial(self._request, step, kept))
        is_late = error is None or error.is_missing or error.is_conflict
        return "" if is_late else f"native HPA: {error}"

    async def _in_turn(
        self, key: HpaKey, turns: "_Turns", request: Callable[[], Awaitable[None]]
    ) -> ClusterError | None:
        """Make a request about an HPA, unless it must wait for the next look; return its trouble."""
        async with turns as may_begin:
            if not may_begin:
                return None
            try:
                await request()
            except ClusterError as error:
                # Behind the others at the next look, so that many that are refused keep none from its turn.
                self._refusals[key] = self._refusals.get(key, 0) + 1
                return error
            self._refusals.pop(key, None)
        return None

    async def _request(self, step: NativeStep, kept: Mapping[HpaKey, KeptSpec]) -> None:
        now_ms = self._now_ms()
        match step:
            case CreateNative(key=key):
                self._unwoken.add(key)
                await self._store.create_native(kept[key], step, now_ms, has_fence=self._has_fence)
                self._unwoken.discard(key)
            case OpenNative(key=key):
                await self._store.open_native(kept[key], step, now_ms)
            case CloseNative(key=key):
                await self._store.close_native(self.natives[key], step)
            case DeleteNative(key=key):
                self.left[key] = _left(self.natives[key])
                await self._store.delete_native(step)

    async def _rouse(self, kept: KeptSpec, turns: "_Turns", generation: int) -> str:
        """Wake a target at zero whose HPA was created, but whose creation was not seen to its end."""
        error = await self._in_turn(kept.key, turns, partial(self._wake, kept, generation))
        return "" if error is None else f"native HPA of {kept.namespace}/{kept.name}, whose target is at zero: {error}"

    async def _wake(self, kept: KeptSpec, generation: int) -> None:
        if kept.spec.get("minReplicas") == 0:
            await self._store.wake(kept, self.natives[kept.key], generation)
        self._unwoken.discard(kept.key)

    async def _floor(self, kept: KeptSpec, turns: "_Turns", generation: int) -> str:
        """Raise a target to its floor, once in each generation and for each floor: later changes are somebody's."""
        least = floor_now(kept, self._now_ms())
        if least is None or self._raised.get(kept.key) == (generation, least):
            return ""
        error = await self._in_turn(kept.key, turns, partial(self._raise, kept, least, generation))
        return "" if error is None else f"floor of {kept.namespace}/{kept.name}: {error}"

    async def _raise(self, kept: KeptSpec, least: int, generation: int) -> None:
        if await self._store.raise_to(kept, least, generation):
            log.warning("raised to its floor", extra={"hpa": f"{kept.namespace}/{kept.name}", "floor": least})
        self._raised[kept.key] = generation, least


class _Turns:
    """Lets AT_ONCE requests run at once; entering says whether one may still begin."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._limit, self._clock_s = asyncio.Semaphore(AT_ONCE), clock_s
        self._begun_s: float | None = None

    async def __aenter__(self) -> bool:
        await self._limit.acquire()
        if self._begun_s is None:
            self._begun_s = self._clock_s()
        return self._clock_s() - self._begun_s < BEGIN_FOR_S

    async def __aexit__(self, *error: object) -> None:
        self._limit.release()


def _left(native: Json) -> LeftNative:
    status = native.get("status") or {}
    return LeftNative(
        namespace=native["metadata"]["namespace"],
        name=native["metadata"]["name"],
        last_scale=time_ms(status.get("lastScaleTime")),
        scaled_to_zero=is_scaled_to_zero(native),
    )

"""The stand-in of one cluster: watches whether the hub works, and keeps native HPAs while it does not.

It runs in the leading agent and looks at the cluster every second. `reconciler.standin` decides what to do; this module
does it. The error of a request is noted, and the next look starts from the state that it then finds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec import structs

from reconciler.agent.agentconfig import AgentConfig
from reconciler.agent.agentprocess import AgentTerm
from reconciler.agent.clusterstore import ClusterStore
from reconciler.agent.election import boot_s
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ApiError, ClusterError
from reconciler.core.agentknowledge import KnowledgeFold
from reconciler.core.objectbodies import time_ms
from reconciler.standin.effective import Keeper, KeptSpec, effective_spec, spec_hash
from reconciler.standin.evidence import FRESH_MS, GRACE_MS, PROOF_MS, Judge, grace_of, next_proof_ms, stagger_ms
from reconciler.standin.objects import (
    acquired_ms,
    is_scaled_to_zero,
    lease_seen,
    native_seen,
    proof_ms_of,
    unreported,
)
from reconciler.standin.protocol import (
    CLOSING,
    HUB,
    STAND_IN,
    CloseNative,
    CreateLease,
    CreateNative,
    DeleteNative,
    HpaKey,
    Judgement,
    LeaseSeen,
    OpenNative,
    Renew,
    Request,
    Seen,
    SetHolder,
    agent_steps,
    hub_refusal,
    is_stand_in,
)
from schemas.decisions import Decision, ShortDecision
from schemas.hands import HandsChanged, LeftNative
from schemas.kubernetes.jsontypes import Json
from schemas.outcomes import Outcome
from schemas.settings import SettingsSet

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
RENEW_EVERY_S = 8.0
LIST_EVERY_S = 30.0
"""How often native HPAs are looked for while the hub is in charge, when there should be none."""
SAVE_EVERY_S = 5.0
KEEP_EVERY_S = 5.0
"""How often it is worked out what is to be kept: in a large cluster that takes a while."""
FIRST_OF_HUB = 2
"""The generation in which the hub has the Lease for the first time, without proof: it is created as `closing`, 1."""
UNHEARD_S = 10.0
"""How long a term reads nothing from Kafka before it assumes that there is nothing to read."""
LOOK_COUNTS_S = 10.0
"""How long after a read of the Lease the hub's decisions may be written."""
AT_ONCE = 16
PER_LOOK = 100
"""Requests about native HPAs between two looks at the Lease."""
FAILING = 3
"""HPAs whose writes must fail, with none that succeeds, before the hub counts as unable to write."""


class Surroundings(NamedTuple):
    """What the stand-in needs of the agent.

    Args:
        cluster, hub: the cluster's name, and the holder of the Lease while the hub is in charge.
        now_ms: the brokers' time.
        is_frozen: whether the cluster is frozen.
        has_no_native: whether the settings say that no native HPA controller runs: then none can stand in.
        grace_ms: how long the hub must be silent, by the sync period as far as it is known.
        has_caught_up: whether all decisions were read that waited when the term began.
        publish: reports a change of hands; returns once the brokers have it.
        note: shows a trouble; None: there is none.
    """

    cluster: str
    hub: str
    knowledge: KnowledgeFold
    now_ms: Callable[[], int]
    is_frozen: Callable[[], bool]
    has_no_native: Callable[[], bool]
    grace_ms: Callable[[], int]
    has_caught_up: Callable[[], bool]
    publish: Callable[[HandsChanged], Awaitable[None]]
    note: Callable[[str, str | None], None]


class StandIn:
    """Watches one cluster for one term of the agent."""

    def __init__(
        self, around: Surroundings, store: ClusterStore, judge: Judge, *, clock_s: Callable[[], float] = boot_s
    ) -> None:
        self._around, self._store, self._judge, self._clock_s = around, store, judge, clock_s
        self._heard_s = clock_s()
        self._keeper: Keeper | None = None
        self._early: list[Decision] = []
        self._saved: dict[HpaKey, KeptSpec] = {}
        self._saved_at_s = -SAVE_EVERY_S
        self._kept: dict[HpaKey, KeptSpec] = {}
        self._wanted: dict[HpaKey, str] = {}
        self._kept_at_s, self._is_needed = -KEEP_EVERY_S, False
        self._tried: dict[HpaKey, KeptSpec] = {}
        self._refused: dict[HpaKey, str] = {}
        self._failing: set[tuple[str, str]] = set()
        self._lease: LeaseSeen | None = None
        self._raw_lease: Json | None = None
        self._read_s: float | None = None
        self._read_lease_s = 0.0
        self._renewed_s = self._listed_s = -LIST_EVERY_S
        self._natives: dict[HpaKey, Json] = {}
        self._left: dict[HpaKey, LeftNative] = {}
        self._has_fence = False
        self._remembered = 0
        self._unsent: list[HandsChanged] = []
        self._sent: set[_Change] = set()

    # --- what others tell and ask -------------------------------------------------------------------------------------

    def heard(self, decision: Decision | ShortDecision, *, is_past: bool) -> None:
        """A decision of this cluster was read."""
        now_ms, self._heard_s = self._around.now_ms(), self._clock_s()
        if not is_past:
            self._note_sign(decision, now_ms)
        if isinstance(decision, Decision):
            if self._keeper is None:
                self._early.append(decision)
            else:
                self._keeper.decided(decision, now_ms)

    def _note_sign(self, decision: Decision | ShortDecision, now_ms: int) -> None:
        age_ms = now_ms - (time_ms(decision.time) or 0)
        if not self._around.has_caught_up():
            self._judge.sign(decision.input.partition, age_ms=abs(age_ms))
        elif abs(age_ms) <= FRESH_MS:
            self._judge.sign(decision.input.partition)

    def wrote(self, decision: Decision, ended: Outcome) -> None:
        """A wanted write of the hub ended."""
        if ended.result == "applied":
            self._failing.clear()
            self._judge.wrote(is_ok=True)
        elif ended.result == "failed":
            self._failing.add((decision.namespace, decision.name))
            if len(self._failing) >= FAILING:
                self._judge.wrote(is_ok=False)

    def forbids(self) -> str:
        """Why the hub's decisions must not be written now; empty: they may."""
        if self._read_s is None or self._clock_s() - self._read_s > LOOK_COUNTS_S:
            return f"who is in charge of the cluster is not known: its Lease was not read for {LOOK_COUNTS_S:g} s"
        return hub_refusal(self._lease, hub=self._around.hub)

    # --- the work -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look every second until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report())
            while True:
                begun_s = self._clock_s()
                await self.look()
                await asyncio.sleep(max(0.0, LOOK_EVERY_S - (self._clock_s() - begun_s)))

    async def look(self) -> None:
        """Look at the cluster once, and do what follows from that."""
        begun_s = self._clock_s()
        try:
            if self._keeper is None:
                await self._begin()
            await self._read()
        except ClusterError as error:
            self._judge.look(_ms(begun_s), self._lease, is_ok=False)
            self._around.note("stand-in", f"the cluster cannot be read: {error}")
            return
        self._read_s = begun_s
        kept = self._work_out()
        self._judge.expect({each.partition for each in kept.values()})
        self._judge.grace_ms = self._around.grace_ms()
        has_heard = self._around.has_caught_up() or self._clock_s() - self._heard_s >= UNHEARD_S
        judged = self._judge.look(
            _ms(begun_s),
            self._lease,
            is_ok=True,
            took_ms=_ms(self._read_lease_s - begun_s),
            proof_ms=self._proof_ms(),
            has_heard=has_heard,
        )
        troubles = [*await self._carry_out(kept, judged), *await self._keep(kept)]
        self._around.note("stand-in", "; ".join(troubles[:3]) or None)

    async def _begin(self) -> None:
        self._saved = await self._store.load()
        self._keeper = Keeper(self._saved)
        for decision in self._early:
            self._keeper.decided(decision, self._around.now_ms())
        self._early.clear()

    async def _read(self) -> None:
        """First the Lease, then the native HPAs: so a list that follows a settled Lease holds all that may exist."""
        self._raw_lease = await self._store.lease()
        self._read_lease_s = self._clock_s()
        self._lease = None if self._raw_lease is None else lease_seen(self._raw_lease)
        if self._raw_lease is not None:
            self._note_unreported(self._raw_lease)
        if self._lease is not None:
            self._remembered = max(self._remembered, self._lease.generation)
        is_hub = self._lease is not None and self._lease.is_hub
        if is_hub and self._clock_s() - self._listed_s < LIST_EVERY_S:
            self._natives = {}
            return
        self._natives = await self._store.natives()
        self._listed_s = self._clock_s()

    def _note_unreported(self, lease: Json) -> None:
        """Changes that another leader could not report, or whose request had no answer."""
        known = self._sent | {_change(each) for each in self._unsent}
        self._unsent += [each for each in unreported(lease) if _change(each) not in known]
        self._unsent.sort(key=lambda each: each.generation)

    def _is_reported(self, lease: Json) -> bool:
        """Whether the Lease names a change that is in the log by now."""
        return any(_change(each) in self._sent for each in unreported(lease))

    def _work_out(self) -> dict[HpaKey, KeptSpec]:
        """What is to be kept, and the specs that native HPAs are to have now."""
        is_needed = is_stand_in(self._lease)
        if self._clock_s() - self._kept_at_s >= KEEP_EVERY_S or is_needed is not self._is_needed:
            self._kept_at_s, now_ms, self._is_needed = self._clock_s(), self._around.now_ms(), is_needed
            self._kept = self._to_keep()
            native = {key: each for key, each in self._kept.items() if each.floor is None}
            self._wanted = {key: spec_hash(effective_spec(each, now_ms)) for key, each in native.items() if is_needed}
        return self._kept

    def _to_keep(self) -> dict[HpaKey, KeptSpec]:
        if self._around.has_no_native():
            return {}
        knowledge = self._around.knowledge
        hpas = knowledge.hpas if knowledge.is_complete else None
        assert self._keeper is not None
        return self._keeper.kept(hpas, knowledge.pauses, is_frozen=self._around.is_frozen())

    def _proof_ms(self) -> int:
        return proof_ms_of(self._raw_lease)

    async def _carry_out(self, kept: Mapping[HpaKey, KeptSpec], judged: Judgement) -> list[str]:
        """Do what the protocol says; gives the troubles."""
        natives = tuple(native_seen(each) for each in self._natives.values())
        if self._around.has_no_native():  # nobody would ever confirm that one has ended
            natives = tuple(structs.replace(native, is_ended=native.is_closed) for native in natives)
        seen = Seen(self._lease, natives)
        steps = agent_steps(seen, judged, hub=self._around.hub, wanted=self._wanted, remembered=self._remembered)
        hands = [step for step in steps if isinstance(step, (CreateLease, SetHolder, Renew))]
        rest: list[Request] = [step for step in steps if not isinstance(step, (CreateLease, SetHolder, Renew))]
        others, trouble = await self._fenced(rest[:PER_LOOK])
        limit = asyncio.Semaphore(AT_ONCE)
        work = [self._native(step, kept, limit) for step in others]
        if is_stand_in(self._lease) and judged.is_settled and not judged.is_hub_proven:
            work += [self._floor(each, limit) for each in kept.values() if each.floor is not None]
        troubles = [trouble, *[await self._hands(step) for step in hands]]
        return [each for each in [*troubles, *await asyncio.gather(*work)] if each]

    async def _fenced(self, steps: list[Request]) -> tuple[list[Request], str]:
        """Look for the fence before HPAs are created, as it can be removed at any time; without an answer none is."""
        if any(isinstance(step, CreateNative) for step in steps):
            try:
                self._has_fence = await self._store.has_fence()
            except ClusterError as error:
                others: list[Request] = [step for step in steps if not isinstance(step, CreateNative)]
                return others, f"the admission policies cannot be looked up: {error}"
        return steps, ""

    async def _hands(self, step: Request) -> str:
        try:
            match step:
                case Renew():
                    await self._renew()
                case CreateLease():
                    change = self._next_change(step)
                    made = await self._store.create_lease(step, PROOF_MS, [*self._unsent, change])
                    self._changed(change, made)
                case SetHolder():
                    change = self._next_change(step)
                    made = await self._store.set_holder(step, self._next_proof_ms(step), [*self._unsent, change])
                    self._changed(change, made)
        except ApiError as error:
            return "" if error.status in (404, 409) else f"the Lease cannot be written: {error}"
        except ClusterError as error:
            return f"the Lease cannot be written: {error}"
        return ""

    async def _renew(self) -> None:
        lease = self._raw_lease
        is_due = self._clock_s() - self._renewed_s >= RENEW_EVERY_S
        if lease is not None and (is_due or self._is_reported(lease)):
            await self._store.renew(lease, self._unsent)
            self._renewed_s = self._clock_s()

    def _next_proof_ms(self, step: SetHolder) -> int:
        """How long the hub must show life before the next hand-back; decided at each take-over from the hub."""
        if step.holder != STAND_IN or self._lease is None or not self._lease.is_hub or self._raw_lease is None:
            return self._proof_ms()
        since_ms = acquired_ms(self._raw_lease)
        in_charge_ms = None if since_ms is None else max(0, self._around.now_ms() - since_ms)
        was_handed_back = self._lease.generation > FIRST_OF_HUB
        return next_proof_ms(self._proof_ms() if was_handed_back else None, in_charge_ms)

    def _next_change(self, step: CreateLease | SetHolder) -> HandsChanged:
        return HandsChanged(
            cluster=self._around.cluster,
            holder=step.holder,
            generation=step.generation,
            time=self._around.now_ms(),
            before="" if self._lease is None else self._lease.holder,
            natives=list(self._left.values()) if step.holder.startswith(HUB) else [],
        )

    def _changed(self, change: HandsChanged, lease: Json) -> None:
        self._judge.saw(_ms(self._clock_s()), lease_seen(lease))
        log.warning(
            "the cluster changed hands",
            extra={"cluster": change.cluster, "holder": change.holder, "generation": change.generation},
        )
        if change.holder.startswith(HUB):
            self._left.clear()
        self._unsent.append(change)

    async def _report(self) -> None:
        """Add each change of hands to the log, later where Kafka is away."""
        while True:
            if self._unsent:
                change = self._unsent[0]
                await self._around.publish(change)
                self._sent.add(_change(change))
                self._unsent = [each for each in self._unsent if _change(each) != _change(change)]
            else:
                await asyncio.sleep(LOOK_EVERY_S / 4)

    # --- native HPAs --------------------------------------------------------------------------------------------------

    async def _native(self, step: Request, kept: Mapping[HpaKey, KeptSpec], limit: asyncio.Semaphore) -> str:
        async with limit:
            try:
                await self._native_step(step, kept)
            except ApiError as error:
                return "" if error.status in (404, 409) else f"native HPA: {error}"
            except ClusterError as error:
                return f"native HPA: {error}"
        return ""

    async def _native_step(self, step: Request, kept: Mapping[HpaKey, KeptSpec]) -> None:
        now_ms = self._around.now_ms()
        match step:
            case CreateNative(key=key):
                await self._store.create_native(kept[key], step, now_ms, has_fence=self._has_fence)
            case OpenNative(key=key):
                await self._store.open_native(kept[key], step, now_ms)
            case CloseNative(key=key):
                await self._store.close_native(self._natives[key], step)
            case DeleteNative(key=key):
                self._left[key] = _left(self._natives[key])
                await self._store.delete_native(step)

    async def _floor(self, kept: KeptSpec, limit: asyncio.Semaphore) -> str:
        async with limit:
            try:
                if self._lease is not None and await self._store.raise_to(
                    kept, kept.floor or 0, self._lease.generation
                ):
                    log.warning(
                        "raised to its floor", extra={"hpa": f"{kept.namespace}/{kept.name}", "floor": kept.floor}
                    )
            except ClusterError as error:
                return f"floor of {kept.namespace}/{kept.name}: {error}"
        return ""

    # --- what is kept -------------------------------------------------------------------------------------------------

    async def _keep(self, kept: Mapping[HpaKey, KeptSpec]) -> list[str]:
        """Store what has changed, and try it out; gives what is refused."""
        changed = [key for key in kept if not kept[key].same_as(self._saved.get(key))]
        is_gone = self._saved.keys() - kept.keys()
        if (changed or is_gone) and self._clock_s() - self._saved_at_s >= SAVE_EVERY_S:
            self._saved_at_s = self._clock_s()
            try:
                await self._store.save(kept)
                self._saved = dict(kept)
            except ClusterError as error:
                return [f"specs for the stand-in cannot be stored: {error}"]
        untried = [key for key in kept if not kept[key].same_as(self._tried.get(key)) and kept[key].floor is None]
        is_calm = self._lease is not None and self._lease.holder != CLOSING and not self._natives
        if is_calm:  # together, so that a slow webhook does not keep the Lease from being read
            await asyncio.gather(*(self._try_out(kept[key]) for key in untried[:AT_ONCE]))
        self._refused = {key: why for key, why in self._refused.items() if key in kept}
        return [f"the stand-in could not keep {key.namespace}/{key.name}: {why}" for key, why in self._refused.items()]

    async def _try_out(self, kept: KeptSpec) -> None:
        try:
            await self._store.try_out(kept, self._around.now_ms())
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                return
            self._refused[kept.key] = str(error)
        except ClusterError:
            return
        else:
            self._refused.pop(kept.key, None)
        self._tried[kept.key] = kept


_Change = tuple[int, int, str]


def _change(change: HandsChanged) -> _Change:
    """What tells one change from all others, whether its native HPAs are named or were left out."""
    return change.generation, change.time, change.holder


async def stand_by(store: ClusterStore, judge: Judge, *, clock_s: Callable[[], float] = boot_s) -> None:
    """Look at the Lease once, in a replica that does not lead."""
    try:
        lease = await store.lease()
    except ClusterError:
        judge.stood_by(_ms(clock_s()), None, is_ok=False)
    else:
        judge.stood_by(_ms(clock_s()), None if lease is None else lease_seen(lease), is_ok=True)


def _store(config: AgentConfig, client: ClusterClient, grace: Callable[[], int] = lambda: GRACE_MS) -> ClusterStore:
    return ClusterStore(client, config.home, config.namespaces, grace)


class StandIns:
    """Makes the stand-in of each term of one replica; what it saw of the hub and of the Lease goes on between terms."""

    def __init__(self) -> None:
        self._judge = Judge()

    async def stand_by(self, config: AgentConfig, client: ClusterClient) -> None:
        """Look at the Lease, so that a term that begins later knows how long its holder has had it."""
        await stand_by(_store(config, client), self._judge)

    def __call__(self, term: AgentTerm) -> StandIn:
        """The stand-in of a term that begins."""
        config, name = term.config, term.client.name

        async def publish(change: HandsChanged) -> None:
            await term.publisher.publish("", "", change)

        def grace() -> int:
            return grace_of(term.settings.sync_period_ms(name, config.sync_period_ms))

        around = Surroundings(
            cluster=name,
            hub=config.hub,
            knowledge=term.knowledge,
            now_ms=term.now_ms,
            is_frozen=lambda: term.settings.guards(name).frozen,
            has_no_native=lambda: _native_controller(term.knowledge.settings) == "absent",
            grace_ms=grace,
            has_caught_up=lambda: term.has_caught_up,
            publish=publish,
            note=term.health.note,
        )
        self._judge.begin_term(stagger_ms(name))
        return StandIn(around, _store(config, term.client, grace), self._judge)


def _native_controller(settings: Iterable[SettingsSet]) -> str:
    """What the settings say of the native controller; those of the cluster come after those of all clusters."""
    known = [entry.settings.native_controller for entry in settings if entry.settings.native_controller is not None]
    return known[-1] if known else "unknown"


def _left(native: Json) -> LeftNative:
    status = native.get("status") or {}
    return LeftNative(
        namespace=native["metadata"]["namespace"],
        name=native["metadata"]["name"],
        last_scale=time_ms(status.get("lastScaleTime")),
        scaled_to_zero=is_scaled_to_zero(native),
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)

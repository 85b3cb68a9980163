"""The stand-in of one cluster: watches whether the hub works, and keeps native HPAs while it does not.

It runs in the leading agent and reads the Lease every second. `reconciler.agents.standin` decides what to do; this
module does it. A request that fails is noted, and the next look starts from the state that it then finds. Changes of
hands are also in the Lease until the log has them, so that none is lost with an agent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from msgspec import structs

from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.agent.nativework import NativeStep, NativeWork, SpecStore
from reconciler.agents.standin.effective import Keeper, KeptSpec, effective_spec, spec_hash
from reconciler.agents.standin.evidence import FRESH_MS, PROOF_MS, Judge, next_proof_ms
from reconciler.agents.standin.objects import (
    REASON_CHARACTERS,
    acquired_ms,
    lease_seen,
    left_reason,
    native_seen,
    native_trouble,
    proof_ms_of,
    unreported,
)
from reconciler.agents.standin.protocol import (
    CLOSING,
    HUB,
    CreateLease,
    CreateNative,
    HpaKey,
    Judgement,
    OpenNative,
    Renew,
    Seen,
    SetHolder,
    agent_steps,
    hub_refusal,
    is_stand_in,
)
from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.core.fence import STAND_IN
from reconciler.core.knowledge import KnowledgeFold
from reconciler.core.lease import SeenLease
from reconciler.core.objects import STAND_IN_LABEL
from runtime.log import boot_s
from schemas.decisions import Decision
from schemas.entries import ControlTransferred, LeftNative, Outcome
from schemas.fitting import split
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.shape import Json

LOOK_EVERY_S = 0.25

_Change = tuple[int, int, str]


class UnreportedChanges:
    """The changes of hands of one cluster that are still to be reported, and those that were.

    Attributes:
        unsent: those that are not in the log yet, in their order.
    """

    def __init__(self) -> None:
        self.unsent: list[ControlTransferred] = []
        self._sent: set[_Change] = set()

    def add(self, change: ControlTransferred) -> None:
        """A change was made."""
        self.unsent.append(change)

    def note(self, lease: Json) -> None:
        """Add those that the Lease names, which another leader could not report, or whose request had no answer."""
        known = self._sent | {_change(each) for each in self.unsent}
        self.unsent += [each for each in unreported(lease) if _change(each) not in known]
        self.unsent.sort(key=lambda each: each.generation)

    def is_reported(self, lease: Json) -> bool:
        """Whether the Lease names a change that is in the log by now."""
        return any(_change(each) in self._sent for each in unreported(lease))

    async def report(self, publish: Callable[[ControlTransferred], Awaitable[None]]) -> None:
        """Add each change to the log, later where Kafka is away, until cancelled."""
        while True:
            if self.unsent:
                change = self.unsent[0]
                await publish(change)
                self._sent.add(_change(change))
                self.unsent = [each for each in self.unsent if _change(each) != _change(change)]
            else:
                await asyncio.sleep(LOOK_EVERY_S)


def _change(change: ControlTransferred) -> _Change:
    """Return what distinguishes one change from all others, whether its native HPAs are named or were left out."""
    return change.generation, change.time, change.holder


log = logging.getLogger(__name__)

STANDIN_LOOK_EVERY_S = 1.0
RENEW_EVERY_S = 8.0
LIST_EVERY_S = 30.0
"""How often native HPAs are looked for while the hub is in charge, when there should be none."""
KEEP_EVERY_S = 5.0
"""How often it is worked out what is to be kept: in a large cluster that takes a while."""
FIRST_OF_HUB = 2
"""The generation in which the hub has the Lease for the first time, without proof: it is created as `closing`, 1."""
UNREPORTED_S = 10.0
"""How long a term reads nothing from Kafka before it assumes that there is nothing to read."""
LOOK_COUNTS_S = 10.0
"""How long after a read of the Lease the hub's decisions may be written."""
SHOWN_NATIVES = 3


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
    publish: Callable[[ControlTransferred], Awaitable[None]]
    note: Callable[[str, str | None], None]


class StandIn:
    """Watches one cluster for one term of the agent."""

    def __init__(
        self, around: Surroundings, store: ClusterStore, judge: Judge, *, clock_s: Callable[[], float] = boot_s
    ) -> None:
        self._around, self._store, self._judge, self._clock_s = around, store, judge, clock_s
        self._received_s = clock_s()
        self._keeper: Keeper | None = None
        self._early: dict[HpaKey, Decision] = {}
        self._kept: dict[HpaKey, KeptSpec] = {}
        self._wanted: dict[HpaKey, str] = {}
        self._kept_at_s, self._is_needed = -KEEP_EVERY_S, False
        self._trouble = ""
        self._lease: SeenLease | None = None
        self._raw_lease: Json | None = None
        self._read_s: float | None = None
        self._read_lease_s = 0.0
        self._renewed_s = self._listed_s = -LIST_EVERY_S
        self._has_list = False
        """Whether this look listed the native HPAs: else those of the last list are known, which may have changed."""
        self._remembered = 0
        self._specs = SpecStore(store, around.now_ms, clock_s)
        self._native_work = NativeWork(store, around.now_ms, clock_s)
        self._changes = UnreportedChanges()

    # --- what the agent reports and asks ------------------------------------------------------------------------------

    def received(self, decision: Decision, *, is_past: bool) -> None:
        """A decision of this cluster was read."""
        now_ms, self._received_s = self._around.now_ms(), self._clock_s()
        if not is_past:
            self._record_heartbeat(decision, now_ms)
        if decision.kind == "evaluation":
            if self._keeper is None:
                self._early[HpaKey(decision.namespace, decision.name)] = decision
            else:
                self._keeper.decided(decision, now_ms)

    def _record_heartbeat(self, decision: Decision, now_ms: int) -> None:
        age_ms = now_ms - (time_ms(decision.time) or 0)
        if not self._around.has_caught_up():
            self._judge.sign(decision.input.partition, age_ms=abs(age_ms))
        elif abs(age_ms) <= FRESH_MS:
            self._judge.sign(decision.input.partition)

    def wrote(self, decision: Decision, ended: Outcome) -> None:
        """A wanted write of the hub ended."""
        key = HpaKey(decision.namespace, decision.name)
        if ended.result == "applied":
            self._judge.wrote(key)
        elif ended.result == "failed" and ended.error:
            self._judge.wrote(key, ended.error)

    def forbids(self) -> str:
        """Why the hub's decisions must not be written now; empty: they may."""
        if self._read_s is None or self._clock_s() - self._read_s > LOOK_COUNTS_S:
            return f"who is in charge of the cluster is not known: its Lease was not read for {LOOK_COUNTS_S:g} s"
        return hub_refusal(self._lease, hub=self._around.hub)

    def blocks(self, key: HpaKey) -> str:
        """Return why the target of this HPA must not be written although the hub is in charge; empty: it may be."""
        native = self._native_work.natives.get(key)
        if native is not None and not self._around.has_no_native():
            return f"the stand-in's native HPA {key.namespace}/{key.name} is still there: {left_reason(native)}"
        if key in self._store.labelled:
            return (
                f"the HPA {key.namespace}/{key.name} has the label {STAND_IN_LABEL}, and the stand-in has no record of "
                "it: delete it, or remove the label"
            )
        return ""

    def trouble(self) -> str:
        """Return what keeps the stand-in from scaling while the hub is not in charge, or targets from the hub while it
        is; empty: nothing does.
        """
        return self._left() if self._lease is not None and self._lease.is_hub else self._trouble

    def _left(self) -> str:
        """Which targets the hub must not write, or the stand-in does not scale, and why."""
        is_hub = self._lease is not None and self._lease.is_hub
        natives = self._native_work.natives.items()
        keys = [key for key, each in natives if is_hub or each["metadata"].get("deletionTimestamp")]
        keys += self._store.labelled.keys() & self._kept.keys()
        reasons = [why for key in dict.fromkeys(keys) if (why := self.blocks(key))]
        if not reasons:
            return ""
        more = f"; {len(reasons) - SHOWN_NATIVES} more" if len(reasons) > SHOWN_NATIVES else ""
        return f"targets that are not scaled: {'; '.join(reasons[:SHOWN_NATIVES])}{more}"

    # --- the work -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Check every second until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.report())
            while True:
                begun_s = self._clock_s()
                await self.check()
                await asyncio.sleep(max(0.0, STANDIN_LOOK_EVERY_S - (self._clock_s() - begun_s)))

    async def report(self) -> None:
        """Add changes of hands to the log until cancelled."""
        await self._changes.report(self._around.publish)

    async def check(self) -> None:
        """Check the cluster once, and do what follows from that."""
        begun_s = self._clock_s()
        try:
            if self._keeper is None:
                await self._begin()
            await self._read()
        except ClusterError as error:
            self._judge.judge(_ms(begun_s), self._lease, is_ok=False)
            self._record_trouble(f"the cluster cannot be read: {error}")
            return
        self._read_s = begun_s
        kept = self._work_out()
        self._judge.expect({each.partition for each in kept.values()})
        self._judge.grace_ms = self._around.grace_ms()
        has_received = self._around.has_caught_up() or self._clock_s() - self._received_s >= UNREPORTED_S
        seen = self._judge.judge(
            _ms(begun_s),
            self._lease,
            is_ok=True,
            took_ms=_ms(self._read_lease_s - begun_s),
            proof_ms=self._proof_ms(),
            has_received=has_received,
        )
        # Where nothing is known, no heartbeat is expected either, so that its absence proves nothing.
        judged = structs.replace(seen, is_hub_proven=seen.is_hub_proven and self._around.knowledge.is_complete)
        troubles = await self._carry_out(kept, judged)
        is_calm = self._lease is not None and (
            self._lease.is_hub or (self._lease.holder != CLOSING and not self._native_work.natives)
        )
        troubles += await self._specs.keep(kept, is_calm=is_calm)
        self._record_trouble("; ".join(troubles[:3]))

    def _record_trouble(self, text: str) -> None:
        self._trouble = text
        self._around.note("stand-in", text or None)

    async def _begin(self) -> None:
        self._keeper = Keeper(await self._specs.load())
        for decision in self._early.values():
            self._keeper.decided(decision, self._around.now_ms())
        self._early.clear()

    async def _read(self) -> None:
        """First the Lease, then the native HPAs: so a list that follows a settled Lease holds all that may exist."""
        self._raw_lease = await self._store.lease()
        self._read_lease_s = self._clock_s()
        self._lease = None if self._raw_lease is None else lease_seen(self._raw_lease)
        if self._raw_lease is not None:
            self._changes.note(self._raw_lease)
        if self._lease is not None:
            self._remembered = max(self._remembered, self._lease.generation)
        is_hub = self._lease is not None and self._lease.is_hub
        every_s = KEEP_EVERY_S if self._native_work.natives else LIST_EVERY_S
        self._has_list = not is_hub or self._clock_s() - self._listed_s >= every_s
        if not self._has_list:
            return
        self._native_work.natives = await self._store.natives()
        self._listed_s = self._clock_s()

    def _work_out(self) -> dict[HpaKey, KeptSpec]:
        """Return what is to be kept, and the specs that native HPAs are to have now."""
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
        """Do what the protocol says; return the troubles."""
        listed = self._native_work.natives.values() if self._has_list else ()
        natives = tuple(native_seen(each) for each in listed)
        steps = agent_steps(
            Seen(self._lease, natives),
            judged,
            hub=self._around.hub,
            wanted=self._wanted,
            remembered=self._remembered,
            has_native_controller=not self._around.has_no_native(),
        )
        hands = [step for step in steps if isinstance(step, (CreateLease, SetHolder, Renew))]
        rest: list[NativeStep] = [step for step in steps if not isinstance(step, (CreateLease, SetHolder, Renew))]
        if is_stand_in(self._lease) and not self._around.knowledge.is_complete:
            # What is stored may be lost or damaged: that a native HPA is not wanted any more is not known yet.
            rest = [step for step in rest if isinstance(step, (CreateNative, OpenNative))]
        due, trouble = await self._native_work.due(rest)
        is_in_charge = is_stand_in(self._lease) and judged.is_settled and not judged.is_hub_proven
        generation = self._lease.generation if self._lease is not None and is_in_charge else None
        troubles = [trouble, *[await self._control_transferred(step, judged.reason) for step in hands]]
        troubles += [
            *await self._native_work.carry_out(due, kept, generation),
            self._unscaled(),
            self._left(),
            self._labelled(),
        ]
        return [each for each in troubles if each]

    def _unscaled(self) -> str:
        """Why the cluster's own controller does not scale, while the stand-in is in charge; empty: it does."""
        if not is_stand_in(self._lease):
            return ""
        now_ms, natives = self._around.now_ms(), self._native_work.natives
        troubles = {key: why for key, native in natives.items() if (why := native_trouble(native, now_ms))}
        if not troubles:
            return ""
        key, why = next(iter(troubles.items()))
        return f"{len(troubles)} native HPAs do not scale, {key.namespace}/{key.name}: {why}"

    def _labelled(self) -> str:
        """Which HPAs are not ours although they have our label."""
        labelled = list(self._store.labelled)
        names = ", ".join(f"{key.namespace}/{key.name}" for key in labelled[:SHOWN_NATIVES])
        more = f" and {len(labelled) - SHOWN_NATIVES} more" if len(labelled) > SHOWN_NATIVES else ""
        return names and f"native HPAs that others gave the label {STAND_IN_LABEL} are left alone: {names}{more}"

    async def _control_transferred(self, step: CreateLease | SetHolder | Renew, reason: str) -> str:
        try:
            match step:
                case Renew():
                    await self._renew()
                case CreateLease():
                    change = self._next_change(step, "")
                    is_held = await self._store.create_lease(step, PROOF_MS, [*self._changes.unsent, change])
                    self._changed(change, is_held)
                case SetHolder():
                    why = reason if step.holder == STAND_IN else ""
                    change, proof_ms = self._next_change(step, why), self._next_proof_ms(step)
                    is_held = await self._store.set_holder(step, proof_ms, [*self._changes.unsent, change], why)
                    self._changed(change, is_held)
        except ApiError as error:
            return "" if error.status in (404, 409) else f"the Lease cannot be written: {error}"
        except ClusterError as error:
            return f"the Lease cannot be written: {error}"
        return ""

    async def _renew(self) -> None:
        lease = self._raw_lease
        is_due = self._clock_s() - self._renewed_s >= RENEW_EVERY_S
        if lease is not None and (is_due or self._changes.is_reported(lease)):
            await self._store.renew(lease, self._changes.unsent)
            self._renewed_s = self._clock_s()

    def _next_proof_ms(self, step: SetHolder) -> int:
        """How long the hub must show life before the next hand-back; decided at each take-over from the hub."""
        if step.holder != STAND_IN or self._lease is None or self._raw_lease is None:
            return self._proof_ms()
        if not self._lease.is_hub:
            return self._proof_ms()
        since_ms = acquired_ms(self._raw_lease)
        in_charge_ms = None if since_ms is None else max(0, self._around.now_ms() - since_ms)
        was_handed_back = self._lease.generation > FIRST_OF_HUB
        return next_proof_ms(self._proof_ms() if was_handed_back else None, in_charge_ms)

    def _next_change(self, step: CreateLease | SetHolder, reason: str) -> ControlTransferred:
        return ControlTransferred(
            cluster=self._around.cluster,
            holder=step.holder,
            generation=step.generation,
            time=self._around.now_ms(),
            before="" if self._lease is None else self._lease.holder,
            reason=reason[:REASON_CHARACTERS],
            natives=self._left_to_hub() if step.holder.startswith(HUB) else [],
        )

    def _left_to_hub(self) -> list[LeftNative]:
        """As many as fit into a record, and first those scaled to zero: of the others only the last scale time is lost,
        while the hub would take these for switched off.
        """
        return next(split(sorted(self._native_work.left.values(), key=lambda each: not each.scaled_to_zero)), [])

    def _changed(self, change: ControlTransferred, lease: Json) -> None:
        seen = lease_seen(lease)
        self._judge.saw(_ms(self._clock_s()), seen)
        data = {"cluster": change.cluster, "holder": change.holder, "generation": change.generation}
        log.warning("the cluster changed hands", extra=data | ({"reason": seen.reason} if seen.reason else {}))
        if change.holder.startswith(HUB):
            self._native_work.left.clear()
        self._changes.add(change)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


async def stand_by(store: ClusterStore, judge: Judge, *, clock_s: Callable[[], float] = boot_s) -> None:
    """Read the Lease once, in a replica that does not lead."""
    try:
        lease = await store.lease()
    except ClusterError:
        judge.stood_by(int(clock_s() * 1000), None, is_ok=False)
    else:
        judge.stood_by(int(clock_s() * 1000), None if lease is None else lease_seen(lease), is_ok=True)

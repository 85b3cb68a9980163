"""Who is in charge of a cluster, and the next step of each process: observations in, requests out.

The Lease `fleethpa-hub` names who is in charge. Its holder changes by compare-and-set only, each time with a higher
generation, and only along this circle:

    hub/REGION/INCARNATION  ->  stand-in  ->  closing  ->  hub/REGION/INCARNATION
                                    ^------------'  the hub is silent again

`hub/…`: the hub's decisions are written to `/scale`, and no native HPA of ours exists, but for one that somebody or
something keeps, whose target alone is not written meanwhile. `stand-in`: the cluster's own HPA controller scales, by
HPAs that the agent keeps. `closing`: nothing is created any more; each native HPA is disabled, its controller confirms
that, and it is deleted. Ours are those of which the agent has a record (`ownnatives`).

Nothing here reads a clock or trusts a leader election: every request carries a version, a uid or a generation, so that
it has no effect if it arrives late. The same functions are explored by `tests/standin_model`.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import Struct, structs

from reconciler.core.fence import STAND_IN
from reconciler.core.lease import PROTOCOL, SeenLease
from schemas.entries import HUB_HOLDER

HUB = HUB_HOLDER
CLOSING = "closing"


class HpaKey(NamedTuple):
    """An HPA of the cluster."""

    namespace: str
    name: str


# --- what is seen -----------------------------------------------------------------------------------------------------


class NativeSeen(Struct, frozen=True, gc=False):
    """A native HPA of ours, by its record, as it was listed.

    Args:
        generation: its label; 0 where that is unreadable.
        spec: hash of the effective spec that it was created from.
        is_closed: both directions are disabled.
        is_ended: the native controller has seen that it is closed, or cannot read its target: no write is coming.
        is_deleting: it was deleted, and finalizers keep it.
    """

    key: HpaKey
    uid: str
    version: str
    generation: int
    spec: str = ""
    is_closed: bool = False
    is_ended: bool = False
    is_deleting: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done about it."""
        return self.is_ended and self.is_deleting


class Seen(Struct, frozen=True):
    """What one consistent look found: first the Lease (None: there is none), then all native HPAs of ours."""

    lease: SeenLease | None
    natives: tuple[NativeSeen, ...] = ()


class Judgement(Struct, frozen=True, kw_only=True):
    """What an observer of the Lease concludes from its clocks and evidence (`reconciler.agents.standin.evidence`).

    Args:
        is_hub_silent: no heartbeat of the hub for the whole grace period, or no right to write in this cluster.
        is_hub_proven: the hub has shown heartbeats for the whole proof period, so that it may take over.
        is_settled: the Lease has had this holder and generation long enough for the fence in the API server to have
            seen it, and for every request that was admitted before to have ended.
        is_stuck: the hand-back has waited long enough for the native controller: the hub gets the cluster, but for the
            targets whose native HPAs are left.
        reason: why the hub counts as silent, for users.
    """

    is_hub_silent: bool = False
    is_hub_proven: bool = False
    is_settled: bool = False
    is_stuck: bool = False
    reason: str = ""


# --- requests ---------------------------------------------------------------------------------------------------------


class CreateLease(Struct, frozen=True, gc=False):
    """Create the Lease, which fails where there is one."""

    holder: str
    generation: int


class SetHolder(Struct, frozen=True, gc=False):
    """Change the holder, if the Lease still is the one of this uid and version."""

    holder: str
    generation: int
    version: str
    uid: str = ""


class Renew(Struct, frozen=True, gc=False):
    """Renew the Lease for its holder, under the same conditions."""

    version: str
    uid: str = ""


class CreateNative(Struct, frozen=True, gc=False):
    """Create the native HPA, labelled with this generation."""

    key: HpaKey
    generation: int


class OpenNative(Struct, frozen=True, gc=False):
    """Give an existing native HPA its effective spec and this generation, if it still has this version."""

    key: HpaKey
    generation: int
    uid: str
    version: str


class CloseNative(Struct, frozen=True, gc=False):
    """Disable both directions of a native HPA, if it still is the one of this uid and version."""

    key: HpaKey
    generation: int
    uid: str
    version: str


class DeleteNative(Struct, frozen=True, gc=False):
    """Delete a native HPA, if it still has this uid and version: after any change it is disabled again first."""

    key: HpaKey
    uid: str
    version: str


Request = CreateLease | SetHolder | Renew | CreateNative | OpenNative | CloseNative | DeleteNative


# --- steps ------------------------------------------------------------------------------------------------------------


def agent_steps(
    seen: Seen,
    judged: Judgement,
    *,
    hub: str,
    wanted: Mapping[HpaKey, str],
    remembered: int = 0,
    has_native_controller: bool = True,
) -> list[Request]:
    """Return what the agent of a cluster does now; nothing means: look again later.

    Args:
        hub: the holder that the Lease gets when it goes to the hub, `hub/REGION/INCARNATION`.
        wanted: hash of the effective spec of each HPA that the stand-in keeps, in the order in which to create them.
        remembered: the highest generation that is known from elsewhere, for a Lease that is created anew.
        has_native_controller: whether the cluster may run an HPA controller of its own. Without one, nobody would
            evaluate native HPAs: the stand-in never takes over, and no write of a native controller can come.
    """
    if not has_native_controller:
        natives = tuple(structs.replace(native, is_ended=native.is_closed) for native in seen.natives)
        seen, judged = Seen(seen.lease, natives), structs.replace(judged, is_hub_silent=False)
    is_needed = bool(seen.natives) and has_native_controller
    lease = seen.lease
    if lease is None:
        return [_created(seen.natives, remembered, STAND_IN if is_needed else CLOSING)]
    if lease.protocol > PROTOCOL:
        return []
    if lease.is_hub:
        return _while_hub(lease, seen.natives, judged, hub)
    if lease.holder == CLOSING:
        return _while_closing(lease, seen.natives, judged, hub)
    if lease.holder != STAND_IN:  # somebody has edited it: nobody is in charge, as where it was deleted
        return [_change(lease, STAND_IN if is_needed or judged.is_hub_silent else CLOSING)]
    return _while_stand_in(lease, seen.natives, judged, wanted)


def hub_refusal(lease: SeenLease | None, *, hub: str = "") -> str:
    """Why the hub's decisions must not be written now; empty: they may. `hub`: the holder it must be (empty: any)."""
    if lease is None:
        return "nobody is in charge of the cluster: its Lease is gone"
    if lease.protocol > PROTOCOL:
        return f"the cluster's Lease follows version {lease.protocol} of the protocol; this process knows {PROTOCOL}"
    if not lease.is_hub:
        # As of the take-over: the hub may work again by now.
        why = f", which took over because of this: {lease.reason}" if lease.reason else ""
        return (
            f"the cluster is in the hands of its {STAND_IN} (generation {lease.generation}, holder {lease.holder}){why}"
        )
    if hub and lease.holder != hub:
        return f"another hub is in charge of the cluster: {lease.holder}"
    return ""


def is_stand_in(lease: SeenLease | None) -> bool:
    return lease is not None and lease.holder == STAND_IN and lease.protocol <= PROTOCOL


def _created(natives: Collection[NativeSeen], remembered: int, holder: str) -> CreateLease:
    """The Lease for a cluster that has none: its generation lies above all that are known.

    Without native HPAs, or a controller for them, the first holder is `closing`, not the hub: a creation that was
    admitted a moment ago may still be on its way, and `closing` is the state that waits for it.
    """
    highest = max((native.generation for native in natives), default=0)
    return CreateLease(holder, max(highest, remembered) + 1)


def _change(lease: SeenLease, holder: str) -> SetHolder:
    return SetHolder(holder, lease.generation + 1, lease.version, lease.uid)


def _while_hub(lease: SeenLease, natives: Collection[NativeSeen], judged: Judgement, hub: str) -> list[Request]:
    if judged.is_hub_silent:
        return [_change(lease, STAND_IN)]
    if lease.holder != hub:  # of another region or incarnation: it goes round the circle as every change does
        return [_change(lease, CLOSING)] if judged.is_hub_proven else []
    # What is left, or was created too late where no fence refuses that, keeps its own target from the hub alone.
    return [Renew(lease.version, lease.uid), *(step for native in natives for step in _end(native, lease.generation))]


def _while_stand_in(
    lease: SeenLease, natives: Collection[NativeSeen], judged: Judgement, wanted: Mapping[HpaKey, str]
) -> list[Request]:
    if judged.is_hub_proven:
        return [_change(lease, CLOSING)]
    steps: list[Request] = [Renew(lease.version, lease.uid)]
    if not judged.is_settled:
        return steps
    there = {native.key: native for native in natives}
    for key, spec in wanted.items():
        native = there.get(key)
        if native is None:
            steps.append(CreateNative(key, lease.generation))
        elif native.is_deleting:  # it could go at any moment, without its controller having seen its end
            steps += _end(native, lease.generation)
        elif native.is_closed or native.spec != spec or native.generation != lease.generation:
            steps.append(OpenNative(key, lease.generation, native.uid, native.version))
    for native in natives:
        if native.key not in wanted:
            steps += _end(native, lease.generation)
    return steps


def _while_closing(lease: SeenLease, natives: Collection[NativeSeen], judged: Judgement, hub: str) -> list[Request]:
    if judged.is_hub_silent:
        return [_change(lease, STAND_IN)]
    if not judged.is_settled:
        return [Renew(lease.version, lease.uid)]
    if judged.is_stuck or all(native.is_over for native in natives):
        return [_change(lease, hub)]
    return [Renew(lease.version, lease.uid), *(step for native in natives for step in _end(native, lease.generation))]


def _end(native: NativeSeen, generation: int) -> list[Request]:
    """One step towards a deleted native HPA: disable it, wait until its controller confirms that, delete it."""
    if native.is_over:
        return []
    if not native.is_closed or native.generation != generation:
        return [CloseNative(native.key, generation, native.uid, native.version)]
    return [DeleteNative(native.key, native.uid, native.version)] if native.is_ended else []

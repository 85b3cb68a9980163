"""Leader election by a Lease. No I/O, no clock is read here.

Times are seconds of a clock that also runs while the machine sleeps. A holder's renewals are timed by the reader's own
clock, from when it saw them, so that no two clocks are compared.

Source: client-go tools/leaderelection: lease duration 15 s, renew deadline 10 s, retry period 2 s.
"""

from typing import Any, Literal

from msgspec import Struct

from schemas.entries import HUB_HOLDER
from schemas.kubernetes.shape import Json, JsonView

DURATION_S = 15.0
RENEW_DEADLINE_S = 10.0
"""A leader that could not renew for this long stops; 5 s later another one may take over."""
RETRY_S = 2.0

LeaseStep = Literal["take", "renew", "wait"]


PROTOCOL = 1
"""The version of the rules by which the hub's Lease gets another holder (`reconciler.agents.standin.protocol`)."""


class SeenLease(Struct, frozen=True, gc=False):
    """A Lease as it was read. `generation`: how many times it changed hands, kept for ever in `leaseTransitions`;
    `version`: its resource version.

    Of the hub's Lease also `protocol`, the version of its rules, and `reason`: why the stand-in took over; empty:
    unknown, or it did not.
    """

    holder: str
    generation: int
    version: str
    uid: str = ""
    renewed: str = ""
    protocol: int = PROTOCOL
    reason: str = ""

    @property
    def is_hub(self) -> bool:
        return self.holder.startswith(HUB_HOLDER)


class LeaseWatch(Struct, frozen=True):
    """The newest state of the Lease, and since when it has been so by the reader's clock."""

    lease: SeenLease
    since_s: float


def seen_lease(lease: JsonView) -> SeenLease:
    """Read a Lease of `coordination.k8s.io/v1`."""
    spec = lease.get("spec") or {}
    return SeenLease(
        holder=spec.get("holderIdentity") or "",
        generation=int(spec.get("leaseTransitions") or 0),
        version=lease["metadata"]["resourceVersion"],
        renewed=spec.get("renewTime") or "",
        uid=lease["metadata"].get("uid") or "",
    )


def watched(before: LeaseWatch | None, lease: SeenLease, now_s: float) -> LeaseWatch:
    """Record a Lease that was just read: a holder that renewed it is alive from now on."""
    same = before is not None and (before.lease.holder, before.lease.renewed) == (lease.holder, lease.renewed)
    return LeaseWatch(lease, before.since_s if before is not None and same else now_s)


def next_step(watch: LeaseWatch, identity: str, now_s: float) -> LeaseStep:
    """Return what a candidate does: renew what it holds, take what is not held or was not renewed, else wait."""
    if watch.lease.holder == identity:
        return "renew"
    if not watch.lease.holder or now_s - watch.since_s >= DURATION_S:
        return "take"
    return "wait"


def lease_spec(holder: str, generation: int, time: str) -> dict[str, Any]:
    """The spec of a Lease that `holder` holds; `time`: of this write, RFC 3339 with microseconds."""
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": int(DURATION_S),
        "leaseTransitions": generation,
        "renewTime": time,
    }


def new_lease(namespace: str, name: str, spec: JsonView) -> Json:
    """A Lease to create, or (with uid and resource version) to replace one."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "fleethpa"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": dict(spec)}

"""What to do about one wanted write: compares the decision with the cluster's present state and the guards.

Every wanted write ends in an outcome, and no write can be outside the limits: only `plan` creates a `Write`.
"""

from typing import Literal

from msgspec import Struct, structs

from schemas.agentknowledge import KnownPause
from schemas.changerules import ScaleChange, refused_by_rule
from schemas.decisions import Decision
from schemas.entries import Outcome
from schemas.inforce import InForce, stopping
from schemas.kubernetes.gotimes import time_ms
from schemas.pauses import ScalingDirection
from schemas.settings import ClusterSettings

WRITE_TIMEOUT_S = 4
"""The API server ends a write that takes longer. What waits for an earlier write to be over relies on it."""
ATTEMPTS = 5
"""Reads of the scale for one decision after conflicts, as upstream's retry-on-conflict."""

WriteResult = Literal["applied", "superseded", "stale", "refused", "failed"]


class ObservedScale(Struct, frozen=True):
    """What `/scale` shows now; the fields are those of an `Outcome`."""

    spec_replicas: int
    status_replicas: int
    selector: str
    resource_version: str


class ObservedHpa(Struct, frozen=True):
    """What the HPA object shows now (origin `cluster` only). `target`: kind, group and name."""

    uid: str
    deleting: bool
    min_replicas: int
    max_replicas: int
    target: tuple[str, str, str]


class WriteGuards(Struct, frozen=True, kw_only=True):
    """What is known of the cluster that forbids writes. `settings`: its own, which the rules of `schemas.changerules`
    read. `native`: what shows that a native controller runs, where that was not recorded yet; empty: nothing does.
    `pauses`: those of its cluster that are known here, ended ones perhaps included.
    """

    settings: ClusterSettings = ClusterSettings()
    pauses: tuple[KnownPause, ...] = ()
    native: str = ""


def guards_of(in_force: InForce, cluster: str, now_ms: int) -> WriteGuards:
    """The guards of a cluster by what is in force now."""
    return WriteGuards(settings=in_force.of(cluster), pauses=tuple(in_force.pauses(cluster, now_ms)))


class Write(Struct, frozen=True):
    """Write `replicas`, under the condition that the scale still has this resource version."""

    replicas: int
    resource_version: str


class End(Struct, frozen=True):
    """No write, or no further one: the result of the wanted write.

    `is_forbidden`: it failed for want of a right. `scale`: the newest that was seen; None: none was. `attempts`: how
    often the cluster was asked.
    """

    result: WriteResult
    error: str = ""
    is_forbidden: bool = False
    scale: ObservedScale | None = None
    attempts: int = 0


Action = Write | End


def plan(
    decision: Decision, *, scale: ObservedScale, hpa: ObservedHpa | None, guards: WriteGuards, now_ms: int
) -> Action:
    """Return what to do.

    `hpa` is None where it is not there, and for origin `central`, whose HPA lives in no cluster. A scale that already
    shows the wanted count is `applied`, also if other fields changed: a write whose outcome was lost ends there after a
    restart.
    """
    wanted = decision.wants
    if wanted is None:
        raise ValueError(f"decision {decision.id} wants no write")
    if scale.spec_replicas == wanted:
        return End("applied")
    if now_ms >= (decision.expires or 0):
        return End("stale", "its time to live passed before it could be written")
    reason = _refusal(decision, wanted, scale, hpa, guards) or _paused(decision, wanted, scale, guards, now_ms)
    return End("refused", reason) if reason else Write(wanted, scale.resource_version)


def _refusal(
    decision: Decision, wanted: int, scale: ObservedScale, hpa: ObservedHpa | None, guards: WriteGuards
) -> str:
    if decision.mode != "enforce":
        return f"the HPA's mode is {decision.mode}, which writes nothing"
    if reason := _hpa_refusal(decision, hpa):
        return reason
    if scale.spec_replicas != decision.current_replicas:
        moved = f"from {decision.current_replicas} to {scale.spec_replicas}"
        return f"another hand changed the replicas {moved} since the decision"
    return _limit_refusal(decision, wanted, scale.spec_replicas, hpa, guards)


def _hpa_refusal(decision: Decision, hpa: ObservedHpa | None) -> str:
    if decision.origin == "central":
        return ""
    if hpa is None or hpa.deleting:
        return "the HPA was deleted"
    if hpa.uid != decision.uid:
        return "the HPA was deleted and created again"
    if (target := decision.target) is not None and hpa.target != (target.kind, target.group, target.name):
        return f"the HPA now scales {hpa.target[0]}/{hpa.target[2]}"
    return ""


def _limit_refusal(decision: Decision, wanted: int, current: int, hpa: ObservedHpa | None, guards: WriteGuards) -> str:
    low, high = decision.min_replicas, decision.max_replicas
    if hpa is not None:
        low, high = hpa.min_replicas, hpa.max_replicas
    change = ScaleChange(decision.cluster, current, wanted, low, high, decision.constraints_applied)
    if reason := refused_by_rule(guards.settings, change):
        return reason
    if guards.native and decision.origin == "cluster":
        return f"a native HPA controller runs in cluster {decision.cluster}: {guards.native}"
    if not low <= wanted <= high and not _approaches(change):
        return f"{wanted} replicas are outside the HPA's limits, which are {low} to {high} now"
    return ""


def _paused(decision: Decision, wanted: int, scale: ObservedScale, guards: WriteGuards, now_ms: int) -> str:
    """Why a pause stops this write: one that was set after the decision, which else would not have wanted it."""
    direction: ScalingDirection = "scaleUp" if wanted > scale.spec_replicas else "scaleDown"
    # The decider ends a pause by the time of the log, which the clock here may be behind of.
    now_ms = max(now_ms, time_ms(decision.time) or 0)
    pause = stopping(guards.pauses, decision.namespace, decision.name, direction, now_ms)
    if pause is None:
        return ""
    where = f"cluster {decision.cluster}"
    if pause.namespace:
        where = f"HPA {pause.namespace}/{pause.name}" if pause.name else f"namespace {pause.namespace}"
    what = where if pause.kind == "all" else f"{pause.kind} of {where}"
    return f"{what} was paused after the decision"


def _approaches(change: ScaleChange) -> bool:
    """Whether a write that ends outside the limits is a cut step towards them: the next ones go on."""
    current, wanted = change.current, change.wanted
    return change.is_cut and (change.high < wanted < current or current < wanted < change.low)


# --- errors of the API ------------------------------------------------------------------------------------------------

# 401: the client reads its credentials again; the token may just have been replaced.
_RETRIED_STATUS = frozenset({401, 408, 429, 500, 502, 503, 504})
_FIRST_PAUSE_MS = 200
_LONGEST_PAUSE_MS = 2_000
_CONFLICT_PAUSE_MS = 10


class Trouble(Struct, frozen=True):
    """A request failed. `status` 0: no answer at all (refused connection, hang, drop)."""

    status: int
    error: str
    retry_after_ms: int | None = None


class Retry(Struct, frozen=True):
    """Begin again with reading, after a pause."""

    after_ms: int


def after_trouble(trouble: Trouble, *, attempt: int, expires_ms: int, now_ms: int) -> Retry | End:
    """Return what to do after the `attempt`-th try (from 1) failed.

    A conflict is tried again at most `ATTEMPTS` times; a temporary one (no answer, 401, 429, 5xx) within the time to
    live; anything else ends the write.
    """
    if trouble.status == 409:
        pause = _CONFLICT_PAUSE_MS
        if attempt >= ATTEMPTS:
            return End("failed", trouble.error)
    elif trouble.status == 0 or trouble.status in _RETRIED_STATUS:
        pause = min(_FIRST_PAUSE_MS << min(attempt - 1, 8), _LONGEST_PAUSE_MS)
        pause = max(pause, trouble.retry_after_ms or 0)
    else:
        return End("failed", trouble.error, trouble.status == 403)
    return Retry(pause) if now_ms + pause < expires_ms else End("failed", trouble.error)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def outcome(decision: Decision, end: End) -> Outcome:
    """Return the report of the end of a wanted write."""
    return Outcome(
        decision=decision.id,
        name=decision.name,
        uid=decision.uid,
        result=end.result,
        error=end.error,
        attempts=end.attempts,
        **({} if end.scale is None else structs.asdict(end.scale)),
    )

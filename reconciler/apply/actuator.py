"""Write decided replicas in one cluster: read, plan, write under the version just read, begin again on conflict."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.clusters.answers import ClusterError, IdentityError, UnreachableError
from reconciler.clusters.client import ClusterClient, result_of
from reconciler.clusters.nativehpas import Discovery, NativeHpas
from reconciler.core.inbox import target_key
from reconciler.core.writeplan import Action, End, ObservedHpa, ObservedScale, Retry, WriteGuards, after_trouble, plan
from runtime.log import Clock
from schemas.decisions import Decision
from schemas.kubernetes.shape import group_of
from schemas.observed import Reason, WriteProblem

log = logging.getLogger(__name__)
DOWN_FOR_MS = 5_000
"""For this long after a cluster gave no answer, nothing else is tried there: giving up a queue of statuses one by one
would delay the offsets of all clusters by many minutes. So an expired wanted write is given up without another request.
"""
LONG_STALE_MS = 60_000
"""This long after its time to live a write is given up without reading the scale once more."""
_SHORTEST_TIMEOUT_S = 1.0
_NEVER: Final[tuple[int, WriteProblem | None]] = (-DOWN_FOR_MS, None)
_TOO_LATE = End("stale", "its time to live passed before it could be written")
_SUPERSEDED = End("superseded", "a newer decision took its place")


class Actuator:
    """Writes `/scale` in one cluster."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        is_newest: Callable[[Decision], bool],
        guards: Callable[[], WriteGuards],
        metrics: ReconcilerMetrics,
        clock: Clock,
        timeout_s: float = 5.0,
        forbids: Callable[[Decision], str] = lambda decision: "",
    ) -> None:
        """`forbids`: why the target of a decision must not be written now; empty: it may be."""
        self._client, self._discovery, self._forbids = client, Discovery(client), forbids
        self._is_newest, self._guards, self._metrics, self._clock = is_newest, guards, metrics, clock
        self._timeout_s = timeout_s
        self._down = _NEVER

    @property
    def trouble(self) -> WriteProblem | None:
        """Why the cluster could not be reached the last time that it was asked; None: it answered."""
        return self._down[1]

    async def carry_out(self, decision: Decision, *, is_new: bool = False) -> End:
        """Set the scale to the wanted replicas, or give the reason why not.

        Ends soon after the decision's time to live.

        `is_new`: who read decisions before this process has not read this one, so that its write has not been begun.
        Then nothing is asked about it once it has expired: what comes too late must cost little, or the process never
        catches up.
        """
        if (end := self._given_up(decision, is_new)) is not None:
            return end
        run = _Run(decision)
        while True:
            run.attempts += 1
            step = await self._attempt(run)
            if isinstance(step, End):
                return structs.replace(step, scale=run.scale, attempts=run.attempts)
            await asyncio.sleep(step.after_ms / 1000)

    def _given_up(self, decision: Decision, is_new: bool) -> End | None:
        late_ms = self._clock() - (decision.expires or 0)
        if not self._is_newest(decision):
            return _SUPERSEDED
        if late_ms > LONG_STALE_MS:
            return End("stale", "its time to live passed long ago")
        if reason := self._forbids(decision):
            return End("refused", reason)
        since_ms, problem = self._down
        if problem is not None and late_ms >= 0 and self._clock() - since_ms < DOWN_FOR_MS:
            return End("failed", problem.error)
        # A cluster that did not answer is asked again: nothing else would show that it does now.
        return _TOO_LATE if late_ms >= 0 and is_new and problem is None else None

    async def _attempt(self, run: "_Run") -> End | Retry:
        decision = run.decision
        try:
            action = await self._observe_and_plan(run)
            return action if isinstance(action, End) else await self._write(run, action.replicas)
        except ClusterError as error:
            self._remember(error)
            return after_trouble(
                error.trouble, attempt=run.attempts, expires_ms=decision.expires or 0, now_ms=self._clock()
            )

    async def _observe_and_plan(self, run: "_Run") -> Action:
        decision = run.decision
        key = target_key(decision)
        resource = await self._discovery.resource(key.kind, key.group)
        run.path = resource.path(key.namespace, key.name, "scale")
        timeout_s = self._timeout(decision)
        raw, hpa = await asyncio.gather(
            self._client.get_object(run.path, timeout_s=timeout_s), self._hpa(decision, timeout_s)
        )
        self._answered(200)
        run.raw, run.scale = raw, observed_scale(raw)
        action = plan(decision, scale=run.scale, hpa=hpa, guards=self._guards(), now_ms=self._clock())
        if isinstance(action, End) and action.result == "refused" and not self._is_newest(decision):
            return _SUPERSEDED  # the other hand may well be the newer decision's
        return action

    async def _hpa(self, decision: Decision, timeout_s: float) -> ObservedHpa | None:
        if decision.origin == "central" or self._clock() >= (decision.expires or 0):
            return None  # once it has expired, only whether it was made already is looked at
        native = await NativeHpas(self._client, timeout_s=timeout_s).get(decision.namespace, decision.name)
        return None if native is None else observed_hpa(native)

    async def _write(self, run: "_Run", replicas: int) -> End:
        # Reading took time: once more, is it still wanted?
        if not self._is_newest(run.decision):
            return _SUPERSEDED
        if self._clock() >= (run.decision.expires or 0):
            return _TOO_LATE
        if reason := self._forbids(run.decision):
            return End("refused", reason)
        body = {**run.raw, "spec": {**(run.raw.get("spec") or {}), "replicas": replicas}}
        written = await self._client.put(run.path, body, timeout_s=self._timeout(run.decision))
        self._answered(200)
        run.scale = observed_scale(written)
        return End("applied")

    def _timeout(self, decision: Decision) -> float:
        left_s = ((decision.expires or 0) - self._clock()) / 1000
        return min(self._timeout_s, max(_SHORTEST_TIMEOUT_S, left_s))

    def _answered(self, status: int) -> None:
        self._metrics.scale_requests.labels(self._client.name, result_of(status)).inc()
        self._metrics.up.labels(self._client.name).set(1)
        self._down = _NEVER
        self._metrics.last_sync.labels(self._client.name).set(self._clock() / 1000)

    def _remember(self, error: ClusterError) -> None:
        self._metrics.scale_requests.labels(self._client.name, result_of(error.status)).inc()
        if isinstance(error, UnreachableError):
            reason: Reason = "identity" if isinstance(error, IdentityError) else "unreachable"
            self._down = (self._clock(), WriteProblem(str(error), reason))
            self._metrics.up.labels(self._client.name).set(0)


@dataclass
class _Run:
    """The progress of one wanted write."""

    decision: Decision
    attempts: int = 0
    path: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    scale: ObservedScale | None = None


def observed_scale(scale: dict[str, Any]) -> ObservedScale:
    """Read a `/scale` answer."""
    spec, status, metadata = scale.get("spec") or {}, scale.get("status") or {}, scale.get("metadata") or {}
    return ObservedScale(
        spec_replicas=spec.get("replicas") or 0,
        status_replicas=status.get("replicas") or 0,
        selector=status.get("selector") or "",
        resource_version=metadata.get("resourceVersion") or "",
    )


def observed_hpa(hpa: dict[str, Any]) -> ObservedHpa:
    """Read an HPA answer."""
    metadata, spec = hpa["metadata"], hpa["spec"]
    reference, minimum = spec["scaleTargetRef"], spec.get("minReplicas")
    return ObservedHpa(
        uid=metadata.get("uid", ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        min_replicas=1 if minimum is None else minimum,
        max_replicas=spec["maxReplicas"],
        target=(reference["kind"], group_of(reference.get("apiVersion") or ""), reference["name"]),
    )

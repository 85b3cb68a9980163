"""Carry out what is decided in one cluster: write replicas, status and Events, and measure what the reconciler does.

Replicas: read, plan, write under the resource version just read, begin again on conflict. Of statuses the newest wins;
Events are counted and dated as the recorder of upstream does it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconciler.clusters.answers import ApiError, ClusterError, UnreachableError
from reconciler.clusters.client import ClusterClient, ClusterMetrics, result_of
from reconciler.clusters.nativehpas import Discovery, NativeHpas
from reconciler.core import statusplan
from reconciler.core.inbox import Position, ShownDecision, TargetKey, target_key
from reconciler.core.statusplan import EventBudget, EventCorrelator, EventWrite, LiveHpa, status_update
from reconciler.core.writeplan import (
    Action,
    End,
    ObservedHpa,
    ObservedScale,
    Retry,
    WriteGuards,
    after_trouble,
    outcome,
    plan,
)
from runtime.log import Clock
from runtime.process import FrequentCounters
from schemas.decisions import Decision
from schemas.entries import Outcome
from schemas.keys import HpaId
from schemas.kubernetes.shape import group_of

# --- status and Events ------------------------------------------------------------------------------------------------

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)


class ReconcilerMetrics(ClusterMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.frequent = FrequentCounters(registry)
        counter = partial(Counter, registry=registry)
        self.scale_requests = counter(
            "fleethpa_scale_requests_total", "Reads and writes of /scale by result", ["cluster", "result"]
        )
        self.outcomes = counter(
            "fleethpa_outcomes_total", "Wanted writes by what became of them", ["cluster", "result"]
        )
        self.actuation = Histogram(
            "fleethpa_actuation_duration_seconds",
            "From the decision to the scale written",
            ["cluster"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.status_writes = counter(
            "fleethpa_status_writes_total", "Writes of HPA status and Events", ["cluster", "what", "result"]
        )
        self.decisions = counter(
            "fleethpa_reconciler_decisions_total", "Decision records by what they ask for", ["asks"]
        )
        self.waiting = Gauge(
            "fleethpa_reconciler_waiting", "Wanted writes that wait or run", ["cluster"], registry=registry
        )


T = TypeVar("T")

log = logging.getLogger(__name__)

GIVE_UP_MS = 20_000
"""How long a status or an Event is retried; the next decision brings the status again."""
DOWN_FOR_MS = 5_000
"""For this long after a cluster gave no answer, nothing else is tried there: giving up a queue of statuses one by one
would delay the offsets of all clusters by many minutes. So an expired wanted write is given up without another request.
"""
EVENTS_KEPT = 50
FORGOTTEN_MS = 3_600_000
"""After this time without a status to write, an HPA is forgotten."""
TIDY_MS = 60_000
"""How often the event budgets of all objects are checked for idle ones."""


@dataclass(slots=True)
class StatusWrite:
    """What is to be written to one HPA: the newest status, the Events left to write, and the records they came from."""

    status: ShownDecision | None = None
    events: tuple[ShownDecision, ...] = ()
    positions: tuple[Position, ...] = ()

    has_news: bool = False
    """Whether more than metric values may have changed."""

    def add(self, shown: ShownDecision, position: Position | None = None, *, status: bool = True) -> None:
        """Take a newer decision of the same HPA in.

        Args:
            position: of a decision that shows more than other values of metrics, which counts as read once this is
                written; None: it does not.
            status: whether its status is to be written now.
        """
        if status and shown.has_status:
            self.status = shown
        if shown.has_events:
            self.events = (*self.events, shown)[-EVENTS_KEPT:]
        if position is not None:
            self.positions = (*self.positions, position)
            self.has_news = True


class StatusWriter:
    """Writes the status and the Events of decisions in one cluster."""

    def __init__(self, client: ClusterClient, *, metrics: ReconcilerMetrics, clock: Clock) -> None:
        self._client, self._discovery, self._hpas = client, Discovery(client), NativeHpas(client)
        self._metrics, self._clock = metrics, clock
        self._budget, self._tidied_ms, self._down_ms = EventBudget(), 0, -DOWN_FOR_MS
        self._correlator = EventCorrelator(self._budget)
        self._written: dict[HpaId, LiveHpa] = {}
        """The HPAs as the API server answered the last write of their status."""
        self._begun_ms = clock()
        self._written_ms: dict[HpaId, int] = {}
        self._target_uids: dict[TargetKey, str] = {}
        self._shown = metrics.frequent.of(metrics.status_writes.labels(client.name, "status", "ok"))

    def is_due(self, hpa: HpaId, every_ms: int, *, is_late: bool = False) -> bool:
        """Whether a status in which only metric values have changed (where the status is not fleethpa's: whether
        Events) is to be written now, if that is done every `every_ms` (0: with each evaluation). The first one is at
        once; of a late decision `every_ms` after this has begun: it shows what will soon no longer hold.
        """
        written_ms = self._written_ms.get(hpa, self._begun_ms if is_late else None)
        return not every_ms or written_ms is None or self._clock() - written_ms >= every_ms

    async def write(self, status_write: StatusWrite) -> None:
        """Write what differs from the cluster. Failures are counted and logged, not raised."""
        now_ms = self._clock()
        if now_ms - self._down_ms < DOWN_FOR_MS:
            self._count("all", result_of(0))
            return
        deadline_ms = now_ms + GIVE_UP_MS
        shown = status_write.status
        if shown is not None:
            self._written_ms[shown.hpa] = now_ms
            await self._try("status", self._write_status, (shown, status_write.has_news), deadline_ms)
        if status_write.events:
            await self._write_events(status_write, now_ms, deadline_ms)
        if abs(now_ms - self._tidied_ms) >= TIDY_MS:
            self._forget_idle(now_ms)

    async def _write_events(self, status_write: StatusWrite, now_ms: int, deadline_ms: int) -> None:
        newest: dict[str, EventWrite] = {}  # of the same Event: its count and time contain those before
        for each in status_write.events:
            if not each.has_status:
                self._written_ms[each.hpa] = now_ms
            newest |= {event.name: event for event in await self._events(each.whole(), status_write.has_news)}
        for event in newest.values():
            await self._try("event", self._write_event, event, deadline_ms)

    def _forget_idle(self, now_ms: int) -> None:
        self._tidied_ms = now_ms
        self._budget.forget_idle(now_ms)
        for hpa in [hpa for hpa, written_ms in self._written_ms.items() if now_ms - written_ms > FORGOTTEN_MS]:
            del self._written_ms[hpa]
            self._written.pop(hpa, None)

    async def _try(self, what: str, write: Callable[[T], Awaitable[None]], item: T, deadline_ms: int) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                await write(item)
            except ClusterError as error:
                step = after_trouble(error.trouble, attempt=attempt, expires_ms=deadline_ms, now_ms=self._clock())
                if isinstance(step, Retry):
                    await asyncio.sleep(step.after_ms / 1000)
                    continue
                if isinstance(error, UnreachableError):
                    self._down_ms = self._clock()
                self._count(what, result_of(error.status))
                log.warning(
                    "could not be shown", extra={"cluster": self._client.name, "what": what, "error": str(error)}
                )
                return
            self._count(what, "ok")
            return

    def _count(self, what: str, result: str) -> None:
        if what == "status" and result == "ok":  # by far the most; finding the labels costs more than counting
            self._shown.count += 1
            return
        self._metrics.status_writes.labels(self._client.name, what, result).inc()

    async def _write_status(self, status: tuple[ShownDecision, bool]) -> None:
        # Upstream's controller takes the object from its informer, too: an outdated one is refused with a conflict and
        # then read again.
        shown, has_news = status
        hpa, decision = shown.hpa, shown.whole()
        live = self._written.pop(hpa, None)
        is_known = live is not None and live.uid == decision.uid
        if live is None or not is_known:
            live = await self._hpas.live(hpa.namespace, hpa.name)
        now = status_update(decision, live)
        if now is None and has_news and is_known:
            # Nothing differs from what was written last, but others may have changed that since.
            live = await self._hpas.live(hpa.namespace, hpa.name)
            now = status_update(decision, live)
        self._written[hpa] = live if now is None else await self._hpas.show(hpa.namespace, hpa.name, now)

    async def _events(self, decision: Decision, has_news: bool) -> list[EventWrite]:
        target_uid = await self._target_uid(decision, has_news) if decision.origin == "central" else ""
        now_ms = self._clock()
        observed = [self._correlator.observe(event, now_ms) for event in statusplan.event_writes(decision, target_uid)]
        return [event for event in observed if event is not None]

    async def _target_uid(self, decision: Decision, has_news: bool) -> str:
        key = target_key(decision)
        if has_news or key not in self._target_uids:
            self._target_uids[key] = await self._read_target_uid(key)
        return self._target_uids[key]

    async def _read_target_uid(self, key: TargetKey) -> str:
        try:
            resource = await self._discovery.resource(key.kind, key.group)
            scale = await self._client.get(resource.path(key.namespace, key.name, "scale"))
        except ClusterError:
            # The Event is written anyway; without a uid `kubectl describe` does not list it.
            return ""
        return str((scale.get("metadata") or {}).get("uid") or "")

    async def _write_event(self, event: EventWrite) -> None:
        path = f"/api/v1/namespaces/{event.namespace}/events"
        count = event.body["count"]
        if count > 1:
            try:
                await self._client.merge_patch(f"{path}/{event.name}", statusplan.count_patch(event, count))
            except ApiError as error:
                if not error.is_missing:
                    raise
                # It has expired, as Events do after an hour: it is created again with its count continued.
            else:
                return
        try:
            await self._client.create_named(path, event.body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._count_on(f"{path}/{event.name}", event)

    async def _count_on(self, path: str, event: EventWrite) -> None:
        """Continue the count of an Event that existed before this process started, or that the same request created
        when it was sent the first time.
        """
        standing = await self._client.get_object(path)
        patch = statusplan.again(event, standing)
        if patch is not None:
            await self._client.merge_patch(path, patch)
        count = (patch or standing).get("count") or 1
        self._correlator.keep(event, count, standing.get("firstTimestamp") or event.time)


# --- replicas ---------------------------------------------------------------------------------------------------------

LONG_STALE_MS = 60_000
"""This long after its time to live a write is given up without reading the scale once more."""
_SHORTEST_TIMEOUT_S = 1.0
_NEVER = (-DOWN_FOR_MS, "")
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
    def trouble(self) -> str:
        """Why the cluster could not be reached the last time that it was asked; empty: it answered."""
        return self._down[1]

    async def carry_out(self, decision: Decision, *, is_new: bool = False) -> Outcome:
        """Set the scale to the wanted replicas, or give the reason. Ends soon after the decision's time to live.

        `is_new`: who read decisions before this process has not read this one, so that its write has not been begun.
        Then nothing is asked about it once it has expired: what comes too late must cost little, or the process never
        catches up.
        """
        if (end := self._given_up(decision, is_new)) is not None:
            return outcome(decision, end)
        run = _Run(decision)
        while True:
            run.attempts += 1
            step = await self._attempt(run)
            if isinstance(step, End):
                return outcome(decision, step, scale=run.scale, attempts=run.attempts)
            await asyncio.sleep(step.after_ms / 1000)

    def _given_up(self, decision: Decision, is_new: bool) -> End | None:
        late_ms = self._clock() - (decision.expires or 0)
        if not self._is_newest(decision):
            return _SUPERSEDED
        if late_ms > LONG_STALE_MS:
            return End("stale", "its time to live passed long ago")
        if reason := self._forbids(decision):
            return End("refused", reason)
        since, error = self._down
        if late_ms >= 0 and self._clock() - since < DOWN_FOR_MS:
            return End("failed", error)
        # A cluster that did not answer is asked again: nothing else would show that it does now.
        return _TOO_LATE if late_ms >= 0 and is_new and not error else None

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
        found = await NativeHpas(self._client, timeout_s=timeout_s).get(decision.namespace, decision.name)
        return None if found is None else observed_hpa(found)

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
            self._down = (self._clock(), str(error))
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

"""Write HPA status and Events of the HPAs that fleethpa enforces: level-based, the newest status wins, events are
counted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.apply.reconcilerconfig import Clock
from reconciler.apply.telemetry import ReconcilerMetrics, result_of
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ApiError, ClusterError, UnreachableError
from reconciler.clusters.discovery import Discovery
from reconciler.core import statusplan
from reconciler.core.inbox import Position, target_key
from reconciler.core.plan import Retry, after_trouble
from reconciler.core.statusplan import EventBudget, EventWrite
from schemas.decisions import Decision

T = TypeVar("T")

log = logging.getLogger(__name__)

GIVE_UP_MS = 20_000
"""So long a status or an event is tried; the next decision brings the status again."""
DOWN_FOR_MS = 5_000
"""So long after a cluster gave no answer for all that time, nothing else is tried there: a queue of statuses that are
given up one by one would hold up the offsets of all clusters for many minutes.
"""
EVENTS_KEPT = 50
TIDY_MS = 60_000
"""How often the budgets of all objects are looked at."""


@dataclass
class Showing:
    """What an HPA is to show: the newest status, the events not written yet, and the records they came from."""

    status: Decision | None = None
    events: list[Decision] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)

    def add(self, decision: Decision, position: Position) -> None:
        """Take a newer decision of the same HPA in."""
        if statusplan.wants_status(decision):
            self.status = decision
        if statusplan.wants_events(decision):
            self.events = [*self.events, decision][-EVENTS_KEPT:]
        self.positions.append(position)


class Shower:
    """Shows decisions in one cluster."""

    def __init__(self, client: ClusterClient, *, metrics: ReconcilerMetrics, clock: Clock) -> None:
        self._client, self._discovery = client, Discovery(client)
        self._metrics, self._clock = metrics, clock
        self._budget, self._tidied_ms, self._down_ms = EventBudget(), 0, -DOWN_FOR_MS

    async def show(self, showing: Showing) -> None:
        """Write what differs. What fails is counted and logged, not raised: nothing waits for it."""
        now_ms = self._clock()
        if now_ms - self._down_ms < DOWN_FOR_MS:
            self._count("all", result_of(0))
            return
        deadline_ms = now_ms + GIVE_UP_MS
        if showing.status is not None:
            await self._try("status", self._write_status, showing.status, deadline_ms)
        for decision in showing.events:
            for event in await self._events(decision):
                await self._try("event", self._write_event, event, deadline_ms)
        self._forget_idle()

    def _forget_idle(self) -> None:
        now = self._clock()
        if abs(now - self._tidied_ms) >= TIDY_MS:
            self._tidied_ms = now
            self._budget.forget_idle(now)

    async def _try(self, what: str, write: Callable[[T], Awaitable[None]], item: T, deadline_ms: int) -> None:
        attempt = 0
        while True:
            attempt += 1
            try:
                await write(item)
            except ClusterError as error:
                step = after_trouble(error.trouble(), attempt=attempt, expires_ms=deadline_ms, now_ms=self._clock())
                if isinstance(step, Retry):
                    await asyncio.sleep(step.after_ms / 1000)
                    continue
                if isinstance(error, UnreachableError):
                    self._down_ms = self._clock()
                self._count(what, result_of(error.trouble().status))
                log.warning(
                    "could not be shown", extra={"cluster": self._client.name, "what": what, "error": str(error)}
                )
                return
            self._count(what, "ok")
            return

    def _count(self, what: str, result: str) -> None:
        self._metrics.status_writes.labels(self._client.name, what, result).inc()

    async def _write_status(self, decision: Decision) -> None:
        path = f"/apis/autoscaling/v2/namespaces/{decision.namespace}/horizontalpodautoscalers/{decision.name}"
        live = await self._client.get_object(path)
        body = statusplan.status_update(decision, live)
        if body is not None:
            await self._client.put(f"{path}/status", body)

    async def _events(self, decision: Decision) -> list[EventWrite]:
        target_uid = await self._target_uid(decision) if decision.origin == "central" else ""
        about = decision.uid
        return [
            event for event in statusplan.event_writes(decision, target_uid) if self._budget.take(about, self._clock())
        ]

    async def _target_uid(self, decision: Decision) -> str:
        key = target_key(decision)
        try:
            resource = await self._discovery.resource(key.kind, key.group)
            scale = await self._client.get(resource.path(key.namespace, key.name, "scale"))
        except ClusterError:
            # The event is still worth writing; without a uid it only is not listed by `kubectl describe`.
            return ""
        return str((scale.get("metadata") or {}).get("uid") or "")

    async def _write_event(self, event: EventWrite) -> None:
        path = f"/api/v1/namespaces/{event.namespace}/events"
        try:
            await self._client.request("POST", path, body=event.body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._count_again(f"{path}/{event.name}", event)

    async def _count_again(self, path: str, event: EventWrite) -> None:
        patch = statusplan.again(event, await self._client.get_object(path))
        if patch is not None:
            await self._client.merge_patch(path, patch)

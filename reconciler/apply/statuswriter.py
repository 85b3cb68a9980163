"""Write statuses and Events of HPAs in one cluster.

Of statuses the newest wins; Events are counted and dated as the recorder of upstream does it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from reconciler.apply.actuator import DOWN_FOR_MS
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.clusters.answers import ApiError, ClusterError, UnreachableError
from reconciler.clusters.client import ClusterClient, result_of
from reconciler.clusters.nativehpas import Discovery, NativeHpas
from reconciler.core.events import EventBudget, EventCorrelator, EventWrite, again, count_patch, event_writes
from reconciler.core.inbox import Position, ShownDecision, TargetKey, target_key
from reconciler.core.statuses import LiveHpa, status_update
from reconciler.core.writeplan import Retry, after_trouble
from reconciler.core.writeproblems import FailedWrite
from runtime.log import Clock
from schemas.decisions import Decision
from schemas.keys import HpaId

T = TypeVar("T")

log = logging.getLogger(__name__)

GIVE_UP_MS = 20_000
"""How long a status or an Event is retried; the next decision brings the status again."""
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
        """Add a newer decision of the same HPA.

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
        self.failed: dict[HpaId, FailedWrite] = {}
        """HPAs whose newest status or Event the API server did not take."""
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
        errors: list[ClusterError | None] = []
        if shown is not None:
            self._written_ms[shown.hpa] = now_ms
            errors.append(await self._try("status", self._write_status, (shown, status_write.has_news), deadline_ms))
        if status_write.events:
            errors += await self._write_events(status_write, now_ms, deadline_ms)
        self._note_failed(status_write, next(filter(None, errors), None))
        if abs(now_ms - self._tidied_ms) >= TIDY_MS:
            self._forget_idle(now_ms)

    def _note_failed(self, status_write: StatusWrite, error: ClusterError | None) -> None:
        for shown in (status_write.status, *status_write.events):
            if shown is not None:
                self.failed.pop(shown.hpa, None)
                if error is not None:
                    self.failed[shown.hpa] = FailedWrite(self._clock(), str(error), error.status == 403)

    async def _write_events(
        self, status_write: StatusWrite, now_ms: int, deadline_ms: int
    ) -> list[ClusterError | None]:
        newest: dict[str, EventWrite] = {}  # of the same Event: its count and time contain those before
        for each in status_write.events:
            if not each.has_status:
                self._written_ms[each.hpa] = now_ms
            newest |= {event.name: event for event in await self._events(each.decision, status_write.has_news)}
        return [await self._try("event", self._write_event, event, deadline_ms) for event in newest.values()]

    def _forget_idle(self, now_ms: int) -> None:
        self._tidied_ms = now_ms
        self._budget.forget_idle(now_ms)
        for hpa in [hpa for hpa, written_ms in self._written_ms.items() if now_ms - written_ms > FORGOTTEN_MS]:
            del self._written_ms[hpa]
            self._written.pop(hpa, None)
            self.failed.pop(hpa, None)

    async def _try(
        self, what: str, write: Callable[[T], Awaitable[None]], item: T, deadline_ms: int
    ) -> ClusterError | None:
        """Return why the API server did not take it; None: it did, or did not answer, or the object is gone."""
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
                return None if error.is_missing or isinstance(error, UnreachableError) else error
            self._count(what, "ok")
            return None

    def _count(self, what: str, result: str) -> None:
        if what == "status" and result == "ok":  # by far the most; finding the labels costs more than counting
            self._shown.count += 1
            return
        self._metrics.status_writes.labels(self._client.name, what, result).inc()

    async def _write_status(self, status: tuple[ShownDecision, bool]) -> None:
        # Upstream's controller takes the object from its informer, too: an outdated one is refused with a conflict and
        # then read again.
        shown, has_news = status
        hpa, uid = shown.hpa, shown.decision.uid
        live = self._written.pop(hpa, None)
        is_known = live is not None and live.uid == uid
        if live is None or not is_known:
            live = await self._hpas.live(hpa.namespace, hpa.name)
        now = status_update(shown.status, uid, live)
        if now is None and has_news and is_known:
            # Nothing differs from what was written last, but others may have changed that since.
            live = await self._hpas.live(hpa.namespace, hpa.name)
            now = status_update(shown.status, uid, live)
        self._written[hpa] = live if now is None else await self._hpas.show(hpa.namespace, hpa.name, now)

    async def _events(self, decision: Decision, has_news: bool) -> list[EventWrite]:
        target_uid = await self._target_uid(decision, has_news) if decision.origin == "central" else ""
        now_ms = self._clock()
        observed = [self._correlator.observe(event, now_ms) for event in event_writes(decision, target_uid)]
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
                await self._client.merge_patch(f"{path}/{event.name}", count_patch(event, count))
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
        patch = again(event, standing)
        if patch is not None:
            await self._client.merge_patch(path, patch)
        count = (patch or standing).get("count") or 1
        self._correlator.keep(event, count, standing.get("firstTimestamp") or event.time)

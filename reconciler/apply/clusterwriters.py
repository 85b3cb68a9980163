"""Carry out decisions in some clusters: wanted writes, HPA status and Events, each write ended by an outcome.

Where the decisions come from, how far they are read and where outcomes go is the caller's matter (`Bookkeeping`): the
reconciler reads the topic of decisions in a consumer group, an agent reads the topic of its own cluster.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.apply.actuate import Actuator
from reconciler.apply.clusterworker import WorkerPool
from reconciler.apply.reconcilerconfig import Clock
from reconciler.apply.statuswriter import Shower, Showing
from reconciler.apply.telemetry import ReconcilerMetrics
from reconciler.clusters.client import ClusterClient
from reconciler.core.fullrecords import FullRecords
from reconciler.core.inbox import Inbox, Position, WantedWrite
from reconciler.core.objectbodies import time_ms
from reconciler.core.plan import End, outcome
from reconciler.core.statusplan import wants_events, wants_status
from reconciler.core.writelimits import GuardSettings
from schemas.codec import WireError, decode
from schemas.decisions import Decision, ShortDecision
from schemas.keys import namespace_key
from schemas.outcomes import Outcome
from schemas.topics import Headers

log = logging.getLogger(__name__)


SHORT_TYPE = b"io.fleethpa.decision.short.v1"
_SOURCE = "/clusters/"


def cluster_of(headers: Headers) -> str:
    """The cluster that a decision record is about, by its headers; empty: they do not say."""
    return dict(headers).get("ce_source", b"").decode(errors="replace").removeprefix(_SOURCE)


def is_short(headers: Headers) -> bool:
    """Whether a decision record repeats a full one but for its values, by its headers."""
    return dict(headers).get("ce_type") == SHORT_TYPE


class Bookkeeping(Protocol):
    """What the caller keeps of the decisions that are in work."""

    def begin(self, position: Position) -> None:
        """One more piece of work of this record was begun."""

    def done(self, position: Position) -> None:
        """One piece of work of this record has ended."""

    def is_ours(self, position: Position) -> bool:
        """Whether this process still has the say over the record; else another one reads it again."""

    async def publish(self, decision: Decision, ended: Outcome, now_ms: int) -> None:
        """Write an outcome; returns once the brokers have it."""


@dataclass(frozen=True, kw_only=True)
class WriterLimits:
    """`workers`: writes at once per cluster; `queue`: wanted writes that may wait per cluster."""

    workers: int
    queue: int
    request_timeout_s: float


def always() -> str:
    """Nothing forbids writing."""
    return ""


class _Lane:
    """All that works on one cluster."""

    def __init__(
        self,
        client: ClusterClient,
        wishes: "WorkerPool[str, WantedWrite]",
        shows: "WorkerPool[tuple[str, str], Showing]",
        actuator: Actuator,
        shower: Shower,
    ) -> None:
        self.client, self.wishes, self.shows = client, wishes, shows
        self.actuator, self.shower = actuator, shower


class ClusterWriters:
    """Keeps the newest wanted write of each target and carries it out.

    Args:
        forbids: asked before each write: why nothing may be written now; empty: it may.
    """

    def __init__(
        self,
        books: Bookkeeping,
        settings: GuardSettings,
        metrics: ReconcilerMetrics,
        *,
        limits: WriterLimits,
        clock: Clock,
        forbids: Callable[[], str] = always,
    ) -> None:
        self._books, self._settings, self._metrics = books, settings, metrics
        self._limits, self._clock, self._forbids = limits, clock, forbids
        self._inbox, self._full = Inbox(), FullRecords()
        self._lanes: dict[str, _Lane] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def clusters(self) -> list[str]:
        """The clusters that are served."""
        return sorted(self._lanes)

    def problems(self) -> dict[str, str]:
        """Why a cluster could not be reached the last time that it was asked, of those for which that holds."""
        troubles = {name: lane.actuator.trouble for name, lane in self._lanes.items()}
        return {name: text for name, text in troubles.items() if text}

    def waiting(self) -> dict[str, int]:
        """Wanted writes that wait or run, per cluster."""
        return {name: len(lane.wishes) for name, lane in self._lanes.items()}

    def open(self, client: ClusterClient, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to serve a cluster; its workers run in `group` until they are cancelled."""
        self._group = group
        actuator = Actuator(
            client,
            is_newest=self._inbox.is_newest,
            guards=lambda: self._settings.guards(client.name),
            metrics=self._metrics,
            clock=self._clock,
            timeout_s=self._limits.request_timeout_s,
            forbids=self._forbids,
        )
        shower = Shower(client, metrics=self._metrics, clock=self._clock)
        wishes: WorkerPool[str, WantedWrite] = WorkerPool(
            self._carrying(actuator), workers=self._limits.workers, limit=self._limits.queue
        )
        shows: WorkerPool[tuple[str, str], Showing] = WorkerPool(
            self._showing(shower), workers=max(1, self._limits.workers // 2), limit=self._limits.queue
        )
        self._lanes[client.name] = _Lane(client, wishes, shows, actuator, shower)
        return [group.create_task(wishes.run()), group.create_task(shows.run())]

    def _carrying(self, actuator: Actuator) -> Callable[[WantedWrite], Awaitable[None]]:
        async def carry_out(wish: WantedWrite) -> None:
            await self._end(wish, await actuator.carry_out(wish.decision))

        return carry_out

    def _showing(self, shower: Shower) -> Callable[[Showing], Awaitable[None]]:
        async def show(showing: Showing) -> None:
            if not self._forbids():
                await shower.show(showing)
            self._shown(showing)

        return show

    # --- decisions in -------------------------------------------------------------------------------------------------

    def decode(self, value: bytes, headers: Headers, where: str) -> Decision | ShortDecision | None:
        """Read a record; None: it is not for a cluster that is served here, or cannot be read.

        Args:
            where: position of the record, for the log.
        """
        cluster = cluster_of(headers)
        if cluster and cluster not in self._lanes:
            return None
        try:
            return decode(value, ShortDecision) if is_short(headers) else decode(value, Decision)
        except WireError as error:
            self._metrics.decisions.labels("unreadable").inc()
            log.error("not a decision record", extra={"position": where, "error": str(error)})
            return None

    def take(self, decision: Decision | ShortDecision, position: Position) -> None:
        """Take a decision in. `position.partition` is what `seq` counts in."""
        if isinstance(decision, ShortDecision):
            self._take_short(decision)
        elif decision.cluster in self._lanes:
            if self._inbox.begins_anew(decision, position.partition):
                log.warning("the decisions begin again", extra={"partition": position.partition})
                self._done_all(self.forget({position.partition}))
            self.learn(decision, position.partition)
            self._accept(self._lanes[decision.cluster], decision, position)

    def learn(self, decision: Decision, partition: int) -> None:
        """Remember a full record, which short ones repeat, without carrying it out."""
        if decision.cluster in self._lanes:
            self._full.take(decision, partition, self._clock())

    def forget(self, partitions: set[int]) -> list[Position]:
        """Give up what waits of these partitions; gives the positions of the writes that were not begun."""
        lost = [
            wish.position
            for wish in self._inbox.forget(partitions)
            if self._lanes[wish.decision.cluster].wishes.take_back(wish.decision.id) is not None
        ]
        self._full.forget(partitions)
        return lost

    def _take_short(self, short: ShortDecision) -> None:
        """Show what a short record says. It asks for no write, and the next one makes up for it where it gets lost."""
        decision = self._full.whole(short)
        lane = self._lanes.get(decision.cluster) if decision is not None else None
        if decision is None or lane is None:
            return
        is_due = lane.shower.is_due(decision, self._settings.status_every_ms(decision.cluster))
        if (is_due and wants_status(decision)) or wants_events(decision):
            self._queue_showing(lane, decision, None, status=is_due)

    def _accept(self, lane: _Lane, decision: Decision, position: Position) -> None:
        wish, replaced = self._inbox.offer(decision, position)
        for old in replaced:
            # One that is being worked on finds out by itself, before it writes.
            if lane.wishes.take_back(old.decision.id) is not None:
                self._end_later(old, End("superseded", "a newer decision took its place"))
        if wish is not None:
            self._metrics.decisions.labels("write").inc()
            self._books.begin(position)
            overflow = lane.wishes.put(decision.id, wish)
            if overflow is not None:
                self._end_later(overflow, End("failed", "too many writes wait for this cluster"))
        if wants_status(decision) or wants_events(decision):
            self._queue_showing(lane, decision, position)

    def _queue_showing(
        self, lane: _Lane, decision: Decision, position: Position | None, *, status: bool = True
    ) -> None:
        self._metrics.decisions.labels("show").inc()
        key = (decision.namespace, decision.name)
        showing = lane.shows.waiting(key) or Showing()
        showing.add(decision, position, status=status)
        if position is not None:
            self._books.begin(position)
        overflow = lane.shows.put(key, showing)
        if overflow is not None:
            self._shown(overflow)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_later(self, wish: WantedWrite, end: End) -> None:
        if self._group is not None:
            self._group.create_task(self._end(wish, outcome(wish.decision, end)))

    async def _end(self, wish: WantedWrite, ended: Outcome) -> None:
        if self._books.is_ours(wish.position):
            await self._tell(wish, ended)
            self._inbox.ended(wish.decision)
            self._books.done(wish.position)
        elif ended.result == "applied":
            await self._tell(wish, ended)
        # Else it is for the partition's owner of now, who reads the decision again, to say what becomes of it: the
        # first outcome counts, and ours only says that we gave it up.

    async def _tell(self, wish: WantedWrite, ended: Outcome) -> None:
        decision = wish.decision
        now_ms = self._clock()
        await self._books.publish(decision, ended, now_ms)
        self._metrics.outcomes.labels(decision.cluster, ended.result).inc()
        if ended.result == "applied":
            self._metrics.actuation.labels(decision.cluster).observe(
                max(0, now_ms - (time_ms(decision.time) or now_ms)) / 1000
            )
        log.info(
            "wanted write ended",
            extra={
                "decision": decision.id,
                "hpa": f"{namespace_key(decision.cluster, decision.namespace)}/{decision.name}",
                "wants": decision.wants,
                "result": ended.result,
                "error": ended.error,
            },
        )

    def _shown(self, showing: Showing) -> None:
        self._done_all(showing.positions)

    def _done_all(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._books.done(position)

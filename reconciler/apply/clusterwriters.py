"""Carry out decisions in some clusters: wanted writes before statuses and Events; each write is ended by an outcome.

The caller (`Bookkeeping`) reads the decisions, keeps offsets and publishes outcomes: the reconciler reads the topic of
decisions in a consumer group, an agent reads the topic of its own cluster.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from aiokafka import ConsumerRecord

from reconciler.apply.actuator import Actuator
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.apply.statuswriter import EVENTS_KEPT, StatusWrite, StatusWriter
from reconciler.clusters.client import ClusterClient
from reconciler.core.events import wants_events
from reconciler.core.inbox import Inbox, Position, ShownChanges, ShownDecision, WantedWrite, shown_decision
from reconciler.core.statuses import wants_status
from reconciler.core.writeplan import End, WriteGuards, outcome
from reconciler.core.writeproblems import FailedWrite, joined_problem
from runtime.log import Clock
from runtime.process import WorkerPool
from schemas.codec import WireError, decode
from schemas.decisions import Decision, cluster_of
from schemas.entries import Outcome
from schemas.keys import HpaId, namespace_key
from schemas.kubernetes.gotimes import time_ms
from schemas.observed import WriteProblem

STRETCH_S: Final = 5.0
"""Statuses wait no longer than this at a time, however long scales keep coming or a cluster gives no answer."""
TURN_S: Final = 1.0
"""Then they are written for this long, before everything else that waits."""
NEARLY_LATE_MS: Final = 2_000
"""Once the oldest wanted write has no more time to live than this, the newest is written first."""
LATE_MS: Final = 5_000
"""A decision that is older than this when it is read is late: the whole way from samples to decisions is overloaded."""
LATE_STATUS_MS: Final = 60_000
"""How often the status and the Events of an HPA are written while decisions are late, and for how long none is after a
cluster was opened: the processor time that this saves goes to those that are to catch up. A wanted write that is late
by its time to live is lost, and a lost one costs a status, an Event and another wanted write, so that without this the
whole way would stay late.
"""


class ScalesFirst:
    """Lets statuses and Events wait while decisions are to be read or scales to be written: they share one processor
    core.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._queued: dict[WorkerPool[Any, Any], Callable[[], bool]] = {}
        """The queues into which scales were put, until they are found empty; and whether their cluster answers."""
        self._since_s, self._newest_s = -STRETCH_S, -STRETCH_S
        """When statuses began to wait, and when the newest scale was queued."""
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    def begin(self, writes: WorkerPool[Any, Any], answers: Callable[[], bool] = lambda: True) -> None:
        """Record that a scale is about to be put into this queue. `answers`: whether its cluster does."""
        self._queued[writes] = answers
        self._newest_s = self._clock_s()

    def read(self, *, more: bool) -> None:
        """Record that decisions were read, and whether more of them wait."""
        if more:
            self._caught_up.clear()
        else:
            self._caught_up.set()

    async def wait(self) -> None:
        """Wait until no decision is to be read and no scale to be written, or until it is the statuses' turn."""
        while (busy := self.busy()) is not None and (left_s := self._left_s()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._caught_up.wait()
                    for pool in busy:
                        await pool.idle()

    def busy(self) -> list[WorkerPool[Any, Any]] | None:
        """The queues to wait for; None: there is nothing to wait for. What is queued for long is not waited for."""
        busy: list[WorkerPool[Any, Any]] = []
        if self._queued and self._clock_s() - self._newest_s < STRETCH_S:
            self._queued = {pool: answers for pool, answers in self._queued.items() if len(pool)}
            busy = [pool for pool, answers in self._queued.items() if answers()]
        return busy if busy or not self._caught_up.is_set() else None

    def _left_s(self) -> float:
        now_s = self._clock_s()
        if now_s - self._since_s >= STRETCH_S + TURN_S:
            self._since_s = now_s
        return self._since_s + STRETCH_S - now_s


log = logging.getLogger(__name__)


class Bookkeeping(Protocol):
    """What the caller keeps about the decisions that are being carried out."""

    def begin(self, position: Position) -> None:
        """Count one more piece of work of this record as begun."""

    def done(self, position: Position) -> None:
        """One piece of work of this record has ended."""

    def is_ours(self, position: Position) -> bool:
        """Whether this process still owns the record's partition; if not, another one reads it again."""

    async def publish(self, decision: Decision, ended: Outcome) -> None:
        """Write an outcome; return once the brokers have it."""


@dataclass(frozen=True, kw_only=True)
class WriterLimits:
    """`workers`: writes at once per cluster; `queue`: wanted writes that may wait per cluster."""

    workers: int = 8
    queue: int = 5_000
    request_timeout_s: float = 5.0


FAILED_SHOWN_MS = 120_000
"""How long a failed write is shown as a trouble of its cluster, if its HPA wants no other one: an HPA that still cannot
be scaled is tried again in each sync period."""
FailedWrites = Mapping[HpaId, FailedWrite]


def failed_after(failed: FailedWrites, decision: Decision, end: End, now_ms: int) -> FailedWrites:
    """The failed writes of a cluster after another write ended there."""
    hpa = HpaId(decision.cluster, decision.namespace, decision.name)
    kept = {
        each: failure for each, failure in failed.items() if each != hpa and now_ms - failure.at_ms < FAILED_SHOWN_MS
    }
    failure = FailedWrite(now_ms, end.error, end.is_forbidden)
    return {**kept, hpa: failure} if end.result == "failed" else kept


def failure_of(failed: FailedWrites, now_ms: int, what: str = "write") -> WriteProblem | None:
    """Which HPAs cannot be scaled, with the newest error; None: all can. `what`: that failed, in place of that."""
    recent = {hpa: failure for hpa, failure in failed.items() if now_ms - failure.at_ms < FAILED_SHOWN_MS}
    if not recent:
        return None
    hpa = max(recent, key=lambda each: recent[each].at_ms)
    count = "1 HPA" if len(recent) == 1 else f"{len(recent)} HPAs"
    text = f"the last {what} of {count} failed, {hpa.namespace}/{hpa.name}: {recent[hpa].error}"
    return WriteProblem(text, "forbidden" if recent[hpa].is_forbidden else "failing")


@dataclass
class _ClusterWorker:
    """What works on one cluster: its queues of writes, and what carries them out."""

    writes: WorkerPool[str, WantedWrite]
    status_writes: WorkerPool[HpaId, StatusWrite]
    actuator: Actuator
    status_writer: StatusWriter
    failed: FailedWrites = field(default_factory=dict)
    delayed: dict[HpaId, tuple[int, tuple[ShownDecision, ...]]] = field(default_factory=dict)
    """Events of late decisions, which are written with the next status of their HPA, and the partition of these."""

    def problem(self, now_ms: int) -> WriteProblem | None:
        """Return why the cluster could not be reached, or which scales, statuses and Events its API server refuses;
        None: nothing is wrong.
        """
        if self.actuator.trouble is not None:
            return self.actuator.trouble
        scales = failure_of(self.failed, now_ms)
        return joined_problem([scales, failure_of(self.status_writer.failed, now_ms, "status or Event")])

    def delay_events(self, shown: ShownDecision, partition: int, *, limit: int) -> None:
        """Keep the Events of a late decision of at most `limit` HPAs; those that were kept longest make room."""
        _, before = self.delayed.pop(shown.hpa, (0, ()))
        self.delayed[shown.hpa] = (partition, (*before, shown)[-EVENTS_KEPT:])
        if len(self.delayed) > limit:
            del self.delayed[next(iter(self.delayed))]

    def pop_delayed(self, partitions: set[int]) -> list[ShownDecision]:
        """Remove and return what was kept of these partitions."""
        hpas = [hpa for hpa, (partition, _) in self.delayed.items() if partition in partitions]
        return [shown for hpa in hpas for shown in self.delayed.pop(hpa)[1]]


class ClusterWriters:
    """Keeps the newest wanted write of each target and carries it out, with one `_ClusterWorker` for each cluster.

    Args:
        forbids: called with the cluster before each write; returns why nothing may be written there now, or an empty
            text.
        blocks: the same of the target of one decision, where the cluster's targets may be written.
        guards: called with the cluster before each write; returns what is known of it that forbids writes.
        status_every_ms: how often a status in which only metric values have changed is written in a cluster.
    """

    def __init__(
        self,
        books: Bookkeeping,
        metrics: ReconcilerMetrics,
        *,
        limits: WriterLimits,
        clock: Clock,
        forbids: Callable[[str], str] = lambda cluster: "",
        blocks: Callable[[Decision], str] = lambda decision: "",
        guards: Callable[[str], WriteGuards],
        status_every_ms: Callable[[str], int],
    ) -> None:
        self._books, self._metrics = books, metrics
        self._to_show = metrics.frequent.of(metrics.decisions.labels("show"))
        self._limits, self._clock, self._forbids, self._blocks = limits, clock, forbids, blocks
        self._guards, self._status_every_ms = guards, status_every_ms
        self._inbox, self._shown = Inbox(), ShownChanges()
        self._workers: dict[str, _ClusterWorker] = {}
        self._group: asyncio.TaskGroup | None = None
        self._scales_first = ScalesFirst()

    @property
    def clusters(self) -> list[str]:
        return sorted(self._workers)

    def problems(self) -> dict[str, WriteProblem]:
        """Cluster → why it could not be reached at the last attempt, or why writes there failed lately; clusters in
        which nothing is wrong are absent.
        """
        now_ms = self._clock()
        return {name: found for name, worker in self._workers.items() if (found := worker.problem(now_ms)) is not None}

    def waiting(self) -> dict[str, int]:
        """Cluster → number of wanted writes that wait or run."""
        return {name: len(worker.writes) for name, worker in self._workers.items()}

    def open(self, client: ClusterClient, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to serve a cluster; its workers run in `group` until they are cancelled."""
        self._group = group
        actuator = Actuator(
            client,
            is_newest=self._inbox.is_newest,
            guards=lambda: self._guards(client.name),
            metrics=self._metrics,
            clock=self._clock,
            timeout_s=self._limits.request_timeout_s,
            forbids=lambda decision: self._forbids(client.name) or self._blocks(decision),
        )
        status_writer = StatusWriter(client, metrics=self._metrics, clock=self._clock)
        writes: WorkerPool[str, WantedWrite] = WorkerPool(
            partial(self._carry_out, actuator),
            workers=self._limits.workers,
            limit=self._limits.queue,
            newest_first=self._is_nearly_late,
        )
        status_writes: WorkerPool[HpaId, StatusWrite] = WorkerPool(
            partial(self._write_status, status_writer, client.name),
            workers=max(1, self._limits.workers // 2),
            limit=self._limits.queue,
        )
        self._workers[client.name] = _ClusterWorker(writes, status_writes, actuator, status_writer)
        return [group.create_task(writes.run()), group.create_task(status_writes.run())]

    async def close(self, cluster: str) -> None:
        """Serve a cluster no more: what waits ends as failed, and what runs may end; then its workers can go."""
        worker = self._workers.pop(cluster)
        for wanted in worker.writes.remove_all():
            await self._end(wanted, End("failed", f"cluster {cluster} has left the fleet"))
        for status_write in worker.status_writes.remove_all():
            self._done_all(status_write.positions)
        await asyncio.gather(worker.writes.idle(), worker.status_writes.idle())

    def _is_nearly_late(self, oldest: WantedWrite) -> bool:
        """Whether the queue has become longer than what can be written in time, so that the newest goes first: what is
        made then is made soon, where oldest first all would be made at the last moment or not at all.

        The oldest goes first as long as it has time left, so that none of a long burst waits for those that come after
        it; and so does one whose time is over, if it ends without a request.
        """
        left_ms = (oldest.decision.expires or 0) - self._clock()
        return left_ms < NEARLY_LATE_MS and not (left_ms <= 0 and oldest.position.is_new)

    async def _carry_out(self, actuator: Actuator, wanted: WantedWrite) -> None:
        await self._end(wanted, await actuator.carry_out(wanted.decision, is_new=wanted.position.is_new))

    async def _write_status(self, status_writer: StatusWriter, cluster: str, status_write: StatusWrite) -> None:
        if self._scales_first.busy() is not None:
            await self._scales_first.wait()
        if not self._forbids(cluster):
            await status_writer.write(status_write)
        self._done_all(status_write.positions)

    # --- decisions in -------------------------------------------------------------------------------------------------

    def decode(self, record: ConsumerRecord) -> Decision | None:
        """Decode a record; None if its cluster is not served here or the record cannot be read."""
        cluster = cluster_of(record.headers)
        if cluster and cluster not in self._workers:
            return None
        try:
            return decode(record.value or b"", Decision)
        except WireError as error:
            self._metrics.decisions.labels("unreadable").inc()
            where = f"{record.topic}-{record.partition}@{record.offset}"
            log.error("not a decision record", extra={"position": where, "error": str(error)})
            return None

    def add(self, decision: Decision, position: Position) -> None:
        """Add a decision. `position.partition` is what `seq` counts in."""
        if decision.cluster in self._workers:
            if self._inbox.begins_anew(decision, position.partition):
                log.warning("the decisions begin again", extra={"partition": position.partition})
                self._done_all(self.forget({position.partition}))
            self._accept(self._workers[decision.cluster], decision, position)

    def read(self, *, more: bool) -> None:
        """Record that decisions were read, and whether more of them wait: statuses and Events wait for these."""
        self._scales_first.read(more=more)

    def forget(self, partitions: set[int]) -> list[Position]:
        """Return up what waits of these partitions; return the positions of the writes that had not begun."""
        lost = [
            wanted.position
            for wanted in self._inbox.forget(partitions)
            if (worker := self._workers.get(wanted.decision.cluster)) is not None
            and worker.writes.remove(wanted.decision.id) is not None
        ]
        self._shown.forget(partitions)
        for worker in self._workers.values():
            for shown in worker.pop_delayed(partitions):
                self._queue_status(worker, shown, status=False)
        return lost

    def _accept(self, worker: _ClusterWorker, decision: Decision, position: Position) -> None:
        wanted, replaced = self._inbox.offer(decision, position)
        for old in replaced:
            # One that is being carried out checks `is_newest` itself before it writes.
            if worker.writes.remove(old.decision.id) is not None:
                self._end_later(old, End("superseded", "a newer decision took its place"))
        if wanted is not None:
            self._metrics.decisions.labels("write").inc()
            self._books.begin(position)
            self._scales_first.begin(worker.writes, lambda: not worker.actuator.trouble)
            overflow = worker.writes.put(decision.id, wanted)
            if overflow is not None:
                self._end_later(overflow, End("failed", "too many writes wait for this cluster"))
        self._show(worker, decision, position)

    def _show(self, worker: _ClusterWorker, decision: Decision, position: Position) -> None:
        """Queue the status and the Events of a decision; where it comes late, keep its Events for the next status.

        One that shows only other values of metrics is not waited for: the next one makes up for a lost one.
        """
        has_status, has_events = wants_status(decision), wants_events(decision)
        if not (has_status or has_events):
            return
        now_ms, hpa = self._clock(), HpaId(decision.cluster, decision.namespace, decision.name)
        is_late = now_ms - (time_ms(decision.time) or now_ms) > LATE_MS
        shows_more = self._shown.shows_more(decision, hpa, position.partition, now_ms)
        every_ms = 0 if shows_more else self._status_every_ms(hpa.cluster)
        every_ms = max(every_ms, LATE_STATUS_MS if is_late else 0)
        is_due = worker.status_writer.is_due(hpa, every_ms, is_late=is_late)
        if (is_due and has_status) or (has_events and (is_due or not is_late)):
            self._queue_status(worker, shown_decision(decision), position if shows_more else None, status=is_due)
        elif is_late:
            self._metrics.decisions.labels("late").inc()
            if has_events:
                worker.delay_events(shown_decision(decision), position.partition, limit=self._limits.queue)

    def _queue_status(
        self, worker: _ClusterWorker, shown: ShownDecision, position: Position | None = None, *, status: bool = True
    ) -> None:
        self._to_show.count += 1
        status_write = worker.status_writes.waiting(shown.hpa) or StatusWrite()
        if worker.delayed:
            for earlier in worker.delayed.pop(shown.hpa, (0, ()))[1]:
                status_write.add(earlier, status=False)
        status_write.add(shown, position, status=status)
        if position is not None:
            self._books.begin(position)
        overflow = worker.status_writes.put(shown.hpa, status_write)
        if overflow is not None:
            self._done_all(overflow.positions)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_later(self, wanted: WantedWrite, end: End) -> None:
        if self._group is not None:
            self._group.create_task(self._end(wanted, end))

    async def _end(self, wanted: WantedWrite, end: End) -> None:
        if self._books.is_ours(wanted.position):
            await self._publish_outcome(wanted, end)
            self._inbox.ended(wanted.decision)
            self._books.done(wanted.position)
        elif end.result == "applied":
            await self._publish_outcome(wanted, end)
        # Otherwise the new owner of the partition reads the decision again and publishes its outcome: only the first
        # outcome of a decision counts, and ours would only report that this process gave it up.

    async def _publish_outcome(self, wanted: WantedWrite, end: End) -> None:
        decision = wanted.decision
        now_ms = self._clock()
        await self._books.publish(decision, outcome(decision, end))
        self._metrics.outcomes.labels(decision.cluster, end.result).inc()
        if (worker := self._workers.get(decision.cluster)) is not None:
            worker.failed = failed_after(worker.failed, decision, end, now_ms)
        if end.result == "applied":
            self._metrics.actuation.labels(decision.cluster).observe(
                max(0, now_ms - (time_ms(decision.time) or now_ms)) / 1000
            )
        log.info(
            "wanted write ended",
            extra={
                "decision": decision.id,
                "hpa": f"{namespace_key(decision.cluster, decision.namespace)}/{decision.name}",
                "wants": decision.wants,
                "result": end.result,
                "error": end.error,
            },
        )

    def _done_all(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._books.done(position)

"""Statuses wait for reading and for scales, but not for long; where more scales are wanted than can be written, those
that are written are written soon.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from reconciler.apply import clusterwriters
from reconciler.apply.actuator import DOWN_FOR_MS
from reconciler.apply.clusterwriters import (
    LATE_MS,
    LATE_STATUS_MS,
    NEARLY_LATE_MS,
    STRETCH_S,
    TURN_S,
    ClusterWriters,
    ScalesFirst,
    WriterLimits,
)
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.core.inbox import Position, shown_decision
from reconciler.core.statuses import HpaAnswer
from reconciler.core.writeplan import WriteGuards
from runtime.process import WorkerPool
from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.entries import Outcome
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import time_ms
from schemas.observed import Target, WriteProblem
from tests.patience import PATIENCE_S


class World:
    """A queue of scales, which are written once `allowed` is set, and a clock."""

    def __init__(self) -> None:
        self.now_s, self.allowed, self.answers = 100.0, asyncio.Event(), True
        self.writes: WorkerPool[str, str] = WorkerPool(self._write, workers=1, limit=10)
        self.first = ScalesFirst(lambda: self.now_s)

    async def _write(self, name: str) -> None:
        await self.allowed.wait()

    def scale(self, name: str) -> None:
        self.first.begin(self.writes, lambda: self.answers)
        self.writes.put(name, name)


async def is_let_through(waiting: "asyncio.Task[None]") -> bool:
    for _ in range(20):
        await asyncio.sleep(0)
    return waiting.done()


async def test_a_status_waits_until_all_scales_are_written() -> None:
    world = World()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(world.writes.run())
        world.scale("web")
        world.scale("api")
        status = group.create_task(world.first.wait())
        assert not await is_let_through(status)
        world.allowed.set()
        assert await is_let_through(status)
        working.cancel()


async def test_a_status_waits_until_all_decisions_are_read_and_the_scales_that_they_want_are_written() -> None:
    world = World()
    world.first.read(more=True)
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    world.scale("web")
    world.first.read(more=False)
    assert not await is_let_through(status)
    world.writes.remove_all()
    assert await is_let_through(status)


async def test_a_status_does_not_wait_where_no_scale_is_to_be_written() -> None:
    world = World()
    await asyncio.wait_for(world.first.wait(), PATIENCE_S)


async def test_a_status_does_not_wait_for_a_scale_that_was_taken_back() -> None:
    world = World()
    world.scale("web")
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    world.writes.remove("web")
    assert await is_let_through(status)
    world.scale("api")
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    world.writes.remove_all()
    assert await is_let_through(status)


async def test_a_status_waits_for_the_scales_of_a_cluster_only_while_that_answers() -> None:
    world = World()
    world.scale("web")
    world.answers = False
    await asyncio.wait_for(world.first.wait(), PATIENCE_S)
    world.answers = True
    status = asyncio.create_task(world.first.wait())
    assert not await is_let_through(status)
    status.cancel()


async def test_a_scale_that_has_waited_for_a_stretch_holds_no_status_up() -> None:
    world = World()
    world.scale("web")
    world.now_s += STRETCH_S
    await asyncio.wait_for(world.first.wait(), PATIENCE_S)


async def test_statuses_have_their_turn_however_long_scales_keep_coming() -> None:
    world, let_through = World(), []
    for _ in range(4 * 8 * round(STRETCH_S + TURN_S)):
        world.scale("web")
        status = asyncio.create_task(world.first.wait())
        let_through.append(await is_let_through(status))
        status.cancel()
        world.now_s += 0.125
    waiting, turn = [False] * round(8 * STRETCH_S), [True] * round(8 * TURN_S)
    assert let_through == [*waiting, *turn] * 4


async def test_the_wait_ends_with_the_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusterwriters, "STRETCH_S", 0.01)
    world = World()
    first = ScalesFirst()
    world.scale("web")
    first.begin(world.writes)
    await asyncio.wait_for(first.wait(), PATIENCE_S)
    assert len(world.writes) == 1


# --- a cluster whose API server takes its time ------------------------------------------------------------------------

STATUS = {
    "currentReplicas": 3,
    "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "100m"}}}],
}


TIME_TO_LIVE_MS = 10_000


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


class SlowCluster:
    """A client of a cluster in which each request takes `request_ms`, one after the other, and the books of its writes.

    `arrive` is called as time passes.
    """

    name = "east"

    def __init__(self, *, workers: int = 1, request_ms: int = 0) -> None:
        self.now_ms, self.request_ms = 1_700_000_000_000, request_ms
        self.arrive: Callable[[], None] = lambda: None
        self.written: list[str] = []
        """Names of the HPAs whose statuses, and of the targets whose scales were written, in order."""
        self.ended: list[tuple[Decision, Outcome, int]] = []
        self.replicas: dict[str, int] = {}
        self.events: dict[str, dict[str, Any]] = {}
        """Event objects by name."""
        self.writers = ClusterWriters(
            self,
            ReconcilerMetrics(CollectorRegistry()),
            limits=WriterLimits(workers=workers, queue=5_000, request_timeout_s=5.0),
            clock=lambda: self.now_ms,
            guards=lambda cluster: WriteGuards(),
            status_every_ms=lambda cluster: 0,
        )

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = self.writers.open(self, group)  # type: ignore[arg-type]
            yield
            for task in tasks:
                task.cancel()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                await asyncio.sleep(0)

    # --- what a client does

    async def get_object(self, path: str, **_: Any) -> dict[str, Any]:
        await self._passes()
        return {
            "metadata": {"resourceVersion": "1", "uid": "u"},
            "spec": {"replicas": self.replicas.get(path, 3)},
            "status": {"replicas": 3, "selector": "app=web"},
        }

    async def put(self, path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        await self._passes()
        self.replicas[path] = body["spec"]["replicas"]
        self.written.append(path.split("/")[-2])
        return body

    async def get_as(self, form: type[HpaAnswer], path: str) -> HpaAnswer:
        await self._passes()
        name = path.split("/")[-1]
        answer = {"metadata": {"uid": f"u-{name}", "resourceVersion": "1"}, "spec": {}, "status": {}}
        return msgspec.json.decode(encode(answer), type=form)

    async def put_bytes(self, path: str, body: bytes) -> bytes:
        await self._passes()
        self.written.append(path.split("/")[-2])
        return body

    async def create_named(self, path: str, body: dict[str, Any]) -> None:
        await self._passes()
        self.events[body["metadata"]["name"]] = body

    async def merge_patch(self, path: str, body: dict[str, Any]) -> None:
        await self._passes()
        self.events[path.split("/")[-1]] |= body

    async def _passes(self) -> None:
        self.now_ms += self.request_ms
        self.arrive()
        await asyncio.sleep(0)

    # --- what the books do

    def begin(self, position: Position) -> None: ...

    def done(self, position: Position) -> None: ...

    def is_ours(self, position: Position) -> bool:
        return True

    async def publish(self, decision: Decision, ended: Outcome) -> None:
        self.ended.append((decision, ended, self.now_ms))

    # --- decisions

    def decision(self, seq: int, name: str, **fields: Any) -> Decision:
        made: dict[str, Any] = {
            "id": f"0-{seq}-u-{name}",
            "seq": seq,
            "prev": "",
            "cluster": "east",
            "namespace": "shop",
            "name": name,
            "uid": f"u-{name}",
            "time": moment(self.now_ms),
            "input": InputPosition(partition=0, offset=seq, hash=""),
            "scale_target_ref": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "target": Target(kind="Deployment", name=name, group="apps"),
            "mode": "enforce",
            "current_replicas": 3,
            "max_replicas": 9,
            "status": STATUS,
        }
        return Decision(**made | fields)

    def repeat(self, seq: int, late_ms: int, *, shows_more: bool = False, **fields: Any) -> Decision:
        """The decision about `web` with another value of its metric. `shows_more`: and more."""
        cpu = {"name": "cpu", "current": {"averageValue": f"{seq}m"}}
        status = STATUS | {"currentMetrics": [{"type": "Resource", "resource": cpu}]}
        status |= {"desiredReplicas": seq} if shows_more else {}
        return self.decision(seq, "web", status=status, time=moment(self.now_ms - late_ms), **fields)

    def want(self, seq: int, name: str) -> None:
        wanted = self.decision(seq, name, origin="central", wants=5, expires=self.now_ms + TIME_TO_LIVE_MS, status=None)
        self.writers.add(wanted, Position(0, seq, is_new=True))


async def test_a_scale_that_arrives_while_thousands_of_statuses_wait_is_written_before_them() -> None:
    cluster = SlowCluster(workers=8)

    def arrive() -> None:
        if len(cluster.written) == 1_000 and not cluster.ended and not cluster.writers.waiting()["east"]:
            cluster.want(4_000, "urgent")

    cluster.arrive = arrive
    async with cluster.served():
        for seq in range(1, 3_001):
            cluster.writers.add(cluster.decision(seq, f"web-{seq}"), Position(0, seq))
        await cluster.until(lambda: len(cluster.written) == 3_001)
    before = cluster.written.index("urgent")
    assert before <= 1_000 + 8, "only what was being written when it arrived comes before it"
    assert [ended.result for _, ended, _ in cluster.ended] == ["applied"]


async def test_no_status_is_written_while_decisions_wait_to_be_read() -> None:
    cluster = SlowCluster(workers=8)
    async with cluster.served():
        cluster.writers.read(more=True)
        for seq in range(1, 101):
            cluster.writers.add(cluster.decision(seq, f"web-{seq}"), Position(0, seq))
        cluster.want(200, "urgent")
        await cluster.until(lambda: bool(cluster.ended))
        assert cluster.written == ["urgent"]
        cluster.writers.read(more=False)
        await cluster.until(lambda: len(cluster.written) == 101)


async def test_where_twice_as_many_scales_are_wanted_as_can_be_written_those_that_are_written_are_written_soon() -> (
    None
):
    # Oldest first, each would be written when its time to live is over, and half of the requests would be in vain. So
    # it is for the first seconds, until the queue has grown that long.
    cluster = SlowCluster(request_ms=100)
    wanted = 0

    def arrive() -> None:
        nonlocal wanted
        wanted += 1
        cluster.want(wanted, f"web-{wanted}")

    cluster.arrive = arrive  # with each request, of which a write takes two
    async with cluster.served():
        arrive()
        await cluster.until(lambda: wanted >= 600)
    ages_ms = [at - (time_ms(decision.time) or 0) for decision, ended, at in cluster.ended if ended.result == "applied"]
    assert len(ages_ms) > 280
    assert max(ages_ms) <= TIME_TO_LIVE_MS
    assert max(ages_ms[100:]) <= 500


async def test_none_of_a_long_burst_waits_for_what_is_wanted_after_it() -> None:
    # 30 at once, and then 19 in 20 of what can be written: 5 a second. Newest first, the last one would wait a minute.
    cluster = SlowCluster(request_ms=100)
    wanted, began_ms = 30, cluster.now_ms

    def arrive() -> None:
        nonlocal wanted
        due = 30 + (cluster.now_ms - began_ms) * 19 // 4_000
        while wanted < due:
            wanted += 1
            cluster.want(wanted, f"web-{wanted}")

    cluster.arrive = arrive
    async with cluster.served():
        for seq in range(1, 31):
            cluster.want(seq, f"web-{seq}")
        await cluster.until(lambda: wanted >= 300)
    ages_ms = [at - (time_ms(decision.time) or 0) for decision, _, at in cluster.ended]
    assert {ended.result for _, ended, _ in cluster.ended} == {"applied"}
    assert max(ages_ms) <= TIME_TO_LIVE_MS - NEARLY_LATE_MS
    assert [decision.seq for decision, *_ in cluster.ended] == list(range(1, len(cluster.ended) + 1))


@pytest.mark.parametrize(
    ("is_new", "requests"),
    [
        pytest.param(True, 0, id="nobody can have begun it"),
        pytest.param(False, 1, id="who read it before may have made it"),
    ],
)
async def test_a_wanted_write_that_comes_too_late_costs_a_request_only_where_it_may_have_been_made(
    is_new: bool, requests: int
) -> None:
    cluster = SlowCluster(request_ms=100)
    late = cluster.decision(1, "web", origin="central", wants=5, expires=cluster.now_ms - 1, status=None)
    began_ms = cluster.now_ms
    async with cluster.served():
        cluster.writers.add(late, Position(0, 1, is_new=is_new))
        await cluster.until(lambda: bool(cluster.ended))
    assert [ended.result for _, ended, _ in cluster.ended] == ["stale"]
    assert cluster.now_ms - began_ms == requests * cluster.request_ms


async def test_a_cluster_that_did_not_answer_is_asked_again_though_all_that_is_wanted_comes_too_late() -> None:
    cluster = SlowCluster(request_ms=100)
    async with cluster.served():
        actuator = cluster.writers._workers["east"].actuator
        actuator._down = (cluster.now_ms, WriteProblem("connection refused", "unreachable"))
        for seq, after_ms, result in ((1, 0, "failed"), (2, DOWN_FOR_MS, "stale"), (3, DOWN_FOR_MS, "stale")):
            cluster.now_ms += after_ms
            late = cluster.decision(seq, "web", origin="central", wants=5, expires=cluster.now_ms - 1, status=None)
            cluster.writers.add(late, Position(0, seq, is_new=True))
            await cluster.until(lambda seq=seq: len(cluster.ended) == seq)  # type: ignore[misc]
            assert cluster.ended[-1][1].result == result
    assert not actuator.trouble


async def test_while_decisions_come_late_the_status_of_an_hpa_is_written_once_a_minute() -> None:
    cluster = SlowCluster()

    def waits(decision: Decision) -> bool:
        pool = cluster.writers._workers["east"].status_writes
        cluster.writers.add(decision, Position(0, decision.seq))
        return pool.remove(HpaId("east", "shop", "web")) is not None

    async with cluster.served():
        cluster.writers.add(cluster.repeat(1, 0), Position(0, 1))
        await cluster.until(lambda: len(cluster.written) == 1)
        began_ms = cluster.now_ms
        for seq, after_ms, late_ms, is_written in [
            (2, 15_000, LATE_MS + 1, False),
            (3, 15_000, LATE_MS, True),
            (4, LATE_STATUS_MS - 1, LATE_MS + 1, False),
            (5, LATE_STATUS_MS, LATE_MS + 1, True),
        ]:
            cluster.now_ms = began_ms + after_ms
            assert waits(cluster.repeat(seq, late_ms)) == is_written, (after_ms, late_ms)
        for seq, after_ms, late_ms, is_written in [
            (6, 15_000, LATE_MS + 1, False),
            (7, 15_000, LATE_MS, True),
            (8, LATE_STATUS_MS, LATE_MS + 1, True),
        ]:
            cluster.now_ms = began_ms + after_ms
            news = structs.replace(cluster.decision(seq, "web"), time=moment(cluster.now_ms - late_ms))
            assert waits(news) == is_written, (after_ms, late_ms)


@pytest.mark.parametrize("kind", ["news", "values"])
async def test_the_first_status_of_a_late_decision_waits_for_a_minute_from_when_its_cluster_was_opened(
    kind: str,
) -> None:
    # As when a fleet starts: all statuses are due at once, and most would be superseded while they wait.
    cluster, hpa = SlowCluster(), HpaId("east", "shop", "web")
    async with cluster.served():
        pool = cluster.writers._workers["east"].status_writes
        began_ms = cluster.now_ms
        for seq, after_ms, late_ms, is_written in [
            (2, 0, LATE_MS + 1, False),
            (3, 0, LATE_MS, True),
            (4, LATE_STATUS_MS - 1, LATE_MS + 1, False),
            (5, LATE_STATUS_MS, LATE_MS + 1, True),
        ]:
            cluster.now_ms = began_ms + after_ms
            cluster.writers.add(cluster.repeat(seq, late_ms, shows_more=kind == "news"), Position(0, seq))
            assert (pool.remove(hpa) is not None) == is_written, (after_ms, late_ms)


RESCALED = ("Normal", "SuccessfulRescale", "New size: 5; reason: above target")


@pytest.mark.parametrize("kind", ["news", "values"])
@pytest.mark.parametrize("ends", ["the next status", "a rebalance"])
async def test_the_events_of_a_late_decision_are_written_later(kind: str, ends: str) -> None:
    cluster, hpa = SlowCluster(), HpaId("east", "shop", "web")
    async with cluster.served():
        worker = cluster.writers._workers["east"]
        cluster.writers.add(cluster.repeat(1, 0, events=[RESCALED]), Position(0, 1))
        await cluster.until(lambda: bool(cluster.events) and not len(worker.status_writes))
        late_ms = LATE_MS + 1
        for seq in (2, 3):
            late = cluster.repeat(seq, late_ms, events=[RESCALED], shows_more=kind == "news")
            cluster.writers.add(late, Position(0, seq))
            assert worker.status_writes.waiting(hpa) is None
        if ends == "a rebalance":
            cluster.writers.forget({1})
            assert worker.status_writes.waiting(hpa) is None, "another partition was given up"
            cluster.writers.forget({0})
        else:
            cluster.writers.add(cluster.decision(4, "web"), Position(0, 4))
        assert not worker.delayed
        await cluster.until(lambda: not len(worker.status_writes))
    (event,) = cluster.events.values()
    assert event["count"] == 3
    assert event["lastTimestamp"] == moment(cluster.now_ms - late_ms)[:19] + "Z"


async def test_the_events_of_late_decisions_are_kept_for_as_many_hpas_as_writes_may_wait() -> None:
    cluster = SlowCluster()
    async with cluster.served():
        worker = cluster.writers._workers["east"]
        limit = cluster.writers._limits.queue
        shown = shown_decision(cluster.decision(1, "web", events=[RESCALED]))
        assert shown is not None
        for number in range(limit + 1):
            worker.delay_events(structs.replace(shown, hpa=HpaId("east", "shop", f"web-{number}")), 0, limit=limit)
        assert len(worker.delayed) == limit
        assert HpaId("east", "shop", "web-0") not in worker.delayed
        assert HpaId("east", "shop", f"web-{limit}") in worker.delayed

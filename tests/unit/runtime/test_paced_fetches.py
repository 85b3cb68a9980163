"""Pauses between fetches where a broker answers early, and the driver's own way where it does not."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.protocol.admin import CreateTopicsRequest
from hypothesis import given
from hypothesis import strategies as st

from runtime.driver import IDLE_FACTOR, PacedFetcher
from runtime.fetchsessions import SessionClient

NODE = 1
ENOUGH = 1_000
PAUSE_MS = 20
KAFKA, EMBEDDED = {1: (4, 11), CreateTopicsRequest.API_KEY: (0, 3)}, {1: (4, 11)}


class Fetches:
    """The driver below: what was asked, when, and what comes."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        """Longest wait in ms and least bytes of each fetch."""
        self.began_s: list[float] = []
        self.bytes = 0

    def install(self, monkeypatch: pytest.MonkeyPatch, versions: dict[int, tuple[int, int]], least: int) -> Any:
        def init(found: Any) -> None:
            found._fetch_max_wait_ms, found._fetch_min_bytes, found._records = PAUSE_MS, least, {}
            connection = SimpleNamespace(_versions=versions)
            cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=NODE)])
            found._client = SimpleNamespace(_conns={(NODE, ConnectionGroup.DEFAULT): connection}, cluster=cluster)
            found._in_flight, found._fetcher_timeout = set(), 0.1

        async def fetch(found: Any, assignment: object, node_id: int, request: Any) -> bool:
            self.asked.append((request._max_wait_ms, request._min_bytes))
            self.began_s.append(time.monotonic())
            found._records.clear()
            if self.bytes:
                result = fetcher.FetchResult.__new__(fetcher.FetchResult)
                records = SimpleNamespace(_records=SimpleNamespace(data=b"x" * self.bytes))
                result._partition_records = records
                found._records["a partition"] = result
            return self.bytes > 0

        monkeypatch.setattr(fetcher.Fetcher, "__init__", init)
        monkeypatch.setattr(fetcher.Fetcher, "_proc_fetch_request", fetch)
        return PacedFetcher()


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


async def ask(found: Any, assignment: object) -> Any:
    request = SimpleNamespace(_max_wait_ms=found._fetch_max_wait_ms, _min_bytes=found._fetch_min_bytes)
    return await found._proc_fetch_request(assignment, NODE, request)


async def test_a_broker_answers_at_once_and_may_wait_longer_the_longer_nothing_comes(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, assignment = fetches.install(monkeypatch, KAFKA, ENOUGH), object()
    assert [await ask(found, assignment) for _ in range(6)] == [False] * 6
    assert fetches.asked == [(PAUSE_MS * factor, 1) for factor in (1, 2, 4, 8, IDLE_FACTOR, IDLE_FACTOR)]
    fetches.bytes = 1
    assert await ask(found, assignment)
    assert await ask(found, assignment)
    assert fetches.asked[-1] == (PAUSE_MS * IDLE_FACTOR, 1)


async def test_after_a_new_assignment_the_wait_is_short_again_and_every_partition_is_asked_for(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(SessionClient, "begin_anew", lambda _: begun.append(len(fetches.asked)))
    found = fetches.install(monkeypatch, KAFKA, ENOUGH)
    for assignment in ("first", "first", "second"):
        await ask(found, assignment)
    assert [wait_ms for wait_ms, _ in fetches.asked] == [PAUSE_MS, 2 * PAUSE_MS, PAUSE_MS]
    assert begun == [0, 2]


async def test_a_fetch_begins_a_pause_after_the_one_before(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fetches.install(monkeypatch, KAFKA, ENOUGH)
    fetches.bytes = ENOUGH - 1
    for _ in range(3):
        await ask(found, "assignment")
    first, second, third = fetches.began_s
    assert second - first >= PAUSE_MS / 1000 * 0.9  # the clocks of timers are coarse
    assert third - second >= PAUSE_MS / 1000 * 0.9


async def test_there_is_no_pause_while_much_comes(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fetches.install(monkeypatch, KAFKA, ENOUGH)
    fetches.bytes = ENOUGH
    await ask(found, "assignment")
    assert found._next_s[NODE] == 0.0


async def test_readers_in_a_hurry_ask_as_the_driver_does(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fetches.install(monkeypatch, KAFKA, 1)
    for _ in range(3):
        await ask(found, "assignment")
    assert fetches.asked == [(PAUSE_MS, 1)] * 3
    assert found._next_s == {}


async def test_the_embedded_broker_which_answers_late_keeps_no_fetch_longer_than_a_pause(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fetches.install(monkeypatch, EMBEDDED, ENOUGH)
    for _ in range(3):
        await ask(found, "assignment")
    assert fetches.asked == [(PAUSE_MS, 1)] * 3


async def test_a_fetch_that_is_cancelled_in_its_pause_asks_nothing(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fetches.install(monkeypatch, KAFKA, ENOUGH)
    found._next_s[NODE] = time.monotonic() + 3_600
    task = asyncio.create_task(ask(found, "assignment"))
    await asyncio.sleep(0)
    task.cancel()
    assert await task is False
    assert fetches.asked == []


def test_no_partition_is_looked_at_while_every_broker_has_a_fetch_to_answer(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fetches.install(monkeypatch, KAFKA, ENOUGH)
    monkeypatch.setattr(fetcher.Fetcher, "_get_actions_per_node", lambda _, assignment: f"looked at {assignment}")
    monkeypatch.setattr(PacedFetcher, "_planned", lambda *_: None)
    assert found._get_actions_per_node("partitions") == "looked at partitions"
    found._in_flight.add(NODE + 1)  # a broker that has left
    assert found._get_actions_per_node("partitions") == "looked at partitions"
    found._in_flight.add(NODE)
    assert found._get_actions_per_node("partitions") == ([], {}, 0.1, False, [])


class Known:
    """What is known of one partition: its leader, its position, whether it is paused, and the pause of records here."""

    def __init__(self, leader: int, position: int | None, *, paused: bool, left_s: float | None) -> None:
        self.leader, self.position, self.paused, self.left_s = leader, position, paused, left_s


def known(positions: st.SearchStrategy[Any], paused: bool, leaders: list[int], left_s: list[Any]) -> Any:
    return st.builds(
        Known,
        st.sampled_from(leaders),
        positions,
        paused=st.booleans() if paused else st.just(False),
        left_s=st.sampled_from(left_s),
    )


ROUTINE = known(st.integers(0, 9), paused=False, leaders=[1, 2], left_s=[None, None, None, 0.0, 0.05, 0.1])
RARE = known(st.sampled_from([None, 3]), paused=True, leaders=[1, 2, -1], left_s=[None, None, 0.0])
"""While the records of a broker wait nothing else is looked at, which the driver does: so none waits here."""


def fetcher_of(parts: list[Known], in_flight: set[int]) -> tuple[Any, Assignment]:
    tps = [TopicPartition("samples" if number < 3 else "pods", number % 3) for number in range(len(parts))]
    assignment, leaders, found = Assignment(tps), dict[str, dict[int, Any]](), PacedFetcher.__new__(PacedFetcher)
    found._records, found._preferred_read_replica, found._in_flight = {}, {}, in_flight
    for tp, each in zip(tps, parts, strict=True):
        leaders.setdefault(tp.topic, {})[tp.partition] = SimpleNamespace(leader=each.leader)
        state = assignment.state_value(tp)
        if each.position is not None:
            state.seek(each.position)
        if each.paused:
            state.pause()
        if each.left_s is not None:
            found._records[tp] = SimpleNamespace(calculate_backoff=lambda left_s=each.left_s: left_s)
    cluster = SimpleNamespace(
        _partitions=leaders,
        leader_for_partition=lambda tp: leaders[tp.topic][tp.partition].leader,
        brokers=lambda: [SimpleNamespace(nodeId=number) for number in (1, 2, 3)],
    )
    found._client, found._fetcher_timeout, found._plan = SimpleNamespace(cluster=cluster), 0.1, None
    found._fetch_max_wait_ms, found._fetch_min_bytes, found._fetch_max_bytes = PAUSE_MS, ENOUGH, 7
    found._isolation_level, found._max_partition_fetch_bytes, found._client_rack = 0, 5, "a rack"
    return found, assignment


def plain(actions: Any) -> Any:
    fetches, resets, timeout_s, invalid, resumed = actions
    asked = {
        node: ({topic: sorted(places) for topic, places in request.topics}, vars(request) | {"_topics": None})
        for node, request in fetches
    }
    return asked, {node: sorted(tps) for node, tps in resets.items()}, timeout_s, invalid, resumed


@given(st.one_of(*(st.lists(each, min_size=1, max_size=6) for each in (ROUTINE, RARE))), st.sets(st.just(1)))
async def test_what_is_fetched_is_what_the_driver_would_fetch(parts: list[Known], in_flight: set[int]) -> None:
    found, assignment = fetcher_of(parts, in_flight)
    assert plain(found._get_actions_per_node(assignment)) == plain(
        fetcher.Fetcher._get_actions_per_node(found, assignment)
    )


async def test_records_of_a_partition_that_is_not_assigned_any_more_hold_nothing_up() -> None:
    found, assignment = fetcher_of([Known(1, 4, paused=False, left_s=None)], set())
    found._records[TopicPartition("pods", 7)] = SimpleNamespace(calculate_backoff=lambda: 0.05)
    assert plain(found._get_actions_per_node(assignment)) == plain(
        fetcher.Fetcher._get_actions_per_node(found, assignment)
    )


async def test_a_plan_follows_positions_and_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher.Fetcher, "_get_actions_per_node", lambda *_: pytest.fail("the driver was asked"))
    found, assignment = fetcher_of([Known(1, 4, paused=False, left_s=None)], set())
    tp = TopicPartition("samples", 0)

    def asked() -> list[tuple[int, Any]]:
        return [(node, request.topics) for node, request in found._get_actions_per_node(assignment)[0]]

    assert asked() == [(1, [("samples", [(0, 4, 5)])])]
    assignment.state_value(tp).consumed_to(6)
    assert asked() == [(1, [("samples", [(0, 6, 5)])])]
    found._client.cluster._partitions = {"samples": {0: SimpleNamespace(leader=2)}}
    assert asked() == [(2, [("samples", [(0, 6, 5)])])]


def asked_of(found: Any, assignment: Assignment) -> dict[int, Any]:
    return {node: dict(request.topics) for node, request in found._get_actions_per_node(assignment)[0]}


async def test_a_paused_partition_is_left_out_and_the_fetcher_wakes_up_when_it_is_resumed() -> None:
    found, assignment = fetcher_of(
        [Known(1, 4, paused=False, left_s=None), Known(1, 5, paused=False, left_s=None)], set()
    )
    state = assignment.state_value(TopicPartition("samples", 1))
    assert asked_of(found, assignment) == {1: {"samples": [(0, 4, 5), (1, 5, 5)]}}
    state.pause()
    fetches, _, _, _, resumed = found._get_actions_per_node(assignment)
    assert [request.topics for _, request in fetches] == [[("samples", [(0, 4, 5)])]]
    assert resumed == [state.resume_fut]
    state.resume()
    assert asked_of(found, assignment) == {1: {"samples": [(0, 4, 5), (1, 5, 5)]}}


async def test_an_offset_out_of_range_is_reset_at_the_leader_and_then_fetched_from_there() -> None:
    found, assignment = fetcher_of(
        [Known(1, 4, paused=False, left_s=None), Known(2, 5, paused=False, left_s=None)], set()
    )
    tp = TopicPartition("samples", 0)
    assert asked_of(found, assignment).keys() == {1, 2}
    assignment.state_value(tp).await_reset(fetcher.OffsetResetStrategy.EARLIEST)
    fetches, resets, _, invalid, _ = found._get_actions_per_node(assignment)
    assert ([node for node, _ in fetches], dict(resets), invalid) == ([2], {1: [tp]}, False)
    assignment.state_value(tp).reset_to(9)
    assert asked_of(found, assignment)[1] == {"samples": [(0, 9, 5)]}


async def test_a_partition_that_loses_its_leader_asks_for_metadata_and_is_fetched_from_the_next_one() -> None:
    found, assignment = fetcher_of([Known(1, 4, paused=False, left_s=None)], set())
    cluster = found._client.cluster
    assert asked_of(found, assignment).keys() == {1}
    for leader in (-1, None):
        cluster._partitions = {} if leader is None else {"samples": {0: SimpleNamespace(leader=leader)}}
        cluster.leader_for_partition = lambda _, leader=leader: leader
        fetches, resets, _, invalid, _ = found._get_actions_per_node(assignment)
        assert (fetches, dict(resets), invalid) == ([], {}, True)
    cluster._partitions = {"samples": {0: SimpleNamespace(leader=3)}}
    assert asked_of(found, assignment) == {3: {"samples": [(0, 4, 5)]}}


async def test_a_new_assignment_has_a_plan_of_its_own() -> None:
    found, before = fetcher_of([Known(1, 4, paused=False, left_s=None), Known(1, 5, paused=False, left_s=None)], set())
    assert asked_of(found, before) == {1: {"samples": [(0, 4, 5), (1, 5, 5)]}}
    kept = TopicPartition("samples", 1)
    after = Assignment([kept])
    after.state_value(kept).seek(8)
    assert asked_of(found, after) == {1: {"samples": [(1, 8, 5)]}}


async def test_a_preferred_replica_is_fetched_from_until_it_expires() -> None:
    found, assignment = fetcher_of([Known(1, 4, paused=False, left_s=None)], set())
    tp = TopicPartition("samples", 0)
    found._client.cluster.broker_metadata = lambda node_id: node_id
    found._client.cluster.leader_for_partition = lambda _: 1
    found._preferred_read_replica[tp] = (2, time.monotonic() + 3_600)
    assert asked_of(found, assignment) == {2: {"samples": [(0, 4, 5)]}}
    found._preferred_read_replica[tp] = (2, time.monotonic() - 1)
    assert asked_of(found, assignment) == {1: {"samples": [(0, 4, 5)]}}
    assert found._preferred_read_replica == {}

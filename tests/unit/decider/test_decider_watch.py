"""What ends a decider by itself: fence, stalls, a broker clock that is behind; and what is ready."""

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from streams.decider import app as deciderhealth
from streams.decider import owned
from streams.decider import tail as fence
from streams.decider.app import TICKS, Ticker
from streams.decider.assignment import DeciderConfig
from streams.decider.metrics import Metrics
from streams.decider.owned import OwnedPartition
from streams.decider.strict import Watchdog
from streams.decider.tail import Exit, Fence
from streams.state.ledger import DecisionRecord
from streams.state.partitionrow import PartitionRow


class DiedError(Exception):
    """The process would have ended."""


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Exit, str]]:
    """Ends of the process, which raise instead."""
    seen: list[tuple[Exit, str]] = []

    def die(code: Exit, reason: str, *, error: BaseException | None = None) -> NoReturn:
        seen.append((code, reason))
        raise DiedError(reason)

    monkeypatch.setattr(fence, "die", die)
    monkeypatch.setattr(owned, "die", die)
    return seen


class FakeStanding:
    """No decisions."""

    finished = True

    async def at(self, _: int) -> dict[str, bytes]:
        return {}


class FakePartition:
    """Counts what it is given."""

    def __init__(self, applied_offset: int = 9) -> None:
        self.number = 0
        self.applied_offset = applied_offset
        self.every, self.clock_ms = 1, 0

    def apply(self, offset: int, timestamp_ms: int, value: bytes, standing: Any) -> list[DecisionRecord]:
        self.applied_offset, self.clock_ms = offset, max(self.clock_ms, timestamp_ms)
        return [DecisionRecord(f"{offset} at {timestamp_ms}", "", 1, b"", [], cast(Any, None))]

    def pop_messages(self) -> list[Any]:
        return []


def partition(applied_offset: int = 9) -> OwnedPartition:
    return OwnedPartition(cast(Any, FakePartition(applied_offset)), cast(Any, FakeStanding()))


def record(offset: int, timestamp_ms: int = 1_000) -> Any:
    return SimpleNamespace(offset=offset, value=b"x", timestamp=timestamp_ms)


async def test_a_record_already_applied_is_skipped_and_the_next_one_applied_with_its_exact_time() -> None:
    one = partition()
    assert await one.fold(record(9)) == []
    [made] = await one.fold(record(10, 1_760_000_000_123))
    assert made.id == "10 at 1760000000123"


async def test_a_record_that_is_not_the_next_one_ends_the_process(deaths: list[tuple[Exit, str]]) -> None:
    with pytest.raises(DiedError, match="offset 11 came, 10 is next"):
        await partition().fold(record(11))
    assert deaths[0][0] is Exit.SOFTWARE


async def test_a_broker_clock_behind_the_newest_log_time_shows_in_readiness() -> None:
    one = partition()
    assignment = cast(Any, SimpleNamespace(owned={0: one}, waiting={}))
    await one.fold(record(10, 100_000))
    await one.fold(record(11, 40_000))
    assert deciderhealth.problems(assignment, recovering=False) == []
    await one.fold(record(12, 39_000))
    assert deciderhealth.problems(assignment, recovering=False) == [
        "log partition 0: the broker's clock is 61 s behind log time. Next: fleethpa admin topics log-time"
    ]
    assert deciderhealth.problems(assignment, recovering=True) == ["recovering state rows or waiting for an assignment"]


async def test_a_loop_that_stood_still_is_fenced(deaths: list[tuple[Exit, str]]) -> None:
    one = Fence(limit_s=0.05)
    one.check()  # nothing is owned yet
    one.start()
    one.check()
    time.sleep(0.06)  # the loop hangs
    with pytest.raises(DiedError, match="no longer the owner"):
        one.check()
    assert deaths[0][0] is Exit.FENCED


def watchdog(one: OwnedPartition | None, *, ticks: bool = True, recovering: bool = False) -> Watchdog:
    assignment = cast(Any, SimpleNamespace(owned={0: one} if one else {}))
    config = DeciderConfig(ticks=ticks, stall_s=30, recovery_s=60)
    return Watchdog(config, assignment, Metrics(), lambda: recovering)


def test_recovery_that_does_not_end_is_a_stall() -> None:
    dog = watchdog(None, recovering=True)
    begun = time.monotonic()
    assert dog.stall(begun + 59) == ""
    assert dog.stall(begun + 61).startswith("recovery has not ended after 6")


def test_records_that_wait_and_are_not_applied_are_a_stall() -> None:
    one = partition(applied_offset=9)
    dog = watchdog(one, ticks=False)
    assert dog.stall(one.applied_at + 31) == ""
    dog.ends = {0: 12}
    assert dog.stall(one.applied_at + 29) == ""
    assert dog.stall(one.applied_at + 31) == "log partition 0: nothing was applied for 31 s, but 2 records wait"


def test_ticks_that_stop_are_a_stall() -> None:
    one = partition()
    assert watchdog(one).stall(one.applied_at + 31) == "log partition 0: no tick came for 31 s"


def test_a_tick_is_a_log_record_without_entries() -> None:
    assert TICKS[0] == b'{"v":1,"entries":[]}'
    assert TICKS[1] == b'{"v":1,"entries":[],"every":2}'


class Acknowledging:
    """A producer whose brokers append at once. `now_ms`: their time."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.sent: list[bytes] = []

    async def send(self, _: str, value: bytes, *, key: None, partition: int, headers: Any) -> asyncio.Future[Any]:
        assert headers == []  # no name, no signature
        self.sent.append(value)
        acknowledged: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        acknowledged.set_result(SimpleNamespace(timestamp=self.now_ms, offset=len(self.sent) - 1))
        return acknowledged


async def test_ticks_of_a_partition_that_is_behind_ask_for_fewer_evaluations(caplog: pytest.LogCaptureFixture) -> None:
    """The lag is that between two records of the log; the clock of this machine plays no part."""
    one, brokers = partition(), Acknowledging()
    fence = cast(Any, SimpleNamespace(check=lambda: None))
    ticker = Ticker(cast(Any, SimpleNamespace(owned={0: one}, waiting={})), fence, lambda: cast(Any, brokers))

    async def pass_s(seconds: int, *, applied_s: float) -> None:
        for _ in range(seconds):
            brokers.now_ms += 1_000
            one.log_time_ms += round(1_000 * applied_s)
            await ticker.tick()

    one.log_time_ms = brokers.now_ms
    await pass_s(20, applied_s=1)
    assert set(brokers.sent) == {TICKS[0]}

    await pass_s(50, applied_s=0.5)
    assert brokers.sent[-1] == TICKS[2]
    assert "log partition 0 is 20.0 s behind: from now on, an HPA is evaluated once in 3 sync periods" in caplog.text

    cast(Any, one.partition).every, one.log_time_ms = 3, brokers.now_ms
    caplog.set_level(logging.INFO)
    await pass_s(45, applied_s=1)
    assert brokers.sent[-1] == TICKS[1]
    assert "not behind any more: from now on, an HPA is evaluated once in 2 sync periods" in caplog.text


async def test_without_times_of_the_broker_the_lag_is_that_of_ticks_whatever_the_clock_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The embedded broker keeps the times of producers: those of others may be minutes behind this machine's clock."""
    one, brokers, seconds = partition(applied_offset=-1), Acknowledging(), 0
    made: Any = one.partition
    made.clock_ms = one.log_time_ms = 1_000_000
    monkeypatch.setattr(deciderhealth, "wall_clock_ms", lambda: 1_300_000 + 1_000 * seconds)
    fence = cast(Any, SimpleNamespace(check=lambda: None))
    ticker = Ticker(cast(Any, SimpleNamespace(owned={0: one}, waiting={})), fence, lambda: cast(Any, brokers))
    brokers.now_ms = 0

    async def pass_s(count: int, *, applied_s: float) -> None:
        nonlocal seconds
        begun = len(brokers.sent)
        for each in range(count):
            seconds += 1
            made.clock_ms = one.log_time_ms = 1_000_000 + 1_000 * seconds
            made.applied_offset = begun - 1 + round((each + 1) * applied_s)
            await ticker.tick()

    await pass_s(60, applied_s=1)
    assert set(brokers.sent) == {TICKS[0]}, caplog.text
    assert "behind" not in caplog.text

    await pass_s(60, applied_s=0.5)
    assert brokers.sent[-1] != TICKS[0]
    assert "s behind: from now on, an HPA is evaluated once in" in caplog.text


async def test_a_partition_that_was_just_assigned_goes_on_at_its_pace() -> None:
    made = FakePartition()
    made.every = 4
    one, brokers = OwnedPartition(cast(Any, made), cast(Any, FakeStanding())), Acknowledging()
    fence = cast(Any, SimpleNamespace(check=lambda: None))
    await Ticker(cast(Any, SimpleNamespace(owned={0: one}, waiting={})), fence, lambda: cast(Any, brokers)).tick()
    assert brokers.sent == [TICKS[3]]


async def test_a_partition_whose_turn_to_be_recovered_has_not_come_is_ticked_at_its_pace() -> None:
    waiting = {0: SimpleNamespace(row=PartitionRow(number=0, every=2))}
    brokers, fence = Acknowledging(), cast(Any, SimpleNamespace(check=lambda: None))
    await Ticker(cast(Any, SimpleNamespace(owned={}, waiting=waiting)), fence, lambda: cast(Any, brokers)).tick()
    assert brokers.sent == [TICKS[1]]

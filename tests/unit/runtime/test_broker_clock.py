"""The brokers' time as a process knows it: never behind their clock, whatever its own clock does."""

import pytest
from aiokafka.structs import RecordMetadata, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from runtime.brokerclock import APPEND_TIME, EMBEDDED_BROKER_MS, MAX_AGE_S, UNKNOWN, BrokerClock, BrokerTime


def test_the_brokers_time_is_at_most_what_any_fresh_reading_allows() -> None:
    time = BrokerTime()
    assert time.now_ms(5.0) is None
    time.received(1_000_000, sent_s=10.0, acknowledged_s=10.5)
    assert time.now_ms(12.0) == 1_002_000
    time.received(1_003_000, sent_s=11.0, acknowledged_s=15.0)  # under way for long: nothing better is known from it
    assert time.now_ms(12.0) == 1_002_000
    time.received(1_001_500, sent_s=12.0, acknowledged_s=12.1)  # the brokers' clock was put back, or this one ran fast
    assert time.now_ms(12.0) == 1_001_500


def test_a_clock_that_stood_still_while_the_machine_was_paused_is_found_by_the_next_acknowledgement() -> None:
    time = BrokerTime()
    time.received(1_000_000, sent_s=10.0, acknowledged_s=10.5)
    time.received(1_301_000, sent_s=11.0, acknowledged_s=11.5)  # five minutes later, of which this clock knows nothing
    assert time.now_ms(12.0) == 1_302_000


def test_without_a_fresh_reading_the_brokers_time_is_not_known() -> None:
    time = BrokerTime()
    time.received(1_000_000, sent_s=10.0, acknowledged_s=10.5)
    assert time.now_ms(10.0 + MAX_AGE_S - 0.1) is not None
    assert time.now_ms(10.0 + MAX_AGE_S) is None


_DELAYS = st.floats(0, 5)


@given(
    st.lists(st.tuples(st.floats(0, 30), _DELAYS, _DELAYS, st.sampled_from([0.0, 60.0])), min_size=1), st.floats(0, 30)
)
def test_what_has_expired_by_the_brokers_clock_has_expired_here(
    sends: list[tuple[float, float, float, float]], later_s: float
) -> None:
    """The estimate is never behind the brokers' clock, whatever the delays before and after the append are, and where
    the machine stood still, for longer than these delays, before a record was sent.
    """
    time, now_s, ahead_s = BrokerTime(), 0.0, 5_000.0
    for wait_s, before_s, after_s, paused_s in sends:
        ahead_s += paused_s
        sent_s = now_s + wait_s
        now_s = sent_s + before_s + after_s
        time.received(round((sent_s + before_s + ahead_s) * 1000), sent_s, now_s)
    # Whether it stood still since then is not known yet.
    now_s += later_s
    estimate = time.now_ms(now_s)
    assert estimate is None or estimate >= (now_s + ahead_s) * 1000 - 2


def _ack(append_ms: int, kind: int = APPEND_TIME) -> RecordMetadata:
    place = TopicPartition("fleethpa.scales", 0)
    return RecordMetadata(place.topic, place.partition, place, 0, append_ms, kind, 0)


def _clock(is_stamped: bool | None, now_s: list[float]) -> BrokerClock:
    return BrokerClock(is_stamped, lambda: 7_000, lambda: now_s[0])


@pytest.mark.parametrize("ack", [(-1, 0), (EMBEDDED_BROKER_MS, APPEND_TIME)], ids=["create time", "embedded broker"])
def test_the_machines_clock_counts_where_the_first_acknowledgement_has_no_append_time(ack: tuple[int, int]) -> None:
    clock = _clock(None, [10.0])
    clock.acknowledged(_ack(*ack), 9.0)
    assert (clock.is_stamped, clock.now_ms(), clock.problem) == (False, 7_000, "")


def test_the_brokers_time_counts_from_the_first_acknowledgement_on_and_is_unknown_where_none_follows() -> None:
    now_s = [10.0]
    clock = _clock(None, now_s)
    clock.acknowledged(_ack(500_000), 9.0)
    assert (clock.is_stamped, clock.now_ms(), clock.problem) == (True, 501_000, "")
    now_s[0] = 9.0 + MAX_AGE_S
    assert clock.problem == UNKNOWN


@pytest.mark.parametrize(("is_stamped", "problem"), [(True, UNKNOWN), (False, "")])
def test_where_the_brokers_time_is_wanted_it_is_waited_for(is_stamped: bool, problem: str) -> None:
    assert _clock(is_stamped, [10.0]).problem == problem

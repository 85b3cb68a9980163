"""What a reconciler says of itself: whom it serves, for as long as it reads decisions."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from aiokafka.structs import RecordMetadata, TopicPartition
from msgspec import structs

from reconciler.apply.clusterwriters import FAILED_SHOWN_MS, FailedWrites, failed_after, failure_of
from reconciler.apply.process import Reconciler, ReconcilerConfig
from reconciler.core.writeplan import End
from reconciler.core.writeproblems import joined_problem
from runtime.brokerclock import APPEND_TIME, MAX_AGE_S, UNKNOWN
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.entries import Outcome
from schemas.observed import Serving, WriteProblem


class Topic:
    """Takes what is published, after a first report that shows the time; raises what it is given first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.taken = list(errors), asyncio.Queue[Serving]()
        self.is_first = True

    async def send(self, topic: str, cluster: str, namespace: str, bodies: list[Any], time_ms: int) -> RecordMetadata:
        assert (topic, cluster, namespace) in (("fleethpa.scales", "", ""), ("fleethpa.outcomes", "east", "shop"))
        if self.errors:
            raise self.errors.pop(0)
        if not self.is_first:
            self.taken.put_nowait(bodies[0])
        self.is_first = False
        place = TopicPartition(topic, 0)
        return RecordMetadata(topic, 0, place, 0, time_ms, APPEND_TIME, 0)


def reconciler(topic: Topic) -> Reconciler:
    made = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=(), heartbeat_ms=0))
    made._publisher = topic  # type: ignore[assignment]
    return made


async def test_it_is_heard_again_when_the_brokers_are_back() -> None:
    topic = Topic(KafkaTimeoutError(), KafkaTimeoutError())
    made = reconciler(topic)
    beating = asyncio.create_task(made._beat())
    while topic.errors:
        made._reading.set()
        await asyncio.sleep(0)
    made._reading.set()
    assert (await topic.taken.get()).clusters == []
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating


async def test_it_is_not_heard_while_it_reads_no_decisions() -> None:
    topic = Topic()
    made = reconciler(topic)
    beating = asyncio.create_task(made._beat())
    made._reading.set()
    await topic.taken.get()
    for _ in range(50):
        await asyncio.sleep(0)
    assert topic.taken.empty(), "the topic of decisions was not looked at again"
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating


async def test_a_right_that_is_missing_ends_it() -> None:
    made = reconciler(Topic(TopicAuthorizationFailedError("fleethpa.scales")))
    made._reading.set()
    with pytest.raises(TopicAuthorizationFailedError):
        await made._beat()


def _ended(
    failed: FailedWrites, name: str, result: Any, at_ms: int, error: str = "", *, is_forbidden: bool = False
) -> FailedWrites:
    decision = structs.replace(_decided(), name=name)
    return failed_after(failed, decision, End(result, error, is_forbidden=is_forbidden), at_ms)


def test_hpas_that_cannot_be_scaled_are_named_until_a_write_of_each_succeeds_or_two_minutes_have_passed() -> None:
    failed = _ended({}, "web", "failed", 1_000, "denied", is_forbidden=True)
    failed = _ended(failed, "api", "failed", 2_000, "too large")
    assert failure_of(failed, 2_000) == WriteProblem("the last write of 2 HPAs failed, shop/api: too large", "failing")
    failed = _ended(failed, "api", "applied", 3_000)
    assert failure_of(failed, 3_000) == WriteProblem("the last write of 1 HPA failed, shop/web: denied", "forbidden")
    assert failure_of(failed, 1_000 + FAILED_SHOWN_MS) is None
    assert _ended(failed, "db", "applied", 1_000 + FAILED_SHOWN_MS) == {}


@pytest.mark.parametrize(
    ("reasons", "joined"),
    [
        (("failing", "forbidden"), "forbidden"),
        (("unreachable", "failing"), "failing"),
        (("unreachable", "unreachable"), "unreachable"),
    ],
)
def test_of_several_problems_a_missing_right_is_the_reason(reasons: tuple[Any, Any], joined: Any) -> None:
    """It alone has a remedy that is known."""
    problem = joined_problem([None, *(WriteProblem(str(each), each) for each in reasons)])
    assert problem == WriteProblem("; ".join(reasons), joined)
    assert joined_problem([None, None]) is None


def _decided() -> Decision:
    return Decision(
        id="0-1", seq=1, prev="", cluster="east", namespace="shop", name="web", uid="u", time="2026-11-22T08:00:00Z",
        input=InputPosition(partition=0, offset=1, hash=""), mode="enforce", origin="central",
    )  # fmt: skip


async def test_where_no_record_was_acknowledged_for_a_minute_nothing_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = reconciler(Topic())
    now_s = [100.0]
    monkeypatch.setattr(made.clock, "seconds", lambda: now_s[0])
    await made.publish(_decided(), Outcome(decision="0-1", name="web", uid="u", result="applied"))
    assert made._forbids("east") == ""
    now_s[0] += MAX_AGE_S
    assert made._forbids("east") == UNKNOWN


async def test_what_is_read_when_the_brokers_are_back_may_be_written_though_their_time_was_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, now_s, forbidden = reconciler(Topic()), [100.0], list[str]()
    monkeypatch.setattr(made.clock, "seconds", lambda: now_s[0])
    monkeypatch.setattr(made, "_process", lambda *_: forbidden.append(made._forbids("east")))
    await made.publish(_decided(), Outcome(decision="0-1", name="web", uid="u", result="applied"))
    now_s[0] += MAX_AGE_S
    record = SimpleNamespace(offset=7)
    await made._process_batches(cast(Any, None), cast(Any, {TopicPartition("fleethpa.decisions", 0): [record]}))
    assert forbidden == [""]

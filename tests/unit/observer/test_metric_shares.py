"""What one namespace asks of metrics APIs keeps no other from its answers; a question that hangs is asked seldom."""

import asyncio
import itertools
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from reconciler.clusters.answers import ApiError, NoAnswerError, read_object
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.metricpolls import FIRST_PAUSE_S, LONGEST_PAUSE_S, HungQuestions, MetricsPoller
from reconciler.observer.troubles import Troubles
from runtime.slots import FairSlots, Pace
from schemas.answers import MetricAnswer, Query
from schemas.kubernetes.apirules import CURRENT_API
from schemas.limits import share_of
from tests.patience import PATIENCE_S

SLOTS = 16
VALUE = b'{"items": [{"describedObject": {"name": "web"}, "metricName": "m", "value": "1"}]}'
PODS = b'{"items": [{"metadata": {"name": "web-1", "labels": {"app": "web"}}, "timestamp": "2026-01-01T00:00:00Z", '
PODS += b'"window": "15s", "containers": [{"name": "c", "usage": {"cpu": "100m", "memory": "1Mi"}}]}]}'


async def _settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_pace_is_shared_in_turn_by_key() -> None:
    """At a thousand a second, a key that asks for three hundred does not make another one wait for all of them."""
    # A clock of its own, a little further at each look: while a machine stalls, nobody uses a slot.
    clock = map((0.0001).__mul__, itertools.count())
    slots, begun = FairSlots[str](SLOTS, pace=Pace(1_000), clock=lambda: next(clock)), list[str]()

    async def ask(key: str) -> None:
        async with slots.turn(key):
            begun.append(key)

    tasks = [asyncio.create_task(ask("tenant")) for _ in range(300)]
    tasks += [asyncio.create_task(ask("shop")) for _ in range(5)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*tasks)
    first = begun.index("shop")
    last = len(begun) - begun[::-1].index("shop")
    assert last - first <= 20
    assert last < 200


class Adapter:
    """A cluster whose external metrics of one namespace hang."""

    name = "east"

    def __init__(self) -> None:
        self.hanging, self.asked = asyncio.Event(), list[str]()
        self.fails = False

    async def get_as(self, form: Any, path: str, *, timeout_s: float) -> Any:
        self.asked.append(path)
        return msgspec.json.decode(PODS, type=form)

    async def get_patiently(self, path: str, *, timeout_s: float) -> dict[str, Any]:
        self.asked.append(path)
        if "/tenant/" in path:
            await self.hanging.wait()
            raise NoAnswerError("no answer within 10 s", was_connected=True)
        return read_object(VALUE, path)

    async def versions(self, group: str) -> list[str]:
        return ["v1beta1"]


def _poller(adapter: Adapter, timeout_s: float = 3_600.0) -> MetricsPoller:
    return MetricsPoller(
        adapter,  # type: ignore[arg-type]
        adapter,  # type: ignore[arg-type]
        metrics=ObserverMetrics(CollectorRegistry()),
        troubles=Troubles(lambda: 1, lambda: None),
        timeout_s=timeout_s,
        at_once=SLOTS,
        answers=AsyncMock(return_value=True),
        rules=lambda: CURRENT_API,
    )


def _external(count: int) -> list[Query]:
    return [MetricAnswer(api="external", selector="", metric=f"m-{number}") for number in range(count)]


async def test_metrics_that_hang_in_one_namespace_keep_no_other_from_its_answers() -> None:
    adapter = Adapter()
    poller = _poller(adapter)
    tenant = asyncio.create_task(poller.ask("tenant", _external(150)))
    await _settled()
    cpu = MetricAnswer(api="resource", selector="app=web", metric="")
    custom = MetricAnswer(api="pods", selector="app=web", metric="requests")
    async with asyncio.timeout(PATIENCE_S):
        answers = await poller.ask("shop", [cpu, custom, *_external(3)])
    assert [answer.error for answer in answers] == [None] * 5
    assert not tenant.done()
    assert sum("/tenant/" in path for path in adapter.asked) == share_of(SLOTS)
    adapter.hanging.set()
    async with asyncio.timeout(PATIENCE_S):
        assert len(await tenant) == 150


async def test_a_question_that_gets_no_slot_in_time_says_why() -> None:
    adapter = Adapter()
    poller = _poller(adapter, 0.05)
    asking = asyncio.create_task(poller.ask("tenant", _external(6)))
    other = asyncio.create_task(poller.ask("tenant", _external(1)))
    async with asyncio.timeout(PATIENCE_S):
        (answer,) = await other
    assert answer.error is not None
    assert "other questions of namespace tenant to external.metrics.k8s.io have not been answered" in answer.error
    adapter.hanging.set()
    await asking


async def test_a_question_that_hung_is_not_asked_again_at_once_and_keeps_its_error() -> None:
    adapter = Adapter()
    adapter.hanging.set()
    poller = _poller(adapter, 0.0)  # every question that fails took all of its time
    poller._timeout_s = 3_600.0
    first = await poller.ask("tenant", _external(1))
    again = await poller.ask("tenant", _external(1))
    assert first == again
    assert first[0].error == "no answer within 10 s"
    assert len(adapter.asked) == 1
    await poller.ask("tenant", _external(0))  # its HPA has gone
    await poller.ask("tenant", _external(1))
    assert len(adapter.asked) == 2


def test_the_pause_of_a_question_that_hangs_grows_up_to_a_bound_and_ends_with_an_answer() -> None:
    now_s = 0.0
    hung = HungQuestions(10.0, lambda: now_s)
    (query,) = _external(1)
    pauses = []
    for _ in range(6):
        hung.failed("shop", query, 9.9, "no answer")
        begun_s = now_s
        while hung.pausing("shop", query) is not None:
            now_s += 1.0
        pauses.append(now_s - begun_s)
    assert pauses == [FIRST_PAUSE_S, 30.0, 60.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    hung.answered("shop", query)
    hung.failed("shop", query, 9.9, "no answer")
    now_s += FIRST_PAUSE_S
    assert hung.pausing("shop", query) is None


@pytest.mark.parametrize("took_s", [0.0, 1.0, 7.9])
def test_a_question_that_fails_soon_is_asked_again_as_usual(took_s: float) -> None:
    hung = HungQuestions(10.0, lambda: 0.0)
    (query,) = _external(1)
    hung.failed("shop", query, took_s, str(ApiError(404, "no such metric")))
    assert hung.pausing("shop", query) is None

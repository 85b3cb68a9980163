"""A sample from the future is refused, whoever sent it: it would be used until then, and true ones be dropped."""

from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord

from schemas import topics
from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.entries import PublicRecord
from schemas.limits import AHEAD
from schemas.observed import Point, Samples
from streams.ingest import loop, worker
from streams.ingest.logwriter import IngestMetrics, Item
from streams.ingest.preflight import IngestConfig

NOW_MS = 1_790_000_000_000
AGENT = AgentSet(cluster="east", incarnation=7)
YEARS_MS = 70 * 365 * 86_400_000
SHOP = "shop.samples"


def simple(time_ms: int) -> bytes:
    sample = {"v": 1, "ts": time_ms, "cluster": "east", "namespace": "shop", "metric": "depth", "type": "External"}
    return orjson.dumps(sample | {"value": 5})


def own(*times_ms: int) -> bytes:
    points = [Point(type="External", metric=f"depth{at}", milli=5, time=at) for at in times_ms]
    return encode(PublicRecord(v=1, entries=[Samples(points=points)], time=NOW_MS, cluster="east", namespace="shop"))


def otlp(time_ms: int) -> bytes:
    point = {"timeUnixNano": str(time_ms * 1_000_000), "asDouble": 5.0}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in
                  (("k8s.cluster.name", "east"), ("k8s.namespace.name", "shop"))]  # fmt: skip
    metrics = [{"name": "depth", "gauge": {"dataPoints": [point]}}]
    scope = {"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": metrics}]}
    return orjson.dumps({"resourceMetrics": [scope]})


def read(topic: str, value: bytes, *, stamped_ms: int = NOW_MS, **config: Any) -> Item:
    """What becomes of a record, now."""
    named: dict[str, Any] = {"timestamp": stamped_ms, "timestamp_type": 0, "key": None, "value": value, "headers": ()}
    named |= {"serialized_key_size": -1, "serialized_value_size": len(value), "checksum": None}
    record = ConsumerRecord(topic=topic, partition=0, offset=0, **named)
    registry, metrics = AgentRegistry(), IngestMetrics()
    made = loop.Worker(IngestConfig(**config), None, None, metrics, 4, registry)  # type: ignore[arg-type]
    if topic == AGENT.topics.reports:
        registry.apply(AGENT)
        agents = worker.Agents(IngestConfig(), registry, None, None, metrics, 4)  # type: ignore[arg-type]
        item = worker.AgentWorker(agents, None).converted(record)
        assert item is not None
        return item
    return made.converted(record)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW_MS / 1000)


FORMATS = [pytest.param(make, id=make.__name__) for make in (simple, own, otlp)]
TOPICS = [topics.SAMPLES, SHOP]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("ahead_ms", [AHEAD.most + 1, 86_400_000, YEARS_MS])
def test_a_sample_from_the_future_is_refused_by_its_time(topic: str, make: Any, ahead_ms: int) -> None:
    item = read(topic, make(NOW_MS + ahead_ms), stamped_ms=NOW_MS + ahead_ms)
    assert item.entries == []
    assert item.reject is not None
    headers = dict(item.reject.headers)
    assert headers["code"] == b"badTime"
    assert f"is {NOW_MS + ahead_ms}, more than 300 s after now".encode() in headers["reason"]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("ahead_ms", [-86_400_000, 0, AHEAD.most])
def test_what_a_clock_that_is_a_little_wrong_stamps_is_taken(topic: str, make: Any, ahead_ms: int) -> None:
    item = read(topic, make(NOW_MS + ahead_ms))
    assert (len(item.entries), item.reject) == (1, None)


def test_that_of_an_agent_too() -> None:
    item = read(AGENT.topics.reports, own(NOW_MS + AHEAD.most + 1))
    assert item.reject is not None
    assert dict(item.reject.headers)["code"] == b"badTime"
    assert read(AGENT.topics.reports, own(NOW_MS + AHEAD.most)).reject is None


def test_an_agent_whose_topic_lets_it_state_the_time_gains_nothing() -> None:
    item = read(AGENT.topics.reports, own(NOW_MS + YEARS_MS), stamped_ms=NOW_MS + YEARS_MS)
    assert item.reject is not None


def test_the_other_samples_of_the_record_are_taken() -> None:
    item = read(topics.SAMPLES, own(NOW_MS, NOW_MS + YEARS_MS, NOW_MS + 1))
    assert item.reject is not None
    (entry,) = item.entries
    assert b"depth%d" % (NOW_MS + YEARS_MS) not in entry.data
    assert b"depth%d" % (NOW_MS + 1) in entry.data


def test_playback_has_no_now() -> None:
    assert read(topics.SAMPLES, simple(NOW_MS + YEARS_MS), timestamp="source").reject is None

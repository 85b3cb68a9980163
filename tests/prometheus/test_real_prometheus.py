"""HPAs are decided from a real Prometheus, by the rules of prometheus-adapter's documentation, unchanged."""

import asyncio
import shutil
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleethpa.fleet.decisionpage import explained, explanation_lines
from reconciler.observer.clusterview import ObserverConfig
from reconciler.observer.process import Observer
from reconciler.prometheus.connections import PromConnections, parse_prometheus_file
from reconciler.prometheus.poller import open_prometheus
from runtime.log import wall_clock_ms
from schemas.answers import Answers, MetricAnswer
from schemas.decisions import Decision
from schemas.observed import ClusterReport
from tests.kit.partition import LogBuilder
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, rig, running
from tests.prometheus.server import Prometheus, scraping

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="NO PROMETHEUS: there is no binary on the PATH"),
]

RULES = Path("tests/data/prometheus/documentation.yaml")
METRICS: list[dict[str, Any]] = [
    {
        "type": "Pods",
        "pods": {"metric": {"name": "http_requests"}, "target": {"type": "AverageValue", "averageValue": "5"}},
    },
    {
        "type": "Object",
        "object": {
            "metric": {"name": "jobs"},
            "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "target": {"type": "Value", "value": "20"},
        },
    },
    {
        "type": "External",
        "external": {
            "metric": {"name": "queue_consumer_lag", "selector": {"matchLabels": {"name": "orders"}}},
            "target": {"type": "AverageValue", "averageValue": "20"},
        },
    },
]


def connections(server: Prometheus) -> PromConnections:
    sources = "{Pods: prometheus, Object: prometheus, External: prometheus, Resource: prometheus}"
    text = f"clusters: {{east: {{url: '{server.url}', rules: {RULES}, sources: {sources}, timeout: 5s}}}}"
    return parse_prometheus_file(text, "prometheus.yaml", lambda path: Path(path).read_text())


def exposed(made: Rig, now_s: float, gone: Collection[str] = ()) -> Iterator[str]:
    """What the pods of the cluster and others count: requests 10 a second per pod, jobs 40 a second.

    `gone`: names of series that are no longer exposed.
    """
    yield from (line for line in _lines(made, now_s) if line.partition("{")[0] not in gone)


def _lines(made: Rig, now_s: float) -> Iterator[str]:
    for pod in made.sims["east"].store.listing("pods", NAMESPACE):
        labels = f'namespace="{NAMESPACE}",pod="{pod["metadata"]["name"]}"'
        yield f"http_requests_total{{{labels}}} {10 * now_s}"
        yield f'container_cpu_usage_seconds_total{{{labels},container="main"}} {0.25 * now_s}'
        yield f'container_memory_working_set_bytes{{{labels},container="main"}} 1048576'
    yield f'http_requests_total{{namespace="{NAMESPACE}",pod="another"}} {1000 * now_s}'
    yield f'jobs_total{{namespace="{NAMESPACE}",deployment="web"}} {40 * now_s}'
    yield f'jobs_total{{namespace="{NAMESPACE}",deployment="api"}} {1000 * now_s}'
    yield f'queue_consumer_lag{{namespace="{NAMESPACE}",name="orders",shard="1"}} 40'
    yield f'queue_consumer_lag{{namespace="{NAMESPACE}",name="orders",shard="2"}} 45.5'
    yield 'queue_consumer_lag{namespace="other",name="orders"} 1000'
    yield f'queue_consumer_lag{{namespace="{NAMESPACE}",name="mails"}} NaN'


def answered(made: Rig, api: str, *, failed: bool = False) -> list[MetricAnswer]:
    items = [item for body in made.topics.of(Answers) for item in body.items]
    return [item for item in items if item.api == api and (item.error is not None) == failed]


def decided(made: Rig) -> Decision:
    """The last evaluation of what the observer reported."""
    log, key = LogBuilder(), f"east/{NAMESPACE}"
    log.now_ms = wall_clock_ms() + 600_000  # CPU counts from five minutes after a pod's start
    found: list[dict[str, Any]] = []
    for _, cluster, namespace, body in made.topics.entries:
        if (cluster, namespace) == ("east", NAMESPACE):
            found += log.add(log.entry(body, key), after_ms=1)
    found += log.ticks(20)  # an evaluation that has all of it
    return msgspec.convert(found[-1], Decision)


async def test_an_hpa_is_decided_from_a_real_prometheus(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        cluster, topics = made.sims["east"], made.topics
        cluster.apply(deployment("web", 2))
        cluster.apply(hpa("web", metrics=METRICS + hpa("web")["spec"]["metrics"]))
        gone: set[str] = set()
        async with scraping(tmp_path, lambda now_s: exposed(made, now_s, gone)) as server:
            pods = f'count(irate(http_requests_total{{namespace="{NAMESPACE}",pod!="another"}}[1m])) == 2'
            await server.until(pods, bool)
            config = ObserverConfig(
                kafka=made.kafka,
                clusters=made.clusters,
                polled={"prometheus": open_prometheus(connections(server))},
                sync_period_ms=1_000,
                heartbeat_ms=500,
            )
            async with running(Observer(config), asyncio.Event()):
                for api in ("pods", "object", "external", "resource"):
                    await topics.until(partial(answered, made, api), f"an answer of {api}")
                await topics.until(
                    lambda: (
                        {item.api for item in topics.of(Answers)[-1].items} >= {"pods", "external"}
                        and all(item.error is None for item in topics.of(Answers)[-1].items)
                    ),
                    "all answers together",
                )
                decision = decided(made)
                by_type = {metric.type: metric for metric in decision.metrics}
                assert [metric.error for metric in decision.metrics] == [""] * 4
                assert by_type["External"].value == 42_750, "85.5 for two replicas"
                assert by_type["Pods"].value == pytest.approx(10_000, rel=0.2)
                assert by_type["Pods"].pods_used == 2
                assert by_type["Object"].value == pytest.approx(40_000, rel=0.2)
                assert by_type["Resource"].utilization == pytest.approx(50, rel=0.2), "250m of 500m"
                assert by_type["External"].proposal == 5
                text = "\n".join(explanation_lines(explained(decision), now_ms=0))
                assert f'sum(queue_consumer_lag{{name="orders",namespace="{NAMESPACE}"}}) by (name)' in text
                assert f'http_requests_total{{namespace="{NAMESPACE}",pod=~".+"}}[1m]' in text

                gone.add("queue_consumer_lag")
                await topics.until(lambda: not answered(made, "external")[-1].items, "no value of a stale series")
                (stale,) = [metric for metric in decided(made).metrics if metric.type == "External"]
                assert "no metrics returned from external metrics API" in stale.error

                await server.stop()
                (error, *_) = await topics.until(lambda: answered(made, "external", failed=True), "its absence")
                assert (error.error or "").startswith("prometheus: ")
                await topics.until(
                    lambda: any(
                        (trouble.part, trouble.reason) == ("prometheus", "unreachable")
                        for report in topics.of(ClusterReport)
                        for trouble in report.troubles
                    ),
                    "the trouble",
                )
                seen = len(answered(made, "external"))
                await server.start()
                await topics.until(lambda: len(answered(made, "external")) > seen, "its return")

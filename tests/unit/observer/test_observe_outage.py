"""An API server that the observer cannot reach is one trouble of the cluster; a metrics API that fails is an answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reconciler.clusters.answers import ApiError, ClusterError, NoAnswerError, UnreachableError
from reconciler.core.metricanswers import PodMetricsList
from reconciler.observer.clusterview import FAILURES, ApiServer, ObserverMetrics
from reconciler.observer.metricpolls import MetricsPoller
from reconciler.observer.troubles import Troubles
from schemas.answers import MetricAnswer
from schemas.kubernetes.apirules import CURRENT_API
from schemas.observed import API_SERVER_PART

REFUSED = NoAnswerError("GET /apis: connection refused")
HUNG = NoAnswerError("GET /apis: no answer within 5s", was_connected=True)
QUESTIONS = [
    MetricAnswer(api="resource", selector="app=web"),
    MetricAnswer(api="resource", selector="app=api"),
    MetricAnswer(api="pods", selector="app=web", metric="requests"),
    MetricAnswer(api="external", metric="queue"),
]


class Cluster:
    """A cluster whose metrics APIs and whose API server answer or fail as a test says."""

    name = "east"

    def __init__(self, of_metrics: ClusterError, of_server: ClusterError | None) -> None:
        self.of_metrics, self.of_server = of_metrics, of_server
        self.asked = 0
        self.on_answer: Callable[[], None] = lambda: None

    async def get(self, path: str, **_: object) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.of_server is not None:
            raise self.of_server
        self.on_answer()
        return {}

    async def get_patiently(self, path: str, **_: object) -> dict[str, Any]:
        raise self.of_metrics

    async def get_as(self, form: object, path: str, **_: object) -> object:
        raise self.of_metrics

    async def versions(self, group: str) -> list[str]:
        return ["v1beta1"]


def poller(cluster: Cluster) -> tuple[MetricsPoller, Troubles]:
    metrics, troubles = ObserverMetrics(CollectorRegistry()), Troubles(lambda: 1)
    server = ApiServer(cluster, troubles, metrics)  # type: ignore[arg-type]
    cluster.on_answer = server.answered
    made = MetricsPoller(
        cluster,  # type: ignore[arg-type]
        cluster,  # type: ignore[arg-type]
        metrics=metrics,
        troubles=troubles,
        timeout_s=5.0,
        at_once=1,
        answers=server.answers,
        rules=lambda: CURRENT_API,
    )
    return made, troubles


@pytest.mark.parametrize(
    ("of_metrics", "of_server"),
    [
        pytest.param(REFUSED, REFUSED, id="its connections are refused"),
        pytest.param(HUNG, HUNG, id="it hangs"),
        pytest.param(HUNG, ApiError(503, "unavailable"), id="it drops requests, and a proxy answers in its place"),
    ],
)
async def test_an_api_server_that_is_away_is_one_trouble_of_the_cluster(
    of_metrics: ClusterError, of_server: ClusterError
) -> None:
    asking, troubles = poller(Cluster(of_metrics, of_server))
    assert await asking.ask("shop", QUESTIONS) == []
    assert [each.part for each in troubles.report()] == [API_SERVER_PART]


async def test_a_server_that_is_back_at_once_was_still_not_asked_for_metrics() -> None:
    asking, troubles = poller(Cluster(REFUSED, None))
    assert await asking.ask("shop", QUESTIONS) == []
    assert troubles.report() == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(HUNG, id="it hangs behind an API server that answers"),
        pytest.param(ApiError(503, "the server is currently unable to handle the request"), id="503"),
        pytest.param(ApiError(404, "the server could not find the requested resource"), id="not registered"),
        pytest.param(UnreachableError("the answer is no object of Kubernetes"), id="it answers with something else"),
    ],
)
async def test_an_error_of_a_metrics_api_is_the_answer(error: ClusterError) -> None:
    asking, troubles = poller(Cluster(error, None))
    assert [answer.error for answer in await asking.ask("shop", QUESTIONS)] == [str(error)] * len(QUESTIONS)
    assert sorted(each.part for each in troubles.report()) == [
        "custom.metrics.k8s.io",
        "external.metrics.k8s.io",
        "metrics.k8s.io",
    ]


async def test_what_was_known_of_a_metrics_api_holds_while_the_api_server_is_away() -> None:
    cluster = Cluster(ApiError(503, "unavailable"), None)
    asking, troubles = poller(cluster)
    await asking.ask("shop", QUESTIONS[:2])
    cluster.of_metrics = cluster.of_server = REFUSED
    await asking.ask("shop", QUESTIONS[:2])
    assert [each.part for each in troubles.report()] == [API_SERVER_PART, "metrics.k8s.io"]


async def test_who_asks_at_the_same_time_shares_the_requests() -> None:
    cluster = Cluster(REFUSED, REFUSED)
    asking, _ = poller(cluster)
    await asyncio.gather(*(asking.ask(f"ns-{number}", QUESTIONS) for number in range(50)))
    assert cluster.asked <= 2 * FAILURES


class OldAndNew(Cluster):
    """A cluster that serves some versions of metrics.k8s.io, and notes what it is asked."""

    def __init__(self, *served: str) -> None:
        super().__init__(ApiError(404, "the server could not find the requested resource"), None)
        self.served, self.paths, self.listed = served, list[str](), 0

    async def get_as(self, form: object, path: str, **_: object) -> object:
        self.paths.append(path.split("/")[3])
        if self.paths[-1] not in self.served:
            raise self.of_metrics
        return PodMetricsList([])

    async def versions(self, group: str) -> list[str]:
        self.listed += 1
        return list(self.served)


@pytest.mark.parametrize(
    ("served", "asked", "listed"),
    [
        pytest.param(("v1beta1", "v1"), ["v1beta1"] * 3, 0, id="both: as the controllers of all versions"),
        pytest.param(("v1",), ["v1beta1", "v1", "v1", "v1"], 1, id="v1 alone: what is served is looked up once"),
        pytest.param((), ["v1beta1"] * 3, 1, id="none: each poll is one request"),
    ],
)
async def test_v1_of_the_resource_metrics_is_asked_only_where_v1beta1_is_not_served(
    served: tuple[str, ...], asked: list[str], listed: int
) -> None:
    cluster = OldAndNew(*served)
    asking, _ = poller(cluster)

    for _ in range(3):
        (answer,) = await asking.ask("shop", [MetricAnswer(api="resource", selector="app=web")])

    assert (cluster.paths, cluster.listed) == (asked, listed)
    assert (answer.error is None) == bool(served)

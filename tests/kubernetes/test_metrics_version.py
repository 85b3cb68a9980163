"""The version of metrics.k8s.io that is asked: v1beta1, as by all controllers, and v1 where only that is served."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.nativehpas import Discovery
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.metricpolls import MetricsPoller
from reconciler.observer.troubles import Troubles
from schemas.answers import MetricAnswer, Query
from schemas.kubernetes.apirules import CURRENT_API
from tests.kubernetes.backend import Demand
from tests.kubernetes.controlplane import METRICS_GROUPS
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, deployment

QUESTION: Query = MetricAnswer(api="resource", selector="app=web")


async def always() -> bool:
    return True


def asked(site: Site) -> tuple[MetricAnswer, list[str]]:
    """Return the answer of a poller, and the versions of metrics.k8s.io that it asked in two polls."""
    paths: list[str] = []

    async def work() -> MetricAnswer:
        client = ClusterClient(ClusterConfig(site.name, str(site.plane.kubeconfig), site.name))
        try:
            poller = MetricsPoller(
                _noting(client, paths),
                Discovery(client),
                metrics=ObserverMetrics(CollectorRegistry()),
                troubles=Troubles(lambda: 1),
                timeout_s=50.0,
                at_once=2,
                answers=always,
                rules=lambda: CURRENT_API,
            )
            await poller.ask(NAMESPACE, [QUESTION])
            (answer,) = await poller.ask(NAMESPACE, [QUESTION])
            return answer
        finally:
            await client.close()

    answer = asyncio.run(work())
    return answer, [path.split("/")[3] for path in paths]


def _noting(client: ClusterClient, paths: list[str]) -> ClusterClient:
    ask: Callable[..., Awaitable[object]] = client.get_as

    async def get_as(form: type, path: str, *, timeout_s: float) -> object:
        paths.append(path)
        return await ask(form, path, timeout_s=timeout_s)

    client.get_as = get_as  # type: ignore[method-assign,assignment]
    return client


@pytest.mark.parametrize(
    ("served", "versions"),
    [
        pytest.param(("v1beta1",), ["v1beta1", "v1beta1"], id="v1beta1"),
        pytest.param(("v1beta1", "v1"), ["v1beta1", "v1beta1"], id="both"),
        pytest.param(("v1",), ["v1beta1", "v1", "v1"], id="v1 alone"),
    ],
)
def test_the_version_that_is_served_is_asked(
    served: tuple[str, ...], versions: list[str], binaries: Path, tmp_path: Path
) -> None:
    others = [each for each in METRICS_GROUPS if each[0] != "metrics.k8s.io"]
    groups = [*[("metrics.k8s.io", version) for version in served], *others]
    with Site("metrics", tmp_path, binaries, native=False, groups=groups) as site:
        site.plane.apply(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, deployment("web")]
        )
        site.backend.demands[NAMESPACE, "web"] = Demand(cpu_milli=100)
        until(lambda: len([*site.backend.ready(NAMESPACE, "app=web")]) == 2, "two pods are ready")

        answer, found = asked(site)

        assert found == versions
        assert answer.error is None
        assert answer.pods is not None

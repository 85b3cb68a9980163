"""`fleethpa metrics try` shows what an HPA would see, before one is written."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from aiohttp import web

from tests.kit.cli import Cli
from tests.kit.prometheus import FakePrometheus

RULES = """
rules:
- seriesQuery: requests_total
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_depth
  resources: {namespaced: false}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
"""
OF_PODS = 'sum(requests_total{namespace="shop",pod=~".+"}) by (pod)'
OF_SERVICE = 'sum(requests_total{namespace="shop",service="web"}) by (service)'


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[FakePrometheus, str]]:
    """A Prometheus on a loop of its own, and the file that names it."""
    server, ready = FakePrometheus(), Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with server.served():
            ready.set()
            await ended.wait()

    thread = Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    server.names = {"queue_depth": ["queue_depth"], 'requests_total{pod!=""}': ["requests_total"]}
    server.names['requests_total{service!=""}'] = ["requests_total"]
    server.results = {
        'queue_depth{name="orders"}': [({"name": "orders", "shard": "1"}, 2.5), ({"name": "orders"}, 4)],
        OF_PODS: [({"pod": "a"}, 1), ({"pod": "b"}, 2)],
        OF_SERVICE: [({"service": "web"}, 7)],
        "sum(up)": [({}, 3)],
    }
    (tmp_path / "rules.yaml").write_text(RULES)
    file = tmp_path / "prometheus.yaml"
    file.write_text(f'clusters: {{"*": {{url: "{server.url}", rules: rules.yaml, sources: {{}}}}}}')
    yield server, str(file)
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (("queue_depth", "--selector", "name=orders"), 0, ["External", "value 6500m, the sum of 2 series"]),
        (("queue_depth",), 1, ["no metrics returned from external metrics API"]),
        (("requests", "-n", "shop"), 0, ["Pods", OF_PODS, "average 1500m of 2 pods", "a  1", "b  2"]),
        (("requests", "-n", "shop", "--object", "Service/web"), 0, ["Object", OF_SERVICE, "value 7"]),
        (
            ("requests", "-n", "shop", "--object", "Service/api"),
            1,
            ["could not find the metric requests for services api"],
        ),
        (("sum(up)",), 0, ["expression", "value 3, the sum of 1 series"]),
        (
            ("nope",),
            4,
            ["no metric nope", "No rule of rules.yaml makes it of a series that is there.", "-C '*' --expression"],
        ),
        (("requests", "--object", "web"), 2, ["It must be KIND[.GROUP]/NAME"]),
        (("requests", "--selector", "a=(", "-n", "shop"), 2, ["--selector a=( cannot be used"]),
        (("queue_depth", "--selector", "a>1"), 2, ["operator not supported by prometheus"]),
    ],
)
def test_a_metric_is_shown_as_an_hpa_would_see_it(
    run: Cli, prometheus: tuple[FakePrometheus, str], arguments: tuple[str, ...], code: int, shown: list[str]
) -> None:
    done = run("metrics", "try", *arguments, "--prometheus", prometheus[1])
    text = done.stdout + done.stderr
    assert done.exit_code == code, text
    for each in shown:
        assert each in text


def test_a_prometheus_that_refuses_is_named(run: Cli, prometheus: tuple[FakePrometheus, str]) -> None:

    prometheus[0].reply = lambda: web.Response(status=403)
    done = run("metrics", "try", "queue_depth", "--prometheus", prometheus[1])
    assert done.exit_code == 3
    assert "cannot be asked" in done.stderr
    assert "HTTP status 403" in done.stderr

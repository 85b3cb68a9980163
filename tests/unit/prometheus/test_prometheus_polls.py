"""A Prometheus is asked in place of the metrics APIs: at most once per query and period, within bounds."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.clusters.answers import ClusterError, NoAnswerError
from reconciler.clusters.nativehpas import Resource
from reconciler.observer.httpconnections import Basic, HttpConnection
from reconciler.observer.polledsource import SourceContext
from reconciler.observer.troubles import Troubles
from reconciler.prometheus import promlimits
from reconciler.prometheus.connections import PromConnection
from reconciler.prometheus.poller import LOOK_AGAIN_MS, LOOK_EVERY_MS, PrometheusPoller
from reconciler.prometheus.promrules import parse_rules
from runtime.slots import BURST_S, Pace
from schemas.answers import Answers, MetricAnswer, pod_value
from schemas.observed import AutoscalerSet, Pod, PodList
from schemas.settings import SettingsSet
from tests.kit.answers import pods_of, usages_of
from tests.kit.partition import ENFORCING, LogBuilder, make_hpa, make_pod, scale
from tests.kit.prometheus import FakePrometheus

PERIOD_MS = 15_000
NOW_MS = 1_790_000_000_000
RULES = """
rules:
- seriesQuery: requests_total
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: '{__name__=~"^queue_.*"}'
  resources: {namespaced: false}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
resourceRules:
  cpu: {containerQuery: 'cpu{<<.LabelMatchers>>}', containerLabel: c, resources: {template: <<.Resource>>}}
  memory: {containerQuery: 'memory{<<.LabelMatchers>>}', containerLabel: c, resources: {template: <<.Resource>>}}
  window: 1m
"""
QUEUES = '{__name__=~"^queue_.*"}'
REQUESTS = 'requests_total{pod!=""}'
EXTERNAL = MetricAnswer(api="external", metric="queue_depth")
WEB = MetricAnswer(api="pods", selector="app=web", metric="requests")
API = MetricAnswer(api="pods", selector="app=api", metric="requests")
SERVICE = MetricAnswer(api="object", metric="requests", group_kind="Service", object="web")
ALL_APIS = frozenset({"resource", "pods", "object", "external"})


def pods(**labels: str) -> dict[str, Pod]:
    return {name: Pod(name=name, labels={"app": label}) for name, label in labels.items()}


class Asking:
    """A poller of one fake Prometheus, with a clock and pods that a test sets. `http`: how it is reached."""

    def __init__(self, server: FakePrometheus, *, max_series: int = 1_000, **http: Any) -> None:
        reached = HttpConnection(server.url, **({"queries_per_second": 1000} | http))
        connection = PromConnection(reached, parse_rules(RULES, "a.yaml"), ALL_APIS, "a.yaml", max_series)
        self.now_ms = NOW_MS
        self.pods: Mapping[str, Pod] | None = pods(a="web", b="web", x="api", other="none")
        self.troubles = Troubles(lambda: 1)
        self.resource: Resource | ClusterError = Resource("", "v1", "services", "Service")
        context = SourceContext(
            cluster="east",
            resource_of=self.resource_of,
            pods=lambda namespace: self.pods,
            period_ms=lambda namespace: PERIOD_MS,
            clock=lambda: self.now_ms,
            note=partial(self.troubles.record, "prometheus"),
        )
        self.poller = PrometheusPoller(connection, context)

    async def resource_of(self, group_kind: str) -> Resource:
        if isinstance(self.resource, ClusterError):
            raise self.resource
        return self.resource

    async def ask(self, *asked: MetricAnswer, namespace: str = "shop") -> list[MetricAnswer]:
        return await self.poller.ask(namespace, asked)

    async def error(self, asked: MetricAnswer) -> str:
        (answer,) = await self.ask(asked)
        return answer.error or ""


@asynccontextmanager
async def asking(**changes: Any) -> AsyncIterator[tuple[FakePrometheus, Asking]]:
    async with FakePrometheus().served() as server:
        server.names = {QUEUES: ["queue_depth"], REQUESTS: ["requests_total"]}
        server.names['requests_total{service!=""}'] = server.names['requests_total{namespace!=""}'] = ["requests_total"]
        made = Asking(server, **changes)
        try:
            yield server, made
        finally:
            await made.poller.close()


async def test_pods_of_several_hpas_are_one_query() -> None:
    text = 'sum(requests_total{namespace="shop",pod=~"a|b|x"}) by (pod)'
    async with asking() as (server, made):
        server.results[text] = [({"pod": "a"}, 1), ({"pod": "b"}, 2.5), ({"pod": "x"}, 3)]
        web_answer, api_answer = await made.ask(WEB, API)
    assert usages_of(web_answer.pods) == [pod_value("a", 1000, NOW_MS), pod_value("b", 2500, NOW_MS)]
    assert usages_of(api_answer.pods) == [pod_value("x", 3000, NOW_MS)]
    assert web_answer.asked == 'sum(requests_total{namespace="shop",pod=~".+"}) by (pod)'
    assert server.asked == {text: 1}


async def test_an_object_and_its_namespace_are_queries_of_their_own() -> None:
    of_service = 'sum(requests_total{namespace="shop",service="web"}) by (service)'
    of_namespace = 'sum(requests_total{namespace="shop"}) by (namespace)'
    whole = MetricAnswer(api="object", metric="requests", group_kind="Namespace", object="ignored")
    async with asking() as (server, made):
        server.results |= {of_service: [({"service": "web"}, 4)], of_namespace: [({"namespace": "shop"}, 9)]}
        service, namespace = await made.ask(SERVICE, whole)
    assert (service.milli, service.time, service.asked) == (4000, NOW_MS, of_service)
    assert (namespace.milli, namespace.asked) == (9000, of_namespace)


async def test_usages_are_two_queries_for_all_hpas_of_a_namespace() -> None:
    async with asking() as (server, made):
        for name in ("cpu", "memory"):
            text = f'{name}{{namespace="shop",pod=~"a|b|x"}}'
            server.results[text] = [({"pod": "a", "c": "app"}, 0.5), ({"pod": "x", "c": "app"}, 2)]
        found = await made.ask(*(MetricAnswer(api="resource", selector=f"app={name}") for name in ("web", "api")))
    assert [pods_of(answer.pods) for answer in found] == [["a"], ["x"]]
    assert usages_of(found[0].pods)[0].containers == [("app", {"cpu": 500, "memory": 500})]
    assert sum(server.asked.values()) == 2


async def test_two_thousand_hpas_on_two_hundred_queries_are_two_hundred_requests_a_period() -> None:
    names = [f"queue_{number}" for number in range(200)]
    async with asking() as (server, made):
        server.names[QUEUES] = names
        for period in range(2):
            made.now_ms = NOW_MS + period * PERIOD_MS
            for number in range(10):
                asked = [MetricAnswer(api="external", metric=name) for name in names]
                found = await made.ask(*asked, namespace=f"team-{number}")
                assert [answer.error for answer in found] == [None] * 200
        assert set(server.asked.values()) == {2}
        assert len(server.asked) == 200
        assert sum(server.looked.values()) == 1


async def test_whoever_asks_while_a_query_runs_shares_it_and_its_failure() -> None:
    async with asking() as (server, made):
        await made.ask(EXTERNAL)
        server.reply, made.now_ms = lambda: web.Response(status=500), NOW_MS + PERIOD_MS
        found = await asyncio.gather(*(made.ask(EXTERNAL, namespace=name) for name in "abc"))
        assert [answers[0].error is not None for answers in found] == [True] * 3
        assert server.asked == {"queue_depth{}": 2}


async def test_a_clock_that_is_set_back_does_not_stop_the_queries() -> None:
    async with asking() as (server, made):
        await made.ask(EXTERNAL)
        made.now_ms -= 3_600_000
        await made.ask(EXTERNAL)
        assert server.asked == {"queue_depth{}": 2}


async def test_too_many_pods_are_asked_for_as_all_pods() -> None:
    async with asking() as (server, made):
        made.pods = {f"p{n}": Pod(name=f"p{n}", labels={"app": "web"}) for n in range(promlimits.NAMES.most + 1)}
        await made.ask(WEB)
        assert list(server.asked) == ['sum(requests_total{namespace="shop",pod=~".+"}) by (pod)']


async def test_what_is_about_pods_waits_until_they_are_known() -> None:
    async with asking() as (_, made):
        made.pods = None
        assert [answer.api for answer in await made.ask(WEB, EXTERNAL)] == ["external"]


# --- metrics that are not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (
            MetricAnswer(api="pods", selector="app=web", metric="nope"),
            "the server could not find the metric nope for pods (no rule of a.yaml makes it of a series)",
        ),
        (
            MetricAnswer(api="pods", selector="app=gone", metric="requests"),
            "the server could not find the metric requests for pods (no pod matches the selector)",
        ),
        (
            MetricAnswer(api="object", metric="nope", group_kind="Service", object="web"),
            "the server could not find the metric nope for services web (no rule of a.yaml makes it of a series)",
        ),
        (
            MetricAnswer(api="external", metric="nope"),
            "the server could not find the metric nope for namespace shop (no rule of a.yaml makes it of a series)",
        ),
        (
            MetricAnswer(api="external", metric="queue_depth", metric_selector="a>1"),
            "prometheus: operator not supported by prometheus: a>1",
        ),
    ],
)
async def test_a_metric_that_is_not_there_is_an_error_of_the_metric(asked: MetricAnswer, error: str) -> None:
    async with asking() as (_, made):
        assert await made.error(asked) == error
        assert made.troubles.report() == []


async def test_series_are_looked_up_again_seldom_and_sooner_for_a_metric_that_is_missing() -> None:
    async with asking() as (server, made):
        server.names[QUEUES] = []
        assert "could not find" in await made.error(EXTERNAL)
        server.names[QUEUES] = ["queue_depth"]
        assert "could not find" in await made.error(EXTERNAL)
        assert server.looked == {QUEUES: 1}
        made.now_ms += LOOK_AGAIN_MS
        assert await made.error(EXTERNAL) == ""
        made.now_ms += LOOK_EVERY_MS - 1
        assert await made.error(EXTERNAL) == ""
        assert server.looked == {QUEUES: 2}


async def test_series_that_were_found_stay_while_they_cannot_be_looked_up() -> None:
    async with asking() as (server, made):
        assert await made.error(EXTERNAL) == ""
        server.reply, made.now_ms = lambda: web.Response(status=503), NOW_MS + LOOK_EVERY_MS
        assert "/api/v1/query: HTTP status 503" in await made.error(EXTERNAL)


async def test_a_kind_that_does_not_exist_is_an_error_and_an_api_server_that_is_away_is_none() -> None:
    async with asking() as (_, made):
        made.resource = ClusterError("unable to map kind Service to resource: no matches")
        assert await made.error(SERVICE) == "unable to map kind Service to resource: no matches"
        made.resource = NoAnswerError("GET /api/v1: connection refused")
        assert await made.ask(SERVICE) == []
        assert made.troubles.report() == []


# --- a Prometheus that fails ------------------------------------------------------------------------------------------


def states(kind: str, text: str, status: int) -> Callable[[], web.Response]:
    return lambda: web.json_response({"status": "error", "errorType": kind, "error": text}, status=status)


@pytest.mark.parametrize(
    ("reply", "error", "reason"),
    [
        pytest.param(states("bad_data", "parse error", 400), "bad_data: parse error", None, id="a bad query"),
        pytest.param(
            states("execution", "many-to-many", 422), "execution: many-to-many", None, id="cannot be computed"
        ),
        pytest.param(
            states("timeout", "query timed out", 503), "timeout: query timed out", "failing", id="its timeout"
        ),
        pytest.param(lambda: web.Response(status=401), "HTTP status 401", "forbidden", id="refused"),
        pytest.param(
            lambda: web.Response(status=302, headers={"Location": "/"}), "status 302", "failing", id="a login"
        ),
        pytest.param(lambda: web.Response(text="<html>"), "cannot be read", "failing", id="another server"),
        pytest.param(
            lambda: web.Response(body=bytes(promlimits.BYTES.most + 1)),
            f"more than {promlimits.BYTES.most} bytes",
            "failing",
            id="too large",
        ),
    ],
)
async def test_a_prometheus_that_fails_is_the_answer_and_a_trouble(
    reply: Callable[[], web.Response], error: str, reason: str | None
) -> None:
    async with asking() as (server, made):
        await made.ask(EXTERNAL)
        server.reply, made.now_ms = reply, NOW_MS + PERIOD_MS
        text = await made.error(EXTERNAL)
        assert text.startswith("prometheus: ")
        assert error in text
        assert [(each.part, each.reason) for each in made.troubles.report()] == (
            [("prometheus", reason)] if reason else []
        )
        server.reply, made.now_ms = None, NOW_MS + 2 * PERIOD_MS
        assert await made.error(EXTERNAL) == ""
        assert made.troubles.report() == []


async def test_one_that_is_away_or_slow_is_the_answer_and_a_trouble() -> None:
    async with asking(timeout_s=0.3) as (server, made):
        server.hangs = True
        assert "no answer within 0.3 s" in await made.error(EXTERNAL)
        assert [each.reason for each in made.troubles.report()] == ["unreachable"]
    away = Asking(server)
    assert "prometheus: http://127.0.0.1" in await away.error(EXTERNAL)
    assert [each.reason for each in away.troubles.report()] == ["unreachable"]
    await away.poller.close()


async def test_an_hpa_shows_the_error_of_its_prometheus_behind_the_prefix_of_the_controller_once() -> None:
    log, target = LogBuilder(), {"type": "AverageValue", "averageValue": "5"}
    of_queue = {"type": "External", "external": {"metric": {"name": "queue_depth"}, "target": target}}
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(metrics=[of_queue])))
    log.add(scale(), PodList(list_id="a", pods=[make_pod("web-0")]))
    async with asking() as (server, made):
        server.reply = states("timeout", "query timed out", 503)
        (decision,) = log.add(Answers(items=await made.ask(EXTERNAL)), after_ms=15_000)
    active = next(each for each in decision["status"]["conditions"] if each["type"] == "ScalingActive")
    assert active["message"] == (
        "the HPA was unable to compute the replica count: unable to get external metric shop/queue_depth/nil: "
        "unable to fetch metrics from external metrics API: prometheus: "
        "/api/v1/label/__name__/values: timeout: query timed out"
    )


async def test_more_series_than_the_limit_are_an_error() -> None:
    async with asking(max_series=2) as (server, made):
        server.results["queue_depth{}"] = [({"name": str(number)}, 1) for number in range(3)]
        assert "the query gives 3 series, the limit is 2" in await made.error(EXTERNAL)


def test_no_more_queries_are_sent_than_the_limit_allows() -> None:
    pace = Pace(10)
    waits = [pace.wait_s(100.0, 1.0) for _ in range(25)]
    burst = int(BURST_S * 10) + 1
    assert waits[:burst] == [0.0] * burst
    assert waits[burst] == pytest.approx(0.1)
    assert waits[-1] is None
    assert pace.wait_s(200.0, 1.0) == 0.0


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_a_token_is_sent_and_read_again_after_a_refusal(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with asking(bearer_token_file=str(token), headers={"X-Scope-OrgID": "team-a"}) as (server, made):
        await made.ask(EXTERNAL)
        assert (server.headers["Authorization"], server.headers["X-Scope-OrgID"]) == ("Bearer first", "team-a")
        token.write_text("second")
        server.reply, made.now_ms = lambda: web.Response(status=401), NOW_MS + PERIOD_MS
        await made.ask(EXTERNAL)
        assert server.headers["Authorization"] == "Bearer first"
        server.reply, made.now_ms = None, NOW_MS + 2 * PERIOD_MS
        await made.ask(EXTERNAL)
        assert server.headers["Authorization"] == "Bearer second"


async def test_a_user_and_password_are_sent(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pässword")
    async with asking(basic=Basic("me", str(tmp_path / "password"))) as (server, made):
        await made.ask(EXTERNAL)
        assert base64.b64decode(server.headers["Authorization"].split()[1]).decode() == "me:pässword"


async def test_a_token_that_cannot_be_read_is_the_answer_and_a_trouble(tmp_path: Path) -> None:
    async with asking(bearer_token_file=str(tmp_path / "none")) as (server, made):
        assert "credentials for" in await made.error(EXTERNAL)
        assert not server.looked
        assert [each.part for each in made.troubles.report()] == ["prometheus"]


def test_only_what_the_sources_name_is_asked_of_it() -> None:
    connection = PromConnection(
        HttpConnection("http://prometheus"), parse_rules(RULES, "a.yaml"), frozenset({"external"})
    )
    assert [connection.answers(query) for query in (EXTERNAL, WEB, SERVICE)] == [True, False, False]
    assert replace(connection, apis=ALL_APIS).answers(WEB)

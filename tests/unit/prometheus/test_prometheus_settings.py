"""The file of --prometheus: what it may say, and what is wrong with it in words."""

import re

import pytest

from reconciler.observer.httpconnections import Basic, Tls
from reconciler.prometheus.connections import parse_prometheus_file
from schemas.answers import Query
from schemas.codec import encode

RULES = "externalRules: [{seriesQuery: q, metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'}]"
ALL = """
clusters:
  east:
    url: https://mimir.example.com/prometheus/
    rules: rules.yaml
    sources: {External: prometheus, Pods: prometheus, Object: api}
    basic: {username: me, passwordFile: /secrets/password}
    tls: {caFile: ca.crt, certFile: tls.crt, keyFile: tls.key, serverName: mimir}
    headers: {X-Scope-OrgID: team-a}
    matchers: {cluster: east}
    timeout: 5s
    queriesPerSecond: 50
    maxSeries: 100
  "*": {url: "http://prometheus:9090", rules: /etc/rules.yaml, sources: {}, bearerTokenFile: token}
"""


def read(path: str) -> str:
    if not path.endswith("rules.yaml"):
        raise ValueError(f"{path}: no such file")
    return RULES


def test_a_cluster_has_its_own_prometheus_or_that_of_all() -> None:
    found = parse_prometheus_file(ALL, "p.yaml", read, "/conf")
    east, other = found.of("east"), found.of("west")
    assert east is not None
    assert other is not None
    assert (east.http.url, east.http.timeout_s, east.http.queries_per_second, east.max_series) == (
        "https://mimir.example.com/prometheus",
        5.0,
        50,
        100,
    )
    assert [east.answers(Query(api=api)) for api in ("external", "pods", "object", "resource")] == [
        True,
        True,
        False,
        False,
    ]
    assert east.http.basic == Basic("me", "/secrets/password")
    assert east.http.tls == Tls("/conf/ca.crt", "/conf/tls.crt", "/conf/tls.key", "mimir")
    assert east.rules.external[0].selector(None) == 'q{cluster="east"}'
    assert (other.http.bearer_token_file, other.apis) == ("/conf/token", frozenset())
    assert parse_prometheus_file("clusters: {}", "p.yaml", read).of("east") is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"url": "prometheus:9090"}, "clusters.east.url: must be http(s)://HOST[:PORT][/PATH], before /api/v1"),
        ({"url": "http://me:secret@host"}, "clusters.east.url: must hold no password"),
        ({"rules": "none.txt"}, "none.txt: no such file"),
        ({"sources": {"External": "thanos"}}, "Invalid enum value 'thanos' - at `$.clusters[...].sources[...]`"),
        ({"sources": {"Cpu": "prometheus"}}, "Invalid enum value 'Cpu'"),
        ({"sources": {"Resource": "prometheus"}}, "sources.Resource: rules.yaml has no resourceRules"),
        ({"nope": 1}, "Object contains unknown field `nope`"),
        ({"bearerTokenFile": "a", "basic": {"username": "b", "passwordFile": "c"}}, "exclude each other"),
        ({"tls": {"certFile": "a"}}, "tls: certFile and keyFile belong together"),
        ({"headers": {"Authorization": "x"}}, "headers: 'Authorization' cannot be set here"),
        ({"headers": {"X-Scope-OrgID": "a\r\nb"}}, "headers: 'X-Scope-OrgID' cannot be set here"),
        ({"matchers": {"a-b": "x"}}, "matchers: 'a-b' is not the name of a label"),
        ({"timeout": "5 s"}, "clusters.east.timeout: "),
        ({"timeout": "2m"}, "timeout: 120000 ms is not from 1 to 60000"),
        ({"queriesPerSecond": 0}, "queriesPerSecond: 0 a second is not from 1 to 1000"),
        ({"maxSeries": 1_000_000}, "maxSeries: 1000000 series is not from 1 to 10000"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, object], error: str) -> None:
    cluster = {"url": "http://host", "rules": "rules.yaml", "sources": {"External": "prometheus"}} | changes
    with pytest.raises(ValueError, match=re.escape(error)):
        parse_prometheus_file(encode({"clusters": {"east": cluster}}).decode(), "p.yaml", read)

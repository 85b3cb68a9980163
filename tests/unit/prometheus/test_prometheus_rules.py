"""The rules of prometheus-adapter become the queries that it makes of them.

The cases of the queries are those of its own tests, pkg/naming/metrics_query_test.go and regex_matcher_test.go, and of
its documentation.
"""

from pathlib import Path
from typing import Any

import pytest

from reconciler.prometheus.promrules import (
    ANY,
    NAMESPACES,
    PODS,
    ObjectResource,
    PromRules,
    RulesError,
    SeriesRule,
    parse_rules,
)
from schemas.codec import encode
from schemas.kubernetes.selectors import parse_selector

DATA = Path("tests/data/prometheus")
BRAND = ObjectResource("brands", "brand", "cheese.io")
SERVICE = ObjectResource("services", "service")


def documented() -> PromRules:
    return parse_rules((DATA / "documentation.yaml").read_text(), "documentation.yaml")


def rule(**changes: Any) -> SeriesRule:
    """A rule whose query shows what a template's fields are."""
    made = {"seriesQuery": "foo", "metricsQuery": "<<.LabelMatchers>>", "resources": {"template": "<<.Resource>>"}}
    return parse_rules(encode({"rules": [made | changes]}).decode(), "a.yaml").custom[0]


@pytest.mark.parametrize(
    ("template", "names", "selector", "namespace", "text"),
    [
        ("series <<.Series>>", ("bar",), "", "", "series foo"),
        ("<<.LabelMatchers>>", ("bar", "baz"), "", "", 'pod=~"bar|baz"'),
        ("<<.LabelMatchers>>", ("bar",), "", "", 'pod="bar"'),
        ("<<.LabelMatchers>>", ("bar",), "metric1=value1", "", 'metric1="value1",pod="bar"'),
        ("<<.LabelMatchers>>", ("bar",), "", "default", 'namespace="default",pod="bar"'),
        ("<<.LabelMatchers>>", (ANY,), "", "default", 'namespace="default",pod=~".+"'),
        ('<<index .LabelValuesByName "pod">>', ("bar",), "", "", "bar"),
        ('<<index .LabelValuesByName "pod">>', ("bar", "baz"), "", "", "bar|baz"),
        ('<<index .LabelValuesByName "namespace">> <<index .LabelValuesByName "pod">>', "ab", "", "d", "d a|b"),
        ('<<index .LabelValuesByName "none">>x', ("bar",), "", "", "x"),
        ("<<.LabelValuesByName>>", ("bar",), "a in (b,c)", "", "map[a:b|c pod:bar]"),
        ("<<.GroupBy>>", ("bar",), "", "", "pod"),
        ("<<.GroupBySlice>> <<index .GroupBySlice 0>>", ("bar",), "", "", "[pod] pod"),
        ("sum( <<- .Series ->> )", ("bar",), "", "", "sum(foo)"),
        ("<<.LabelMatchers>>", ("b",), "k in (x)", "", 'k=~"x",pod="b"'),
        ("<<.LabelMatchers>>", ("b",), "k notin (x)", "", 'k!~"x",pod="b"'),
        ("<<.LabelMatchers>>", ("b",), "k notin (y,x)", "", 'k!~"x|y",pod="b"'),
        ("<<.LabelMatchers>>", ("b",), "k!=x", "", 'k!="x",pod="b"'),
        ("<<.LabelMatchers>>", ("b",), "k", "", 'k!="",pod="b"'),
        ("<<.LabelMatchers>>", ("b",), "!k", "", 'k="",pod="b"'),
    ],
)
def test_a_question_about_objects_becomes_the_adapters_query(
    template: str, names: tuple[str, ...], selector: str, namespace: str, text: str
) -> None:
    made = rule(metricsQuery=template).of_objects("foo", PODS, namespace, parse_selector(selector), names)
    assert made == text


@pytest.mark.parametrize(
    ("namespaced", "template", "selector", "text"),
    [
        (True, "series <<.Series>>", "", "series foo"),
        (True, "<<.LabelMatchers>>", "", 'namespace="default"'),
        (True, "<<.LabelMatchers>>", "foo=bar", 'foo="bar",namespace="default"'),
        (True, "<<.LabelMatchers>>", "foo=bar,qux in (bar,baz)", 'foo="bar",qux=~"bar|baz",namespace="default"'),
        (False, "<<.LabelMatchers>>", "foo=bar", 'foo="bar"'),
        (True, '<<index .LabelValuesByName "namespace">> <<.GroupBySlice>>', "", "default []"),
        (False, '<<index .LabelValuesByName "namespace">> <<.GroupBySlice>>', "", " []"),
    ],
)
def test_an_external_metric_becomes_the_adapters_query(
    namespaced: bool, template: str, selector: str, text: str
) -> None:
    made = rule(metricsQuery=template, resources={"template": "<<.Resource>>", "namespaced": namespaced})
    assert made.of_external("foo", "default", parse_selector(selector)) == text


@pytest.mark.parametrize(
    ("resources", "resource", "label"),
    [
        ({"template": "kube_<<.Group>>_<<.Resource>>"}, BRAND, "kube_cheese_io_brand"),
        ({"overrides": {"brand_name": {"group": "cheese.io", "resource": "brand"}}}, BRAND, "brand_name"),
        ({"overrides": {"brand_name": {"resource": "brands"}}}, BRAND, "brand_name"),
        ({"overrides": {"ns": {"resource": "namespace"}}, "template": "k_<<.Resource>>"}, NAMESPACES, "ns"),
        ({"overrides": {"ns": {"resource": "namespace"}}, "template": "k_<<.Resource>>"}, PODS, "k_pod"),
    ],
)
def test_a_resource_has_the_label_that_its_rule_names(
    resources: dict[str, Any], resource: ObjectResource, label: str
) -> None:
    assert rule(resources=resources).labels.of(resource) == label


def test_a_rule_without_a_label_for_the_resource_says_so() -> None:
    with pytest.raises(RulesError, match=r"no label for brands\.cheese\.io: add one under resources\.overrides"):
        rule(resources={"overrides": {"pod": {"resource": "pod"}}}).labels.of(BRAND)


@pytest.mark.parametrize(
    ("name", "filters", "series", "metric"),
    [
        ({}, [], "foo", "foo"),
        ({"matches": "^(.*)_total$"}, [], "requests_total", "requests"),
        ({"matches": "^(.*)_total$"}, [], "requests", None),
        ({"matches": "^(.*)_total", "as": "${1}_per_second"}, [], "requests_total", "requests_per_second"),
        ({"matches": "^(.*)_(.*)$", "as": "$2.$1"}, [], "a_b", "b.a"),
        ({"matches": "^(.*)_total$", "as": "$1x$$"}, [], "a_total", "$"),
        ({"as": "cheesy_goodness"}, [], "cheddar", "cheesy_goodness"),
        ({"matches": "o"}, [], "foo", "o"),
        ({}, [{"is": "^f"}], "foo", "foo"),
        ({}, [{"is": "^f"}], "bar", None),
        ({}, [{"isNot": "^f"}], "bar", "bar"),
        ({}, [{"isNot": "^f"}], "foo", None),
        ({}, [{"is": "^f"}, {"isNot": "_total$"}], "f_total", None),
    ],
)
def test_a_series_is_the_metric_that_its_rule_makes_of_it(
    name: dict[str, str], filters: list[dict[str, str]], series: str, metric: str | None
) -> None:
    assert rule(name=name, seriesFilters=filters).metric_of(series) == metric


@pytest.mark.parametrize(
    ("query", "selector"),
    [
        ("foo", 'foo{pod!=""}'),
        ("foo{}", 'foo{pod!=""}'),
        (' {namespace!="",} \n', '{namespace!="",pod!=""}'),
        ('{__name__=~"^a.*"}', '{__name__=~"^a.*",pod!=""}'),
    ],
)
def test_only_series_with_a_label_of_the_resource_are_looked_for(query: str, selector: str) -> None:
    made = rule(seriesQuery=query)
    assert made.selector(PODS) == selector
    assert made.selector(None) == query.strip()


@pytest.mark.parametrize(
    ("query", "selector"),
    [
        pytest.param('{a!=""}  # all of them\n', '{a!="",pod!=""}', id="behind it"),
        pytest.param('foo # }\n{\n  a="b", # two\n}\n', 'foo \n{\n  a="b",pod!=""}', id="within it"),
        pytest.param("{a=\"#\",b='#',c=`#`}", '{a="#",b=\'#\',c=`#`,pod!=""}', id="none but texts"),
        pytest.param('{a="\\"#"}', '{a="\\"#",pod!=""}', id="a quote in a text"),
    ],
)
def test_comments_of_a_query_for_series_do_not_hide_what_is_added(query: str, selector: str) -> None:
    assert rule(seriesQuery=query).selector(PODS) == selector


def test_the_matchers_of_a_cluster_are_in_every_query_and_look_up() -> None:
    text = encode(
        {
            "rules": [
                {
                    "seriesQuery": "foo",
                    "metricsQuery": "x{<<.LabelMatchers>>}",
                    "resources": {"template": "<<.Resource>>"},
                }
            ]
        }
    ).decode()
    (made,) = parse_rules(text, "a.yaml", {"cluster": "east"}).custom
    query = made.of_objects("foo", PODS, "shop", parse_selector(""), ["a"])
    assert query == 'x{namespace="shop",pod="a",cluster="east"}'
    assert made.selector(PODS) == 'foo{cluster="east",pod!=""}'


def test_the_rules_of_the_documentation_are_read_unchanged() -> None:
    rules = documented()
    everything, requests = rules.custom
    assert " ".join(everything.of_objects("jobs_total", SERVICE, "shop", parse_selector(""), ["web"]).split()) == (
        'sum by (service) ( irate ( jobs_total{namespace="shop",service="web"}[1m] ) )'
    )
    assert everything.metric_of("http_requests_total") == "http_requests"
    assert requests.metric_of("http_requests_total") == "http_requests_per_second"
    assert requests.of_objects("http_requests_total", PODS, "shop", parse_selector(""), ["a", "b"]) == (
        'sum(rate(http_requests_total{kubernetes_namespace="shop",kubernetes_pod_name=~"a|b"}[2m]))'
        " by (kubernetes_pod_name)"
    )
    lag, depth = rules.external
    assert lag.of_external("queue_consumer_lag", "shop", parse_selector("name=orders")) == (
        'sum(queue_consumer_lag{name="orders",namespace="shop"}) by (name)'
    )
    assert depth.of_external("queue_depth", "shop", parse_selector("")) == "sum(queue_depth{}) by (name)"
    assert rules.resource is not None
    assert rules.resource.window_ms == 300_000
    usage = rules.resource.memory.of_objects("", PODS, "shop", parse_selector(""), ["a"], ["container"])
    assert " ".join(usage.split()) == (
        'sum by (pod,container) ( container_memory_working_set_bytes{namespace="shop",pod="a",container!="",pod!=""} )'
    )


def test_the_sample_configuration_is_read_once_its_quotes_are_those_of_yaml() -> None:
    """As it is in the documentation, neither the adapter nor anybody else can read it."""
    text = (DATA / "sample-config.yaml").read_text()
    with pytest.raises(RulesError, match=r"^sample-config\.yaml: not YAML: "):
        parse_rules(text, "sample-config.yaml")
    quoted = text.replace(': "sum(', ": 'sum(").replace(')"\n', ")'\n")
    rules = parse_rules(quoted, "sample-config.yaml")
    assert [each.metric_of("container_cpu_usage_seconds_total") for each in rules.custom] == [
        "cpu_usage",
        None,
        "container_cpu_usage_seconds",
        "cheesy_goodness",
    ]
    assert rules.custom[3].of_objects("cheddar", BRAND, "", parse_selector(""), ["x"]) == 'count(cheddar{sharp="true"})'
    with pytest.raises(RulesError, match="no label for namespaces"):
        rules.external[0].of_external("queue_consumer_lag", "shop", parse_selector(""))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rules: [", "a.yaml: not YAML: "),
        ("rules: 1", "a.yaml: Expected `array`, got `str` - at `$.rules`"),
        ("rulez: []", "a.yaml: Object contains unknown field `rulez`"),
        ("rules: [{metricsQuery: x}]", "a.yaml: rules[0].seriesQuery: Required value"),
        ("externalRules: [{seriesQuery: x}]", "a.yaml: externalRules[0].metricsQuery: Required value"),
        ("rules: [{seriesQuery: x, metricsQuery: '<<.Nope>>'}]", "template field .Nope is not known"),
        ("rules: [{seriesQuery: x, metricsQuery: '<<printf .Series>>'}]", "template action <<printf .Series>> is not"),
        ("rules: [{seriesQuery: x, metricsQuery: 'a<<.Series'}]", "a template action is not closed by >>"),
        ("rules: [{seriesQuery: x, metricsQuery: y, name: {matches: '('}}]", "name.matches: not a regular expression"),
        ("rules: [{seriesQuery: x, metricsQuery: y, name: {matches: '(.)(.)'}}]", "name.as: Required value"),
        ("rules: [{seriesQuery: x, metricsQuery: y, seriesFilters: [{}]}]", "seriesFilters[0]: needs either is or"),
        ("resourceRules: {window: 5x}", "resourceRules.cpu.containerQuery: Required value"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place(text: str, error: str) -> None:
    with pytest.raises(RulesError) as found:
        parse_rules(text, "a.yaml")
    assert error in str(found.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("rules: {default: false, custom: []}", "values of the prometheus-adapter chart", id="values"),
        pytest.param("rules: {default: true}\nprometheus: {url: u}", "helm template", id="values of more"),
        pytest.param(
            "prometheus-adapter: {rules: {custom: []}}", "values of the prometheus-adapter chart", id="a part"
        ),
        pytest.param("kind: ConfigMap\ndata: {config.yaml: 'rules: []'}", 'data."config.yaml"', id="ConfigMap"),
    ],
)
def test_what_a_file_of_rules_is_made_of_or_kept_in_is_named(text: str, error: str) -> None:
    with pytest.raises(RulesError) as found:
        parse_rules(text, "a.yaml")
    assert str(found.value).startswith("a.yaml: ")
    assert error in str(found.value)

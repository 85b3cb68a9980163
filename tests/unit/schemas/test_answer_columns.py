"""Answers about pods as columns: nothing is lost, and a metric reads the same as from each pod by itself."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.answers import MetricAnswer, PodColumns, PodUsage, check_size, in_columns, pod_value
from schemas.codec import decode, encode
from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.limits import ANSWER, ANSWER_PODS, MAX_TIME_MS, OverLimitError
from streams.hpa.gofloat import wrap64
from streams.hpa.observation import MetricFailure, PodSamples, compile_answer
from streams.hpa.rules import rules_of
from streams.state.ledger import StateError
from streams.state.rows import AnswerRow
from tests.kit.answers import usages_of

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
NAMES = st.sampled_from(("web-1", "web-2", "web-21", "é", ""))
INT64 = st.integers(-(2**63), 2**63 - 1)
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), INT64 | st.integers(0, 2**50).map(lambda each: each * 1000))
CONTAINERS = st.lists(st.tuples(st.sampled_from(("main", "istio-proxy")), AMOUNTS), max_size=3)
USAGES = st.lists(st.builds(PodUsage, NAMES, st.integers(0, MAX_TIME_MS), st.integers(0, 60_000), CONTAINERS))


def by_name(usage: PodUsage) -> PodUsage:
    """The pod with its containers in the order of their names."""
    return usage._replace(containers=sorted(usage.containers, key=lambda each: each[0]))


def over_the_wire(pods: PodColumns | None) -> PodColumns | None:
    return decode(encode(MetricAnswer(api="resource", pods=pods)), MetricAnswer).pods


@given(usages=USAGES)
def test_what_was_put_into_columns_is_in_them(usages: list[PodUsage]) -> None:
    found = usages_of(over_the_wire(in_columns(usages)))
    read = [each._replace(containers=[(name, dict(used)) for name, used in each.containers]) for each in found]
    containers = [each for usage in read for each in usage.containers]
    plain = [(name, {each: milli for each, milli in used.items() if each}) for name, used in containers]
    assert plain == [(name, used) for each in usages for name, used in by_name(each).containers]
    assert [each[:3] for each in read] == [each[:3] for each in usages]


@given(st.lists(st.builds(pod_value, NAMES, INT64, st.integers(0, MAX_TIME_MS), st.just(60_000))))
def test_values_of_a_custom_metric_are_one_column(values: list[PodUsage]) -> None:
    pods = over_the_wire(in_columns(values))
    assert usages_of(pods) == values
    assert pods is None or len(pods.columns) == 1


def of_each_pod(usages: Sequence[PodUsage], resource: str, container: str) -> dict[str, tuple[int, int, int]]:
    """The samples of a metric, read from each pod by itself. Source: metrics/client.go `GetResourceMetric`."""
    found = {}
    for pod, time_ms, window_ms, containers in usages:
        own = [used.get(resource) for name, used in containers if name == container or not container]
        known = [milli for milli in own if milli is not None]
        if known and own[0] is not None and (container or len(known) == len(own)):
            found[pod] = (known[0] if container else wrap64(sum(known)), time_ms or ZERO_TIME_MS, window_ms)
    return found


@given(resource=st.sampled_from(RESOURCES), container=st.sampled_from(("", "main", "other")), usages=USAGES)
def test_a_metric_reads_from_columns_what_it_reads_from_each_pod(
    resource: str, container: str, usages: list[PodUsage]
) -> None:
    answer = MetricAnswer(api="resource", selector="app=web", pods=over_the_wire(in_columns(usages)))
    found = compile_answer(answer, resource, container)
    if not usages:
        assert found == MetricFailure("no metrics returned from resource metrics API")
        return
    assert isinstance(found, PodSamples)
    assert found.samples == of_each_pod(usages, resource, container)


@given(usages=USAGES.filter(bool))
def test_up_to_1_32_the_first_pod_without_the_container_is_named(usages: list[PodUsage]) -> None:
    found = compile_answer(MetricAnswer(api="resource", pods=in_columns(usages)), "cpu", "main", "shop", rules_of(32))
    without = [each.pod for each in usages if "main" not in dict(each.containers)]
    if without:
        assert isinstance(found, MetricFailure)
        assert found.error.endswith(f"container main not present in metrics for pod shop/{without[0]}")
    else:
        assert isinstance(found, PodSamples)


def test_a_pod_without_containers_is_there_and_has_nothing() -> None:
    pods = in_columns([PodUsage("web-1", 5, 15_000, [])])
    assert pods == PodColumns("web-1", "", 5, [], 15_000, [], [])
    assert compile_answer(MetricAnswer(api="resource", pods=pods), "cpu") == PodSamples({}, 0, None, None)


def test_the_form_of_a_usual_answer() -> None:
    usages = [
        PodUsage("front-7c9-abc", 1_790_000_015_000, 15_240, [("app", {"cpu": 335, "memory": 196_609 * 1_024_000})]),
        PodUsage("front-7c9-xyz", 1_790_000_013_800, 15_110, [("app", {"memory": 51_200 * 1_024_000, "cpu": 120})]),
        PodUsage("front-7c9-zzz", 1_790_000_015_000, 15_240, [("app", {"cpu": 7}), ("log", {})]),
    ]
    assert encode(in_columns(usages)) == (
        b'["front-7c9-","abc,xyz,zzz",1790000015000,[0,1200,0],15240,[0,130,0],'
        b'[["app","cpu",1,[335,120,7]],["app","memory",1024000,[196609,51200,null]],["log","",1,[null,null,0]]]]'
    )


def test_a_name_with_a_comma_is_no_name_of_a_pod() -> None:
    with pytest.raises(ValueError, match="the name of a pod has a comma"):
        in_columns([pod_value("a,b", 1, 1), pod_value("c", 1, 1)])


def test_pods_that_all_have_other_containers_do_not_fill_the_memory() -> None:
    usages = [PodUsage(f"web-{each}", 1, 1, [(f"c{each}", {"cpu": 1})]) for each in range(10_000)]
    with pytest.raises(OverLimitError, match="answer of a metrics API of so many containers: "):
        in_columns(usages)
    many = [PodUsage("web", 1, 1, [("main", {"cpu": 1})] * 200_000)]
    with pytest.raises(OverLimitError, match="so many containers"):
        in_columns(many)


def test_an_answer_is_refused_by_name_beyond_the_bound_and_only_there() -> None:
    usages = [PodUsage(f"web-{i:05}", i, i, [("app", {"cpu": i, "memory": 10**12 + i})]) for i in range(10_001)]
    fits = MetricAnswer(api="external", metric="queue", items=[(10**15, 10**12)] * 9_900)
    assert len(encode(fits)) == 326_745
    check_size(fits)
    text = f"answer of a metrics API of queue: 330045 bytes of JSON, the limit is {ANSWER.most}"
    with pytest.raises(OverLimitError, match=text):
        check_size(MetricAnswer(api="external", metric="queue", items=[(10**15, 10**12)] * 10_000))
    text = f"pods in an answer of a metrics API of resource: 10001 pods, the limit is {ANSWER_PODS.most}"
    with pytest.raises(OverLimitError, match=text):
        check_size(MetricAnswer(api="resource", pods=in_columns(usages)))
    check_size(MetricAnswer(api="resource", pods=in_columns([each._replace(window_ms=1) for each in usages[:9_000]])))


BAD = {
    "no JSON": b"",
    "a list": b"[]",
    "columns that are none": b'{"api":"resource","pods":["web-","1",5,[],15000,[],[["main","cpu",1,3]]]}',
}


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in BAD.items()])
def test_a_stored_answer_that_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(StateError):
        _ = AnswerRow(1, "", value).answer

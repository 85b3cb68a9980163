"""Answers about pods as columns: nothing is lost, and a decision does not depend on the form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json, structs

from schemas.answers import Answers, MetricAnswer, PodUsage, PodValue, packed, unpacked
from schemas.codec import decode, encode
from schemas.entries import LogRecord
from schemas.limits import MAX_TIME_MS
from streams.hpa.observation import compile_answer
from streams.state.gather import _of_columns
from streams.state.ledger import StateError
from streams.state.partition import Partition
from streams.state.rows import AnswerRow
from tests.kit.generated_log import Fleet, partition_log

RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "")
NAMES = st.sampled_from(("web-1", "web-2", "web-21", "é", "", "a,b"))
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(-(2**63), 2**63 - 1))
CONTAINERS = st.lists(st.tuples(st.sampled_from(("main", "istio-proxy")), AMOUNTS), max_size=2)
USAGES = st.lists(st.builds(PodUsage, NAMES, st.integers(0, MAX_TIME_MS), st.integers(0, 60_000), CONTAINERS))


@st.composite
def alike(draw: st.DrawFn) -> list[PodUsage]:
    """Pods that have the same containers and resources, as those of one workload."""
    containers = draw(st.lists(st.sampled_from(("main", "istio-proxy")), min_size=1, max_size=2, unique=True))
    resources = draw(st.lists(st.sampled_from(("cpu", "memory")), min_size=1, max_size=2, unique=True))
    milli = st.integers(0, 2**60).map(lambda value: value // 1000 * 1000)
    amounts = st.tuples(*[milli for _ in resources]).map(lambda values: dict(zip(resources, values, strict=True)))
    usages = st.builds(
        lambda pod, time_ms, window_ms, *each: PodUsage(
            pod, time_ms, window_ms, list(zip(containers, each, strict=True))
        ),
        st.sampled_from(("web-1", "web-2", "web-21")),
        st.integers(0, MAX_TIME_MS),
        st.sampled_from((15_000, 15_123)),
        *[amounts for _ in containers],
    )
    return draw(st.lists(usages, min_size=1))


@given(usages=USAGES | alike())
def test_an_answer_that_was_packed_has_the_same_items(usages: list[PodUsage]) -> None:
    answer = MetricAnswer(api="resource", selector="app=web", usages=usages, promql="sum(x)")
    assert unpacked(decode(encode(packed(answer)), MetricAnswer)) == answer


@given(usages=alike())
def test_pods_that_are_alike_are_packed(usages: list[PodUsage]) -> None:
    assert packed(MetricAnswer(api="resource", usages=usages)).packed is not None


@given(
    st.lists(st.builds(PodValue, NAMES, st.integers(-(2**63), 2**63 - 1), st.integers(0, MAX_TIME_MS), st.just(60_000)))
)
def test_values_of_a_custom_metric_that_were_packed_are_the_same(values: list[PodValue]) -> None:
    answer = MetricAnswer(api="pods", metric="rps", values=values)
    made = packed(answer)
    assert unpacked(made) == answer
    if values and not any("," in value.pod for value in values):
        assert _of_columns(AnswerRow(1, "", encode(made)), "") == compile_answer(answer)


@given(resource=st.sampled_from(RESOURCES), usages=USAGES | alike(), error=st.none() | st.just("timeout"))
def test_one_resource_is_read_as_the_whole_answer_is(resource: str, usages: list[PodUsage], error: str | None) -> None:
    answer = MetricAnswer(api="resource", selector="app=web", usages=usages)
    row = AnswerRow(1, "", encode(structs.replace(packed(answer), error=error)))
    found = _of_columns(row, resource)
    whole = compile_answer(structs.replace(answer, error=error), resource)
    assert compile_answer(row.answer, resource) == whole
    assert found is None or found == whole


@given(resource=st.sampled_from(("cpu", "memory")), usages=alike())
def test_what_all_pods_have_is_read_without_an_object_per_pod(resource: str, usages: list[PodUsage]) -> None:
    found = _of_columns(AnswerRow(1, "", encode(packed(MetricAnswer(api="resource", usages=usages)))), resource)
    assert (found is not None) == all(resource in amounts for _, amounts in usages[0].containers)


BAD = {
    "no JSON": b"",
    "a list": b"[]",
    "another version": b'{"packed":[2,"web-","1",5,[],15000,[],[["main","cpu",1,[3]]]]}',
    "one value for two pods": b'{"api":"resource","packed":[1,"web-","1,2",5,[],15000,[],[["main","cpu",1,[3]]]]}',
    "one age for two pods": b'{"api":"resource","packed":[1,"web-","1,2",5,[0],15000,[],[["main","cpu",1,[3,4]]]]}',
    "one window for two pods": b'{"api":"resource","packed":[1,"web-","1,2",5,[],15000,[0],[["main","cpu",1,[3,4]]]]}',
}


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in BAD.items()])
def test_what_cannot_be_read_is_left_to_the_reader_of_whole_answers_which_refuses_it(value: bytes) -> None:
    row = AnswerRow(1, "", value)
    assert _of_columns(row, "cpu") is None
    with pytest.raises(StateError):
        _ = row.answer


def in_items(value: bytes) -> bytes:
    """The log record with an item per pod in its answers, as they were before they were packed."""
    record = decode(value, LogRecord)
    entries = [
        structs.replace(each, body=structs.replace(each.body, items=list(map(unpacked, each.body.items))))
        if isinstance(each.body, Answers)
        else each
        for each in record.entries
    ]
    return encode(structs.replace(record, entries=entries))


def decisions(log: list[tuple[int, int, bytes]]) -> list[dict[str, Any]]:
    partition, found = Partition.empty(0), []
    for record in log:
        for made in partition.apply(*record):
            decision = json.decode(made.value)
            decision.get("input", {}).pop("hash", None)  # that of the log's bytes
            decision.pop("prev", None)
            found.append(decision)
    return found


def test_the_same_is_decided_by_answers_in_either_form() -> None:
    log = [record for record in partition_log(Fleet(hpas=20, namespaces=4, minutes=4, metrics=3, churn=0.1))]
    plain = [(offset, time_ms, in_items(value)) for offset, time_ms, value in log]
    assert sum(len(value) for *_, value in log) < 0.8 * sum(len(value) for *_, value in plain)
    found = decisions(log)
    assert len(found) > 200
    assert found == decisions(plain)

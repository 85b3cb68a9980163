"""Reading one resource of an answer gives what reading all of it gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.observed import MetricAnswer, PodUsage
from streams.hpa.observation import compile_answer
from streams.state.gather import _of_one_resource
from streams.state.rows import AnswerRow

RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "milli")
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(-(2**63), 2**63 - 1))
CONTAINERS = st.lists(st.tuples(st.sampled_from(("main", "istio-proxy")), AMOUNTS), max_size=2)
USAGES = st.lists(
    st.builds(
        PodUsage, st.sampled_from(("web-1", "web-2", "é")), st.integers(0, 2**53), st.integers(0, 60_000), CONTAINERS
    )
)
ONE_CONTAINER = st.lists(
    st.builds(
        lambda pod, time_ms, amounts: PodUsage(pod, time_ms, 15_000, [("main", amounts)]),
        st.sampled_from(("web-1", "web-2", "web-3")),
        st.integers(0, 2**53),
        AMOUNTS,
    ),
    min_size=1,
)


@given(resource=st.sampled_from(("cpu", "memory")), usages=USAGES | ONE_CONTAINER, error=st.none() | st.just("timeout"))
def test_one_resource_is_read_as_the_whole_answer_is(resource: str, usages: list[PodUsage], error: str | None) -> None:
    answer = MetricAnswer(api="resource", selector="app=web", usages=usages, error=error)
    found = _of_one_resource(AnswerRow(1, "", encode(answer)), resource)
    is_plain = error is None and bool(usages) and all(len(each.containers) == 1 for each in usages)
    assert found == (compile_answer(answer, resource) if is_plain else None)


@pytest.mark.parametrize("json", [b"", b"[]", b'{"usages":[["web-1","soon",15000,[]]]}'])
def test_what_cannot_be_read_is_left_to_the_reader_of_whole_answers(json: bytes) -> None:
    assert _of_one_resource(AnswerRow(1, "", json), "cpu") is None

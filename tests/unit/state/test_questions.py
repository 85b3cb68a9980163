"""What an answer answers is read once per question: its JSON before the values is the same each time."""

import msgspec
import pytest

from schemas.answers import MetricAnswer, PodUsage, PodValue
from schemas.codec import encode
from schemas.decisions import Decision
from streams.state.answers import AnswerHead, question_in
from streams.state.namespace import Namespace
from streams.state.partition import Partition
from tests.kit.generated_log import Fleet, generate

_USAGES = [PodUsage(pod="web-1", time=1, window_ms=15_000, containers=[("main", {"cpu": 1})])]
_VALUES = [PodValue(pod="web-1", milli=5, time=1, window_ms=15_000)]
WHOLE = [
    MetricAnswer(api="resource", selector="app=web", usages=_USAGES),
    MetricAnswer(api="pods", metric="rps", metric_selector="a in (b,c)", selector="app=web", values=_VALUES),
    MetricAnswer(api="external", metric="depth", items=[(1, 2), (3, 4)]),
]
OTHERS = [
    MetricAnswer(api="resource", selector='x","usages":[],"a":[', usages=_USAGES),
    MetricAnswer(api="resource", selector='back\\"":[', usages=_USAGES),
    MetricAnswer(api="resource", selector="app=web", error='no ":[ here]}'),
    MetricAnswer(api="resource", selector="app=web", error="e", usages=_USAGES),
    MetricAnswer(api="resource", selector="app=web", usages=[]),
    MetricAnswer(api="object", metric="rps", group_kind="Service", object="web", milli=5, time=1),
    MetricAnswer(api="resource", selector="app=web", usages=_USAGES, answer_id="a", part=0, parts=2),
    MetricAnswer(api="resource", selector="app=web", usages=_USAGES, answer_id="a", part=1, parts=2),
    MetricAnswer(api="external", metric="depth", items=[(1, 2)], promql="sum(x)"),
    MetricAnswer(api="external", metric="depth", items=[(1, 2)], promql='sum(x) or "]}'),
]


@pytest.mark.parametrize("answer", WHOLE)
def test_the_question_of_a_whole_answer_is_all_that_says_what_it_answers(answer: MetricAnswer) -> None:
    item = encode(answer)
    question = question_in(item)
    assert question
    assert msgspec.json.decode(question + b"}", type=AnswerHead) == msgspec.json.decode(item, type=AnswerHead)


@pytest.mark.parametrize("answer", OTHERS)
def test_an_error_a_part_a_single_value_or_an_escaped_text_is_read_whole(answer: MetricAnswer) -> None:
    assert question_in(encode(answer)) == b""


def test_a_part_is_read_whole_also_where_its_number_comes_before_its_values() -> None:
    assert question_in(b'{"api":"pods","metric":"rps","answerId":"a","part":1,"parts":2,"values":[["web-1",1]]}') == b""


def test_questions_of_other_values_are_the_same_and_of_other_queries_are_not() -> None:
    others = [MetricAnswer(api="resource", selector="app=web", usages=_USAGES * 2), MetricAnswer(api="resource")]
    first, more, none = (question_in(encode(each)) for each in (WHOLE[0], *others))
    assert first == more
    assert first != none


def test_questions_that_are_no_longer_asked_are_forgotten() -> None:
    namespace = Namespace("east", "web")
    for number in range(1_000):
        namespace.note_question(b"%d" % number, ("resource", str(number), "", "", "", ""))
    assert len(namespace.questions) < 20
    assert b"999" in namespace.questions


def test_the_bytes_of_a_decision_are_the_json_of_its_body() -> None:
    partition, full = Partition.empty(0), 0
    for record in generate(Fleet(hpas=4, namespaces=2, minutes=3, partitions=1)):
        for made in partition.apply(record.offset, record.timestamp_ms, record.value):
            assert made.value == encode(made.body)
            full += isinstance(made.body, Decision)
    assert full

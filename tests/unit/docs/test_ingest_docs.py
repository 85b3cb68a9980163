"""Every message and every mapping in the guide works as written there."""

import re
from pathlib import Path

import pytest

from schemas.entries import KINDS
from schemas.topicconfigs import TOPICS
from schemas.topics import PUBLIC_TOPICS, REPORTS
from streams import ingest
from streams.ingest.mapping import load_mapping
from streams.ingest.own import OBSERVED
from streams.ingest.pieces import HARMLESS
from streams.ingest.preflight import check_record

GUIDE = (Path(__file__).parents[3] / "docs" / "connect-your-metrics.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^```json\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
MAPPINGS = re.findall(r"^```yaml mapping\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("message", [pytest.param(text, id=f"message {n}") for n, text in enumerate(MESSAGES, 1)])
def test_messages_of_the_guide_are_taken_whole(message: str) -> None:
    report = check_record(message.encode())
    assert (report.result, report.reasons, report.left_out) == ("ok", [], {})


def test_the_mapping_of_the_guide_can_be_loaded() -> None:
    [text] = MAPPINGS
    mapping = load_mapping(text, "guide")
    assert [rule.match for rule in mapping.rules] == ["go_*", "orders_total", "queue:*", "ingress_rps"]


def test_the_guide_has_messages_of_every_kind() -> None:
    assert {check_record(message.encode()).format for message in MESSAGES} == {
        "fleethpa",
        "fleethpa_sample",
        "otlp_json",
    }


TOPICS_PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "topics.md").read_text(encoding="utf-8")


def test_the_reference_names_every_topic_and_code() -> None:
    for topic in TOPICS:
        assert f"| `{topic.name}` |" in TOPICS_PAGE
    sources = Path(ingest.__file__).parent.glob("*.py")
    codes = {code for path in sources for code in re.findall(r'Refusal\(\s*"(\w+)"', path.read_text(encoding="utf-8"))}
    assert codes >= {"badName", "unmatched"}
    assert codes - HARMLESS | {"unmatched"} == set(
        re.findall(r"`(\w+)`", TOPICS_PAGE.split("Codes: ")[1].split("\n\n")[0])
    )


def test_the_reference_has_each_kind_in_one_row_with_its_topics() -> None:
    names = {topic.removeprefix("fleethpa."): topic for topic in PUBLIC_TOPICS}
    stated = list[tuple[str, set[str]]]()
    for row in TOPICS_PAGE.partition("| kind | topics |\n|---|---|\n")[2].partition("\n\n")[0].splitlines():
        _, kinds, where, _ = row.split("|")
        found = {names[word] for word in re.findall(r"\w+", where) if word in names}
        stated += [(kind, found) for kind in re.findall(r"`(\w+)`", kinds)]
    assert sorted(stated) == sorted((each.tag, set(each.topics)) for each in KINDS)


def test_the_reference_says_which_kinds_an_agent_may_report_and_which_never() -> None:
    may, never = TOPICS_PAGE.split("- the kinds ")[1].split("\n- ")[0].split("; never ")
    kinds = {each.tag for each in KINDS if set(each.topics) != {REPORTS}}
    assert set(re.findall(r"`(\w+)`", may)) - {"cluster"} == OBSERVED
    assert set(re.findall(r"`(\w+)`", never)) == kinds - OBSERVED


def test_the_records_of_the_reference_are_taken() -> None:
    messages = re.findall(r"^```json\n(.*?)^```$", TOPICS_PAGE, re.MULTILINE | re.DOTALL)
    assert [check_record(message.encode()).result for message in messages] == ["ok"] * 3

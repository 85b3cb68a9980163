"""Every message and every mapping in the guide works as it stands there."""

import re
from pathlib import Path

import pytest

from streams.ingest.check import check_record
from streams.ingest.mapping import load_mapping

GUIDE = (Path(__file__).parents[2] / "docs" / "connect-your-metrics.md").read_text(encoding="utf-8")
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
        "prometheus",
    }

"""A decision record: what was ever written reads for ever."""

from pathlib import Path

import jsonschema
import orjson
import pytest

from schemas.codec import decode, encode
from schemas.decisions import Decision, MetricDecision, Step
from tests import publishedschemas

GOLDEN = Path(__file__).parents[2] / "golden" / "decisions"
KINDS = ("evaluation", "wanted", "completion")


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_reads_for_ever_and_writes_the_same_bytes(name: str) -> None:
    assert encode(decode(golden(name), Decision)) == golden(name)
    schema = orjson.loads((publishedschemas.FOLDER / "decision.json").read_bytes())
    jsonschema.validate(orjson.loads(golden(name)), schema)


def test_the_golden_records_have_every_field() -> None:
    decisions = [orjson.loads(golden(name)) for name in KINDS]
    named = {field for each in decisions for field in each}
    assert named == set(Decision.__struct_encode_fields__)
    assert {field for each in decisions for metric in each.get("metrics", ()) for field in metric} == set(
        MetricDecision.__struct_encode_fields__
    )
    assert {field for each in decisions for step in each.get("steps", ()) for field in step} == set(
        Step.__struct_encode_fields__
    )

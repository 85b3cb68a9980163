"""A decision record: what was ever written reads for ever."""

from pathlib import Path
from typing import Annotated

import jsonschema
import msgspec
import orjson
import pytest

from fleethpa.questions.exports import COLUMNS
from schemas.codec import decode, encode
from schemas.decisionfields import DECISION_FIELDS, declared
from schemas.decisions import Decision, MetricDecision, Step, about
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


def test_a_field_without_a_text_fails() -> None:
    class Longer(Decision, frozen=True, kw_only=True):
        priority: int = 0

    with pytest.raises(TypeError, match="field priority has no text"):
        declared(Longer)


def test_a_field_is_declared_once_and_shown_wherever_fields_are() -> None:
    class Longer(Decision, frozen=True, kw_only=True):
        priority: Annotated[int, about("who goes first", "integer", label="Priority")] = 0

    (*known, priority) = declared(Longer)
    assert tuple(known) == DECISION_FIELDS
    assert priority == ("priority", "priority", "who goes first", "integer", "Priority")
    assert msgspec.json.schema(Longer)["$defs"]["Longer"]["properties"]["priority"]["description"] == "who goes first"


def test_the_reference_is_what_is_declared() -> None:
    assert publishedschemas.REFERENCE.read_text(encoding="utf-8") == publishedschemas.reference(), (
        "run `make generated`"
    )


def test_the_schema_of_a_row_has_the_columns_of_an_export() -> None:
    row = orjson.loads((publishedschemas.FOLDER / "output" / "DecisionRow.json").read_bytes())
    columns = {name for name, *_ in COLUMNS}
    assert set(row["required"]) == row["properties"].keys() == columns, "schemas/json/output/DecisionRow.json, by hand"

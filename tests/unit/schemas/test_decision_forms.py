"""The two forms of a decision record: what was ever written reads for ever, and a short one leaves nothing new out."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from msgspec import structs

from schemas.codec import decode, encode
from schemas.decisions import Decision, MetricDecision, ShortDecision, Step, expand
from streams.state.records import Facts
from tests import publishedschemas

GOLDEN = Path(__file__).parents[2] / "golden" / "decisions"
FULL = ("evaluation", "wanted", "completion")

OF_EACH_RECORD = {"id", "seq", "prev", "time", "input", "raw_desired_replicas"}
"""A short record has its own."""
WITH_VALUES = {"metrics", "steps", "status"}
"""A short record has the values in them; `shape_of` has the rest."""
OF_THE_HPA = {"cluster", "namespace", "name", "uid", "scale_target_ref", "target", "min_replicas", "max_replicas"}
"""They follow from the HPA and its spec; `generation`, `spec_hash` and `origin` stand for them in the digest."""
IN_THE_DIGEST = {"observed", "spec_hash", "origin", "generation", "engine", "rules"}
WITH_THE_SPEC = {"author", "change_reason"}
"""They change with the generation only."""
NEVER_SHORT = {"kind", "expires", "completes", "outcome"}
"""Only a completion, or an evaluation that wants a write, has them: their records are full."""


def test_every_field_of_a_decision_has_its_place_in_short_records() -> None:
    """A field that neither the digest nor the short record has would be repeated when it is old."""
    kinds = (
        OF_EACH_RECORD,
        WITH_VALUES,
        OF_THE_HPA,
        IN_THE_DIGEST,
        WITH_THE_SPEC,
        NEVER_SHORT,
        set(Facts.__struct_fields__),
    )
    assert sorted(name for kind in kinds for name in kind) == sorted(Decision.__struct_fields__)
    own = set(ShortDecision.__struct_fields__)
    assert own - OF_EACH_RECORD == {"same_as", "m", "newest"}
    assert own >= OF_EACH_RECORD


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("name", [*FULL, "short"])
def test_every_form_reads_for_ever_and_writes_the_same_bytes(name: str) -> None:
    kind: Any = ShortDecision if name == "short" else Decision
    assert encode(decode(golden(name), kind)) == golden(name)
    schema = "short-decision" if name == "short" else "decision"
    jsonschema.validate(
        orjson.loads(golden(name)), orjson.loads((publishedschemas.FOLDER / f"{schema}.json").read_bytes())
    )


def test_the_golden_records_have_every_field() -> None:
    decisions = [orjson.loads(golden(name)) for name in FULL]
    named = {field for each in decisions for field in each}
    assert named == set(Decision.__struct_encode_fields__)
    assert {field for each in decisions for metric in each.get("metrics", ()) for field in metric} == set(
        MetricDecision.__struct_encode_fields__
    )
    assert {field for each in decisions for step in each.get("steps", ()) for field in step} == set(
        Step.__struct_encode_fields__
    )
    assert set(orjson.loads(golden("short"))) == set(ShortDecision.__struct_encode_fields__)


def test_a_golden_short_record_is_the_full_one_with_its_own_values() -> None:
    full, short = decode(golden("evaluation"), Decision), decode(golden("short"), ShortDecision)
    whole = expand(short, full)
    assert (whole.id, whole.time, whole.reason) == (short.id, short.time, full.reason)
    assert [metric.utilization for metric in whole.metrics] == [79, None, None]
    assert [metric.note for metric in whole.metrics] == ["", "withinTolerance", ""]
    assert "Tolerance" not in whole.constraints_applied, "the metrics ask for other replicas than there are"
    steady = expand(structs.replace(short, raw_desired_replicas=full.current_replicas), full)
    assert steady.constraints_applied == ["Tolerance", *whole.constraints_applied]

"""The Kubernetes API types against upstream's answers; the files are a representative part of the full vectors.

Cases of the full validation file whose input lost an explicit empty `policies` list (its encoder leaves such a list
out) are not among them: their input no longer says what upstream was asked.
"""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.api import API_CHECKS

DATA = Path(__file__).parent / "data"
FILES = {kind: "kubectl" if kind == "kubectl" else f"api-{kind}" for kind in API_CHECKS}


def cases_of(kind: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{FILES[kind]}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", FILES)
def test_every_answer_is_upstreams(kind: str) -> None:
    results = list(API_CHECKS[kind](cases_of(kind)))

    assert len(results) > 200
    assert [result for result in results if result] == []


@pytest.mark.parametrize(
    ("kind", "pick", "path", "wrong"),
    [
        pytest.param("quantity", {"in": "1.5"}, ["milli"], 1501, id="another milli value"),
        pytest.param("defaulting", {}, ["out", "spec", "minReplicas"], 7, id="another default"),
        pytest.param("validation", {"op": "status"}, ["message"], "no", id="another message"),
        pytest.param("conversion", {"from": "v2"}, ["v1", "spec", "maxReplicas"], 0, id="another converted field"),
        pytest.param("selectors", {"in": "app"}, ["string"], "!app", id="another text of a selector"),
        pytest.param("kubectl", {"kind": "age"}, ["text"], "1y", id="another age"),
    ],
)
def test_a_wrong_answer_is_seen_and_named(kind: str, pick: dict[str, Any], path: list[str], wrong: Any) -> None:
    cases = copy.deepcopy(cases_of(kind))
    case = next(each for each in cases if pick.items() <= each.items() and "labelSets" not in each)
    place = case
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = wrong

    different = [result for result in API_CHECKS[kind](cases) if result]

    assert len(different) == 1
    assert different[0][0][:2] == (".".join(path), wrong)

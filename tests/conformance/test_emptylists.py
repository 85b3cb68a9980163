"""An explicit empty `policies` list is missing from the files' JSON; upstream's answer shows that it was there."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.api import check_validation, explain_validation
from tests.conformance.emptylists import EMPTY_LIST
from tests.conformance.runner import run

FILE = Path(__file__).parent / "data" / "api-emptylists.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(FILE) as lines:
        return [json.loads(line) for line in lines]


def refused_update() -> dict[str, Any]:
    """A case whose old object had the empty list too: upstream keeps its generation."""
    return next(each for each in cases() if each["op"] == "update" and each["in"]["spec"] == each["old"]["spec"])


def test_each_such_case_is_explained_and_counted_apart() -> None:
    report = run([FILE], jobs=1).files[0]

    lost = [each for each in cases() if next(check_validation([each]))]
    assert len(lost) > 3
    assert (report.different, report.explained) == (0, {EMPTY_LIST: len(lost)})
    assert report.equal == report.cases - len(lost)


def test_the_old_object_had_an_empty_list_where_the_generation_says_so() -> None:
    case = refused_update()
    assert explain_validation(case) == EMPTY_LIST

    case["generation"] += 1

    assert explain_validation(case) == EMPTY_LIST, "the old object may as well have had the default policies"
    case["generation"] += 1
    assert explain_validation(case) is None


def other_detail(case: dict[str, Any]) -> None:
    case["errors"][0]["detail"] += "!"


def other_message(case: dict[str, Any]) -> None:
    case["message"] += "!"


def one_error_more(case: dict[str, Any]) -> None:
    case["handwritten"].append(copy.deepcopy(case["handwritten"][0]) | {"field": "spec.minReplicas"})


def list_present(case: dict[str, Any]) -> None:
    """The input shows policies, so an error about none is wrong."""
    policy = {"type": "Pods", "value": 1, "periodSeconds": 60}
    for rules in case["in"]["spec"]["behavior"].values():
        rules["policies"] = [policy]


def no_behavior(case: dict[str, Any]) -> None:
    del case["in"]["spec"]["behavior"]


@pytest.mark.parametrize("damage", [other_detail, other_message, one_error_more, list_present, no_behavior])
def test_any_other_difference_stays_one(damage: Any, tmp_path: Path) -> None:
    case = refused_update()
    damage(case)
    path = tmp_path / "case.jsonl"
    path.write_text(json.dumps(case) + "\n")

    report = run([path], jobs=1).files[0]

    assert (report.different, report.explained) == (1, {})


def test_an_answer_that_does_not_speak_of_it_explains_nothing() -> None:
    case = refused_update()
    case["errors"] = case["handwritten"] = []
    case["message"] = "something else"

    assert explain_validation(case) is None

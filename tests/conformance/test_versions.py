"""The engine with the rules of each Kubernetes version against what that version's controller answered.

The files are a sample of the answers of the compiled controllers; `mini` holds scenarios that all versions answered.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from streams.hpa.rules import rules_of
from tests.conformance import scenarios
from tests.conformance.__main__ import to_text
from tests.conformance.runner import run

DATA = Path(__file__).parent / "data" / "versions"
ANSWERS = sorted(path.name for path in DATA.glob("v*.jsonl.gz"))
MANGLED = "%!"
"""Up to 1.28 upstream reads a percent sign in an error text as a format verb; docs/known-differences.md names it."""


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_that_of_its_version(name: str) -> None:
    report = run([DATA / name], jobs=1)

    assert [shown for file in report.files for shown in file.first] == []
    answered = report.files[0].equal + sum(report.files[0].explained.values())
    assert answered == report.files[0].cases > 0


def test_scenarios_of_all_versions_differ_only_where_old_messages_are_mangled() -> None:
    with gzip.open(DATA / "mini.jsonl.gz") as lines:
        cases = [json.loads(line) for line in lines]

    wrong = [(case, difference) for case in cases for difference in scenarios.check_scenario(case)]

    assert len({case["version"] for case in cases}) == 11
    assert Counter(case["version"] for case, _ in wrong).keys() <= {"v1.27.16", "v1.28.15"}
    assert all(MANGLED in upstream for _, (_, upstream, _) in wrong)


def test_a_recording_can_be_answered_with_the_rules_of_another_version() -> None:
    report = run([DATA.parent / "A-syncs.jsonl.gz"], jobs=1, rules=rules_of(36, {"HPAScaleToZero": True}))

    assert (report.files[0].different, report.files[0].writes) == (160, 0)
    assert "other replicas would have been written at 0 syncs" in to_text(report)


def test_answers_of_one_version_are_not_those_of_another() -> None:
    with gzip.open(DATA / "v1.32.13-controller.jsonl.gz") as lines:
        cases = [{**json.loads(line), "version": "v1.36.3"} for line in lines]

    assert sum(bool(list(scenarios.check_scenario(case))) for case in cases) > 20

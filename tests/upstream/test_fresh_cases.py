"""Fresh cases without upstream's compiled code: what can be said of them on any machine."""

from tests.conformance.scenarios import Scenario
from tests.upstream.__main__ import fresh
from tests.upstream.olderversions import as_of
from tests.upstream.recordedcases import OF_API


def test_a_case_with_a_number_is_the_same_however_many_are_asked_for() -> None:
    few, many = fresh(3, 60), fresh(3, 120)
    assert set(few) == {"controller", "calculator", *OF_API}
    for name, cases in few.items():
        assert 0 < len(cases) < len(many[name])
        assert many[name][: len(cases)] == cases
    assert fresh(4, 60)["controller"] != few["controller"]


def test_no_fresh_scenario_breaks_the_engine() -> None:
    for case in fresh(5, 400)["controller"]:
        scenario = Scenario(case)
        for tick in case["ticks"]:
            assert "action" in scenario.tick(tick["in"]), case["id"]


def test_no_answer_is_part_of_a_question() -> None:
    for case in fresh(3, 120)["controller"]:
        assert "memory" not in case
        assert all(tick.keys() == {"in"} for tick in case["ticks"])


def test_a_case_of_an_older_version_leaves_out_what_is_a_known_difference_there() -> None:
    case = {"metric": {"error": "100%"}, "selector": " ", "toleranceUp": 0.1, "toleranceDown": 0.5}
    changed = {"selector": "app", "version": "v1.33.13"}
    assert as_of("v1.33.13", case) == case | changed
    assert as_of("v1.32.13", case) == case | changed | {"version": "v1.32.13", "toleranceDown": 0.1}
    assert as_of("v1.28.15", case)["metric"] == {"error": "100"}
    assert case["selector"] == " "

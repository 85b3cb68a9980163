"""Which tiers CI runs for a change."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tiers import ALWAYS, BY_TURNS, NO_TURN, PACKAGES, TURNS, Plan, imports_of, landings, module_of, plan

ROOT = Path(__file__).parents[3]
IMPORTS = {
    "fleethpa.page": frozenset({"fleethpa.page.views", "fleethpa.show.words", "schemas.decisions"}),
    "streams.partition": frozenset({"streams.state.fold", "schemas.decisions"}),
    "streams.hpa": frozenset({"streams.hpa.rules", "schemas.kubernetes.quantity"}),
}


def planned(changed: Iterable[str], turn: int = 0, has: object = True, budget_minutes: float = 1_000) -> Plan:
    return plan(changed, turn, lambda package: IMPORTS.get(package, frozenset()), lambda _: has, budget_minutes)


def names(made: Plan) -> list[str]:
    return [tier.name for tier in made.run]


def test_each_tier_with_a_turn_runs_in_one_landing_of_five_whatever_changed() -> None:
    ran = {name for turn in range(TURNS) for name in names(planned(["docs/page.md"], turn))}
    assert ran == {tier.name for tier in (*ALWAYS, *BY_TURNS) if tier.turn != NO_TURN}


def test_a_tier_without_a_turn_does_not_say_that_it_has_one() -> None:
    reasons = {tier.name: reason for tier, reason in planned(["docs/page.md"]).left}
    assert reasons["test-upstream"] == "this change does not touch it"


def test_what_is_left_out_is_said_with_its_reason() -> None:
    made = planned(["docs/page.md"], turn=0)
    assert {tier.name for tier, _ in made.left} == {tier.name for tier in BY_TURNS if tier.turn}
    assert all("does not touch" in reason for _, reason in made.left)


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        pytest.param("fleethpa/page/templates/hpa.html", {"test-page"}, id="a file of the tier's own"),
        pytest.param("fleethpa/show/words.py", {"test-page"}, id="what its package imports"),
        pytest.param("streams/state/fold.py", {"test-laws", "test-pythons-short"}, id="a module of another package"),
        pytest.param("schemas/kubernetes/quantity.py", {"test-upstream"}, id="what a tier without a turn is about"),
        pytest.param("tests/kit/archive.py", {tier.name for tier in BY_TURNS}, id="what all tiers run on"),
    ],
)
def test_a_tier_runs_when_the_change_touches_what_it_tests(path: str, runs: set[str]) -> None:
    quiet = set(names(planned(["docs/page.md"], turn=0)))
    touched = set(names(planned([path], turn=0)))
    assert touched - quiet == {name for name in runs if name not in quiet}


def test_what_does_not_fit_into_the_budget_is_left_out_by_name_but_for_its_turn() -> None:
    made = planned(["tests/kit/archive.py"], turn=0, budget_minutes=0)
    own_turn = {tier.name for tier in BY_TURNS if tier.turn == 0}
    assert set(names(made)) == {tier.name for tier in ALWAYS} | own_turn
    assert {tier.name for tier, reason in made.left if "minutes" in reason} == {
        tier.name for tier in BY_TURNS
    } - own_turn


def test_a_short_tier_does_not_run_beside_the_one_that_has_all_of_its_tests() -> None:
    made = planned(["tests/kafka/broker.py"], turn=0)
    assert "test-kafka" in names(made)
    assert "test-kafka-short" not in names(made)


def test_a_tier_whose_tools_are_missing_is_left_out_by_name() -> None:
    made = planned(["tests/kit/archive.py"], has=None)
    reasons = {tier.name: reason for tier, reason in made.left}
    assert reasons["test-kafka"] == "no java and no mvn on this machine"
    assert "test" in names(made)


def test_a_pause_between_commits_ends_a_landing() -> None:
    assert landings([10_000, 9_900, 8_000, 7_000, 100]) == 3


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("streams/hpa/rules.py", "streams.hpa.rules"),
        ("streams/hpa/__init__.py", "streams.hpa"),
        ("fleethpa/page/templates/hpa.html", "fleethpa.page.templates"),
    ],
)
def test_a_file_belongs_to_a_module(path: str, module: str) -> None:
    assert module_of(path) == module


def test_the_import_graph_knows_what_decides() -> None:
    assert {"streams.state.partition", "streams.across.fleet", "streams.hpa.rules"} <= imports_of("streams.partition")
    assert not any(name.startswith("fleethpa") for name in imports_of("streams.partition"))


def test_every_tier_is_a_target_and_every_module_it_names_is_there() -> None:
    targets = (ROOT / "Makefile").read_text()
    everything = next(line for line in targets.splitlines() if line.startswith("test-all:"))
    for tier in (*ALWAYS, *BY_TURNS):
        assert f"\n{tier.name}:" in targets
        assert f" {tier.part_of or tier.name} " in everything
        for module in tier.modules:
            assert module.split(".")[0] in PACKAGES
            path = ROOT / module.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").exists()
        for beginning in tier.files:
            assert list(ROOT.glob(f"{beginning}*")), beginning

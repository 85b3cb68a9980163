"""A limit is attached by one line and one file, and taken off the same way: here from outside of the package."""

from typing import Any

import pytest
from msgspec import structs

from fleethpa.fleet.decisionsteps import step_rows
from fleethpa.page.fleetview import CHANGE_FLAGS, CHANGE_WORDS, FilterTextError, read_filter
from fleethpa.show import words
from reconciler.core.writeplan import ObservedScale, Write, WriteGuards, plan
from schemas.constraints import CONSTRAINTS, Constraint
from schemas.decisions import Decision, Step
from streams.analysis.counterfactual import counterfactuals
from streams.history.evaluations import Evaluated, events
from streams.hpa.observation import SeenPods
from streams.state.limits import table
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.partition import Partition
from streams.state.replacements.table import REPLACEMENTS
from streams.state.subject import Subject
from tests.kit.brakes import World, after, whole
from tests.kit.cli import Cli, Fleet, table_rows


class MinStep(WriteLimit):
    """A toy: changes of fewer than three replicas are not written."""

    name = "MinStep"

    def inputs(self, subject: Subject, pods: SeenPods) -> int | None:
        return 3 if subject.namespace.cluster == "eu" else None

    def apply(self, inputs: int, write: LimitedWrite) -> LimitedWrite:
        if abs(write.change) >= inputs:
            return write
        pending = write.pending
        step = Step(
            step="minStep", in_=pending.desired_replicas, out=pending.current_replicas, detail={"least": inputs}
        )
        return write.blocked(self.name, f"held: a change of fewer than {inputs} replicas", step)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Constraint(name="MinStep", words="the min-step of the toy", kind="limit", step="minStep", label="min step")
    monkeypatch.setitem(CONSTRAINTS, "MinStep", toy)
    monkeypatch.setattr(table, "LIMITS", (MinStep(), *table.LIMITS))


def small_and_large() -> World:
    """One decision asks for 12 of 10 replicas, the next for 20."""
    world = World("web")
    world.period(60)
    return world


@pytest.mark.usefixtures("attached")
def test_a_limit_that_is_attached_blocks_and_is_named_wherever_limits_are() -> None:
    world = small_and_large()
    blocked = whole(world.log)[-1]
    assert (blocked.raw_desired_replicas, blocked.final_desired_replicas) == (12, 10)
    assert blocked.constraints_applied == ["MinStep"]
    assert blocked.paused == "held: a change of fewer than 3 replicas"
    assert words.held_by(blocked) == "the min-step of the toy"
    assert words.braked(blocked) == "held by the min-step of the toy (metrics ask for 12)"
    assert [(row.name, row.value) for row in step_rows(blocked)][-2] == ("min step", "10")
    assert after(world.period(100))["web"] == 20


@pytest.mark.usefixtures("attached")
def test_decisions_that_it_blocked_are_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.cluster = "eu"
    fleet.settle(replicas=3, usage_milli=400)
    fleet.now_ms += 15_000
    fleet.observe(3, 900)
    run = Cli(monkeypatch, fleet)
    assert [(row["FROM"], row["TO"]) for row in table_rows(run("decisions", "-A").stdout)] == [("3", "3"), ("3", "6")]
    limited = run("decisions", "-A", "--limited-by", "MinStep", "-o", "wide")
    assert [(row["TO"], row["LIMITED BY"]) for row in table_rows(limited.stdout)] == [("3", "MinStep")]


@pytest.mark.usefixtures("attached")
def test_the_filter_of_the_page_has_its_name_and_gives_the_flag_for_it() -> None:
    assert read_filter("limit:MinStep", CHANGE_WORDS).flags(CHANGE_FLAGS) == (["--limited-by MinStep"], [])
    with pytest.raises(FilterTextError, match=r"there is no limit 'Nope'; there are .*, MinStep"):
        read_filter("limit:Nope", CHANGE_WORDS)


def test_without_it_nothing_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Cli(monkeypatch, Fleet())("decisions", "-A", "--limited-by", "MinStep")
    assert refused.exit_code == 2
    assert "'MinStep' is not one of" in refused.stderr
    with pytest.raises(FilterTextError, match="there is no limit 'MinStep'"):
        read_filter("limit:MinStep", CHANGE_WORDS)


@pytest.mark.usefixtures("attached")
def test_the_question_without_it_is_answered_from_what_it_read() -> None:
    world = small_and_large()
    read = [
        each for each in events(Partition.empty(0), world.log.records, lambda _: True) if isinstance(each, Evaluated)
    ]
    made = counterfactuals(read[-1].inputs)
    assert [(each.limit, each.answer, each.how) for each in made.without] == [
        ("MinStep", 12, "without the min-step of the toy")
    ]


@pytest.mark.usefixtures("attached")
def test_one_that_cuts_lets_the_reconciler_write_on_the_way_to_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(**changes: Any) -> bool:
        monkeypatch.setitem(CONSTRAINTS, "MinStep", structs.replace(CONSTRAINTS["MinStep"], **changes))
        scale = ObservedScale(spec_replicas=20, status_replicas=20, selector="", resource_version="1")
        return isinstance(plan(decision, scale=scale, hpa=None, guards=WriteGuards(), now_ms=0), Write)

    world = World("web")
    made: Decision = whole(world.log)[-1]
    decision = structs.replace(
        made,
        origin="central",
        current_replicas=20,
        wants=15,
        max_replicas=10,
        expires=1,
        constraints_applied=["MinStep"],
    )
    assert not written()
    assert written(cuts=True)


def test_each_limit_can_be_taken_off_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in table.LIMITS:
        with monkeypatch.context() as without:
            without.setattr(table, "LIMITS", tuple(each for each in table.LIMITS if each is not limit))
            assert after(small_and_large().period(100))["web"] == 20


def test_every_limit_and_replacement_is_declared_and_every_declared_one_is_there() -> None:
    for kind, attached_ones in (("limit", table.LIMITS), ("replacement", REPLACEMENTS)):
        declared = {each.name for each in CONSTRAINTS.values() if each.kind == kind}
        assert {each.name for each in attached_ones} == declared


def test_limits_that_block_a_whole_write_come_before_those_that_cut_one() -> None:
    cutting = [CONSTRAINTS[each.name].cuts for each in table.LIMITS]
    assert cutting == sorted(cutting)

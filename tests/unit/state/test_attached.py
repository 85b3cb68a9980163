"""A limit is attached by one line and one file, and taken off the same way: here from outside of the package."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleethpa.page.fleetview import CHANGE_FLAGS, CHANGE_WORDS, FilterTextError, read_filter
from fleethpa.show import words
from reconciler.core.writeplan import ObservedScale, Write, WriteGuards, plan
from schemas.capacity import CapacityLimit
from schemas.changerules import CHANGE_RULES, ChangeRule, ScaleChange
from schemas.constraints import CONSTRAINTS, Constraint, is_limit
from schemas.decisions import Decision, InputPosition
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.settings import ClusterSettings, SettingsSet, parse_budget
from streams import attachments
from streams.across.allotments import CapacityLeft
from streams.analysis.counterfactual import counterfactuals
from streams.attachments import REPLACEMENTS
from streams.history.evaluations import Evaluated, events
from streams.hpa.evaluation import EMPTY_HISTORY, Evaluation, Pending
from streams.partition import Partition
from streams.state.limits.budgetbook import Left
from streams.state.limits.bysetting import RuleInputs, SettingLimit
from streams.state.limits.limit import LimitedWrite, WriteLimit, limited
from streams.state.limits.partialview import ViewNow
from streams.state.limits.paused import PausesInForce
from streams.state.limits.scaledownblock import parse_block
from tests.kit.brakes import World, after, whole
from tests.kit.cli import Cli, Fleet, table_rows
from tests.kit.documented import ROOT

RATES = {"ScaleUpPolicy", "ScaleDownPolicy", "ScaleUpLimit"}
"""Rules of the HPA itself that let a larger change go on in parts."""
REPLACING = {name for name, each in CONSTRAINTS.items() if each.kind == "replacement"}


def may_wait(change: ScaleChange) -> bool:
    """Whether waiting makes a change larger where the load moves on: a rule against small changes holds no other.

    It does not where the change ends at minReplicas or maxReplicas, where a limit or a rate of the HPA has left a part
    of it, and where what replaced the metrics names the replicas. One from or to zero does not wait either.
    """
    is_last = change.wanted in (change.low, change.high) or 0 in (change.current, change.wanted)
    return not (is_last or change.is_cut or {*change.constraints} & (RATES | REPLACING))


class ToyStep(ChangeRule):
    """A toy: changes of fewer replicas than the setting says are not written, unless waiting makes them no larger."""

    name = "ToyStep"
    setting = "status_every_ms"
    """Stands for a setting of its own; no decision depends on this one."""

    def most(self, value: int, change: ScaleChange) -> int | None:
        return 0 if may_wait(change) and change.size < value else None

    def refusal(self, value: int, change: ScaleChange) -> str:
        return f"a change from {change.current} to {change.wanted} is smaller than the cluster's toyStep {value}"


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    attach(monkeypatch)


def attach(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Constraint(name="ToyStep", words="the step of the toy", kind="limit", label="toy step")
    monkeypatch.setitem(CONSTRAINTS, "ToyStep", toy)
    monkeypatch.setitem(CHANGE_RULES, "ToyStep", ToyStep())
    monkeypatch.setattr(attachments, "LIMITS", (SettingLimit("ToyStep"), *attachments.LIMITS))


def small_and_large() -> World:
    """One decision asks for 12 of 10 replicas, the next for 20."""
    world = World("web", status_every_ms=3)
    world.period(60)
    return world


@pytest.mark.usefixtures("attached")
def test_a_limit_that_is_attached_blocks_and_is_named_wherever_limits_are() -> None:
    world = small_and_large()
    blocked = whole(world.log)[-1]
    assert (blocked.raw_desired_replicas, blocked.final_desired_replicas) == (12, 10)
    assert blocked.constraints_applied == ["ToyStep"]
    assert blocked.paused == "a change from 10 to 12 is smaller than the cluster's toyStep 3"
    assert words.held_by(blocked) == "the step of the toy"
    assert words.braked(blocked) == "held by the step of the toy (metrics ask for 12)"
    assert after(world.period(100))["web"] == 20


@pytest.mark.usefixtures("attached")
def test_decisions_that_it_blocked_are_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    settings = SettingsSet(cluster="east", settings=ClusterSettings(status_every_ms=3))
    fleet.append(settings, key=WHOLE_PARTITION_KEY)
    fleet.settle(replicas=3, usage_milli=400)
    fleet.now_ms += 15_000
    fleet.observe(3, 900)
    run = Cli(monkeypatch, fleet)
    limited = run("decisions", "-A", "--limited-by", "ToyStep", "-o", "wide")
    assert [(row["TO"], row["LIMITED BY"]) for row in table_rows(limited.stdout)] == [("3", "ToyStep")]


@pytest.mark.usefixtures("attached")
def test_the_filter_of_the_page_has_its_name_and_gives_the_flag_for_it() -> None:
    assert read_filter("limit:ToyStep", CHANGE_WORDS).flags(CHANGE_FLAGS) == (["--limited-by ToyStep"], [])
    with pytest.raises(FilterTextError, match=r"there is no limit 'Nope'; there are .*, ToyStep"):
        read_filter("limit:Nope", CHANGE_WORDS)


def test_without_it_nothing_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Cli(monkeypatch, Fleet())("decisions", "-A", "--limited-by", "ToyStep")
    assert refused.exit_code == 2
    assert "'ToyStep' is not one of" in refused.stderr
    with pytest.raises(FilterTextError, match="there is no limit 'ToyStep'"):
        read_filter("limit:ToyStep", CHANGE_WORDS)


@pytest.mark.usefixtures("attached")
def test_the_question_without_it_is_answered_from_what_it_read() -> None:
    world = small_and_large()
    read = [
        each for each in events(Partition.empty(0), world.log.records, lambda _: True) if isinstance(each, Evaluated)
    ]
    made = counterfactuals(read[-1].inputs)
    assert [(each.limit, each.answer, each.how) for each in made.without] == [
        ("ToyStep", 12, "without the step of the toy")
    ]


ONE_BY_ONE = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}}


def refused_by_the_reconciler(decision: Decision, settings: ClusterSettings) -> bool:
    """Whether the last check before the write refuses what a decision would want without its limits."""
    current = decision.current_replicas
    limits = [name for name in decision.constraints_applied if not is_limit(name)]
    wanted = structs.replace(
        decision, wants=decision.raw_desired_replicas, expires=1, constraints_applied=limits, origin="central"
    )
    scale = ObservedScale(spec_replicas=current, status_replicas=current, selector="", resource_version="1")
    return not isinstance(plan(wanted, scale=scale, hpa=None, guards=WriteGuards(settings=settings), now_ms=0), Write)


@pytest.mark.usefixtures("attached")
@pytest.mark.parametrize(
    ("spec", "milli", "blocked"),
    [
        pytest.param({}, 60, True, id="a small change"),
        pytest.param({}, 100, False, id="a large one"),
        pytest.param({"maxReplicas": 12}, 100, False, id="a small one that ends at a bound is exempt"),
        pytest.param({"behavior": ONE_BY_ONE}, 100, False, id="a small one that a policy has left of it is exempt"),
    ],
)
def test_the_reconciler_asks_the_same_rule_once_more(spec: dict[str, Any], milli: int, blocked: bool) -> None:
    world = World("web", status_every_ms=3)
    world.put("web", **spec)
    world.period(milli)
    made = [each for each in whole(world.log) if each.kind == "evaluation"][-1]
    assert ("ToyStep" in made.constraints_applied) == blocked
    final = structs.replace(made, raw_desired_replicas=made.wants or made.raw_desired_replicas)
    assert refused_by_the_reconciler(final, ClusterSettings(status_every_ms=3)) == blocked
    assert not refused_by_the_reconciler(final, ClusterSettings())


@pytest.mark.usefixtures("attached")
def test_the_reconciler_exempts_what_the_rule_exempts_by_what_replaced_the_metrics() -> None:
    made = [each for each in whole(small_and_large().log) if each.kind == "evaluation"][-1]
    overridden = structs.replace(made, constraints_applied=["Override", "ToyStep"])
    settings = ClusterSettings(status_every_ms=3)
    assert (refused_by_the_reconciler(made, settings), refused_by_the_reconciler(overridden, settings)) == (True, False)


DECIDER_ONLY = {
    "Paused": "no setting; the reconciler knows pauses of its own (`schemas.inforce.stopping`)",
    "PartialView": "by the pods and metrics of a namespace",
    "Overflow": "by the calculation",
    "RemovalBudget": "by what other HPAs removed within a window",
    "AdditionBudget": "by what other HPAs added within a window",
    "CapacityGroup": "by what other HPAs have",
    "ScaleDownBlock": "by the value of a metric",
}
"""Limits that need what only the log has."""


def test_the_reconciler_knows_every_limit_that_needs_no_more_than_a_setting() -> None:
    by_rule = {each.name for each in attachments.LIMITS if isinstance(each, SettingLimit)}
    assert by_rule == set(CHANGE_RULES)
    assert DECIDER_ONLY.keys() <= {each.name for each in attachments.LIMITS}
    for each in attachments.LIMITS:
        assert each.name in by_rule or each.name in DECIDER_ONLY, (
            f"{each.name}: give it a ChangeRule, which the reconciler checks once more, or say in DECIDER_ONLY why not"
        )


BUDGET = parse_budget("1/1m")
assert BUDGET is not None
LEFT = Left(cap=1, scope="namespace shop", budget=BUDGET, allowed=1, used=1, share=1, until_ms=60_000)
BLOCKING: dict[str, Any] = {
    "Frozen": RuleInputs(True, "eu", 1, 100),
    "Paused": PausesInForce("paused by ann", "paused by ann"),
    "PartialView": ViewNow("half of the pods are gone", 60_000),
    "Overflow": True,
    "ScaleDownBlock": parse_block("metric=nope,above=0"),
    "MaxStep": RuleInputs(1, "eu", 1, 100),
    "RemovalBudget": LEFT,
    "AdditionBudget": LEFT,
    "CapacityGroup": CapacityLeft("group", CapacityLimit(count=25), 25),
}
"""Limit → what it reads where it leaves less than all of a change of ten replicas."""


def a_write(change: int) -> LimitedWrite:
    pending = Pending(
        current_replicas=20,
        desired_replicas=20 + change,
        reason="",
        name="web",
        reference="Deployment/shop/web",
        generation=1,
        to_zero=False,
        conditions=[],
    )
    return LimitedWrite(pending, Evaluation(path="metrics", history=EMPTY_HISTORY))


@pytest.mark.parametrize("limit", attachments.LIMITS, ids=lambda limit: limit.name)
def test_what_the_table_of_constraints_says_of_a_limit_is_what_it_does(
    limit: WriteLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limit.name in BLOCKING, f"add to BLOCKING what {limit.name} reads where it blocks a write"
    monkeypatch.setattr("streams.state.limits.overflow.overflow", lambda evaluation: "a metric overflowed")
    declared = CONSTRAINTS[limit.name]
    left = {side: limit.apply(BLOCKING[limit.name], a_write(change)) for side, change in (("up", 10), ("down", -10))}
    bounded = {side: write for side, write in left.items() if write.constraints}
    assert all(write.constraints == (limit.name,) for write in bounded.values())
    assert declared.side == ("" if len(bounded) == 2 else next(iter(bounded)))
    assert declared.cuts == any(not write.held for write in bounded.values())
    assert declared.label
    assert declared.words
    steps = [write.step for write in bounded.values() if write.step is not None]
    assert [step.step for step in steps] == [declared.step] * len(bounded) * bool(declared.step)
    assert not declared.named_by or all(step.detail[declared.named_by] for step in steps)
    assert bool(declared.released) == any(step.until is not None for step in steps)


CHANGES = st.builds(
    ScaleChange,
    cluster=st.just("eu"),
    current=st.integers(0, 40),
    wanted=st.integers(0, 40),
    low=st.integers(0, 40),
    high=st.integers(0, 40),
    constraints=st.lists(st.sampled_from([*CONSTRAINTS]), max_size=2),
)


RULES = pytest.mark.parametrize("rule", [*CHANGE_RULES.values(), ToyStep()], ids=lambda rule: rule.name)


@RULES
@given(change=CHANGES, value=st.integers(1, 40))
def test_a_rule_that_lets_larger_changes_pass_blocks_a_smaller_one_only_where_waiting_makes_it_larger(
    rule: ChangeRule, change: ScaleChange, value: int
) -> None:
    """Else it blocks for ever what no later evaluation wants more of at once."""
    larger = change._replace(wanted=change.wanted + (40 if change.wanted > change.current else -40))
    passes = rule.most(value, larger) in (None, larger.size)
    if passes and change.size and rule.most(value, change) == 0:
        assert may_wait(change), f"{rule.name}: a rule against small changes exempts those of which `may_wait` is false"


SMALL = ScaleChange("eu", 10, 11, 1, 100)


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        pytest.param(SMALL, True, id="what the metrics ask for"),
        pytest.param(SMALL._replace(high=11), False, id="to maxReplicas"),
        pytest.param(SMALL._replace(wanted=9, low=9), False, id="to minReplicas"),
        pytest.param(SMALL._replace(current=0, wanted=1), False, id="from zero: nothing runs meanwhile"),
        pytest.param(SMALL._replace(current=1, wanted=0, low=0), False, id="to zero"),
        pytest.param(SMALL._replace(constraints=["Override"]), False, id="an override names its replicas"),
        pytest.param(SMALL._replace(constraints=["Fallback"]), False, id="so does a fallback"),
        pytest.param(SMALL._replace(constraints=["RemovalBudget"]), False, id="what a budget has left"),
        pytest.param(SMALL._replace(constraints=["ScaleUpPolicy"]), False, id="what a policy has left"),
        pytest.param(SMALL._replace(constraints=["ScaleDownPolicy"]), False, id="what a policy has left downwards"),
        pytest.param(SMALL._replace(constraints=["ScaleUpLimit"]), False, id="what the scale-up limit has left"),
        pytest.param(SMALL._replace(constraints=["StabilizationWindow"]), True, id="a window ends by itself"),
        pytest.param(SMALL._replace(constraints=["Tolerance"]), True, id="a tolerance leaves all or nothing"),
    ],
)
def test_waiting_makes_a_change_larger_only_where_nothing_else_bounds_it(change: ScaleChange, waits: bool) -> None:
    assert may_wait(change) == waits


@RULES
@given(change=CHANGES, value=st.integers(1, 40))
def test_what_a_rule_leaves_is_not_refused_by_it(rule: ChangeRule, change: ScaleChange, value: int) -> None:
    most = rule.most(value, change)
    if most is None or change.size <= most:
        return
    assert most == 0 or CONSTRAINTS[rule.name].cuts
    assert rule.refusal(value, change)
    left = change.current + (most if change.wanted > change.current else -most)
    again = rule.most(value, change._replace(wanted=left))
    assert again is None or abs(left - change.current) <= again


CENTRAL = Decision(
    id="0-7-u1",
    seq=1,
    prev="",
    cluster="eu",
    namespace="shop",
    name="web",
    uid="u1",
    time="1970-01-01T00:00:00.000Z",
    input=InputPosition(partition=0, offset=7, hash=""),
    origin="central",
    mode="enforce",
    min_replicas=1,
    max_replicas=100,
    expires=1,
)
SETTINGS = st.builds(
    ClusterSettings, frozen=st.booleans(), max_step=st.integers(0, 8), status_every_ms=st.integers(0, 8)
)


@given(
    settings=SETTINGS,
    bounding=st.sets(st.sampled_from(["ScaleDownBlock", "RemovalBudget", "AdditionBudget", "CapacityGroup"])),
    change=st.integers(-10, 10).filter(bool),
    replaced_by=st.sampled_from(["", "Override"]),
)
def test_what_all_limits_together_leave_is_written_by_the_reconciler_while_no_setting_changes(
    settings: ClusterSettings, bounding: set[str], change: int, replaced_by: str
) -> None:
    """Else each decision wants a write that the last check refuses, period after period."""

    def read(limit: WriteLimit) -> Any:
        if isinstance(limit, SettingLimit):
            value = getattr(settings, limit.rule.setting)
            return RuleInputs(value, "eu", 1, 100) if value else None
        return BLOCKING[limit.name] if limit.name in bounding else None

    wanted = a_write(change)
    with pytest.MonkeyPatch.context() as patched:
        attach(patched)
        left = limited(attachments.LIMITS, read, wanted.evaluation, wanted.pending, replaced_by)
        wants = left.pending.desired_replicas
        met = [name for name in (replaced_by, *left.constraints) if name]
        made = structs.replace(CENTRAL, current_replicas=20, wants=wants, constraints_applied=met)
        scale = ObservedScale(spec_replicas=20, status_replicas=20, selector="", resource_version="1")
        action = plan(made, scale=scale, hpa=None, guards=WriteGuards(settings=settings), now_ms=0)
    assert left.held or action == Write(wants, "1")


@pytest.mark.usefixtures("attached")
def test_one_that_cuts_lets_the_reconciler_write_on_the_way_to_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(**changes: Any) -> bool:
        monkeypatch.setitem(CONSTRAINTS, "ToyStep", structs.replace(CONSTRAINTS["ToyStep"], **changes))
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
        constraints_applied=["ToyStep"],
    )
    assert not written()
    assert written(cuts=True)


def test_each_limit_can_be_taken_off_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in attachments.LIMITS:
        with monkeypatch.context() as without:
            without.setattr(attachments, "LIMITS", tuple(each for each in attachments.LIMITS if each is not limit))
            assert after(small_and_large().period(100))["web"] == 20


def test_every_limit_and_replacement_is_declared_and_every_declared_one_is_there() -> None:
    for kind, attached_ones in (("limit", attachments.LIMITS), ("replacement", REPLACEMENTS)):
        declared = {each.name for each in CONSTRAINTS.values() if each.kind == kind}
        assert {each.name for each in attached_ones} == declared


def test_those_that_are_declared_to_cut_are_asked_last() -> None:
    cutting = [CONSTRAINTS[each.name].cuts for each in attachments.LIMITS]
    assert cutting == sorted(cutting)


def test_each_limit_has_its_place_in_the_documents() -> None:
    text = (ROOT / "docs" / "brakes.md").read_text()
    table = text.partition("| name | what it does | set by |\n")[2].partition("\n\n")[0]
    rows = [name for line in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(rows) == sorted(each.name for each in attachments.LIMITS), "the table in docs/brakes.md has each once"


def test_a_limit_without_its_lines_in_the_tables_is_named_with_the_table_that_lacks_it() -> None:
    with pytest.raises(LookupError, match=r"Nonesuch is in LIMITS of .*, and not in schemas/changerules.py"):
        SettingLimit("Nonesuch")

"""A CapacityGroup: reports, additions within its limit, and what a member does without a fresh allotment."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from schemas import limits
from schemas.capacity import CAPACITY, CapacityAllotment, CapacityLimit, CapacityReport
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Container, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from streams.across.capacity import FORGETS_MS, LASTS_MS, SETTLES_MS
from streams.partition import Partition
from streams.state.partitionstate import Message
from tests.kit.capacity import GROUP, LABELS, Ceiling, priority
from tests.kit.crashing import assert_the_same_after_crashes
from tests.kit.fleet import NAME, NAMESPACE, PERIOD_MS, everything_arrives
from tests.kit.partition import make_hpa, make_pod, scale
from tests.laws import examples

AT_REST = {"east": 200, "west": 200}
HIGH = {"east": 400, "west": 400}
"""Each asks for 8."""


def _begun(maximum: int = 20, **group: Any) -> Ceiling:
    """Two HPAs at rest with 4 replicas each, and a group that has settled."""
    run = Ceiling({"east": 4, "west": 4}, maximum, **group)
    run.rest(AT_REST)
    return run


def test_what_the_limit_has_room_for_is_added_within_two_seconds() -> None:
    run = _begun()
    run.period(HIGH)
    assert run.replicas == {"east": 8, "west": 8}


def test_additions_are_in_proportion_and_a_cut_decision_says_so() -> None:
    run = _begun(12)
    for _ in range(3):
        run.period(HIGH)
    assert run.replicas == {"east": 6, "west": 6}
    cut = run.last("east")
    assert cut["constraintsApplied"][-1] == "CapacityGroup"
    assert cut["paused"] == "CapacityGroup search leaves no more: its limit is 12 replicas"
    (step,) = [each for each in cut["steps"] if each["step"] == "capacity"]
    assert (step["in"], step["out"]) == (8, 6)
    assert step["detail"] | {"number": 0} == {
        "group": GROUP,
        "capacity": "12 replicas",
        "used": "12 replicas",
        "share": "6 replicas",
        "number": 0,
    }
    run.rest(HIGH, 300_000)
    assert run.replicas == {"east": 6, "west": 6}  # a constant load moves nothing


def test_higher_priorities_come_first() -> None:
    tiers = {"east": {"tier": "batch"}, "west": {"tier": "front"}}
    run = _begun(10, labels=tiers, priorities=[priority("front", 10)])
    for _ in range(3):
        run.period(HIGH)
    assert run.replicas == {"east": 4, "west": 6}


def test_nothing_is_taken_from_anybody_and_what_is_given_up_goes_to_others() -> None:
    run = _begun(20)
    run.period(HIGH)
    run.change(CapacityLimit(count=10))
    run.rest({"east": 400, "west": 600}, 120_000)
    assert run.replicas == {"east": 8, "west": 8}  # above the limit: nothing is added, nothing is taken
    run.rest({"east": 50, "west": 600}, 400_000)  # longer than the window for scaling down
    assert run.replicas == {"east": 1, "west": 9}


def test_without_a_fresh_allotment_hold_keeps_the_replicas_and_open_lets_through() -> None:
    for when_unknown, wanted in (("Hold", 4), ("Open", 8)):
        run = _begun(10, when_unknown=when_unknown)
        run.deliver = lambda each: [] if isinstance(each.body, CapacityAllotment) else [each]
        run.rest(AT_REST, LASTS_MS)
        for _ in range(2):
            run.period(HIGH)
        assert run.replicas == {"east": wanted, "west": wanted}
    run = _begun(10)
    run.away.add(CAPACITY)
    run.rest(AT_REST, LASTS_MS)
    run.period(HIGH)
    assert run.last("east")["paused"] == "CapacityGroup search has allotted nothing that is still in force"


def test_open_holds_as_long_as_allotments_are_fresh() -> None:
    run = _begun(10, when_unknown="Open")
    for _ in range(6):
        run.period(HIGH)
    assert run.replicas == {"east": 5, "west": 5}


def test_an_allotment_of_another_revision_or_an_older_number_means_nothing() -> None:
    run = _begun(8)
    before = run.claim("east")
    for revision, number in ((9, 99), (1, before.number)):
        late = CapacityAllotment(
            group=GROUP, name=NAME, revision=revision, number=number, replicas=50, until=2**40, used=0, share=0
        )
        run.add("east", late)
        assert run.claim("east") == before


def test_a_group_whose_state_is_lost_allots_nothing_until_what_it_had_allotted_has_ended() -> None:
    run = _begun(12)
    run.lose(CAPACITY, 0)
    run.rest({"east": 200, "west": 900}, SETTLES_MS - 2 * PERIOD_MS)
    assert run.replicas == {"east": 4, "west": 4}  # the east may not have reported yet, and be unknown
    run.rest({"east": 200, "west": 900}, 3 * PERIOD_MS)
    assert run.replicas == {"east": 4, "west": 8}


def test_a_group_that_is_deleted_holds_nothing() -> None:
    run = _begun(8)
    for _ in range(2):
        run.period(HIGH)
    assert run.total == 8
    run.delete()
    run.period(HIGH)
    assert run.replicas == {"east": 8, "west": 8}
    assert run.row("east").claims == {}
    assert run.logs[CAPACITY].partition.state.row.ceilings == {}


def test_one_that_is_applied_again_allots_only_once_what_it_allotted_before_has_ended() -> None:
    run = _begun(20)
    run.delete()
    run.change(CapacityLimit(count=20))
    run.period(HIGH)
    assert run.total == 8
    run.rest(HIGH)
    assert run.replicas == {"east": 8, "west": 8}


def test_an_hpa_that_is_deleted_or_loses_its_labels_is_counted_no_longer() -> None:
    run = _begun(12)
    run.add("west", AutoscalerDeleted(name=NAME, origin="central"))
    for _ in range(4):
        run.period(HIGH)
    assert list(run.ceiling.members) == ["east/shop/web"]
    assert run.replicas["east"] == 8
    run.add("east", AutoscalerSet(hpa=make_hpa(NAME, minReplicas=1, maxReplicas=100), origin="central"))
    for _ in range(2):
        run.period(HIGH)
    assert run.ceiling.members == {}
    assert run.row("east").claims == {}


def test_one_that_is_silent_keeps_what_it_has_counted_for_an_hour() -> None:
    run = _begun(10)
    run.away.add("west")
    for _ in range(4):
        run.period({"east": 900, "west": 0})
    assert run.replicas["east"] == 6
    run.rest({"east": 900, "west": 0}, FORGETS_MS)
    assert run.replicas["east"] == 10


def test_units_are_those_of_the_annotation_and_costs_those_of_the_price() -> None:
    gpu = CapacityLimit(kind="units", name="gpu", count=16_000)
    run = _begun(0, limit=gpu, annotations={"east": {"fleethpa.io/units": "gpu=2"}})
    for _ in range(3):
        run.period(HIGH)
    assert run.replicas == {"east": 8, "west": 8}  # the west uses none
    for _ in range(3):
        run.period({"east": 600, "west": 400})
    assert run.replicas == {"east": 8, "west": 8}
    (step,) = [each for each in run.last("east")["steps"] if each["step"] == "capacity"]
    assert (step["detail"]["capacity"], step["detail"]["share"]) == ("16 gpu", "16 gpu")

    run = Ceiling({"east": 4, "west": 4}, 0, limit=CapacityLimit(kind="cost", count=1_000_000))
    for each, price in (("east", "0.2"), ("west", "0.01")):
        run.add(each, SettingsSet(cluster=each, settings=ClusterSettings(price=price)))
    run.rest(AT_REST)
    for _ in range(3):
        run.period(HIGH)
    assert run.replicas == {"east": 4, "west": 8}
    assert run.last("east")["paused"] == "CapacityGroup search leaves no more: its limit is 1/h"


def test_units_are_else_those_that_pods_request() -> None:
    run = _begun(0, limit=CapacityLimit(kind="units", name="cpu", count=1_000))  # a pod requests 100m
    for _ in range(3):
        run.period(HIGH)
    assert run.total == 10


def test_more_members_than_a_group_may_have_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CAPACITY_MEMBERS", limits.Limit("HPAs of a CapacityGroup", 1, "HPAs", "fold", ""))
    run = _begun(20)
    run.period(HIGH)
    assert run.total == 12
    assert len(run.ceiling.members) == 1


def test_the_place_of_a_member_that_leaves_or_is_forgotten_is_free_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    room = len("east/shop/web") + 160
    monkeypatch.setattr(limits, "ALL_MEMBERS", limits.Limit("HPAs of all groups", room, "bytes", "fold", ""))
    run = _begun(20)
    assert list(run.ceiling.members) == ["east/shop/web"]
    run.add("east", AutoscalerDeleted(name=NAME, origin="central"))
    run.rest(AT_REST)
    assert list(run.ceiling.members) == ["west/shop/web"]
    run.away.add("west")
    run.rest(AT_REST, FORGETS_MS + LASTS_MS)
    assert (run.ceiling.members, run.ceiling.size) == ({}, 0)


def test_a_report_brings_a_division_only_where_something_changed() -> None:
    run = _begun(20)
    east = run.ceiling.members["east/shop/web"]
    same = CapacityReport(
        group=GROUP,
        cluster="east",
        namespace=NAMESPACE,
        name=NAME,
        revision=run.revision,
        at=east.at + 1,
        obeys=east.account.newest.number,
        has_ended=False,
        has=4,
        most=4,
        wants=4,
        weight=1,
        priority=0,
    )
    run.add(CAPACITY, same)
    assert (run.ceiling.members["east/shop/web"].at, run.ceiling.first_ms) == (east.at + 1, 0)
    for changed in ({"wants": 5}, {"has": 3, "most": 3}, {"priority": 1}, {"has_ended": True}, {"has_left": True}):
        one = copy.deepcopy(run)
        one.add(CAPACITY, structs.replace(same, at=east.at + 2, **changed))
        assert one.ceiling.first_ms > 0, changed


# --- laws -------------------------------------------------------------------------------------------------------------


def _disturbed(random: Random, run: Ceiling, periods: int) -> None:
    """Periods in which messages are lost, repeated and reordered, and clusters and the group come and go."""
    held: list[Message] = []
    run.deliver = lambda each: [each] * random.choice((0, 1, 1, 1, 2))
    for _ in range(periods):
        run.away = {name for name in ("east", "west", CAPACITY) if random.random() < 0.2}
        if random.random() < 0.5:
            run.waiting, held = [*held, *run.waiting[::-1]], []
        elif random.random() < 0.5:
            run.waiting, held = [], run.waiting
        if random.random() < 0.1:
            run.change(CapacityLimit(count=12))
        run.period({"east": random.randint(50, 900), "west": random.randint(50, 900)})


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32))
def test_the_limit_holds_whatever_becomes_of_messages_and_is_used_then(seed: int) -> None:
    run = _begun(12)
    _disturbed(Random(seed), run, 8)
    assert run.most <= 12
    run.deliver, run.away = everything_arrives, set()
    run.rest({"east": 3_000, "west": 3_000}, 120_000)
    assert run.total == 12 == run.most


@settings(max_examples=examples(4), deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_log_gives_the_same_bytes_and_messages_also_after_a_restart(seed: int) -> None:
    random, run = Random(seed), _begun(12)
    _disturbed(random, run, 3)
    assert_the_same_after_crashes(run.logs, random)


def _labelled(run: Ceiling) -> None:
    hpa = make_hpa(NAME, minReplicas=1, maxReplicas=100)
    hpa["metadata"]["labels"] = LABELS | {"tier": "front"}
    run.add("east", AutoscalerSet(hpa=hpa, origin="central", mode="enforce"))


def _priced(run: Ceiling) -> None:
    run.add("east", SettingsSet(cluster="east", settings=ClusterSettings(price="0.2")))


def _scaled(run: Ceiling) -> None:
    run.replicas["east"] = 6
    run.add("east", scale(NAME, 6))
    run.grow("east", 6)


def _larger_pods(run: Ceiling) -> None:
    larger = Container(name="main", requests={"cpu": "101m"})
    for number in range(4):
        run.add("east", PodSet(pod=make_pod(f"{NAME}-{number}", containers=[larger])))


@pytest.mark.parametrize(
    ("limit", "change"),
    [
        pytest.param(CapacityLimit(count=20), _labelled, id="another priority"),
        pytest.param(CapacityLimit(count=20), _scaled, id="scaled by somebody else"),
        pytest.param(CapacityLimit(kind="cost", count=1_000_000), _priced, id="another price"),
        pytest.param(CapacityLimit(kind="units", name="cpu", count=9_000), _larger_pods, id="larger pods"),
    ],
)
def test_a_member_at_rest_says_at_once_what_has_changed(
    limit: CapacityLimit, change: Callable[[Ceiling], None]
) -> None:
    run = _begun(0, limit=limit, priorities=[priority("front", 10)])
    run.rest(AT_REST)
    at_rest = _reports_from_east(run)
    change(run)
    run.period(AT_REST)
    [*_, newest] = _reports_from_east(run)[len(at_rest) :]
    assert newest != at_rest[-1]


def _reports_from_east(run: Ceiling) -> list[CapacityReport]:
    """What the HPA in the east has reported, by its log."""
    log = run.logs["east"]
    partition, messages = Partition.empty(log.partition.number), list[Message]()
    for record in log.records:
        partition.apply(*record)
        messages += partition.pop_messages()
    return [each.body for each in messages if isinstance(each.body, CapacityReport)]


def test_a_report_that_comes_late_or_again_changes_nothing() -> None:
    run = _begun(12)
    seen: list[CapacityReport] = []

    def note(each: Message) -> list[Message]:
        if isinstance(each.body, CapacityReport):
            seen.append(each.body)
        return [each]

    run.deliver = note
    run.period(HIGH)
    assert len(seen) > 2
    before = run.ceiling.members
    for each in seen:
        run.add(CAPACITY, each)
    assert {key: (each.account, each.at) for key, each in run.ceiling.members.items()} == {
        key: (each.account, each.at) for key, each in before.items()
    }

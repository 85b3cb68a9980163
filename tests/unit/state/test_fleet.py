"""A FleetHPA: reports, one total over all clusters, its division, and shares that clusters want."""

import dataclasses
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.entries import FleetAllotment, FleetReport, FleetReportItem
from schemas.keys import FLEET
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, Heartbeat
from schemas.settings import Restart
from schemas.topics import MAX_ROW_BYTES
from streams.across.fleet import away
from streams.across.fleetshare import report_together
from streams.hpa.observation import PodCounts, ScaleFailure
from streams.hpa.parts import PartObservation, written_part
from streams.partition import Partition
from streams.state.partitionstate import Message
from tests.kit.crashing import assert_the_same_after_crashes
from tests.kit.fleet import NAME, Fleet, everything_arrives
from tests.kit.partition import make_hpa, scale
from tests.laws import examples

PART_LIMIT = limits.FLEET_PART.most
AT_REST = {"east": 200, "west": 200}


def _begun(maximum: int = 20, **fleet: Any) -> Fleet:
    """Two clusters at their shares."""
    run = Fleet({"east": 4, "west": 4}, maximum, **fleet)
    for _ in range(2):
        run.period(AT_REST)
    return run


def test_the_total_follows_the_load_of_all_clusters_and_is_divided_by_the_weights() -> None:
    run = _begun(weights={"east": 3, "west": 1}, rebalance_after_ms=3_600_000)
    assert run.replicas == {"east": 4, "west": 4}  # a constant load moves nothing
    for _ in range(3):
        run.period({"east": 700, "west": 100})
    assert run.replicas == {"east": 12, "west": 4}
    decision = run.last()
    assert (decision["cluster"], decision["currentReplicas"], decision.get("wants")) == (FLEET, 16, None)
    assert decision["observed"]["clusters"] == {
        "east": {"share": 12, "replicas": 12, "allotted": 12},
        "west": {"share": 4, "replicas": 4, "allotted": 4},
    }


def test_a_cluster_wants_its_share_and_says_whose_it_is() -> None:
    run = _begun()
    run.period({"east": 700, "west": 100})
    (made,) = [each for each in run.decided["west"] if each.get("wants") == 8]
    assert made["reason"] == "share 8 of the FleetHPA"
    assert "FleetHPA" in made["constraintsApplied"]
    (step,) = [each for each in made["steps"] if each["step"] == "allotment"]
    assert step["out"] == 8
    assert step["detail"]["decision"] in [each["id"] for each in run.decided[FLEET]]


def test_replicas_move_once_the_division_has_differed_for_long_and_never_above_the_maximum() -> None:
    run = Fleet({"east": 1, "west": 7}, 8, rebalance_after_ms=60_000)
    load = {"east": 50, "west": 350}
    for _ in range(3):
        run.period(load)
    assert run.replicas == {"east": 1, "west": 7}
    for _ in range(6):
        run.period(load)
    assert run.replicas == {"east": 4, "west": 4}
    assert run.most == 8


@pytest.mark.parametrize("maximum", [pytest.param(20, id="additions first"), pytest.param(8, id="removals first")])
def test_a_move_between_clusters_does_not_change_the_total(maximum: int) -> None:
    run = Fleet({"east": 1, "west": 7}, maximum, rebalance_after_ms=60_000)
    run.grow("east", 1)  # what moves there waits for a node, so that the load stays that of as many pods as before
    for _ in range(12):
        run.period({"east": 50, "west": 350})
        assert sum(run.row(FLEET).fleet.shares.values()) == 8  # type: ignore[union-attr]
    assert run.replicas == {"east": 4, "west": 4}


@pytest.mark.parametrize(
    ("lengths", "messages"),
    [
        pytest.param([9, 9, 9], [[0, 1, 2]], id="short ones together"),
        pytest.param([9, PART_LIMIT, 9], [[0, 2], [1]], id="a long one alone"),
        pytest.param([PART_LIMIT, 9, 9], [[0], [1, 2]], id="a long one first"),
        pytest.param([9] * 65, [[*range(64)], [64]], id="not too many"),
    ],
)
def test_what_hpas_of_a_namespace_report_at_one_record_is_sent_together(
    lengths: list[int], messages: list[list[int]]
) -> None:
    state = Partition.empty(0).state
    for index, length in enumerate(lengths):
        report_together(state, "east", "shop", FleetReportItem(f"{index}", 1, 0, 2, 2, "x" * length))
    assert [[int(item.name) for item in each.body.items] for each in state.messages] == messages  # type: ignore[union-attr]


def test_a_part_above_the_limit_is_not_sent_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of any size would end the decider, again at each start."""
    run = _begun()
    monkeypatch.setattr(limits, "FLEET_PART", dataclasses.replace(limits.FLEET_PART, most=20))
    sent: list[Message] = []
    run.deliver = lambda message: [sent.append(message) or message]  # type: ignore[func-returns-value]
    run.period(AT_REST)
    assert not [each for each in sent if isinstance(each.body, FleetReport)]
    namespace = run.logs["east"].partition.state.namespaces["east/shop"]
    assert namespace.held.refused[limits.FLEET_PART.what].name == NAME


def test_a_fold_of_which_nobody_asks_what_is_reported_to_other_partitions_keeps_no_more_than_one_record_says() -> None:
    """As in archivers, verification and replays, which fold for long."""
    run, partition, most = _begun(), Partition.empty(1), 0
    for _ in range(20):
        run.period(AT_REST)
    for record in run.logs["east"].records:
        partition.apply(*record)
        most = max(most, len(partition.state.messages))
    assert most == 1


def test_what_clusters_report_fits_into_a_row_however_much_of_it_there_is() -> None:
    clusters = [f"c{number}" for number in range(limits.FLEET_CLUSTERS.most)]
    run, chosen = Fleet(dict.fromkeys(clusters, 1), 100), Random(1)
    log = run.logs[FLEET]
    for number, name in enumerate(clusters):
        error = chosen.randbytes(limits.FLEET_PART.most // 2 - 200).hex()
        part = written_part(PartObservation(ScaleFailure(error), PodCounts(), ()))
        item = FleetReportItem(NAME, run.revision, 0, 1, 1, part)
        run.add(FLEET, FleetReport(member=name, at=number + 1, items=[item]))
    assert max(len(value) for _, value in log.partition.checkpoint()) < MAX_ROW_BYTES * 2
    refused = log.partition.state.namespaces[f"{FLEET}/shop"].held.refused
    assert refused[limits.FLEET_PARTS.what].name == NAME
    assert len(run.row(FLEET).fleet.parts) > 5  # type: ignore[union-attr]


def test_in_shadow_the_division_is_shown_and_nothing_is_allotted() -> None:
    run = _begun(mode="shadow")
    for _ in range(3):
        run.period({"east": 700, "west": 100})
    assert run.replicas == {"east": 4, "west": 4}
    clusters = run.last()["observed"]["clusters"]
    assert {name: each["share"] for name, each in clusters.items()} == {"east": 8, "west": 8}
    assert all("allotted" not in each for each in clusters.values())


def test_a_pause_of_a_cluster_holds_its_share_and_the_maximum_counts_what_it_may_have() -> None:
    run = _begun(maximum=12)
    run.add("west", Command(command="pause", name=NAME, author="anna"))
    for _ in range(4):
        run.period({"east": 700, "west": 500})
    assert run.replicas == {"east": 6, "west": 4}
    assert run.last("west")["paused"] == "this HPA is paused by anna"


def test_a_cluster_that_is_away_keeps_its_share_and_nothing_jumps_when_it_is_back() -> None:
    run = _begun(maximum=10)
    run.away.add("west")
    for _ in range(8):
        run.period({"east": 900, "west": 0})
    # West was allotted 5 before it was known to be away: it may have them, so they count.
    assert run.replicas == {"east": 5, "west": 4}
    assert run.last()["observed"]["clusters"]["west"]["away"] is True
    assert run.last()["currentReplicas"] == 5
    run.away.clear()
    for _ in range(3):
        run.period({"east": 300, "west": 200})
    # What it was allotted before is not obeyed, and nine suffice.
    assert run.replicas == {"east": 5, "west": 4}
    assert "away" not in run.last()["observed"]["clusters"]["west"]
    assert run.most == 9


def test_a_region_that_is_lost_is_away_although_its_partition_is_decided_on() -> None:
    run = _begun(maximum=10)
    beat = Heartbeat(session="o@1", watches=["scales"])
    for name in ("east", "west"):
        run.add(name, scale(NAME, run.replicas[name], session="o@1"), beat)
    for _ in range(6):
        run.add("east", beat)
        run.add("west", Heartbeat(session="o@1", problems={"scales": "connection refused"}))
        run.period({"east": 700, "west": 100})
    assert run.last()["observed"]["clusters"]["west"]["away"] is True
    assert run.most == 10
    run.add("west", beat)
    run.add("east", beat)
    run.period({"east": 300, "west": 200})
    assert "away" not in run.last()["observed"]["clusters"]["west"]
    assert run.most == 10


def test_what_a_cluster_has_no_nodes_for_spills_and_comes_back() -> None:
    run = _begun(spill_after_ms=60_000, rebalance_after_ms=60_000)
    run.grow("east", 5)
    load = {"east": 300, "west": 500}
    for _ in range(3):
        run.period(load)
    assert run.replicas == {"east": 8, "west": 8}  # three of east wait for a node
    for _ in range(5):
        run.period(load)
    assert run.replicas == {"east": 5, "west": 11}
    assert run.last()["observed"]["clusters"]["east"] == {"share": 5, "replicas": 5, "allotted": 5, "room": 5}

    run.grow("east", 20)
    for _ in range(38):  # nine and a half minutes
        run.period(load)
    assert run.replicas == {"east": 5, "west": 11}
    for _ in range(60):
        run.period(load)
    assert run.replicas == {"east": 8, "west": 8}
    assert "room" not in run.last()["observed"]["clusters"]["east"]
    assert run.most <= 20


def test_without_spill_after_pods_wait_where_their_share_is() -> None:
    run = _begun()
    run.grow("east", 5)
    for _ in range(12):
        run.period({"east": 300, "west": 500})
    assert run.replicas == {"east": 8, "west": 8}


def test_where_no_cluster_has_nodes_pods_wait_in_each_so_that_clusters_grow() -> None:
    run = _begun(maximum=12, spill_after_ms=30_000, rebalance_after_ms=0)
    run.grow("east", 4)
    run.grow("west", 4)
    for _ in range(12):
        run.period({"east": 400, "west": 400})
    assert run.replicas == {"east": 6, "west": 6}


def test_what_an_away_cluster_has_counts_no_longer_once_it_is_spilled() -> None:
    run = _begun(maximum=10, away_spill_after_ms=60_000)
    run.away.add("west")
    load = {"east": 900, "west": 0}
    for _ in range(3):
        run.period(load)
    assert run.replicas == {"east": 5, "west": 4}  # west may have been allotted five
    for _ in range(4):
        run.period(load)
    assert run.replicas == {"east": 10, "west": 4}
    assert run.last()["observed"]["clusters"]["west"] == {"replicas": 4, "allotted": 5, "away": True, "spilled": True}
    run.away.clear()
    for _ in range(4):
        run.period({"east": 500, "west": 400})
    # It is back: both together are brought within the maximum.
    assert run.total == 10
    assert "away" not in run.last()["observed"]["clusters"]["west"]
    for _ in range(6):
        run.period({"east": 500, "west": 400})
    assert run.total <= 10


def test_a_whole_with_spill_has_its_minimum_without_the_cluster_that_is_away() -> None:
    run = Fleet({"east": 2, "west": 2}, 20, away_spill_after_ms=60_000, minimum=4)
    for _ in range(2):
        run.period({"east": 20, "west": 20})
    run.away.add("west")
    for _ in range(8):
        run.period({"east": 20, "west": 0})
    assert run.replicas == {"east": 4, "west": 2}


def test_nothing_is_added_before_each_cluster_has_reported() -> None:
    run = Fleet({"east": 4, "west": 4}, 20)
    run.away.add("west")
    run.period({"east": 800, "west": 0})
    assert run.replicas == {"east": 4, "west": 4}
    for _ in range(3):
        run.period({"east": 800, "west": 0})
    assert run.replicas["east"] == 16  # west is away by now


def test_one_that_is_deleted_and_applied_again_goes_on_with_what_there_is() -> None:
    run = _begun()
    late: list[Message] = []

    def keep_back(each: Message) -> list[Message]:
        if not isinstance(each.body, FleetAllotment):
            return [each]
        late.append(each)
        return []

    run.deliver = keep_back
    run.period({"east": 700, "west": 100})
    assert late
    run.delete()
    run.deliver = everything_arrives
    run.apply()
    for each in late:
        run.add(each.cluster, each.body)
    assert run.replicas == {"east": 4, "west": 4}  # allotments of the former self mean nothing
    for _ in range(2):
        run.period({"east": 700, "west": 100})
    assert run.replicas == {"east": 8, "west": 8}


def test_a_cluster_that_has_another_revision_is_not_counted_until_it_has_this_one() -> None:
    run = _begun()
    run.add("east", FleetAllotment(name=NAME, revision=9, number=99, replicas=19, decision="0-1-x"))
    assert run.replicas["east"] == 4
    before = run.row(FLEET).fleet
    run.add(FLEET, FleetReport(member="east", at=2**40, items=[FleetReportItem(NAME, 9, 99, 0, 0, "[]")]))
    assert run.row(FLEET).fleet == before


# --- what was allotted is lost ----------------------------------------------------------------------------------------


def test_after_a_loss_nothing_is_decided_before_each_cluster_obeys_nothing_of_before() -> None:
    run = _begun(maximum=8)
    run.period({"east": 200, "west": 100})
    run.lose(FLEET, 0)
    load = {"east": 400, "west": 400}
    run.deliver = lambda each: [] if isinstance(each.body, FleetAllotment) and each.cluster == "west" else [each]
    for _ in range(4):
        run.period(load)
    assert run.last()["error"].endswith("not all clusters have reported on their replicas yet")
    assert run.replicas == {"east": 4, "west": 4}
    assert run.last("east")["reason"] == "the FleetHPA has allotted no share yet"
    run.deliver = everything_arrives
    for _ in range(3):
        run.period(load)
    assert "error" not in run.last()
    assert run.row(FLEET).fleet.shares == {"east": 4, "west": 4}  # type: ignore[union-attr]


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize(("spills_ms", "east"), [pytest.param(0, 4, id="Keep"), pytest.param(60_000, 8, id="Spill")])
def test_a_cluster_that_is_away_after_a_loss_may_have_anything_until_it_is_spilled(
    spills_ms: int, east: int, is_applied: bool
) -> None:
    run = _begun(maximum=8, away_spill_after_ms=spills_ms)
    run.away.add("west")
    run.lose(FLEET, 0)
    if is_applied:
        run.apply(away_spill_after_ms=spills_ms)
    for _ in range(9):
        run.period({"east": 900, "west": 0})
    assert run.replicas == {"east": east, "west": 4}
    assert ("error" in run.last()) == (not spills_ms)  # nothing is decided for the east alone


def test_after_a_loss_one_in_shadow_goes_on_dividing() -> None:
    run = _begun(mode="shadow")
    run.lose(FLEET, 0)
    for _ in range(4):
        run.period({"east": 700, "west": 100})
    assert run.replicas == {"east": 4, "west": 4}
    assert run.row(FLEET).fleet.shares == {"east": 8, "west": 8}  # type: ignore[union-attr]


# --- laws -------------------------------------------------------------------------------------------------------------


def _disturbed(random: Random, run: Fleet, periods: int) -> None:
    """Periods in which messages are lost, repeated and reordered, and clusters come and go."""
    held: list[Message] = []
    run.deliver = lambda each: [each] * random.choice((0, 1, 1, 1, 2))
    for _ in range(periods):
        run.away = {name for name in ("east", "west") if random.random() < 0.25}
        if random.random() < 0.5:
            run.waiting, held = [*held, *run.waiting[::-1]], []
        run.period({"east": random.randint(50, 900), "west": random.randint(50, 900)})


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 2**32))
def test_the_maximum_holds_whatever_becomes_of_messages_and_the_division_is_reached_then(seed: int) -> None:
    run = _begun(maximum=12, rebalance_after_ms=0)
    _disturbed(Random(seed), run, 5)
    assert run.most <= 12
    run.deliver, run.away = everything_arrives, set()
    for _ in range(4):
        run.period({"east": 3_000, "west": 3_000})
    assert run.replicas == {"east": 6, "west": 6}
    assert run.most <= 12


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 2**32))
def test_the_maximum_holds_also_where_what_was_allotted_is_lost(seed: int) -> None:
    random, run = Random(seed), _begun(maximum=12, rebalance_after_ms=0)
    for _ in range(2):
        _disturbed(random, run, 3)
        run.lose(FLEET, random.randrange(40))
    _disturbed(random, run, 3)
    assert run.most <= 12
    run.deliver, run.away = everything_arrives, set()
    for _ in range(7):
        run.period({"east": 3_000, "west": 3_000})
    assert run.replicas == {"east": 6, "west": 6}
    assert run.most <= 12


@settings(max_examples=examples(4), deadline=None)
@example(37462785)  # a cluster becomes away while the others have reported
@given(st.integers(0, 2**32))
def test_the_same_log_gives_the_same_bytes_and_messages_also_after_a_restart(seed: int) -> None:
    _is_the_same_after_a_restart(Random(seed), _begun(maximum=12))


@settings(max_examples=examples(4), deadline=None)
@given(st.integers(0, 2**32))
def test_a_restart_changes_nothing_either_while_replicas_spill(seed: int) -> None:
    random, run = Random(seed), _begun(maximum=12, spill_after_ms=15_000, away_spill_after_ms=40_000)
    run.grow("east", random.randint(0, 5))
    _is_the_same_after_a_restart(random, run)


def _is_the_same_after_a_restart(random: Random, run: Fleet) -> None:
    _disturbed(random, run, 2)
    run.logs[FLEET].add(Restart(reason="what was allotted is not known any more"))
    _disturbed(random, run, 2)
    assert_the_same_after_crashes(run.logs, random)


@pytest.mark.parametrize("of", [3, 5])
def test_more_clusters_give_the_same_total(of: int) -> None:
    names = [f"c{number}" for number in range(of)]
    run = Fleet(dict.fromkeys(names, 2), 60)
    for _ in range(3):
        run.period(dict.fromkeys(names, 300))
    assert run.total == 6 * of


def test_a_cluster_that_waits_for_answers_is_not_away_where_the_period_is_shorter_than_the_wait() -> None:
    fleet = _begun().row(FLEET).fleet
    assert fleet is not None
    newest_ms = fleet.parts["west"].taken_ms
    assert away(fleet, newest_ms + 2_000 + 3_000 + 500, 2_000) == []
    assert "west" in away(fleet, newest_ms + 2_000 + 3_000 + 501, 2_000)


PHASES = {"east": 0, "north": 4, "west": 11}


def _at_own_times() -> tuple[Fleet, dict[str, int]]:
    """Three clusters that are measured at other moments of the period, at rest."""
    run, load = Fleet(dict.fromkeys(PHASES, 4), 60), dict.fromkeys(PHASES, 200)
    for _ in run.seconds(60, load, PHASES):
        pass
    return run, load


def test_at_rest_the_whole_is_evaluated_once_per_period() -> None:
    run, load = _at_own_times()
    times = list(run.seconds(75, {**load, "north": 205}, PHASES))
    assert [later - sooner for sooner, later in pairwise(times)] == [15, 15, 15, 15]


def test_a_cluster_whose_reports_are_lost_is_waited_for_until_it_is_away() -> None:
    run, load = _at_own_times()
    run.deliver = lambda message: [] if getattr(message.body, "member", "") == "west" else [message]
    times = list(run.seconds(120, load, PHASES))
    assert run.last()["observed"]["clusters"]["west"]["away"] is True
    assert all([4 < later - sooner <= 18 for sooner, later in pairwise(times)]), times


@pytest.mark.parametrize("wait", range(15))
def test_a_step_of_the_load_at_any_moment_is_written_half_a_period_after_its_report_at_the_latest(wait: int) -> None:
    run, load = _at_own_times()
    list(run.seconds(wait, load, PHASES))
    assert any([run.total > 12 for _ in run.seconds(15 + 8, {**load, "east": 600}, PHASES)])


def test_nothing_is_decided_before_all_clusters_that_are_not_away_have_reported() -> None:
    """Else the replicas of those that report later would be missing in the total, and be taken from the others."""
    fleet = Fleet({"east": 4, "north": 4, "west": 4}, 20)
    fleet.deliver = lambda message: [] if getattr(message.body, "member", "") == "west" else [message]
    fleet.period({"east": 200, "north": 200, "west": 200})
    assert fleet.last()["error"].endswith("not all clusters have reported on their replicas yet")
    fleet.deliver = everything_arrives
    for _ in range(8):
        fleet.period({"east": 200, "north": 200, "west": 200})
        assert fleet.replicas == {"east": 4, "north": 4, "west": 4}
    assert fleet.row("@fleet").fleet.shares == fleet.replicas  # type: ignore[union-attr]


def test_a_cluster_that_never_reports_is_waited_for_until_it_is_away() -> None:
    fleet = Fleet({"east": 4, "west": 4}, 20)
    fleet.away = {"west"}
    for _ in range(8):
        fleet.period({"east": 400, "west": 0})
    assert fleet.replicas["east"] == 8


# --- what the whole begins with ---------------------------------------------------------------------------------------


def _after_a_peak() -> Fleet:
    """HPAs of two clusters, whose peak was over 60 s ago."""
    run = Fleet({"east": 4, "west": 4}, 20, applied=False)
    for load in (200, 200, 400, 400):
        run.period({"east": load, "west": load})
    run.natively({"east": 8, "west": 8})
    for _ in range(4):
        run.period(AT_REST)
    return run


def test_after_adopt_nothing_is_removed_before_the_windows_of_the_clusters_would_have_ended() -> None:
    """The newest recommendation of the peak is 60 s old at adopt, and the window is 300 s: 240 s are left."""
    run = _after_a_peak()
    run.adopt()
    for _ in range(15):
        run.period(AT_REST)
        assert run.replicas == {"east": 8, "west": 8}
    for _ in range(2):
        run.period(AT_REST)
    assert run.replicas == {"east": 4, "west": 4}


def test_a_cluster_that_joins_after_a_peak_brings_its_window_with_it() -> None:
    run = _after_a_peak()
    run.apply(weights={"east": 1})
    run.add("east", AutoscalerDeleted(name=NAME, origin="cluster", uid="native-east"))
    for _ in range(3):
        run.period(AT_REST)
    run.adopt(weights={"east": 1, "west": 1})
    for _ in range(11):
        run.period(AT_REST)
        assert run.replicas == {"east": 8, "west": 8}
    for _ in range(6):
        run.period(AT_REST)
    assert run.replicas == {"east": 4, "west": 4}


BY_EIGHT = {"policies": [{"type": "Pods", "value": 8, "periodSeconds": 120}]}
"""At most eight replicas in two minutes, in all clusters together."""


@pytest.mark.parametrize("is_lost", [pytest.param(False, id="adopt"), pytest.param(True, id="loss of state")])
@pytest.mark.parametrize(
    ("behavior", "replicas", "loads", "wanted"),
    [
        pytest.param({"scaleUp": BY_EIGHT}, (4, 8, 12), (200, 200, 400), 600, id="added"),
        pytest.param(
            {"scaleDown": {"stabilizationWindowSeconds": 0} | BY_EIGHT}, (8, 4, 2), (400, 400, 200), 100, id="removed"
        ),
    ],
)
def test_what_clusters_added_or_removed_before_counts_for_the_policies_of_the_whole(
    behavior: dict[str, Any], replicas: tuple[int, int, int], loads: tuple[int, ...], wanted: int, is_lost: bool
) -> None:
    first, changed, last = ({"east": each, "west": each} for each in replicas)
    run = Fleet(first, 40, mode="shadow")
    run.delete()
    for name in run.replicas:
        central = make_hpa(NAME, minReplicas=1, maxReplicas=40, behavior=behavior)
        run.add(name, AutoscalerSet(hpa=central, origin="central", mode="enforce"))
    for load in loads:
        run.period({"east": load, "west": load})
    assert run.replicas == changed
    run.apply(spec={"behavior": behavior})
    if is_lost:
        run.period({"east": wanted, "west": wanted})
        run.lose(FLEET, 0)
    for _ in range(7 - is_lost):
        run.period({"east": wanted, "west": wanted})
        assert run.replicas == changed
    for _ in range(3):
        run.period({"east": wanted, "west": wanted})
    assert run.replicas == last


def test_a_new_spec_brings_no_window_again() -> None:
    run = _begun()
    before = run.row(FLEET).fleet
    assert before is not None
    assert before.begun == ("east", "west")
    run.apply(weights={"west": 1})
    after = run.row(FLEET).fleet
    assert after is not None
    assert after.begun == ("west",)


def test_the_same_after_a_restart_where_clusters_bring_their_windows() -> None:
    run = _after_a_peak()
    run.adopt()
    _is_the_same_after_a_restart(Random(7), run)

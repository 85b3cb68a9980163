"""A change of hands in the log: who was in charge when, and what a hub takes over."""

from typing import Any

from msgspec import structs

from schemas.entries import ControlTransferred, Entry, LeftNative
from streams.partition import Partition
from streams.state.partitionrow import KEPT_CHANGES, ControlRow, control_after, status_after
from streams.state.rows import NOTHING_APPLIED
from tests.kit.central import ABSENT, WEB, central, evaluate, mode, native, world
from tests.kit.partition import history


def change(holder: str, generation: int, time: int = 0) -> ControlTransferred:
    return ControlTransferred(cluster="east", holder=holder, generation=generation, time=time or generation * 1_000)


def test_the_first_hub_of_a_cluster_begins_nothing_anew() -> None:
    row = control_after(None, change("hub/main/1", 2), 10)
    assert row == ControlRow([(2_000, "hub/main/1", 2)], NOTHING_APPLIED)


def test_a_hand_back_is_a_restart_of_the_cluster() -> None:
    row = None
    for offset, (holder, generation) in enumerate([("stand-in", 3), ("closing", 4), ("hub/main/1", 5)]):
        row = control_after(row, change(holder, generation), offset)
        assert row.restart_offset == (2 if generation == 5 else NOTHING_APPLIED)
    assert row is not None
    assert [holder for _, holder, _ in row.changes] == ["stand-in", "closing", "hub/main/1"]


def test_what_is_reported_twice_or_late_moves_nothing() -> None:
    row = control_after(control_after(None, change("stand-in", 3), 1), change("hub/main/1", 5), 2)
    assert control_after(row, change("hub/main/1", 5), 7) is row
    late = control_after(row, change("closing", 4), 8)
    assert ([generation for _, _, generation in late.changes], late.restart_offset) == ([3, 4, 5], 2)


def test_old_changes_are_forgotten() -> None:
    row: ControlRow | None = None
    for generation in range(1, KEPT_CHANGES + 5):
        row = control_after(row, change("stand-in", generation), generation)
    assert row is not None
    assert [generation for _, _, generation in row.changes] == list(range(5, KEPT_CHANGES + 5))


NATIVE = LeftNative(namespace="shop", name="web", last_scale=1_790_000_001_000, scaled_to_zero=True)


def test_the_last_scale_time_and_a_zero_of_the_native_controller_go_on() -> None:
    before: dict[str, Any] = {"conditions": [{"type": "AbleToScale", "status": "True"}]}
    after = status_after(before, NATIVE)
    assert after["lastScaleTime"] == "2026-09-21T14:13:21Z"
    assert [each["type"] for each in after["conditions"]] == ["AbleToScale", "ScaledToZero"]
    assert status_after(after, NATIVE) == after
    assert "lastScaleTime" not in before


def test_a_later_scale_time_stays() -> None:
    later = {"lastScaleTime": "2027-01-01T00:00:00Z"}
    assert status_after(later, LeftNative(namespace="shop", name="web", last_scale=1_790_000_001_000)) == later


def test_history_shows_whose_the_cluster_was() -> None:
    log = world(ABSENT, native(), mode("enforce"), central(maxReplicas=12))
    for holder, before, generation in (("stand-in", "hub/main/1", 3), ("closing", "stand-in", 4)):
        body = ControlTransferred(
            cluster="eu",
            holder=holder,
            before=before,
            generation=generation,
            time=generation * 1_000,
            reason="the hub is silent" if holder == "stand-in" else "",
        )
        log.add(Entry(key="*", body=body))
    found = [each for each in history(Partition.empty(0), log.records, WEB) if each.what == "hands"]
    assert [(each.time, each.changes) for each in found] == [
        (3_000, ["cluster eu in the hands of hub/main/1 → stand-in (generation 3): the hub is silent"]),
        (4_000, ["cluster eu in the hands of stand-in → closing (generation 4)"]),
    ]


def test_a_hub_that_gets_a_cluster_back_begins_with_the_count_of_then() -> None:
    log = world(ABSENT, native(), mode("enforce"), central(maxReplicas=12))
    evaluate(log, 50)
    assert log.partition.state.hpas[WEB].row.history.recommendations
    log.add(Entry(key="*", body=ControlTransferred(cluster="eu", holder="stand-in", generation=3, time=1)))
    back = ControlTransferred(
        cluster="eu", holder="hub/main/1", generation=5, time=2, natives=[structs.replace(NATIVE, name="web")]
    )
    log.add(Entry(key="*", body=back))
    row = log.partition.state.hpas[WEB].row
    assert (row.own_status or {})["lastScaleTime"] == "2026-09-21T14:13:21Z"
    decision = evaluate(log, 90)[0]
    assert log.partition.state.row.transfers["eu"].restart_offset > 0
    known = log.partition.state.hpas[WEB].row.history.recommendations
    assert [count for count, _ in known] == [decision["currentReplicas"], 4]

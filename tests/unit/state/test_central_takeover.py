"""A central HPA over a cluster's HPA of the same name or target: who is evaluated, who writes, what is kept."""

from typing import Any

import pytest

from schemas.entries import Body
from schemas.keys import HpaId
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet, ConflictingAutoscaler, Target
from streams.analysis.shadowreport import shadow_report
from streams.history.evaluations import Evaluated, NativeSync, NativeTraces, events
from streams.partition import Partition
from streams.state.ownership import ownership
from streams.state.rows import DirectoryKey
from tests.kit.central import ABSENT, PRESENT, SCALE, TARGET, UNDO, WEB, central, evaluate, mode, native, world
from tests.kit.partition import KEY, LogBuilder, history

CLUSTERS = DirectoryKey("web", "cluster")
CENTRAL = DirectoryKey("web", "central")


def holders(log: LogBuilder) -> list[tuple[str, bool]]:
    """Who drives the target now: name, and whether through the native controller."""
    found = ownership(log.partition.state).holders
    return [(holder.hpa.name, holder.native) for holder in found.get(SCALE, [])]


def test_a_central_hpa_takes_over_mode_and_windows_where_the_native_controller_is_absent() -> None:
    log = world(ABSENT, native(), mode("enforce"))
    assert "origin" not in evaluate(log, 50)[0]
    history = log.partition.state.hpas[WEB].row.history
    known = history.recommendations
    assert known
    log.add(central(maxReplicas=12))
    row = log.partition.state.hpas[WEB].row
    assert (row.origin, row.author, row.change_reason) == ("central", "anna", "PAY-1")
    assert row.history.recommendations[: len(known)] == known
    decision = evaluate(log, 100)[0]
    assert (decision["origin"], decision["maxReplicas"], decision["wants"]) == ("central", 12, 4)
    assert holders(log) == [("web", False)]


def test_a_deleted_central_hpa_gives_the_target_back_to_the_clusters_hpa() -> None:
    log = world(ABSENT, native(), mode("enforce"))
    evaluate(log, 50)
    log.add(central(maxReplicas=12))
    log.add(UNDO)
    assert holders(log) == [("web", False)]
    decision = evaluate(log, 100)[0]
    assert (decision.get("origin", "cluster"), decision["uid"], decision["maxReplicas"]) == ("cluster", "uid-web", 10)
    assert decision["wants"] == 4
    assert "refused" not in decision


def test_the_native_controller_keeps_what_it_drives() -> None:
    log = world(PRESENT, native(), central(wanted="enforce"))
    decision = evaluate(log)[0]
    assert "the cluster's HPA shop/web drives Deployment/web too" in decision["refused"]
    assert "kubectl --context eu delete hpa web -n shop" in decision["refused"]
    assert holders(log) == [("web", True)]
    log.add(AutoscalerDeleted(name="web", uid="uid-web"))
    assert holders(log) == [("web", False)]


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([native(uid="uid-2")], id="an event brings the new one"),
        pytest.param([AutoscalerList(list_id="l", hpas=[native(uid="uid-2").hpa])], id="a full list contains it"),
    ],
)
def test_no_ghost_is_left_of_a_hidden_hpa_that_was_deleted_and_created_again(again: list[Body]) -> None:
    log = world(ABSENT, native(), central(), UNDO)
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), *again, mode("enforce"))
    state = log.partition.state
    assert set(state.namespaces[KEY].directory) == {CLUSTERS}
    assert ownership(state).claims[WEB].refused == ""
    assert evaluate(log)[0]["wants"] == 4


def test_a_hidden_hpa_that_was_replaced_in_the_cluster_comes_back_as_the_new_one() -> None:
    log = world(ABSENT, native(), mode("enforce"), central())
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), native(uid="uid-2", maxReplicas=7))
    log.add(AutoscalerDeleted(name="web", uid="uid-web"))  # late: of the object before it
    log.add(UNDO)
    row = log.partition.state.hpas[WEB].row
    assert (row.origin, row.uid, row.hpa_object()["spec"]["maxReplicas"]) == ("cluster", "uid-2", 7)
    assert holders(log) == [("web", False)]


def test_late_news_of_an_adopted_hpa_is_ignored() -> None:
    log = world(ABSENT, native(), mode("enforce"), central())
    log.add(AutoscalerDeleted(name="web", uid="uid-web"))  # without a session: from the command that adopted it
    log.add(native(), AutoscalerList(list_id="l", hpas=[native().hpa]), central(maxReplicas=12), native())
    assert set(log.partition.state.namespaces[KEY].directory) == {CENTRAL}
    log.add(native(uid="uid-2"))
    assert set(log.partition.state.namespaces[KEY].directory) == {CENTRAL, CLUSTERS}


def test_a_full_list_without_a_hidden_hpa_removes_it_and_leaves_the_central_one() -> None:
    log = world(ABSENT, native(), central(wanted="enforce"))
    log.add(AutoscalerList(list_id="l", hpas=[]))
    assert set(log.partition.state.namespaces[KEY].directory) == {CENTRAL}
    log.add(UNDO)
    evaluate(log)
    assert log.partition.state.hpas[WEB].row.gone


def test_the_mode_of_a_name_stays_while_an_hpa_has_it() -> None:
    log = world(ABSENT, native(), central(wanted="enforce"), UNDO)
    assert ownership(log.partition.state).claims[WEB].asked == "enforce"
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), central(), UNDO)
    assert log.partition.state.namespaces[KEY].commands == {}


def test_of_two_origins_on_one_target_the_central_hpa_writes() -> None:
    log = world(ABSENT, native("old"), mode("enforce", "old"), central("web", "enforce"))
    assert holders(log) == [("web", False)]
    claim = ownership(log.partition.state).claims[HpaId("eu", "shop", "old")]
    assert "the central HPA shop/web drives Deployment/web too" in claim.refused
    assert "fleethpa delete eu/shop/web" in claim.refused
    log.add(mode("shadow"))
    assert holders(log) == [("old", False)]


def test_history_shows_who_adopted_an_hpa_and_who_gave_it_back() -> None:
    log = world(ABSENT, native())
    log.add(central(wanted="enforce", maxReplicas=12))
    log.add(AutoscalerDeleted(name="web", origin="central", author="ben", reason="PAY-2"))
    found = history(Partition.empty(0), log.records, WEB)
    assert [(each.what, each.author, each.reason, each.changes) for each in found] == [
        ("created", "", "", []),
        ("adopted", "anna", "PAY-1", ["origin cluster→central", "maxReplicas 10→12"]),
        ("mode", "anna", "PAY-1", ["mode shadow→enforce"]),
        ("released", "ben", "PAY-2", ["origin central→cluster", "maxReplicas 12→10"]),
    ]


def test_two_hpas_of_a_cluster_on_one_target_say_so_in_their_own_status_and_events() -> None:
    log = world(ABSENT, native(), native("old", "uid-old"), mode("enforce"), mode("enforce", "old"))
    evaluate(log)
    shown = evaluate(log)
    assert {full["name"] for full in shown} == {"old", "web"}
    for full in shown:
        other = {"old": "web", "web": "old"}[full["name"]]
        assert "wants" not in full
        assert full["showsRefusal"]
        conditions = {each["type"]: each for each in full["status"]["conditions"]}
        able = conditions["AbleToScale"]
        assert (able["status"], able["reason"]) == ("False", "EnforcingRefused")
        assert f"the cluster's HPA shop/{other} drives Deployment/web too" in able["message"]
        assert conditions["ScalingActive"]["reason"] == "AmbiguousSelector"
        assert ["Warning", "EnforcingRefused", able["message"]] in full["events"]
        assert full["status"]["desiredReplicas"] in (0, 2)


def test_an_hpa_that_is_refused_where_no_native_controller_runs_is_not_compared_with_one() -> None:
    log = world(ABSENT, native(), native("old", "uid-old"), mode("enforce"), mode("enforce", "old"))
    for _ in range(3):
        evaluate(log)
    shown = {**native().hpa, "status": log.partition.state.hpas[WEB].row.own_status}
    log.add(AutoscalerSet(hpa=shown))  # the status that the reconciler has written for the refusal
    evaluate(log)
    found = list(events(Partition.empty(0), list(log.records), lambda _: True, NativeTraces(lambda _: True)))
    assert len([each for each in found if isinstance(each, Evaluated)]) >= 4
    assert not [each for each in found if isinstance(each, NativeSync)]
    assert shadow_report(WEB, [each for each in found if getattr(each, "inputs", None)]) is None


def test_a_refusal_that_stays_keeps_its_transition_time_and_ends_with_its_reason() -> None:
    group, kind, name = TARGET
    other = ConflictingAutoscaler(kind="ScaledObject", name="k", target=Target(group=group, kind=kind, name=name))
    log = world(ABSENT, AutoscalerList(list_id="l", hpas=[native().hpa], conflicting=[other]), mode("enforce"))
    first = evaluate(log)[0]
    moments = {able(first)["lastTransitionTime"]}
    assert first["status"]["desiredReplicas"] == first["status"]["currentReplicas"] == 2
    for _ in range(3):
        (decision,) = evaluate(log)
        assert decision["refused"] == first["refused"]
        moments.add(able(log.partition.state.hpas[WEB].row.own_status)["lastTransitionTime"])
    assert len(moments) == 1
    log.add(AutoscalerList(list_id="m", hpas=[native().hpa]))
    wanted = evaluate(log)[0]
    assert (wanted["wants"], wanted.get("refused", "")) == (4, "")
    log.add(PRESENT)
    assert not [each for each in evaluate(log, after_ms=60_000) if each.get("showsRefusal")]


def able(body: Any) -> Any:
    conditions = (body.get("status") or body)["conditions"]
    return next(each for each in conditions if each["type"] == "AbleToScale")

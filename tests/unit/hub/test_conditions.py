"""What an object shows: conditions in the conventions of the API, numbers that somebody can know, and news."""

from __future__ import annotations

from typing import Any

import pytest

from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.hub.conditions import StatusEvent, is_worth_writing, one_word, status_events, status_of
from fleethpa.hub.kinds import BY_NAME, HubObject, hub_object
from fleethpa.hub.scene import ObjectVerdict
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from streams.state.replacements.override import Override
from tests.kit.hubapi import ANNA, template

WEB = HpaId("east", "shop", "web")
NOW = 1_800_000_000_000


def item(kind: str = "CentralHPA", status: Json | None = None, **spec: Any) -> HubObject:
    made: Json = {"clusters": ["east"]} | spec | ({"template": template()} if kind == "CentralHPA" else {})
    body = {"metadata": {"name": "web", "namespace": "shop", "generation": 3}, "spec": made, "status": status}
    return hub_object(BY_NAME[kind], body)


def view(has: int = 3, wanted: int = 3, **fields: Any) -> HpaView:
    status = {"currentReplicas": has, "desiredReplicas": wanted}
    hpa = {"spec": template(), "status": status}
    return HpaView(WEB, hpa, "enforce", "central", 0, last_decision="d-1", wants=wanted, **fields)


def shown(
    found: HpaView | None, verdict: ObjectVerdict | None = None, *, is_written: bool = True, **fields: Any
) -> Json:
    state = FleetState(hpas={} if found is None else {WEB: found}, **fields)
    return status_of(item(), verdict or ObjectVerdict(hpas=(WEB,)), state, NOW, ANNA, is_written=is_written)


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_an_hpa_that_is_decided_and_well_is_ready() -> None:
    status = shown(view())
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Ready": ("True", "Decided"),
        "Degraded": ("False", "AsExpected"),
    }
    assert status["observedGeneration"] == 3
    assert status["summary"] == "1/1"
    assert status["clusters"] == [{"name": "east", "mode": "enforce", "replicas": 3, "wanted": 3, "decision": "d-1"}]
    assert status["author"] == {"name": "anna", "proven": True}


def test_an_object_on_its_way_into_the_log_is_not_ready() -> None:
    assert conditions(shown(None, is_written=False))["Ready"] == ("False", "Recording")
    assert conditions(shown(None))["Ready"] == ("False", "NoDecisionYet")


def test_a_refused_object_is_stalled_as_kstatus_reads_it() -> None:
    found = conditions(shown(None, ObjectVerdict("Forbidden", "No FleetAccess.")))
    assert found["Accepted"] == found["Ready"] == ("False", "Forbidden")
    assert found["Stalled"] == ("True", "Forbidden")


def test_saturation_is_the_reason_and_names_the_hpa() -> None:
    status = shown(view(8, 20))
    degraded = status["conditions"][2]
    assert (degraded["status"], degraded["reason"]) == ("True", "Saturated")
    assert degraded["message"] == "east/shop/web: saturated: at max 8, asks for 20"


@pytest.mark.parametrize("fields", [{"cut_off": "cluster away"}, {"unfed": "ingest hangs"}])
def test_no_number_is_shown_that_nobody_can_know(fields: dict[str, Any]) -> None:
    (cluster,) = shown(view(**fields))["clusters"]
    assert cluster == {"name": "east", "mode": "enforce", "decision": "d-1"}


def test_a_cluster_that_is_away_is_degraded_and_readiness_unknown() -> None:
    found = conditions(shown(view(cut_off="no answer of the API server")))
    assert found["Ready"] == ("Unknown", "ClusterAway")
    assert found["Degraded"] == ("True", "ClusterAway")


def test_while_the_log_cannot_be_read_nothing_is_claimed() -> None:
    found = conditions(shown(view(), unread="the brokers are away"))
    assert found["Ready"] == found["Degraded"] == ("Unknown", "NotKnown")


def test_a_pause_that_has_ended_says_when() -> None:
    made = item("Pause", until="2026-01-01T00:00:00Z")
    status = status_of(made, ObjectVerdict(), FleetState(), NOW, ANNA, is_written=True)
    ready = status["conditions"][1]
    assert (ready["status"], ready["reason"]) == ("False", "Ended")
    assert ready["message"] == "It ended at 2026-01-01T00:00:00Z."
    assert "clusters" not in status


def test_what_did_not_change_keeps_its_time_and_its_decision() -> None:
    first = shown(view())
    state = FleetState(hpas={WEB: HpaView(WEB, view().hpa, "enforce", "central", 0, last_decision="d-2", wants=3)})
    again = status_of(item(status=first), ObjectVerdict(hpas=(WEB,)), state, NOW + 60_000, ANNA, is_written=True)
    assert again == first
    assert not is_worth_writing(first, again)
    assert status_events(first, again) == []


def test_an_override_is_shown_per_cluster_and_its_end_is_news_that_names_it() -> None:
    before = shown(view(override=Override(9, NOW + 1, "anna", "launch")))
    after = shown(view())
    state = FleetState(hpas={WEB: view()}, unread="the brokers are away")
    unknown = status_of(item(status=before), ObjectVerdict(hpas=(WEB,)), state, NOW, ANNA, is_written=True)
    gone = shown(None)

    assert before["clusters"][0]["override"] == 9
    assert "override" not in after["clusters"][0]
    assert StatusEvent("Normal", "OverrideEnded", "The override to 9 replicas in east has ended.") in status_events(
        before, after
    )
    assert is_worth_writing(before, after)
    assert not any(
        each.reason == "OverrideEnded" for status in (unknown, gone, before) for each in status_events(before, status)
    )


def test_news_are_what_became_worse_or_better() -> None:
    well, saturated = shown(view()), shown(view(8, 20))
    assert [(each.type, each.reason) for each in status_events({}, well)] == []
    assert [(each.type, each.reason) for each in status_events(well, saturated)] == [("Warning", "Saturated")]
    assert [(each.type, each.reason) for each in status_events(saturated, well)] == [("Normal", "AsExpected")]
    refused = shown(None, ObjectVerdict("Forbidden", "No FleetAccess."))
    assert ("Warning", "Forbidden") in [(each.type, each.reason) for each in status_events({}, refused)]


@pytest.mark.parametrize(("label", "word"), [("write failed", "WriteFailed"), ("no metrics", "NoMetrics")])
def test_reasons_are_one_word(label: str, word: str) -> None:
    assert one_word(label) == word

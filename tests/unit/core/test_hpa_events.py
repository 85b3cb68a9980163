"""Events look, are named and are counted as those of upstream."""

from msgspec import structs

from reconciler.core import events as hpaevents
from reconciler.core.events import EventBudget
from tests.unit.core.test_reconcile_status import DECISION


def test_an_event_looks_like_upstreams() -> None:
    (event,) = hpaevents.event_writes(DECISION)
    assert event.body["involvedObject"] == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
    }
    assert event.body["source"] == {"component": "horizontal-pod-autoscaler"}
    assert (event.body["type"], event.body["reason"], event.body["count"]) == ("Normal", "SuccessfulRescale", 1)
    assert event.body["firstTimestamp"] == "2026-11-21T12:00:00Z"


def test_equal_events_share_a_name_and_others_do_not() -> None:
    (one,) = hpaevents.event_writes(DECISION)
    (same,) = hpaevents.event_writes(structs.replace(DECISION, id="0-9-u1", time="2026-11-21T12:09:00.000Z"))
    (other,) = hpaevents.event_writes(
        structs.replace(DECISION, events=[("Normal", "SuccessfulRescale", "New size: 6")])
    )
    (reborn,) = hpaevents.event_writes(structs.replace(DECISION, uid="u2"))
    assert one.name == same.name
    assert len({one.name, other.name, reborn.name}) == 3


def test_an_event_is_counted_once_per_decision() -> None:
    (event,) = hpaevents.event_writes(DECISION)
    standing = event.body | {"metadata": event.body["metadata"] | {"resourceVersion": "5"}}
    assert hpaevents.again(event, standing) is None
    (later,) = hpaevents.event_writes(structs.replace(DECISION, id="0-9-u1", time="2026-11-21T12:09:00.000Z"))
    patch = hpaevents.again(later, standing)
    assert patch is not None
    assert (patch["count"], patch["lastTimestamp"]) == (2, "2026-11-21T12:09:00Z")
    assert patch["metadata"]["resourceVersion"] == "5"


def test_the_events_of_a_central_hpa_are_about_its_target() -> None:
    (event,) = hpaevents.event_writes(structs.replace(DECISION, origin="central"), "t1")
    about = event.body["involvedObject"]
    assert (about["kind"], about["name"], about["uid"], about["apiVersion"]) == ("Deployment", "web", "t1", "apps/v1")


def test_25_events_at_once_then_one_per_five_minutes() -> None:
    budget = EventBudget()
    assert [budget.admits("u", 0) for _ in range(26)] == [True] * 25 + [False]
    assert not budget.admits("u", 299_999)
    assert budget.admits("u", 300_000)
    assert not budget.admits("u", 300_001)
    assert budget.admits("other", 0)


def test_an_idle_budget_is_forgotten() -> None:
    budget = EventBudget(burst=1, refill_ms=10)
    assert budget.admits("u", 0)
    budget.forget_idle(9)
    assert not budget.admits("u", 9)
    budget.forget_idle(30)
    assert budget.admits("u", 30)

"""Records of central HPAs are kept alive, and a user's change is never undone by it."""

from typing import Any

from msgspec import structs

from reconciler.observer.topicreaders import RENEW_MS, CentralHpas, NewestRecord, group_of
from schemas.keys import HpaId
from schemas.observed import AutoscalerSet
from schemas.topics import OBSERVER_GROUPS

WEB, API = HpaId("east", "shop", "web"), HpaId("east", "shop", "api")


def applied(high: int = 10, **changes: Any) -> AutoscalerSet:
    named: dict[str, Any] = {"author": "ada", "reason": "sale", "mode": "enforce"} | changes
    return AutoscalerSet(hpa={"spec": {"maxReplicas": high}}, origin="central", **named)


def renewed(body: AutoscalerSet) -> AutoscalerSet:
    return structs.replace(body, mode=None, renewed=True)


def at(time_ms: int, body: AutoscalerSet | None, offset: int = 0, partition: int = 0) -> NewestRecord:
    return NewestRecord(body, time_ms, partition, offset)


def known(*clusters: str) -> CentralHpas:
    made = CentralHpas((clusters or ("east",)).__contains__)
    made.take(WEB, at(1_000, applied(), offset=7))
    return made


def test_a_record_is_said_again_before_it_expires_once_a_period_and_without_its_mode() -> None:
    hpas = known()
    assert not hpas.is_due(999 + RENEW_MS)
    assert hpas.is_due(1_000 + RENEW_MS)
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, renewed(applied()))]
    assert not hpas.is_due(1_001 + RENEW_MS)
    assert not hpas.take(WEB, at(1_001 + RENEW_MS, renewed(applied())))
    assert not hpas.is_due(1_000 + 2 * RENEW_MS)
    assert hpas.due(1_001 + 2 * RENEW_MS) == [(WEB, renewed(applied()))]


def test_what_another_observer_said_again_is_not_due_here() -> None:
    hpas = known()
    assert not hpas.take(WEB, at(RENEW_MS, renewed(applied())))
    assert hpas.due(1_000 + RENEW_MS) == []


def test_a_renewed_record_is_as_good_as_the_first_where_that_has_expired() -> None:
    hpas = CentralHpas("east".__eq__)
    assert hpas.take(WEB, at(1_000, renewed(applied())))
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, renewed(applied()))]


def test_records_of_other_clusters_are_for_their_observers() -> None:
    hpas = known("west")
    assert not hpas.is_due(10 * RENEW_MS)
    assert hpas.marks({0: 40}) == {0: 40}


def test_a_deleted_hpa_is_not_said_again_nor_brought_back_by_a_record_renewed_just_then() -> None:
    hpas = known()
    [(_, stated)] = hpas.due(1_000 + RENEW_MS)
    assert hpas.take(WEB, at(1_500 + RENEW_MS, None))
    assert not hpas.take(WEB, at(2_000 + RENEW_MS, stated))
    assert hpas.due(10 * RENEW_MS) == []
    assert hpas.take(WEB, at(11 * RENEW_MS, applied()))


def test_a_change_stands_against_a_record_renewed_just_then() -> None:
    hpas = known()
    [(_, stated)] = hpas.due(1_000 + RENEW_MS)
    assert hpas.take(WEB, at(1_500 + RENEW_MS, applied(high=20)))
    assert not hpas.take(WEB, at(1_600 + RENEW_MS, stated))
    assert hpas.due(1_500 + 2 * RENEW_MS) == [(WEB, renewed(applied(high=20)))]


def test_reading_begins_at_the_oldest_record_that_still_counts() -> None:
    hpas = known()
    hpas.take(API, at(1_000, applied(), offset=3, partition=1))
    assert hpas.marks({0: 40, 1: 50, 2: 60}) == {0: 7, 1: 3, 2: 60}
    hpas.take(WEB, at(2_000, renewed(applied()), offset=39))
    assert hpas.marks({0: 40, 1: 50, 2: 60}) == {0: 39, 1: 3, 2: 60}
    hpas.take(API, at(2_000, None, offset=48, partition=1))
    assert hpas.marks({0: 40, 1: 50, 2: 60}) == {0: 39, 1: 48, 2: 60}, "a deletion counts for a while"
    hpas.due(2_000 + RENEW_MS)
    assert hpas.marks({0: 40, 1: 50, 2: 60}) == {0: 39, 1: 50, 2: 60}


def test_observers_of_the_same_clusters_share_their_marks() -> None:
    assert group_of(["west", "east"]) == group_of(("east", "west"))
    assert group_of(["west"]) != group_of(["east"])
    assert group_of(["east"]).startswith(OBSERVER_GROUPS)

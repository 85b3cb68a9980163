"""Records of central HPAs are kept alive, and what a user said is never undone by it."""

from typing import Any

from msgspec import structs

from reconciler.observe.central import RENEW_MS, CentralHpas
from schemas.autoscalers import AutoscalerSet
from schemas.keys import HpaId

WEB = HpaId("east", "shop", "web")


def applied(high: int = 10, **changes: Any) -> AutoscalerSet:
    named: dict[str, Any] = {"author": "ada", "reason": "sale", "mode": "enforce"} | changes
    return AutoscalerSet(hpa={"spec": {"maxReplicas": high}}, origin="central", **named)


def renewed(body: AutoscalerSet) -> AutoscalerSet:
    return structs.replace(body, mode=None, renewed=True)


def known(*clusters: str) -> CentralHpas:
    made = CentralHpas(clusters or ("east",))
    made.set(WEB, applied(), 1_000)
    return made


def test_a_record_is_said_again_before_it_expires_once_a_period_and_without_its_mode() -> None:
    hpas = known()
    assert hpas.due(1_000 + RENEW_MS - 1) == []
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, renewed(applied()))]
    assert hpas.due(1_001 + RENEW_MS) == []
    assert not hpas.set(WEB, renewed(applied()), 1_001 + RENEW_MS)
    assert hpas.due(1_000 + 2 * RENEW_MS) == []
    assert hpas.due(1_001 + 2 * RENEW_MS) == [(WEB, renewed(applied()))]


def test_what_another_observer_said_again_is_not_due_here() -> None:
    hpas = known()
    assert not hpas.set(WEB, renewed(applied()), RENEW_MS)
    assert hpas.due(1_000 + RENEW_MS) == []


def test_a_renewed_record_is_as_good_as_the_first_where_that_has_expired() -> None:
    hpas = CentralHpas(("east",))
    assert hpas.set(WEB, renewed(applied()), 1_000)
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, renewed(applied()))]


def test_records_of_other_clusters_are_for_their_observers() -> None:
    assert known("west").due(10 * RENEW_MS) == []


def test_a_deleted_hpa_is_not_said_again_nor_brought_back_by_a_record_renewed_just_then() -> None:
    hpas = known()
    [(_, said)] = hpas.due(1_000 + RENEW_MS)
    hpas.deleted(WEB, 1_500 + RENEW_MS)
    assert not hpas.set(WEB, said, 2_000 + RENEW_MS)
    assert hpas.due(10 * RENEW_MS) == []
    assert hpas.set(WEB, applied(), 3_000 + RENEW_MS)


def test_a_change_stands_against_a_record_renewed_just_then() -> None:
    hpas = known()
    [(_, said)] = hpas.due(1_000 + RENEW_MS)
    assert hpas.set(WEB, applied(high=20), 1_500 + RENEW_MS)
    assert not hpas.set(WEB, said, 1_600 + RENEW_MS)
    assert hpas.due(1_500 + 2 * RENEW_MS) == [(WEB, renewed(applied(high=20)))]

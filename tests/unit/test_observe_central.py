"""Records of central HPAs are kept alive, and a user's word stands against ours."""

from typing import Any

from msgspec import structs

from reconciler.observe.central import RENEW_MS, CentralHpas
from schemas.autoscalers import AutoscalerDeleted, AutoscalerSet
from schemas.keys import HpaId

WEB = HpaId("east", "shop", "web")


def applied(high: int = 10, **changes: Any) -> AutoscalerSet:
    named: dict[str, Any] = {"author": "ada", "reason": "sale", "mode": "enforce"} | changes
    return AutoscalerSet(hpa={"spec": {"maxReplicas": high}}, origin="central", **named)


def ours(body: AutoscalerSet) -> AutoscalerSet:
    return structs.replace(body, mode=None, session="me")


def known(*clusters: str) -> CentralHpas:
    made = CentralHpas(clusters or ("east",), "me")
    assert made.set(WEB, applied(), 1_000) is None
    return made


def test_a_record_is_said_again_before_it_expires_once_a_period_and_without_its_mode() -> None:
    # The mode may have been changed by a command since.
    hpas = known()
    assert hpas.due(1_000 + RENEW_MS - 1) == []
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, ours(applied()))]
    assert hpas.due(1_001 + RENEW_MS) == []
    assert hpas.set(WEB, ours(applied()), 1_001 + RENEW_MS) is None
    assert hpas.due(1_001 + 2 * RENEW_MS) == [(WEB, ours(applied()))]


def test_what_an_observer_that_is_gone_said_again_is_as_good_as_the_first_record() -> None:
    hpas = CentralHpas(("east",), "me")
    assert hpas.set(WEB, structs.replace(applied(), mode=None, session="another"), 1_000) is None
    assert hpas.due(1_000 + RENEW_MS) == [(WEB, ours(applied()))]


def test_records_of_other_clusters_are_for_their_observers() -> None:
    assert known("west").due(10 * RENEW_MS) == []


def test_a_deleted_hpa_is_not_said_again() -> None:
    hpas = known()
    hpas.deleted(WEB)
    assert hpas.due(10 * RENEW_MS) == []


def test_a_deletion_that_stands_before_our_record_is_said_once_more() -> None:
    hpas = known()
    [(_, said)] = hpas.due(1_000 + RENEW_MS)
    hpas.deleted(WEB)
    undone = hpas.set(WEB, said, 2_000 + RENEW_MS)
    assert isinstance(undone, AutoscalerDeleted)
    assert (undone.name, undone.origin) == ("web", "central")
    assert hpas.due(10 * RENEW_MS) == []


def test_a_change_that_stands_before_our_record_is_said_once_more() -> None:
    hpas = known()
    [(_, said)] = hpas.due(1_000 + RENEW_MS)
    assert hpas.set(WEB, applied(high=20), 1_500 + RENEW_MS) is None
    assert hpas.set(WEB, said, 1_600 + RENEW_MS) == ours(applied(high=20))
    assert hpas.set(WEB, ours(applied(high=20)), 1_700 + RENEW_MS) is None

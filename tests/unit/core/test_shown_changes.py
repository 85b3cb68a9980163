"""Which decisions show more than other values of metrics."""

from typing import Any

import pytest
from msgspec import structs

from reconciler.core.inbox import KEPT_MS, SHOWN_EVERY_MS, ShownChanges
from schemas.decisions import Decision, InputPosition
from schemas.keys import HpaId

HPA = HpaId("east", "shop", "web")
CPU: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "cpu", "current": {"averageValue": "82m", "averageUtilization": 41}},
}
STATUS: dict[str, Any] = {
    "currentReplicas": 3,
    "currentMetrics": [CPU],
    "conditions": [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}],
}
FAILED = ("Warning", "FailedGetResourceMetric", "no metrics")
DECISION = Decision(
    id="0-1-u",
    seq=1,
    prev="",
    cluster=HPA.cluster,
    namespace=HPA.namespace,
    name=HPA.name,
    uid="u",
    time="2026-11-21T12:00:00.000Z",
    input=InputPosition(partition=0, offset=0, hash=""),
    mode="enforce",
    status=STATUS,
)


def known(at_ms: int = 0) -> ShownChanges:
    changes = ShownChanges()
    assert changes.shows_more(DECISION, HPA, 0, at_ms), "the first one"
    return changes


def with_metric(**fields: Any) -> dict[str, Any]:
    return STATUS | {"currentMetrics": [{"type": "Resource", "resource": CPU["resource"] | fields}]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"status": with_metric(current={"averageValue": "9m"})}, False, id="another value"),
        pytest.param({"id": "0-2-u", "seq": 2, "time": "x", "metrics": []}, False, id="what the status does not show"),
        pytest.param({"status": with_metric(name="memory")}, True, id="another metric"),
        pytest.param({"status": STATUS | {"currentMetrics": []}}, True, id="no metric"),
        pytest.param({"status": STATUS | {"currentReplicas": 4}}, True, id="other replicas"),
        pytest.param({"status": STATUS | {"conditions": []}}, True, id="other conditions"),
        pytest.param({"status": None}, True, id="no status"),
        pytest.param({"uid": "another"}, True, id="another HPA of the name"),
        pytest.param({"events": [FAILED]}, True, id="an Event"),
    ],
)
def test_a_decision_is_news_if_it_shows_more_than_other_values(changes: dict[str, Any], *, expected: bool) -> None:
    assert known().shows_more(structs.replace(DECISION, **changes), HPA, 0, 1) is expected


def test_an_event_that_comes_with_each_decision_is_news_once() -> None:
    changes, failed = known(), structs.replace(DECISION, events=[FAILED])
    assert [changes.shows_more(failed, HPA, 0, 1) for _ in range(3)] == [True, False, False]


def test_what_stays_the_same_is_news_once_in_ten_minutes() -> None:
    changes = known(at_ms=1_000)
    moments = [1_000 + SHOWN_EVERY_MS - 1, 1_000 + SHOWN_EVERY_MS, 1_000 + 2 * SHOWN_EVERY_MS - 1]
    assert [changes.shows_more(DECISION, HPA, 0, now_ms) for now_ms in moments] == [False, True, False]


def test_what_was_read_in_a_partition_that_was_given_up_is_news_again() -> None:
    changes = known()
    changes.forget({1})
    assert not changes.shows_more(DECISION, HPA, 0, 1)
    changes.forget({0})
    assert changes.shows_more(DECISION, HPA, 0, 1)


def test_an_hpa_without_news_for_long_is_forgotten() -> None:
    changes = known()
    other = HPA._replace(name="other")
    for now_ms, left in ((KEPT_MS, 2), (KEPT_MS + 1, 1)):
        assert changes.shows_more(structs.replace(DECISION, events=[("Normal", "A", str(now_ms))]), other, 0, now_ms)
        assert len(changes) == left

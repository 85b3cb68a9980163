"""Which status and event writes bring an HPA in line with a decision."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from reconciler.clusters.manifests import manifests
from reconciler.core import events as hpaevents
from reconciler.core.statuses import HpaAnswer, LiveHpa, body_of, live_hpa, same_status, status_update, wants_status
from schemas.codec import encode
from schemas.decisions import Decision, InputPosition


def cpu(average: str) -> list[dict[str, Any]]:
    return [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": average}}}]


STATUS = {
    "currentReplicas": 2,
    "desiredReplicas": 0,
    "currentMetrics": cpu("226512"),
    "conditions": [{"type": "AbleToScale", "status": "True"}],
}
DECISION = Decision(
    id="0-7-u1",
    seq=1,
    prev="",
    cluster="east",
    namespace="shop",
    name="web",
    uid="u1",
    time="2026-11-21T12:00:00.500Z",
    input=InputPosition(partition=0, offset=7, hash=""),
    scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    mode="enforce",
    status=STATUS,
    events=[("Normal", "SuccessfulRescale", "New size: 5; reason: x")],
)
LIVE: dict[str, Any] = {"metadata": {"uid": "u1", "resourceVersion": "4"}, "spec": {"maxReplicas": 3}, "status": {}}


def kept(**changes: Any) -> LiveHpa:
    return live_hpa(msgspec.json.decode(encode(LIVE | changes), type=HpaAnswer))


def test_a_status_that_differs_is_put_under_the_version_just_read() -> None:
    managed = LIVE["metadata"] | {"labels": {"team": "shop"}}
    changed = status_update(encode(STATUS), "u1", kept(metadata=managed | {"managedFields": [{"manager": "kubectl"}]}))
    assert changed is not None
    assert msgspec.json.decode(body_of(changed)) == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": managed,
        "spec": LIVE["spec"],
        "status": STATUS,
    }


@pytest.mark.parametrize(
    "metadata", [{}, {"uid": "u1"}, {"uid": "u1", "resourceVersion": ""}, {"resourceVersion": "4"}]
)
def test_an_answer_that_no_write_can_follow_is_refused(metadata: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no uid or no resource version"):
        kept(metadata=metadata)


def test_a_status_that_is_no_json_for_us_is_written_anew() -> None:
    for status in (b'{"conditions":"\\ud800"}', b'"ready"', b"[1]"):
        assert status_update(encode(STATUS), "u1", structs.replace(kept(), status=status)) is not None


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({}, True, id="the very same"),
        pytest.param({"desiredReplicas": None}, True, id="zero and absent are one"),
        pytest.param({"lastScaleTime": None}, True, id="null and absent are one"),
        pytest.param({"desiredReplicas": 3}, False, id="another count"),
        pytest.param({"conditions": []}, False, id="a condition less"),
        pytest.param({"lastScaleTime": "2026-11-21T12:00:00Z"}, False, id="a time more"),
        pytest.param(
            {
                "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "226512000m"}}}
                ]
            },
            True,
            id="a quantity in other words",
        ),
        pytest.param({"currentMetrics": cpu("2")}, False, id="another quantity"),
        pytest.param({"currentMetrics": cpu("many")}, False, id="a text that is no quantity"),
        pytest.param({"currentMetrics": {"type": "Resource"}}, False, id="an object for a list"),
        pytest.param({"conditions": "none"}, False, id="a text for a list"),
        pytest.param({"selector": ""}, False, id="an empty text is not absent"),
        pytest.param({"selector": {}}, True, id="an empty object is absent"),
    ],
)
def test_statuses_are_compared_by_meaning(change: dict[str, Any], same: bool) -> None:
    assert same_status(STATUS | change, STATUS) is same
    assert (status_update(encode(STATUS), "u1", kept(status=STATUS | change)) is None) is same


def test_an_hpa_of_another_uid_is_another_hpa() -> None:
    assert status_update(encode(STATUS), "u2", kept()) is None


@pytest.mark.parametrize(
    ("change", "status", "events"),
    [
        pytest.param({}, True, True, id="an enforced HPA of the cluster shows both"),
        pytest.param({"mode": "shadow"}, False, False, id="shadow shows nothing"),
        pytest.param({"mode": "shadow", "shows_refusal": True}, True, True, id="a refusal that is fleethpa's to tell"),
        pytest.param({"mode": "off"}, False, False, id="off shows nothing"),
        pytest.param({"origin": "central"}, False, True, id="a central HPA has no status to show"),
        pytest.param({"status": None, "events": []}, False, False, id="nothing to show"),
    ],
)
def test_who_shows_what(change: dict[str, Any], status: bool, events: bool) -> None:
    decision = structs.replace(DECISION, **change)
    assert (wants_status(decision), hpaevents.wants_events(decision)) == (status, events)


def verbs(documents: list[Any]) -> set[str]:
    return {verb for each in documents for rule in each.get("rules", ()) for verb in rule["verbs"]}


def test_observing_asks_for_no_write() -> None:
    assert verbs(manifests(enforce=False)) == {"get", "list", "watch"}
    assert {"update", "create", "patch"} <= verbs(manifests(enforce=True))
    assert not any("secrets" in rule["resources"] for each in manifests(enforce=True) for rule in each.get("rules", ()))


def test_with_namespaces_there_is_a_role_and_a_binding_in_each() -> None:
    documents = manifests(enforce=True, namespaces=("a", "b"))
    assert [(each["kind"], each["metadata"].get("namespace")) for each in documents] == [
        ("Role", "a"),
        ("RoleBinding", "a"),
        ("Role", "b"),
        ("RoleBinding", "b"),
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
    ]
    assert [each["metadata"]["name"] for each in documents[4:]] == ["fleethpa-identity"] * 2
    assert documents[1]["subjects"][0]["namespace"] == "fleethpa-system"

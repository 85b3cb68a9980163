"""Raw Kubernetes JSON becomes bodies: pods, HPAs, scales, chunks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.metricanswers import APART_MS, next_poll_ms, phase_ms
from reconciler.core.objects import (
    CANARY_LABEL,
    STAND_IN_LABEL,
    bears_own_label,
    hpa_body,
    hpa_reports_the_same,
    is_canary,
    is_status_of,
    kept_hpa,
    pod_body,
    replicas_manager,
    reported_hpa,
    reports_the_same,
    scale_of_answer,
    scale_of_parent,
    spec_manager,
    target_of,
)
from reconciler.observer import observertopics as chunks
from schemas.answers import MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.decisions import REFUSAL_REASON
from schemas.fitting import split
from schemas.kubernetes.gotimes import time_ms
from schemas.observed import ConflictingAutoscaler, Container, Pod, ScaleSet, Target


@pytest.mark.parametrize(
    ("labels", "canary", "bears"),
    [
        pytest.param({STAND_IN_LABEL: "true"}, False, True, id="the stand-in's, or anybody's with its label"),
        pytest.param({CANARY_LABEL: "true"}, True, True, id="a canary"),
        pytest.param({}, False, False, id="another"),
    ],
)
def test_which_labels_of_fleethpas_own_an_hpa_has(labels: dict[str, str], canary: bool, bears: bool) -> None:
    hpa = {"metadata": {"name": "web", "labels": labels}}
    assert (is_canary(hpa), bears_own_label(hpa)) == (canary, bears)


DEPLOYMENT = Target(group="apps", kind="Deployment", name="web")


def test_a_pod_keeps_what_a_decision_needs() -> None:
    raw: dict[str, Any] = {
        "metadata": {
            "name": "web-1",
            "uid": "u",
            "labels": {"app": "web"},
            "deletionTimestamp": "2026-11-21T12:00:09Z",
            "ownerReferences": [
                {"kind": "Other", "name": "x"},
                {"kind": "ReplicaSet", "name": "web-abc", "controller": True},
            ],
        },
        "spec": {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}, {"name": "b"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i", "restartPolicy": "Never"}],
            "resources": {"requests": {"cpu": "1"}},
            "overhead": {"cpu": "10m"},
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-11-21T12:00:00Z",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T12:00:05Z"},
            ],
        },
    }
    start = 1_795_262_400_000
    assert pod_body(raw) == Pod(
        name="web-1",
        labels={"app": "web"},
        phase="Running",
        start=start,
        ready="False",
        ready_at=start + 5_000,
        deleting=True,
        containers=[Container(name="a", requests={"cpu": "100m"}), Container(name="b")],
        init_containers=[Container(name="s", restart_always=True), Container(name="i")],
        pod_requests={"cpu": "1"},
        overhead={"cpu": "10m"},
        owner="ReplicaSet/web-abc",
    )


def test_what_a_pod_does_not_say_is_absent_and_not_zero() -> None:
    pod = pod_body({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}, "status": {}})
    assert (pod.start, pod.ready, pod.ready_at, pod.pod_requests, pod.phase) == (None, None, None, None, "")


def test_times_are_exact_to_the_millisecond_and_absent_where_empty() -> None:
    assert time_ms("2026-11-21T12:00:00.123456Z") == 1_795_262_400_123
    assert time_ms("2026-11-21T13:00:00+01:00") == 1_795_262_400_000
    assert time_ms(None) is None


def test_an_hpa_goes_out_with_its_kind_and_without_managed_fields() -> None:
    raw = {"metadata": {"name": "h", "managedFields": [{}]}, "spec": {"maxReplicas": 3}, "status": {"x": 1}}
    assert hpa_body(raw) == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3},
        "status": {"x": 1},
    }


def shown(metric: int = 40, version: int = 1, **changes: Any) -> dict[str, Any]:
    """An HPA as it was reported; `metric`: the value in its status."""
    cpu = {"name": "cpu", "current": {"averageUtilization": metric}}
    status = {
        "currentReplicas": 3,
        "desiredReplicas": 3,
        "lastScaleTime": "2026-11-21T12:00:00Z",
        "conditions": [{"type": "AbleToScale", "status": "True", "reason": changes.pop("reason", "ReadyForNewScale")}],
        "currentMetrics": [{"type": "Resource", "resource": cpu}],
    }
    metadata = {"name": "h", "generation": 1, "resourceVersion": str(version)}
    return {
        "metadata": metadata | changes.pop("metadata", {}),
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": changes.pop("high", 9)},
        "status": status | changes,
    }


@pytest.mark.parametrize(
    ("now", "own", "same"),
    [
        pytest.param(shown(version=2), False, True, id="the resource version alone"),
        pytest.param(shown(41, version=2), True, True, id="fleethpa wrote new metric values"),
        pytest.param(shown(41, version=2), False, False, id="somebody else wrote new metric values"),
        pytest.param(shown(41, desiredReplicas=4), True, False, id="a count"),
        pytest.param(shown(41, lastScaleTime="2026-11-21T12:01:00Z"), True, False, id="when it last scaled"),
        pytest.param(shown(41, reason="SucceededRescale"), True, False, id="a condition"),
        pytest.param(shown(41, observedGeneration=1), True, False, id="a field that was not there"),
        pytest.param(shown(high=8), True, False, id="the spec"),
        pytest.param(shown(metadata={"annotations": {"a": "b"}}), True, False, id="an annotation"),
        pytest.param(shown(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"}), True, False, id="being deleted"),
    ],
)
def test_of_a_status_that_fleethpa_wrote_new_metric_values_are_not_reported(
    now: dict[str, Any], own: bool, same: bool
) -> None:
    before = kept_hpa(shown())
    assert hpa_reports_the_same(before, kept_hpa(now, before), own_status=own) is same


def test_a_status_that_shows_a_refusal_is_reported_whole_since_the_next_evaluation_starts_from_it() -> None:
    refused: dict[str, Any] = {"reason": REFUSAL_REASON}
    before, now = kept_hpa(shown(40, **refused)), kept_hpa(shown(41, **refused))
    assert not hpa_reports_the_same(before, now, own_status=True)
    assert hpa_reports_the_same(before, kept_hpa(shown(40, 2, **refused)), own_status=True)


def test_an_hpa_that_was_not_reported_is_reported() -> None:
    assert not hpa_reports_the_same(None, kept_hpa(shown()), own_status=True)


def test_another_who_writes_the_spec_is_reported_although_the_spec_is_the_same() -> None:
    fields = {"manager": "kubectl", "time": "2026-11-21T12:00:00Z", "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}}
    now = kept_hpa(shown(metadata={"managedFields": [fields]}))
    assert now.manager == ("kubectl", 1_795_262_400_000)
    assert not hpa_reports_the_same(kept_hpa(shown()), now, own_status=True)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all of it"),
        pytest.param({"status": None}, id="no status"),
        pytest.param({"status": {}}, id="an empty status"),
        pytest.param({"status": {"currentMetrics": None}}, id="no metric values"),
        pytest.param({"apiVersion": "autoscaling/v2beta2"}, id="another version"),
        pytest.param({"metadata": {"name": "h"}}, id="no resource version"),
        pytest.param({"metadata": {"resourceVersion": "5", "name": "h", "managedFields": []}}, id="managed fields"),
    ],
)
def test_an_hpa_that_is_reported_again_is_the_one_that_was_seen(changes: dict[str, Any]) -> None:
    seen = {name: value for name, value in (shown() | changes).items() if value is not None}
    before = kept_hpa(seen)
    again = kept_hpa(shown(metadata={"annotations": {}}) | {"status": {}}, before)
    assert reported_hpa(before) == hpa_body(seen)
    assert again.spec is before.spec
    assert reported_hpa(again)["spec"] == seen["spec"]


def status_entry(manager: str, second: int, subresource: str = "status") -> dict[str, Any]:
    return {"manager": manager, "time": f"2026-11-21T12:00:{second:02}Z", "subresource": subresource}


@pytest.mark.parametrize(
    ("entries", "own"),
    [
        pytest.param([], False, id="nobody"),
        pytest.param([status_entry("fleethpa", 5)], True, id="fleethpa alone"),
        pytest.param([status_entry("native", 4), status_entry("fleethpa", 5)], True, id="fleethpa last"),
        pytest.param([status_entry("fleethpa", 4), status_entry("native", 5)], False, id="another one last"),
        pytest.param([status_entry("fleethpa", 5), status_entry("native", 5)], False, id="both in one second"),
        pytest.param([status_entry("fleethpa", 5, "")], False, id="fleethpa wrote its spec"),
    ],
)
def test_the_newest_writer_of_a_status(entries: list[dict[str, Any]], own: bool) -> None:
    assert is_status_of({"metadata": {"managedFields": entries}}, "fleethpa") is own


@pytest.mark.parametrize(
    ("api_version", "group"),
    [
        pytest.param("apps/v1", "apps", id="a group"),
        pytest.param("v1", "", id="the core group"),
        pytest.param(None, "", id="none given"),
        pytest.param("a/b/c", "", id="too many parts: no group that one could ask for"),
    ],
)
def test_the_version_of_a_target_plays_no_part(api_version: str | None, group: str) -> None:
    reference = {"kind": "K", "name": "n"} | ({"apiVersion": api_version} if api_version else {})
    assert target_of({"spec": {"scaleTargetRef": reference}}) == Target(kind="K", name="n", group=group)


PARENT: dict[str, Any] = {
    "metadata": {
        "uid": "u",
        "resourceVersion": "9",
        "managedFields": [
            {"manager": "kubectl", "time": "2026-11-21T12:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "hpa", "time": "2026-11-21T12:00:01Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "controller", "time": "2026-11-21T12:09:00Z", "fieldsV1": {"f:status": {}}},
        ],
    },
    "spec": {
        "replicas": 3,
        "selector": {
            "matchLabels": {"tier": "x", "app": "web"},
            "matchExpressions": [{"key": "b", "operator": "In", "values": ["z", "y"]}],
        },
    },
    "status": {"replicas": 2},
}


def test_the_scale_of_a_deployment_follows_from_it() -> None:
    scale = scale_of_parent(DEPLOYMENT, PARENT, "s")
    assert scale == ScaleSet(
        target=DEPLOYMENT,
        spec_replicas=3,
        status_replicas=2,
        selector="app=web,b in (y,z),tier=x",
        resource_version="9",
        uid="u",
        manager="hpa",
        manager_time=1_795_262_401_000,
        session="s",
    )


def test_a_replication_controllers_selector_is_a_plain_map_and_replicas_default_to_one() -> None:
    target = Target(kind="ReplicationController", name="web")
    scale = scale_of_parent(target, {"metadata": {}, "spec": {"selector": {"b": "2", "a": "1"}}})
    assert (scale.selector, scale.spec_replicas, scale.status_replicas) == ("a=1,b=2", 1, 0)


def test_zero_replicas_are_zero() -> None:
    parent = PARENT | {"spec": PARENT["spec"] | {"replicas": 0}}
    assert scale_of_parent(DEPLOYMENT, parent).spec_replicas == 0
    answer = {"metadata": {"resourceVersion": "1"}, "spec": {}, "status": {"replicas": 0, "selector": "a=b"}}
    assert scale_of_answer(DEPLOYMENT, answer).spec_replicas == 0


def test_no_manager_is_reported_where_the_api_shows_none() -> None:
    assert replicas_manager({}) == ("", 0)
    assert spec_manager({}) == ("", 0)


def test_the_manager_of_a_spec_is_the_newest_that_owns_some_of_it() -> None:
    fields = [
        {"manager": "argocd-controller", "time": "2026-11-21T12:00:00Z", "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}},
        {"manager": "kubectl-edit", "time": "2026-11-21T12:00:01Z", "fieldsV1": {"f:spec": {"f:minReplicas": {}}}},
        {"manager": "labeller", "time": "2026-11-21T12:05:00Z", "fieldsV1": {"f:metadata": {}}},
        {"manager": "kube-controller-manager", "time": "2026-11-21T12:09:00Z", "fieldsV1": {"f:status": {}}},
    ]
    assert spec_manager({"managedFields": fields}) == ("kubectl-edit", 1_795_262_401_000)


def test_a_new_resource_version_alone_tells_nothing() -> None:
    before = ScaleSet(target=DEPLOYMENT, spec_replicas=3, resource_version="1")
    assert reports_the_same(before, ScaleSet(target=DEPLOYMENT, spec_replicas=3, resource_version="2"))
    assert not reports_the_same(before, ScaleSet(target=DEPLOYMENT, spec_replicas=4, resource_version="1"))
    assert not reports_the_same(None, before)


# --- chunks -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text("x", max_size=60), max_size=40), st.integers(20, 200))
def test_parts_lose_nothing_keep_the_order_and_stay_within_the_limit(items: list[str], limit: int) -> None:
    parts = list(split(items, limit))
    assert [item for part in parts for item in part] == items
    assert all(len(part) == 1 or sum(len(encode(item)) + 1 for item in part) <= limit for part in parts)


CONFLICTING = ConflictingAutoscaler(kind="ScaledObject", name="so", target=DEPLOYMENT)


def test_an_empty_namespace_is_one_empty_chunk() -> None:
    (only,) = chunks.pod_lists([], "l", "s")
    assert (only.pods, only.chunk, only.chunks, only.list_id, only.session) == ([], 0, 1, "l", "s")
    (hpas,) = chunks.autoscaler_lists([], [CONFLICTING], "l", "s")
    assert (hpas.hpas, hpas.conflicting) == ([], [CONFLICTING])


def test_a_list_of_many_pods_goes_out_in_numbered_chunks_below_the_record_limit() -> None:
    pods = [Pod(name=f"pod-{i}", labels={"l": "x" * 400}) for i in range(3_000)]
    lists = chunks.pod_lists(pods, "l", "s")
    assert len(lists) > 1
    assert [each.chunk for each in lists] == list(range(len(lists)))
    assert {each.chunks for each in lists} == {len(lists)}
    assert all(len(encode(each)) < 512 * 1024 for each in lists)


def test_conflicting_autoscalers_are_named_once_in_a_list_of_many_hpas() -> None:
    # The fold puts together what the chunks of a list name.
    hpas = [{"metadata": {"name": f"web-{i}", "annotations": {"a": "x" * 4_000}}} for i in range(300)]
    lists = chunks.autoscaler_lists(hpas, [CONFLICTING], "l", "s")
    assert len(lists) > 1
    assert [other for each in lists for other in each.conflicting] == [CONFLICTING]


def test_answers_share_records_and_a_large_one_has_its_own() -> None:
    small = [MetricAnswer(api="external", metric=f"queue-{i}", items=[(1, 2)]) for i in range(300)]
    usages = [PodUsage(f"web-7d8f9c6b5-{i:05}", 1, 1, [("app", {"cpu": i, "memory": 10**9})]) for i in range(9_000)]
    large = MetricAnswer(api="resource", selector="app=web", pods=in_columns(usages))
    assert chunks.answer_records(small) == [small]
    records = chunks.answer_records([*small, large, *small])
    assert records == [small, [large], small]


# --- phase ------------------------------------------------------------------------------------------------------------


@given(st.text(min_size=1), st.integers(1, 100_000), st.integers(0, 10**13), st.sampled_from(APART_MS))
def test_the_next_poll_lies_on_the_phase_within_one_period(key: str, period_ms: int, now_ms: int, apart: int) -> None:
    due = next_poll_ms(key, period_ms, now_ms, apart)
    assert now_ms < due <= now_ms + period_ms
    assert due % period_ms == phase_ms(key, period_ms, apart)


def test_namespaces_spread_over_the_period() -> None:
    phases = [phase_ms(f"east/ns-{i}", 15_000) // 1_500 for i in range(1_000)]
    assert min(phases.count(tenth) for tenth in range(10)) > 60

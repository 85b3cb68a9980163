"""Pods keep once what they have in common, and are equal to what they were."""

from typing import Any

from reconciler.core.objects import pod_body, shared
from schemas.observed import Container, Pod


def _pod(name: str, **fields: Any) -> Pod:
    main = Container(name="main", requests={"cpu": "250m"})
    return Pod(name=name, labels={"app": "web"}, ready="True", owner="ReplicaSet/web", containers=[main], **fields)


def test_pods_of_one_workload_share_labels_and_containers_and_stay_equal() -> None:
    first, second = _pod("web-1"), _pod("web-2")
    one, two = shared(first), shared(second)
    assert (one, two) == (first, second)
    assert (one.labels is two.labels, one.containers is two.containers, one.owner is two.owner) == (True, True, True)


def test_another_shape_is_another_object() -> None:
    other = _pod("web-2", pod_requests={"cpu": "1"}, overhead={"cpu": "10m"})
    assert shared(other) == other
    assert shared(_pod("web-1")).pod_requests is None


def test_a_pod_that_no_api_server_would_give_is_left_as_it_is() -> None:
    raw = {"metadata": {"name": "web-1", "labels": {"app": 7}}, "status": {"phase": "Running"}}
    labels: object = pod_body(raw).labels
    assert labels == {"app": 7}

"""Pods and scales: from Kubernetes' JSON to the bodies of public records. No I/O."""

from typing import Any

from reconciler.core.hpaobjects import newest_owner
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import JsonView
from schemas.observed import Container, Pod, ScaleSet, Target
from schemas.packed import shared

# --- pods -------------------------------------------------------------------------------------------------------------


def pod_body(pod: JsonView) -> Pod:
    """What a decision needs of a pod, from its API form (a list's item or a watch event's object)."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    made = Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=metadata.get("labels") or {},
        phase=status.get("phase") or "",
        start=time_ms(status.get("startTime")),
        ready=None if ready is None else ready.get("status", ""),
        ready_at=None if ready is None else time_ms(ready.get("lastTransitionTime")),
        deleting=bool(metadata.get("deletionTimestamp")),
        containers=[_container(each) for each in spec.get("containers") or ()],
        init_containers=[_container(each) for each in spec.get("initContainers") or ()],
        pod_requests=(spec.get("resources") or {}).get("requests"),
        overhead=spec.get("overhead") or {},
        owner=_controller(metadata),
    )
    return shared(made)


def _container(container: JsonView) -> Container:
    return Container(
        name=container["name"],
        requests=(container.get("resources") or {}).get("requests") or {},
        restart_always=container.get("restartPolicy") == "Always",
    )


def _controller(metadata: JsonView) -> str:
    owners = metadata.get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    return "" if owner is None else f"{owner['kind']}/{owner['name']}"


# --- scales -----------------------------------------------------------------------------------------------------------

DERIVED_KINDS = {
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("", "ReplicationController"): "replicationcontrollers",
}
"""Group and kind → plural, of version v1, where `/scale` follows from the object: to watch that is enough."""


def scale_of_parent(target: Target, parent: JsonView, session: str = "") -> ScaleSet:
    """What `/scale` of a built-in kind would show, computed from the object.

    Source: pkg/registry/apps/{deployment,statefulset,replicaset}/storage and core/replicationcontroller: spec replicas,
    status replicas, and the selector in string form.

    Raises SelectorError: the selector cannot be read.
    """
    spec, status = parent.get("spec") or {}, parent.get("status") or {}
    replicas, selector = spec.get("replicas"), spec.get("selector")
    if target.kind == "ReplicationController":
        selector = {"matchLabels": selector or {}}
    scale = {
        "metadata": parent["metadata"],
        "spec": {"replicas": 1 if replicas is None else replicas},
        "status": {"replicas": status.get("replicas"), "selector": label_selector_text(selector)},
    }
    return scale_of_answer(target, scale, session=session)


def scale_of_answer(target: Target, scale: JsonView, parent: JsonView | None = None, session: str = "") -> ScaleSet:
    """A `/scale` answer; the field manager comes from the parent object, if that is known."""
    spec, status, metadata = scale.get("spec") or {}, scale.get("status") or {}, scale["metadata"]
    manager, manager_time = replicas_manager((parent or scale)["metadata"])
    return ScaleSet(
        target=target,
        spec_replicas=spec.get("replicas") or 0,
        status_replicas=status.get("replicas") or 0,
        selector=status.get("selector") or "",
        resource_version=metadata.get("resourceVersion", ""),
        uid=metadata.get("uid", ""),
        manager=manager,
        manager_time=manager_time,
        session=session,
    )


def scale_failure(target: Target, error: str, session: str = "") -> ScaleSet:
    """A scale that cannot be read; `error` in the API server's words."""
    return ScaleSet(target=target, error=error, session=session)


def replicas_manager(metadata: JsonView) -> tuple[str, int]:
    """(field manager that last wrote `spec.replicas`, when in ms); empty and 0 where the API does not show it."""
    return newest_owner(metadata, lambda spec: "f:replicas" in spec)


def reports_the_same(before: ScaleSet | None, now: ScaleSet) -> bool:
    """Whether `now` differs in nothing that decisions or readers use; the resource version alone is not used."""
    return before is not None and _compared(before) == _compared(now)


def _compared(scale: ScaleSet) -> tuple[Any, ...]:
    return (scale.error, scale.spec_replicas, scale.status_replicas, scale.selector, scale.uid, scale.manager)

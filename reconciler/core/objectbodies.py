"""Raw Kubernetes JSON -> bodies of public records: pods, HPAs, scales. No I/O."""

from collections.abc import Callable
from typing import Any

from schemas.kubernetes.apiversions import group_of
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.jsontypes import JsonView
from schemas.kubernetes.selectors import label_selector_text
from schemas.pods import Container, Pod
from schemas.podsharing import shared
from schemas.scales import ScaleSet, Target

CANARY_LABEL = "fleethpa.io/canary"
"""Label of the HPA that proves that no native controller runs; no observer reports it."""

FIELD_MANAGER = "fleethpa"
"""Field manager of every write of fleethpa's, but for what the stand-in itself writes to `/scale`."""
STAND_IN_LABEL = "fleethpa.io/stand-in"
"""Label of a native HPA that the stand-in keeps while the hub is away; no observer reports it (`is_kept_by_stand_in`).
"""


def time_ms(text: str | None) -> int | None:
    """Milliseconds since the epoch of an RFC 3339 time; None for an absent one.

    Raises:
        ValueError: not such a time.
    """
    return parse_time_ms(text) if text else None


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


# --- HPAs -------------------------------------------------------------------------------------------------------------


def hpa_body(hpa: JsonView) -> dict[str, Any]:
    """An HPA as it goes out: without its managed fields, with apiVersion and kind, which a list's items lack."""
    metadata = {key: value for key, value in hpa["metadata"].items() if key != "managedFields"}
    rest = {key: value for key, value in hpa.items() if key not in ("apiVersion", "kind", "metadata")}
    version = hpa.get("apiVersion") or "autoscaling/v2"
    return {"apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": metadata} | rest


def is_own(hpa: JsonView) -> bool:
    """Whether this HPA is fleethpa's own, a canary or a stand-in's, which must not be evaluated."""
    return CANARY_LABEL in (hpa["metadata"].get("labels") or {}) or is_kept_by_stand_in(hpa)


def bears_own_label(hpa: JsonView) -> bool:
    """Whether this HPA has a label by which fleethpa finds its own, whoever set it. `hpa`: with its managed fields."""
    labels = hpa["metadata"].get("labels") or {}
    return CANARY_LABEL in labels or STAND_IN_LABEL in labels


def is_kept_by_stand_in(hpa: JsonView) -> bool:
    """Whether the stand-in made this native HPA: it has its label, and the managed fields say that fleethpa set it.

    The label alone can be a person's, copied with the rest of a manifest. The API server keeps with the object who set
    a field, so that no agent needs to remember it, and keeps it through updates by others. Where somebody has cleared
    the managed fields, the label counts: one of ours must not be left behind.
    """
    metadata = hpa["metadata"]
    if STAND_IN_LABEL not in (metadata.get("labels") or {}):
        return False
    fields = [each for each in metadata.get("managedFields") or () if each.get("fieldsV1")]
    return not fields or any(
        each.get("manager") == FIELD_MANAGER and f"f:{STAND_IN_LABEL}" in _labels_set_by(each) for each in fields
    )


def _labels_set_by(entry: JsonView) -> JsonView:
    return (entry["fieldsV1"].get("f:metadata") or {}).get("f:labels") or {}


def is_status_of(hpa: JsonView, manager: str) -> bool:
    """Whether this field manager made the newest write of an HPA's status; False where another one wrote it in the
    same second, which is all that the API shows.
    """
    writes = [
        (time_ms(entry.get("time")) or 0, entry.get("manager", ""))
        for entry in hpa["metadata"].get("managedFields") or ()
        if entry.get("subresource") == "status"
    ]
    newest_ms = max((when for when, _ in writes), default=0)
    return {name for when, name in writes if when == newest_ms} == {manager}


def target_of(hpa: JsonView) -> Target:
    """What an HPA scales. An apiVersion of more than two parts has no group; upstream says so when it evaluates."""
    reference = hpa["spec"]["scaleTargetRef"]
    return Target(kind=reference["kind"], name=reference["name"], group=group_of(reference.get("apiVersion") or ""))


# --- scales -----------------------------------------------------------------------------------------------------------

DERIVED_KINDS = {
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("", "ReplicationController"): "replicationcontrollers",
}
"""Kinds whose `/scale` follows from the object itself, so that watching the object is enough."""


def scale_of_parent(target: Target, parent: JsonView, session: str = "") -> ScaleSet:
    """What `/scale` of a built-in kind would show, computed from the object.

    Source: pkg/registry/apps/{deployment,statefulset,replicaset}/storage and core/replicationcontroller: spec replicas,
    status replicas, and the selector in string form.

    Raises:
        SelectorError: the selector cannot be read.
    """
    spec, status, metadata = parent.get("spec") or {}, parent.get("status") or {}, parent["metadata"]
    replicas = spec.get("replicas")
    manager, manager_time = replicas_manager(metadata)
    core_group, selector = target.kind == "ReplicationController", spec.get("selector")
    return ScaleSet(
        target=target,
        spec_replicas=1 if replicas is None else replicas,
        status_replicas=status.get("replicas") or 0,
        selector=label_selector_text({"matchLabels": selector or {}} if core_group else selector),
        resource_version=metadata.get("resourceVersion", ""),
        uid=metadata.get("uid", ""),
        manager=manager,
        manager_time=manager_time,
        session=session,
    )


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


def no_match(kind: str, group: str) -> str:
    """The error for a kind that the API server does not know. Source: apimachinery `meta.NoKindMatchError`."""
    return f'no matches for kind "{kind}" in group "{group}"'


def replicas_manager(metadata: JsonView) -> tuple[str, int]:
    """(field manager that last wrote `spec.replicas`, when in ms); empty and 0 where the API does not show it."""
    return _newest_owner(metadata, lambda spec: "f:replicas" in spec)


def spec_manager(metadata: JsonView) -> tuple[str, int]:
    """(field manager that last wrote something in `spec`, when in ms); empty and 0 where the API does not show it."""
    return _newest_owner(metadata, bool)


def _newest_owner(metadata: JsonView, owns: Callable[[JsonView], bool]) -> tuple[str, int]:
    owners = [
        (time_ms(entry.get("time")) or 0, entry.get("manager", ""))
        for entry in metadata.get("managedFields") or ()
        if owns((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    when, manager = max(owners, default=(0, ""))
    return manager, when


def tells_the_same(before: ScaleSet | None, now: ScaleSet) -> bool:
    """Whether `now` differs in nothing that decisions or readers use; the resource version alone is not used."""
    return before is not None and _telling(before) == _telling(now)


def _telling(scale: ScaleSet) -> tuple[Any, ...]:
    return (scale.error, scale.spec_replicas, scale.status_replicas, scale.selector, scale.uid, scale.manager)

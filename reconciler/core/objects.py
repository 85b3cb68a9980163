"""HPAs, pods and scales as an observer keeps and reports them; whose an HPA is, what it scales and asks for. No I/O.

What is kept is encoded, which takes a quarter of the size of the objects.
"""

from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec
from msgspec import Struct, structs

from schemas.answers import Query, metric_query
from schemas.codec import encode, encode_to_keep
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON
from schemas.fitting import over_limits
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.selectors import SelectorError, label_selector_text
from schemas.kubernetes.shape import HPA_HEAD, JsonView, group_of
from schemas.observed import ConflictingAutoscaler, Container, Pod, ScaleSet, Target, decode_shape, shape_of
from schemas.syncperiods import PERIOD_ANNOTATION, own_period_ms

CANARY_LABEL = "fleethpa.io/canary"
"""Label of the HPA that proves that no native controller runs; no observer reports it."""

FIELD_MANAGER = "fleethpa"
"""Field manager of every write of fleethpa's, but for what the stand-in itself writes to `/scale`."""
STAND_IN_LABEL = "fleethpa.io/stand-in"
"""Label by which the stand-in finds the native HPAs that it keeps while the hub is away. Anybody may set it: which are
its own it knows by a record (`reconciler.agents.standin.ownnatives`)."""


def hpa_body(hpa: JsonView) -> dict[str, Any]:
    """An HPA as it goes out: without its managed fields, with apiVersion and kind, which a list's items lack."""
    metadata = {key: value for key, value in hpa["metadata"].items() if key != "managedFields"}
    rest = {key: value for key, value in hpa.items() if key not in ("apiVersion", "kind", "metadata")}
    version = hpa.get("apiVersion") or HPA_HEAD["apiVersion"]
    return HPA_HEAD | {"apiVersion": version, "metadata": metadata} | rest


def is_canary(hpa: JsonView) -> bool:
    """Whether this HPA has the label of a canary, which proves something to its maker and must not be evaluated."""
    return CANARY_LABEL in (hpa["metadata"].get("labels") or {})


def bears_own_label(hpa: JsonView) -> bool:
    """Whether this HPA has a label that fleethpa gives its own, from any writer: no proof of who made it."""
    return is_canary(hpa) or STAND_IN_LABEL in (hpa["metadata"].get("labels") or {})


def is_status_of(hpa: JsonView, manager: str) -> bool:
    """Whether this field manager made the newest write of an HPA's status; False where another one wrote it in the
    same second, which is all that the API shows.

    Whoever may write an HPA can claim any manager. This is used only to leave new values of that same HPA's status out
    of reports.
    """
    writes = [
        (time_ms(entry.get("time")) or 0, entry.get("manager", ""))
        for entry in hpa["metadata"].get("managedFields") or ()
        if entry.get("subresource") == "status"
    ]
    newest_ms = max((when for when, _ in writes), default=0)
    return {name for when, name in writes if when == newest_ms} == {manager}


def target_of(hpa: JsonView) -> Target:
    """Return what an HPA scales. An apiVersion of more than two parts has no group; upstream says so when it
    evaluates.
    """
    reference = hpa["spec"]["scaleTargetRef"]
    return Target(kind=reference["kind"], name=reference["name"], group=group_of(reference.get("apiVersion") or ""))


SCALED_OBJECT = "ScaledObject"


def conflicting_autoscaler(scaled_object: JsonView) -> ConflictingAutoscaler:
    """A ScaledObject of KEDA as `AutoscalerList.conflicting` holds it; KEDA's default target is a Deployment."""
    reference = (scaled_object.get("spec") or {}).get("scaleTargetRef") or {}
    target = Target(
        group=group_of(reference.get("apiVersion") or "apps/v1"),
        kind=reference.get("kind") or "Deployment",
        name=reference.get("name") or "",
    )
    return ConflictingAutoscaler(kind=SCALED_OBJECT, name=scaled_object["metadata"]["name"], target=target)


def spec_manager(metadata: JsonView) -> tuple[str, int]:
    """(field manager that last wrote something in `spec`, when in ms); empty and 0 where the API does not show it.

    A name that the writer chose: shown to people, and no evidence of who it was.
    """
    return newest_owner(metadata, bool)


def newest_owner(metadata: JsonView, owns: Callable[[JsonView], bool]) -> tuple[str, int]:
    """(field manager that last wrote the part of `spec` for which `owns` holds, when in ms); see `spec_manager`."""
    owners = [
        (time_ms(entry.get("time")) or 0, entry.get("manager", ""))
        for entry in metadata.get("managedFields") or ()
        if owns((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    when, manager = max(owners, default=(0, ""))
    return manager, when


# --- what is kept -----------------------------------------------------------------------------------------------------

_REFUSALS = (REFUSAL_REASON, IGNORED_REASON)


class Asking(Struct, frozen=True, gc=False):
    """What an HPA scales and asks metrics APIs for.

    `metrics`: type and query of each metric that can be asked for, the selector of the target's pods left out; of one
    whose own selector cannot be read there is none. `period_ms`: the sync period that it states; None: none.
    """

    target: Target
    metrics: tuple[tuple[str, Query], ...] = ()
    period_ms: int | None = None


class KeptHpa(Struct, frozen=True, gc=False):
    """An HPA as it was seen last: encoded are its metadata without managed fields and with an empty resource version,
    its spec, and its status (None: it has none) without `currentMetrics`, which are the `values` (None: it has none).

    `manager`: who last wrote its spec in the cluster, and when in ms; empty and 0 where the API does not show it.
    """

    asking: Asking
    api_version: str
    resource_version: str | None
    metadata: bytes
    spec: bytes
    status: bytes | None
    values: bytes | None
    manager: tuple[str, int]


def asking_of(hpa: JsonView) -> Asking:
    """Return what an HPA asks for, by its spec. One that is ignored for its size asks for nothing."""
    queries_ = () if over_limits(dict(hpa), "") else _queries(encode(hpa["spec"].get("metrics") or ()))
    return Asking(target_of(hpa), queries_, _stated_period_ms(hpa))


def _stated_period_ms(hpa: JsonView) -> int | None:
    return own_period_ms(str((hpa["metadata"].get("annotations") or {}).get(PERIOD_ANNOTATION, "")))


def _same_with_period(asking: Asking, hpa: JsonView) -> Asking:
    """Return what an HPA asks for whose spec has not changed, while its annotations may have."""
    period_ms = _stated_period_ms(hpa)
    return asking if asking.period_ms == period_ms else structs.replace(asking, period_ms=period_ms)


@lru_cache(maxsize=1024)  # of a fleet, many HPAs have the same metrics
def _queries(metrics: bytes) -> tuple[tuple[str, Query], ...]:
    asked_of = []
    for metric in msgspec.json.decode(metrics):
        try:
            query = metric_query(metric, "")
        except SelectorError:
            continue
        if query is not None:
            asked_of.append((metric["type"], query))
    return tuple(asked_of)


def kept_hpa(hpa: JsonView, before: KeptHpa | None = None) -> KeptHpa:
    """Return what is kept of an HPA as the API server gives it. `before`: what was kept of it; equal parts are
    shared.
    """
    metadata = {name: value for name, value in hpa["metadata"].items() if name != "managedFields"}
    version = metadata.get("resourceVersion")
    if version is not None:
        metadata["resourceVersion"] = ""
    spec = encode_to_keep(hpa["spec"])
    status, values = _kept_status(hpa.get("status"))
    is_same_spec = before is not None and before.spec == spec
    return KeptHpa(
        asking=_same_with_period(before.asking, hpa) if before is not None and is_same_spec else asking_of(hpa),
        api_version=hpa.get("apiVersion") or HPA_HEAD["apiVersion"],
        resource_version=version,
        metadata=encode_to_keep(metadata),
        spec=before.spec if before is not None and is_same_spec else spec,
        status=status,
        values=values,
        manager=spec_manager(hpa["metadata"]),
    )


def _kept_status(status: JsonView | None) -> tuple[bytes | None, bytes | None]:
    """A status as it is kept, and its values."""
    if status is None:
        return None, None
    shown = {name: value for name, value in status.items() if name != "currentMetrics"}
    return encode_to_keep(shown), encode_to_keep(status["currentMetrics"]) if "currentMetrics" in status else None


def reported_hpa(known: KeptHpa) -> dict[str, Any]:
    """The HPA as it goes out, see `hpa_body`."""
    metadata = msgspec.json.decode(known.metadata)
    if known.resource_version is not None:
        metadata["resourceVersion"] = known.resource_version
    spec = msgspec.json.decode(known.spec)
    body = HPA_HEAD | {"apiVersion": known.api_version, "metadata": metadata, "spec": spec}
    if known.status is not None:
        body["status"] = msgspec.json.decode(known.status)
    if known.values is not None:
        body["status"]["currentMetrics"] = msgspec.json.decode(known.values)
    return body


def hpa_reports_the_same(before: KeptHpa | None, now: KeptHpa, *, own_status: bool) -> bool:
    """Whether an HPA differs from what was reported in nothing that a decision or a reader uses.

    The resource version alone is not used. In a status that fleethpa wrote (`own_status`), new metric values are not
    used either: they are those of its own decision, which has just been recorded. The rest of a status is reported
    (counts, conditions, when it last scaled), since it shows writes, and counts again once the HPA is no longer
    enforced. A status that shows why enforcing is refused is reported whole: the next evaluation starts from it.
    """
    if before is None or _reported(before) != _reported(now):
        return False
    return before.values == now.values or (own_status and not shows_refusal(now.status))


def _reported(hpa: KeptHpa) -> tuple[Any, ...]:
    return (hpa.spec, hpa.status, hpa.metadata, hpa.manager)


def shows_refusal(status: bytes | None) -> bool:
    """Whether an encoded status shows why enforcing is refused; None: the HPA has none."""
    if status is None or not any(encode(reason) in status for reason in _REFUSALS):
        return False
    conditions = msgspec.json.decode(status).get("conditions") or ()
    return any(each.get("reason") in _REFUSALS for each in conditions)


# --- pods -------------------------------------------------------------------------------------------------------------


def pod_body(pod: JsonView) -> Pod:
    """Return what a decision needs of a pod, from its API form (a list's item or a watch event's object)."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    body = Pod(
        name=metadata["name"],
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
    return shared(body)


def shared(pod: Pod) -> Pod:
    """Return an equal pod that has in common with others what pods of one workload have in common: memory."""
    try:
        containers, init_containers, pod_requests, overhead = _same_shape(shape_of(pod))
        labels = _same_labels(encode(pod.labels))
    except msgspec.ValidationError:
        return pod  # not as an API server has it: ingest will say what is wrong
    return structs.replace(
        pod,
        labels=labels,
        containers=containers,
        init_containers=init_containers,
        pod_requests=pod_requests,
        overhead=overhead,
        phase=intern(pod.phase),
        ready=None if pod.ready is None else intern(pod.ready),
        owner=_same_text(pod.owner),
    )


_same_shape = lru_cache(maxsize=8192)(decode_shape)
_same_labels = lru_cache(maxsize=8192)(msgspec.json.Decoder(dict[str, str]).decode)
_same_text = lru_cache(maxsize=8192)(str)
"""Each gives the same object for equal ones."""


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
    """Return what `/scale` of a built-in kind would show, computed from the object.

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

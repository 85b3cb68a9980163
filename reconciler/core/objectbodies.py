"""Raw Kubernetes JSON -> bodies of public records: pods, HPAs, scales. No I/O.

Full lists in chunks and batches of entries, so that no record is larger than a topic takes.

HPAs as an observer keeps them: what each asks for, and the rest encoded, a quarter of the size. No I/O.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas.codec import encode, encode_to_keep
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON
from schemas.fitting import over_limits
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.selectors import SelectorError, label_selector_text
from schemas.kubernetes.shape import JsonView, group_of
from schemas.metricqueries import Query, metric_query
from schemas.observed import AutoscalerList, Container, MetricAnswer, Pod, PodList, ScaleSet, Target, shared
from schemas.topics import MAX_LOG_RECORD_BYTES

T = TypeVar("T")

CHUNK_BYTES = MAX_LOG_RECORD_BYTES * 3 // 4
"""Ingest adds a source and a key to every entry and writes it into a log record; a quarter is kept for that."""

_BESIDE_HPAS_BYTES = 32 * 1024
"""Rivals that share a chunk with HPAs; more of them have chunks of their own."""
ANSWER_BYTES = 32 * 1024
"""Of an answer or a part of one. Deciders keep up to three of each part, each part in another row of the namespace."""
_SURELY_FITS = 20
"""Items of an answer that need not be measured."""


def answer_records(found: Iterable[MetricAnswer], answer_id: str) -> list[list[MetricAnswer]]:
    """Answers in lists that each fit into a record; a large one is divided into parts with `answer_id`."""
    answers = list(found)
    if len(encode(answers)) <= ANSWER_BYTES:  # nearly always, and cheaper to see of all than of each
        return [answers]
    return list(split(part for answer in answers for part in _parts(answer, answer_id)))


def _parts(answer: MetricAnswer, answer_id: str) -> list[MetricAnswer]:
    lists: dict[str, list[Any]] = {"usages": answer.usages, "values": answer.values, "items": answer.items}
    field, items = max(lists.items(), key=lambda named: len(named[1]))
    if len(items) <= _SURELY_FITS or len(encode(answer)) <= ANSWER_BYTES:
        return [answer]
    empty = structs.replace(answer, usages=[], values=[], items=[], answer_id=answer_id, part=99_999, parts=99_999)
    shares = list(split(items, max(ANSWER_BYTES - len(encode(empty)), ANSWER_BYTES // 2)))
    return [
        structs.replace(empty, part=number, parts=len(shares), **{field: share}) for number, share in enumerate(shares)
    ]


def split(items: Iterable[T], limit: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split so that the encoded items of a part stay within `limit` bytes; an item above it is a part of its own."""
    items = list(items)
    if len(items) == 1:
        yield items
        return
    part: list[T] = []
    size = 0
    for item in items:
        length = len(encode(item)) + 1
        if part and size + length > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


def pod_lists(pods: Sequence[Pod], list_id: str, session: str) -> list[PodList]:
    """A full list of a namespace's pods; an empty namespace is one empty chunk."""
    parts = list(split(pods)) or [[]]
    return [
        PodList(list_id=list_id, pods=part, chunk=i, chunks=len(parts), session=session) for i, part in enumerate(parts)
    ]


def autoscaler_lists(
    hpas: Sequence[dict[str, Any]],
    rivals: Sequence[dict[str, Any]],
    list_id: str,
    session: str,
    managers: Mapping[str, tuple[str, int]] | None = None,
) -> list[AutoscalerList]:
    """A full list of a namespace's HPAs; the first chunks name the rivals, each the managers of its own HPAs."""
    others = [list(rivals)] if len(encode(rivals)) <= _BESIDE_HPAS_BYTES else [*split(rivals), []]
    parts = [*([[]] * (len(others) - 1)), *(list(split(hpas)) or [[]])]
    known = managers or {}
    return [
        AutoscalerList(
            list_id=list_id,
            hpas=part,
            chunk=i,
            chunks=len(parts),
            rivals=others[i] if i < len(others) else [],
            session=session,
            managers={name: known[name] for hpa in part if known.get(name := hpa["metadata"]["name"], ("", 0))[0]},
        )
        for i, part in enumerate(parts)
    ]


CANARY_LABEL = "fleethpa.io/canary"
"""Label of the HPA that proves that no native controller runs; no observer reports it."""

FIELD_MANAGER = "fleethpa"
"""Field manager of every write of fleethpa's, but for what the stand-in itself writes to `/scale`."""
STAND_IN_LABEL = "fleethpa.io/stand-in"
"""Label of a native HPA that the stand-in keeps while the hub is away; no observer reports it (`is_kept_by_stand_in`).
"""


def time_ms(text: str | None) -> int | None:
    """Milliseconds since the epoch of an RFC 3339 time; None for an absent one. Raises ValueError: not such a time."""
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


SCALED_OBJECT = "ScaledObject"


def rival(scaled_object: JsonView) -> dict[str, Any]:
    """A ScaledObject of KEDA as `AutoscalerList.rivals` holds it; KEDA's default target is a Deployment."""
    reference = (scaled_object.get("spec") or {}).get("scaleTargetRef") or {}
    target = {
        "group": group_of(reference.get("apiVersion") or "apps/v1"),
        "kind": reference.get("kind") or "Deployment",
        "name": reference.get("name") or "",
    }
    return {"kind": SCALED_OBJECT, "name": scaled_object["metadata"]["name"], "target": target}


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

    Raises SelectorError: the selector cannot be read.
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


def reports_the_same(before: ScaleSet | None, now: ScaleSet) -> bool:
    """Whether `now` differs in nothing that decisions or readers use; the resource version alone is not used."""
    return before is not None and _telling(before) == _telling(now)


def _telling(scale: ScaleSet) -> tuple[Any, ...]:
    return (scale.error, scale.spec_replicas, scale.status_replicas, scale.selector, scale.uid, scale.manager)


_REFUSALS = (REFUSAL_REASON, IGNORED_REASON)


class Asking(Struct, frozen=True, gc=False):
    """What an HPA scales and asks metrics APIs for.

    `metrics`: type and query of each metric that can be asked for, the selector of the target's pods left out; of one
    whose own selector cannot be read there is none.
    """

    target: Target
    metrics: tuple[tuple[str, Query], ...] = ()


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
    """What an HPA asks for, by its spec. One that is ignored for its size asks for nothing."""
    asked = () if over_limits(dict(hpa), "") else _queries(encode(hpa["spec"].get("metrics") or ()))
    return Asking(target_of(hpa), asked)


@lru_cache(maxsize=1024)  # of a fleet, many HPAs have the same metrics
def _queries(metrics: bytes) -> tuple[tuple[str, Query], ...]:
    found = []
    for metric in msgspec.json.decode(metrics):
        try:
            query = metric_query(metric, "")
        except SelectorError:
            continue
        if query is not None:
            found.append((metric["type"], query))
    return tuple(found)


def kept_hpa(hpa: JsonView, before: KeptHpa | None = None) -> KeptHpa:
    """What is kept of an HPA as the API server gives it. `before`: what was kept of it; equal parts are shared."""
    metadata = {name: value for name, value in hpa["metadata"].items() if name != "managedFields"}
    version = metadata.get("resourceVersion")
    if version is not None:
        metadata["resourceVersion"] = ""
    spec, status = encode_to_keep(hpa["spec"]), hpa.get("status")
    is_same_spec = before is not None and before.spec == spec
    return KeptHpa(
        asking=before.asking if before is not None and is_same_spec else asking_of(hpa),
        api_version=hpa.get("apiVersion") or "autoscaling/v2",
        resource_version=version,
        metadata=encode_to_keep(metadata),
        spec=before.spec if before is not None and is_same_spec else spec,
        status=None if status is None else encode_to_keep(_without_values(status)),
        values=encode_to_keep(status["currentMetrics"]) if status and "currentMetrics" in status else None,
        manager=spec_manager(hpa["metadata"]),
    )


def reported_hpa(known: KeptHpa) -> dict[str, Any]:
    """The HPA as it goes out, see `hpa_body`."""
    metadata = msgspec.json.decode(known.metadata)
    if known.resource_version is not None:
        metadata["resourceVersion"] = known.resource_version
    body = {
        "apiVersion": known.api_version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": msgspec.json.decode(known.spec),
    }
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
    return before.values == now.values or (own_status and not _shows_refusal(now.status))


def _reported(hpa: KeptHpa) -> tuple[Any, ...]:
    return (hpa.spec, hpa.status, hpa.metadata, hpa.manager)


def _without_values(status: JsonView) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != "currentMetrics"}


def _shows_refusal(status: bytes | None) -> bool:
    if status is None or not any(encode(reason) in status for reason in _REFUSALS):
        return False
    conditions = msgspec.json.decode(status).get("conditions") or ()
    return any(each.get("reason") in _REFUSALS for each in conditions)

"""The objects of the stand-in as Kubernetes has them: the Lease, native HPAs, and the ConfigMaps with what is kept.

Pure.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from reconciler.agents.standin.effective import (
    BOTH_DIRECTIONS,
    KeptSpec,
    disabled,
    effective_spec,
    frozen_or_paused,
    spec_hash,
)
from reconciler.agents.standin.evidence import LONGEST_PROOF_MS, PROOF_MS
from reconciler.agents.standin.ownnatives import TOKEN_ANNOTATION, OwnNative
from reconciler.agents.standin.protocol import HpaKey, NativeSeen
from reconciler.core.fence import GENERATION_LABEL, LEASE, STORE_NAME
from reconciler.core.lease import PROTOCOL, SeenLease, lease_spec, new_lease, seen_lease
from reconciler.core.objects import STAND_IN_LABEL, target_of
from schemas.codec import whole_number
from schemas.entries import ControlTransferred
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.shape import HPA_HEAD, Json, JsonView

SPEC_ANNOTATION: Final = "fleethpa.io/spec"
PROTOCOL_ANNOTATION: Final = "fleethpa.io/protocol"
PROOF_ANNOTATION: Final = "fleethpa.io/proof-ms"
REASON_ANNOTATION: Final = "fleethpa.io/reason"
"""Of the Lease: why the stand-in took over, for people and for the replica that leads next."""
REASON_CHARACTERS: Final = 500
UNREPORTED_ANNOTATION: Final = "fleethpa.io/unreported"
"""Of the Lease: changes of hands that are not in the log yet. They are written with the change itself, so that none is
lost with the agent that made it."""
UNREPORTED_BYTES: Final = 100_000
"""All annotations of an object may have 256 kB."""
STORE_LABEL: Final = "fleethpa.io/stand-in-specs"
OWN_LABEL: Final = "fleethpa.io/stand-in-natives"
"""Labels of the ConfigMaps with the specs that are kept, and with the native HPAs that were made."""
SHARD_BYTES: Final = 700_000
MOST_SHARDS: Final = 1_024
_STORE_NAMES: Final = {STORE_LABEL: STORE_NAME, OWN_LABEL: f"{STORE_NAME}natives-"}
NOTICED_MS: Final = 45_000
"""How long after its creation a native HPA must have been evaluated: the native controller does so every 15 s."""
_MOST = 2_147_483_647


# --- the Lease --------------------------------------------------------------------------------------------------------


def lease_seen(lease: JsonView) -> SeenLease:
    """Read the Lease. What cannot be read as a version of the protocol counts as a newer one."""
    annotations = lease["metadata"].get("annotations") or {}
    return structs.replace(
        seen_lease(lease),
        protocol=_protocol(annotations.get(PROTOCOL_ANNOTATION, "")),
        reason=str(annotations.get(REASON_ANNOTATION, ""))[:REASON_CHARACTERS],
    )


def proof_ms_of(lease: JsonView | None) -> int:
    """How long (ms) the hub must show heartbeats before the next hand-back, by the Lease's annotation.

    PROOF_MS if the annotation is missing, and never more than LONGEST_PROOF_MS.
    """
    annotations = ((lease or {}).get("metadata") or {}).get("annotations") or {}
    proof_ms = whole_number(str(annotations.get(PROOF_ANNOTATION, "")))
    return min(proof_ms, LONGEST_PROOF_MS) if proof_ms else PROOF_MS


def acquired_ms(lease: JsonView) -> int | None:
    """Since when the holder has had the Lease (Unix ms); None: acquireTime is missing or is not a time."""
    try:
        return time_ms((lease.get("spec") or {}).get("acquireTime"))
    except ValueError:
        return None


def _protocol(text: str) -> int:
    number = whole_number(text)
    return PROTOCOL + 1 if number is None else number


def lease_body(
    namespace: str,
    holder: str,
    generation: int,
    now: str,
    *,
    proof_ms: int,
    grace_ms: int,
    changes: Sequence[ControlTransferred] = (),
    reason: str = "",
) -> Json:
    """The Lease to write for a new holder; `now`: RFC 3339 with microseconds; `changes` are not in the log yet.

    `reason`: why the holder changes; empty: nothing is written of it.
    """
    annotations = {PROTOCOL_ANNOTATION: str(PROTOCOL), PROOF_ANNOTATION: str(proof_ms)}
    if reason:
        annotations[REASON_ANNOTATION] = reason[:REASON_CHARACTERS]
    if changes:
        annotations[UNREPORTED_ANNOTATION] = unreported_text(changes)
    spec = lease_spec(holder, generation, now) | {"leaseDurationSeconds": max(1, grace_ms // 1000), "acquireTime": now}
    body = new_lease(namespace, LEASE, spec)
    body["metadata"]["annotations"] = annotations
    return body


def unreported(lease: JsonView) -> list[ControlTransferred]:
    """The changes of hands that the Lease says are not in the log yet; what is unreadable is passed over."""
    text = (lease["metadata"].get("annotations") or {}).get(UNREPORTED_ANNOTATION, "[]")
    try:
        return msgspec.json.decode(text, type=list[ControlTransferred])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def unreported_text(changes: Sequence[ControlTransferred]) -> str:
    """The annotation for changes, oldest first. Where they are too long, the oldest lose the texts about their native
    HPAs, then the oldest are left out.
    """
    texts = [msgspec.json.encode(each) for each in changes]
    length = sum(len(each) + 1 for each in texts) + 1
    for place, each in enumerate(changes):
        if length <= UNREPORTED_BYTES:
            break
        shorter = msgspec.json.encode(structs.replace(each, natives=[]))
        length -= len(texts[place]) - len(shorter)
        texts[place] = shorter
    first = 0
    while length > UNREPORTED_BYTES:
        length -= len(texts[first]) + 1
        first += 1
    return f"[{b','.join(texts[first:]).decode()}]"


def with_unreported(lease: JsonView, changes: Sequence[ControlTransferred]) -> Json:
    """The Lease with these changes as the ones that are not in the log yet."""
    annotations = dict(lease["metadata"].get("annotations") or {})
    annotations.pop(UNREPORTED_ANNOTATION, None)
    if changes:
        annotations[UNREPORTED_ANNOTATION] = unreported_text(changes)
    return {**lease, "metadata": {**lease["metadata"], "annotations": annotations}}


# --- native HPAs ------------------------------------------------------------------------------------------------------


def native_body(
    kept: KeptSpec, generation: int, now_ms: int, *, token: str = "", uid: str = "", version: str = ""
) -> Json:
    """The native HPA of what is kept; `token`: of its recorded creation (`ownnatives`).

    Labels and annotations of the original are not copied: a tool that tracks its objects by them would remove it.
    """
    spec = effective_spec(kept, now_ms)
    metadata: dict[str, Any] = {
        "name": kept.name,
        "namespace": kept.namespace,
        "labels": {STAND_IN_LABEL: "true", GENERATION_LABEL: str(generation)},
        "annotations": {SPEC_ANNOTATION: spec_hash(spec)} | ({TOKEN_ANNOTATION: token} if token else {}),
    }
    if uid:
        metadata |= {"uid": uid, "resourceVersion": version}
    return HPA_HEAD | {"metadata": metadata, "spec": spec}


def closed_body(native: JsonView, generation: int) -> Json:
    """A native HPA that changes nothing any more: both directions are disabled, and no count is outside its limits,
    which the controller enforces in spite of disabled directions.
    """
    metadata = {key: value for key, value in native["metadata"].items() if key != "managedFields"}
    metadata["labels"] = {**(metadata.get("labels") or {}), GENERATION_LABEL: str(generation)}
    spec = disabled(native["spec"], *BOTH_DIRECTIONS) | {"maxReplicas": _MOST}
    if spec.get("minReplicas", 1):
        spec["minReplicas"] = 1
    return HPA_HEAD | {"metadata": metadata, "spec": spec}


def native_seen(native: JsonView) -> NativeSeen:
    """A native HPA as the protocol sees it. Raises LookupError, TypeError: it has not the shape of one."""
    metadata, status = native["metadata"], native.get("status") or {}
    generation = (metadata.get("labels") or {}).get(GENERATION_LABEL, "")
    is_closed = frozen_or_paused(native["spec"]) and native["spec"].get("maxReplicas") == _MOST
    observed = status.get("observedGeneration") or 0
    return NativeSeen(
        key=HpaKey(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        generation=whole_number(generation) or 0,
        spec=(metadata.get("annotations") or {}).get(SPEC_ANNOTATION, ""),
        is_closed=is_closed,
        is_ended=is_closed and (observed >= (metadata.get("generation") or 0) or _has_no_target(status)),
        is_deleting=bool(metadata.get("deletionTimestamp")),
    )


def left_reason(native: JsonView) -> str:
    """Return what keeps a native HPA of ours from its end, and what to do about it."""
    metadata = native["metadata"]
    if finalizers := metadata.get("finalizers"):
        return f"the finalizer {finalizers[0]} keeps it: remove it from the object"
    if not native_seen(native).is_ended:
        return "the HPA controller has not confirmed that it is disabled: if none runs, set native-controller=absent"
    return "it was not deleted yet"


def _has_no_target(status: JsonView) -> bool:
    """Whether the controller cannot read the scale of the target, so that no write to it can come."""
    return any(each.get("reason") == "FailedGetScale" for each in status.get("conditions") or ())


def native_trouble(native: JsonView, now_ms: int) -> str:
    """Why the cluster's own controller does not scale the target of a native HPA of ours; empty: it does.

    Source: pkg/controller/podautoscaler `reconcileAutoscaler`: AbleToScale is False where the scale cannot be read or
    written; `status.observedGeneration` is set with the first status.
    """
    status, metadata = native.get("status") or {}, native["metadata"]
    for each in status.get("conditions") or ():
        if each.get("type") == "AbleToScale" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    created_ms = time_ms(metadata.get("creationTimestamp"))
    if status.get("observedGeneration") is None and created_ms is not None and now_ms - created_ms >= NOTICED_MS:
        return "no native HPA controller has evaluated it: if none runs, set native-controller=absent"
    return ""


def scaled_to_zero(native: JsonView, now: str) -> Json:
    """A native HPA whose status says that a controller scaled its target to zero: else it stays disabled for ever."""
    condition = {
        "type": "ScaledToZero",
        "status": "True",
        "reason": "ScaledToZero",
        "message": "the HPA controller scaled the workload to zero",
        "lastTransitionTime": now,
    }
    others = [each for each in (native.get("status") or {}).get("conditions") or () if each["type"] != "ScaledToZero"]
    status = {"currentReplicas": 0, "desiredReplicas": 0, **(native.get("status") or {})}
    return {**native, "status": status | {"conditions": [condition, *others]}}


def is_scaled_to_zero(native: JsonView) -> bool:
    conditions = (native.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "ScaledToZero" and each["status"] == "True" for each in conditions)


# --- what is kept -----------------------------------------------------------------------------------------------------


def shard_of(key: HpaKey, count: int) -> int:
    """In which of so many shards an HPA is kept."""
    return int.from_bytes(hashlib.sha256(f"{key.namespace}/{key.name}".encode()).digest()[:8], "big") % count


Record = KeptSpec | OwnNative
_Record = TypeVar("_Record", KeptSpec, OwnNative)


def store_bodies(
    kept: Mapping[HpaKey, Record], namespace: str, least: int = 1, *, label: str = STORE_LABEL
) -> list[Json]:
    """The ConfigMaps that hold everything, as few as possible but at least `least`, none above 700 kB.

    `label`: which set they are, STORE_LABEL or OWN_LABEL.
    """
    count = least
    while True:
        shards: list[dict[str, str]] = [{} for _ in range(count)]
        for key in sorted(kept):
            text = msgspec.json.encode(kept[key]).decode()
            shards[shard_of(key, count)][_entry(key)] = text
        if count >= MOST_SHARDS or all(
            sum(map(len, shard.values())) + 70 * len(shard) <= SHARD_BYTES for shard in shards
        ):
            return [_store(namespace, number, count, shard, label) for number, shard in enumerate(shards)]
        count *= 2


def _entry(key: HpaKey) -> str:
    return hashlib.sha256(f"{key.namespace}/{key.name}".encode()).hexdigest()[:40]


def _store(namespace: str, number: int, count: int, data: Mapping[str, str], label: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{_STORE_NAMES[label]}{count}-{number}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "fleethpa", label: str(count)},
            "annotations": {SPEC_ANNOTATION: spec_hash(data)},
        },
        "data": dict(data),
    }


def shards_of(config_map: JsonView, label: str = STORE_LABEL) -> int | None:
    """How many ConfigMaps the set of this one has; None: its label does not say so."""
    count = whole_number((config_map["metadata"].get("labels") or {}).get(label, ""))
    return count if count is not None and 1 <= count <= MOST_SHARDS else None


def stored(maps: Iterable[JsonView]) -> dict[HpaKey, KeptSpec]:
    """The specs in the newest whole set of ConfigMaps; where none is whole, what is left of the newest. A damaged entry
    or map is passed over: the rest still counts.
    """
    specs = _stored(maps, KeptSpec, STORE_LABEL)
    return {key: kept for key, kept in specs.items() if _has_target(kept)}


def stored_own(maps: Iterable[JsonView]) -> dict[HpaKey, OwnNative]:
    """The native HPAs that ConfigMaps record, read in the same way."""
    return _stored(maps, OwnNative, OWN_LABEL)


def _has_target(kept: KeptSpec) -> bool:
    try:
        target_of({"spec": kept.spec})
    except (LookupError, TypeError, AttributeError):
        return False
    return True


def _stored(maps: Iterable[JsonView], kind: type[_Record], label: str) -> dict[HpaKey, _Record]:
    sets: dict[int, list[JsonView]] = {}
    for each in maps:
        if (count := shards_of(each, label)) is not None:
            sets.setdefault(count, []).append(each)
    whole = [count for count, records in sets.items() if len(records) == count]
    records: dict[HpaKey, _Record] = {}
    for each in sets[max(whole or sets)] if sets else ():
        for text in (each.get("data") or {}).values():
            try:
                record = msgspec.json.decode(text, type=kind)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
            records[record.key] = record
    return records

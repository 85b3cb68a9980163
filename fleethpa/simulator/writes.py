"""Writes as the API server makes them: optimistic concurrency, generations, defaults, /scale and /status.

The HorizontalPodAutoscaler API of a simulated cluster: every version in, autoscaling/v2 stored, v1 and v2 out.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable
from typing import Any

from fleethpa.simulator import faults as apistatus
from fleethpa.simulator import kubelet as podview
from fleethpa.simulator import patching
from fleethpa.simulator import patching as managedfields
from fleethpa.simulator.faults import StatusError, invalid
from fleethpa.simulator.patching import FieldWriter
from fleethpa.simulator.requests import selector_string
from fleethpa.simulator.resources import ResourceType
from fleethpa.simulator.store import Key, SimClock, Store
from schemas.kubernetes import fielderrors, versions
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.hpa import ManifestError, convert_to_v2, decode_and_default, wire_form
from schemas.kubernetes.shape import Json
from schemas.kubernetes.validation import validate_create, validate_update


def decoded(body: Json) -> Json:
    """Return the defaulted autoscaling/v2 object of a body in v1 or v2.

    Explicit empty policy lists are still there: validation refuses them.

    Raises ApiError: 400, a field has a wrong type.
    """
    try:
        return convert_to_v2(decode_and_default(body))
    except ManifestError as error:
        raise StatusError(400, f"HorizontalPodAutoscaler cannot be read: {error}") from error


def stored(hpa: Json) -> Json:
    """Return the object as it is stored: in wire form."""
    return wire_form(hpa)


def to_v1(hpa: Json) -> Json:
    """Return the autoscaling/v1 view of a stored object."""
    return versions.v2_to_v1(hpa)


def check(new: Json, old: Json | None) -> None:
    """Refuse what the API server refuses. Raises ApiError: 422."""
    problems = validate_create(new) if old is None else validate_update(new, old)
    if problems:
        raise invalid("HorizontalPodAutoscaler", "autoscaling", new["metadata"]["name"], problems)


PodDeleter = Callable[[str, str], bool]

_WITHOUT_GENERATION = ("events", "namespaces")
_EVENT_DEFAULTS: Json = {"eventTime": None, "reportingComponent": "", "reportingInstance": ""}
_GO_KINDS = ((bool, "bool"), (str, "string"), (float, "number"), (list, "array"), (dict, "object"))


class Writes:
    """The write path of one cluster."""

    def __init__(self, store: Store, clock: SimClock) -> None:
        self._store, self._clock = store, clock
        self.delete_pod: PodDeleter = lambda namespace, name: False
        """Takes over the deletion of a pod that a workload owns; the kubelet sets it."""

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, resource: ResourceType, namespace: str, name: str) -> Json:
        """Return the stored object. Raises StatusError: 404."""
        found = self._store.get(_key(resource, namespace, name))
        if found is None:
            raise apistatus.not_found(resource.qualified, name)
        return found

    def scale_of(self, resource: ResourceType, document: Json) -> Json:
        """Return the Scale of a workload, under the resource version of the workload itself."""
        metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
        if resource.group == "example.com":
            selector = status.get("labelSelector", "")
        else:
            selector = selector_string(podview.selector_of(document))
        shown = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": shown,
            "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
            "status": {"replicas": status.get("replicas", 0), "selector": selector},
        }

    # -- writing -----------------------------------------------------------------------------------------------------

    def create(
        self, resource: ResourceType, namespace: str, body: Json, writer: FieldWriter, *, dry: bool = False
    ) -> Json:
        """Create an object. Raises StatusError: 400, 404 (namespace), 409 (exists) or 422."""
        body = self._incoming(resource, body)
        metadata = self._new_metadata(resource, namespace, body["metadata"])
        kept = {k: v for k, v in body.items() if k != "status" or not resource.status}
        document = self._defaulted(resource, kept | {"metadata": metadata}, None)
        key = _key(resource, namespace, metadata["name"])
        if self._store.get(key) is not None:
            raise apistatus.already_exists(resource.qualified, metadata["name"])
        self._sign(document, None, resource, writer)
        return document if dry else self._store.put(key, document)

    def update(
        self, resource: ResourceType, namespace: str, name: str, body: Json, writer: FieldWriter, *, dry: bool = False
    ) -> Json:
        """Replace an object, or its status where the writer names that subresource; an equal one stays untouched.

        Raises StatusError: 404, 409 (resource version or uid) or 422.
        """
        current = self.read(resource, namespace, name)
        body = self._incoming(resource, body)
        self._check_preconditions(resource, current, body["metadata"])
        document = self._joined(resource, current, body, writer)
        if _same(document, current):
            return current
        self._sign(document, current, resource, writer)
        return document if dry else self._store.put(_key(resource, namespace, name), document)

    def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        change: tuple[str, Any],
        writer: FieldWriter,
        *,
        dry: bool = False,
        force: bool = False,
    ) -> Json:
        """Patch an object or its status; `change` is (content type, patch). An apply creates what is missing."""
        content_type, body = change
        if content_type == patching.APPLY_PATCH:
            writer = FieldWriter(writer.manager, "Apply", writer.subresource)
            if self._store.get(_key(resource, namespace, name)) is None:
                return self.create(resource, namespace, body, writer, dry=dry)
            if not force:
                current = self.read(resource, namespace, name)
                managedfields.refuse_conflicts(current, self._incoming(resource, body), writer)
        shown = self.outgoing(resource, self.read(resource, namespace, name))
        return self.update(resource, namespace, name, patched(shown, content_type, body), writer, dry=dry)

    def write_scale(
        self, resource: ResourceType, namespace: str, name: str, body: Json, writer: FieldWriter, *, dry: bool = False
    ) -> Json:
        """Write spec.replicas through a Scale and return the Scale after it.

        Raises StatusError: 404, 409 (resource version or uid of the workload) or 422.
        """
        current = self.read(resource, namespace, name)
        replicas = (body.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise StatusError(400, _not_a_count(replicas))
        if replicas < 0:
            raise apistatus.invalid("Scale", "autoscaling", name, [_negative(replicas)])
        self._check_preconditions(resource, current, body.get("metadata") or {}, subresource="/scale")
        document = current | {"spec": current["spec"] | {"replicas": replicas}}
        if not _same(document, current):
            self._sign(document, current, resource, FieldWriter(writer.manager, writer.operation, "scale"))
            document = document if dry else self._store.put(_key(resource, namespace, name), document)
        return self.scale_of(resource, document)

    def delete(
        self, resource: ResourceType, namespace: str, name: str, preconditions: Json, *, dry: bool = False
    ) -> Json:
        """Delete an object; a pod with an owner terminates first. A namespace takes all its objects along.

        Raises StatusError: 404 or 409.
        """
        current = self.read(resource, namespace, name)
        found = current["metadata"]["uid"]
        if preconditions.get("uid", found) != found:
            raise apistatus.deleted_uid_conflict(resource.qualified_kind, name, preconditions["uid"], found)
        self._check_preconditions(resource, current, preconditions)
        if dry:
            return current
        if resource.plural == "pods" and self.delete_pod(namespace, name):
            return self._store.get(_key(resource, namespace, name)) or current
        if resource.plural == "namespaces":
            self._empty_namespace(name)
        return self._store.remove(_key(resource, namespace, name))

    def outgoing(self, resource: ResourceType, document: Json) -> Json:
        """Return a stored object in the version and kind of `resource`."""
        if resource.group == "autoscaling" and resource.version == "v1":
            return to_v1(document)
        if resource.plural == "events":
            return document | {"apiVersion": resource.group_version}
        return document

    # -- inside ------------------------------------------------------------------------------------------------------

    def _incoming(self, resource: ResourceType, received: Any) -> Json:
        if not isinstance(received, dict) or not isinstance(received.get("metadata", {}), dict):
            raise StatusError(400, f"the body is not a {resource.kind}: send a JSON object with metadata")
        kind = received.get("kind", resource.kind)
        if kind != resource.kind:
            raise StatusError(400, f"{kind} in the body does not match the resource {resource.qualified}")
        body: Json = {"metadata": {}} | received | {"kind": kind, "apiVersion": resource.group_version}
        return decoded(body) if resource.group == "autoscaling" else body

    def _new_metadata(self, resource: ResourceType, namespace: str, given: Json) -> Json:
        name = given.get("name") or self._generated(given.get("generateName", ""))
        if not name and resource.group != "autoscaling":  # whose validation finds more than a missing name
            problem = fielderrors.required("metadata.name", "name or generateName is required")
            raise apistatus.invalid(resource.kind, resource.group, "", [problem])
        if resource.namespaced and given.get("namespace", namespace) != namespace:
            raise StatusError(
                400, "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.namespaced and self._store.get(("namespaces", "", namespace)) is None:
            raise apistatus.not_found("namespaces", namespace)
        own = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
        kept = {k: v for k, v in given.items() if k not in ("resourceVersion", "managedFields", "deletionTimestamp")}
        stamp: Json = {"uid": str(uuid.uuid4()), "creationTimestamp": rfc3339_seconds(self._clock.now_ms())}
        return kept | own | stamp | ({} if resource.plural in _WITHOUT_GENERATION else {"generation": 1})

    def _generated(self, prefix: str) -> str:
        return f"{prefix}{zlib.crc32(str(self._store.version).encode()):08x}"[: len(prefix) + 5] if prefix else ""

    def _check_preconditions(self, resource: ResourceType, current: Json, given: Json, subresource: str = "") -> None:
        metadata = current["metadata"]
        if given.get("uid", metadata["uid"]) != metadata["uid"]:
            group = f".{resource.group}" if resource.group else ""
            what = f"{resource.plural}{subresource}{group}"
            raise apistatus.uid_conflict(what, metadata["name"], given["uid"], metadata["uid"])
        version = given.get("resourceVersion") or metadata["resourceVersion"]
        if version != metadata["resourceVersion"]:
            raise apistatus.conflict(resource.qualified, metadata["name"])

    def _joined(self, resource: ResourceType, current: Json, body: Json, writer: FieldWriter) -> Json:
        """Return the object after the write: what the client may set from the body, the rest from the stored one."""
        if writer.subresource == "status":
            status = {"status": body.get("status") or {}}
            return current | status
        system = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp")
        kept = {k: v for k, v in current["metadata"].items() if k in (*system, "managedFields")}
        given = {k: v for k, v in body["metadata"].items() if k not in (*system, "managedFields")}
        document = {k: v for k, v in body.items() if k != "status" or not resource.status}
        if resource.status and "status" in current:
            document["status"] = current["status"]
        return self._defaulted(resource, document | {"metadata": given | kept}, current)

    def _defaulted(self, resource: ResourceType, document: Json, old: Json | None) -> Json:
        if resource.group == "autoscaling":
            check(document, old)
            return stored(document)
        if resource.scale:
            spec = document.get("spec") or {}
            if not isinstance(spec.get("replicas", 1), int) or spec.get("replicas", 1) < 0:
                name = document["metadata"]["name"]
                raise apistatus.invalid(resource.kind, resource.group, name, [_negative(spec["replicas"])])
            return document | {"spec": {"replicas": 1} | spec}
        return _EVENT_DEFAULTS | document if resource.plural == "events" else document

    def _sign(self, document: Json, old: Json | None, resource: ResourceType, writer: FieldWriter) -> None:
        """Set generation and managedFields of a document that is about to be stored."""
        metadata = dict(document["metadata"])
        part = "status" if writer.subresource == "status" else "spec"
        fields = {part: managedfields.changed(old, document, part)}
        if part == "spec":
            fields["labels"] = managedfields.changed_labels(old, document)
        if old is not None and part == "spec" and fields["spec"] and resource.plural not in _WITHOUT_GENERATION:
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        entry = writer.entry(resource.group_version, rfc3339_seconds(self._clock.now_ms()))
        metadata["managedFields"] = managedfields.record(metadata.get("managedFields") or (), fields, writer, entry)
        document["metadata"] = metadata

    def _empty_namespace(self, name: str) -> None:
        for key in self._store.keys_in(name):
            self._store.remove(key)


def patched(document: Json, content_type: str, body: Any) -> Json:
    """Return a document after a patch of one of the four content types. Raises StatusError: 400, 415 or 422."""
    if content_type == patching.JSON_PATCH:
        if not isinstance(body, list):
            raise StatusError(400, "a JSON patch is a list of operations")
        result = patching.json_patch(document, body)
    elif content_type == patching.MERGE_PATCH:
        result = patching.merge(document, body)
    elif content_type in (patching.STRATEGIC_PATCH, patching.APPLY_PATCH):
        result = patching.strategic_merge(document, body)
    else:
        accepted = (patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_PATCH, patching.APPLY_PATCH)
        message = (
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        )
        raise StatusError(415, message)
    if not isinstance(result, dict):
        raise StatusError(400, "the patch does not leave an object")
    return result


def _not_a_count(replicas: object) -> str:
    """What Go's JSON decoder says of a count that is not a whole number."""
    kind = next((name for each, name in _GO_KINDS if isinstance(replicas, each)), "value")
    return (
        f'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal {kind} into Go struct field '
        "ScaleSpec.spec.replicas of type int32"
    )


def _negative(replicas: object) -> fielderrors.FieldError:
    return fielderrors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")


def _same(one: Json, other: Json) -> bool:
    ignored = ("managedFields", "resourceVersion", "generation")
    left, right = ({k: v for k, v in d["metadata"].items() if k not in ignored} for d in (one, other))
    return left == right and {**one, "metadata": 0} == {**other, "metadata": 0}


def _key(resource: ResourceType, namespace: str, name: str) -> Key:
    return (resource.stored_as, namespace if resource.namespaced else "", name)

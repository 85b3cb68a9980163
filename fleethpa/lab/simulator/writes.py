"""Writes as the API server makes them: optimistic concurrency, generations, defaults, /scale and /status."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from fleethpa.lab.simulator.kubelet import selector_of
from fleethpa.lab.simulator.requests import (
    FieldWriter,
    StatusError,
    already_exists,
    changed_fields,
    conflict,
    invalid,
    not_found,
    patched,
    record,
)
from fleethpa.lab.simulator.resources import Key, ResourceType, Store
from schemas.kubernetes import fielderrors
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.hpa import ManifestError, decode_and_default, wire_form
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import Json, JsonView
from schemas.kubernetes.validation import validate_create, validate_update

_SYSTEM: Final = (
    *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp"),
    "managedFields",
)
"""Metadata that no client sets by a write."""
_EVENT_DEFAULTS: Final[Json] = {"eventTime": None, "reportingComponent": "", "reportingInstance": ""}


class Writes:
    """The write path of one cluster."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms
        self.delete_pod: Callable[[str, str], bool] = lambda namespace, name: False
        """Takes over the deletion of a pod that a workload owns; the kubelet sets it."""

    def read(self, resource: ResourceType, namespace: str, name: str) -> Json:
        """Return the stored object. Raises StatusError: 404."""
        stored = self._store.get(key_of(resource, namespace, name))
        if stored is None:
            raise not_found(resource.qualified, name)
        return stored

    def create(self, resource: ResourceType, namespace: str, body: Any, writer: FieldWriter) -> Json:
        """Create an object. Raises StatusError: 400, 404 (namespace), 409 (exists) or 422."""
        body = _incoming(resource, body)
        metadata = self._new_metadata(resource, namespace, body["metadata"])
        kept = {k: v for k, v in body.items() if k != "status" or not resource.status}
        document = _defaulted(resource, kept | {"metadata": metadata}, None)
        key = key_of(resource, namespace, metadata["name"])
        if self._store.get(key) is not None:
            raise already_exists(resource.qualified, metadata["name"])
        return self._keep(key, document, {}, resource, writer)

    def update(self, resource: ResourceType, namespace: str, name: str, body: Any, writer: FieldWriter) -> Json:
        """Replace an object, or its status where the writer names that subresource; an equal one stays untouched.

        Raises StatusError: 404, 409 (resource version or uid) or 422.
        """
        current = self.read(resource, namespace, name)
        body = _incoming(resource, body)
        _check_preconditions(resource.qualified, current, body["metadata"])
        if writer.subresource == "status":
            document = current | {"status": body.get("status") or {}}
        else:
            document = _defaulted(resource, _joined(resource, current, body), current)
        return self._keep(key_of(resource, namespace, name), document, current, resource, writer)

    def patch(
        self, resource: ResourceType, namespace: str, name: str, change: tuple[str, Any], writer: FieldWriter
    ) -> Json:
        """Patch an object or its status; `change` is (content type, patch). Raises StatusError: as update, and 415."""
        body = patched(self.read(resource, namespace, name), *change)
        return self.update(resource, namespace, name, body, writer)

    def write_scale(self, resource: ResourceType, namespace: str, name: str, body: Any, writer: FieldWriter) -> Json:
        """Write spec.replicas through a Scale and return the Scale after it.

        Raises StatusError: 400, 404, 409 (resource version or uid of the workload) or 422.
        """
        current = self.read(resource, namespace, name)
        replicas = (body.get("spec") or {}).get("replicas", 0)
        if type(replicas) is not int:
            raise StatusError(400, f"spec.replicas of the Scale is {replicas!r}: it must be a whole number")
        if replicas < 0:
            raise invalid("Scale", "autoscaling", name, [_negative(replicas)])
        _check_preconditions(resource.qualified, current, body.get("metadata") or {}, scale=True)
        document = current | {"spec": current["spec"] | {"replicas": replicas}}
        return scale_of(resource, self._keep(key_of(resource, namespace, name), document, current, resource, writer))

    def delete(self, resource: ResourceType, namespace: str, name: str, preconditions: JsonView) -> Json:
        """Delete an object; a pod with an owner terminates first. A namespace takes all its objects along.

        Raises StatusError: 404 or 409.
        """
        current = self.read(resource, namespace, name)
        uid, wanted = current["metadata"]["uid"], preconditions.get("uid")
        if wanted not in (None, uid):
            text = f"the UID in the precondition ({wanted}) does not match the UID in record ({uid})."
            kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
            raise conflict(kind, name, f"{text} The object might have been deleted and then recreated")
        _check_preconditions(resource.qualified, current, preconditions)
        if resource.plural == "pods" and self.delete_pod(namespace, name):
            return self._store.get(key_of(resource, namespace, name)) or current
        if resource.plural == "namespaces":
            for key in self._store.keys_in(name):
                self._store.remove(key)
        return self._store.remove(key_of(resource, namespace, name))

    def _new_metadata(self, resource: ResourceType, namespace: str, given: Json) -> Json:
        name = given.get("name") or ""
        if generate := "" if name else given.get("generateName", ""):
            name = f"{generate}{uuid.uuid4().hex[:5]}"
        if not name and resource.group != "autoscaling":  # whose validation finds more than a missing name
            problem = fielderrors.required("metadata.name", "name or generateName is required")
            raise invalid(resource.kind, resource.group, "", [problem])
        if resource.namespaced and given.get("namespace", namespace) != namespace:
            raise StatusError(
                400, "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.namespaced and self._store.get(("namespaces", "", namespace)) is None:
            raise not_found("namespaces", namespace)
        own = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
        own |= {"uid": str(uuid.uuid4()), "creationTimestamp": rfc3339_seconds(self._now_ms())}
        own |= {} if resource.plural == "events" else {"generation": 1}
        return {k: v for k, v in given.items() if k not in _SYSTEM} | own

    def _keep(self, key: Key, document: Json, current: Json, resource: ResourceType, writer: FieldWriter) -> Json:
        """Store a document, with its generation and managedFields, and return it; an equal one stays untouched."""
        if document == current:
            return current
        metadata, fields = dict(document["metadata"]), changed_fields(current, document)
        if current and any(path[0] == "f:spec" for path in fields):
            metadata["generation"] = current["metadata"].get("generation", 1) + 1
        entry = writer.entry(resource.group_version, rfc3339_seconds(self._now_ms()))
        metadata["managedFields"] = record(metadata.get("managedFields") or (), fields, writer, entry)
        document = document | {"metadata": metadata}
        return document if writer.dry else self._store.put(key, document)


def key_of(resource: ResourceType, namespace: str, name: str) -> Key:
    """Return where an object is stored."""
    return (resource.qualified, namespace if resource.namespaced else "", name)


def scale_of(resource: ResourceType, document: Json) -> Json:
    """Return the Scale of a workload, under the resource version of the workload itself."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    custom = resource.group == "example.com"
    selector = status.get("labelSelector", "") if custom else label_selector_text(selector_of(document))
    shown = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": shown,
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector},
    }


def _incoming(resource: ResourceType, received: Any) -> Json:
    """Return a body of the right kind; an HPA with its defaults. Raises StatusError: 400."""
    if not isinstance(received, dict) or not isinstance(received.get("metadata", {}), dict):
        raise StatusError(400, f"the body is not a {resource.kind}: send a JSON object with metadata")
    kind = received.get("kind", resource.kind)
    if kind != resource.kind:
        raise StatusError(400, f"{kind} in the body does not match the resource {resource.qualified}")
    body: Json = {"metadata": {}} | received | {"kind": kind, "apiVersion": resource.group_version}
    if resource.group != "autoscaling":
        return body
    try:
        # Explicit empty policy lists are still there: validation refuses them.
        return decode_and_default(body)
    except ManifestError as error:
        raise StatusError(400, f"HorizontalPodAutoscaler cannot be read: {error}") from error


def _joined(resource: ResourceType, current: Json, body: Json) -> Json:
    """Return the object after an update: what the client may set from the body, the rest from the stored one."""
    given = {k: v for k, v in body["metadata"].items() if k not in _SYSTEM}
    kept = {k: v for k, v in current["metadata"].items() if k in _SYSTEM}
    document = body | {"metadata": given | kept}
    if resource.status:
        document.pop("status", None)
        document |= {"status": current["status"]} if "status" in current else {}
    return document


def _defaulted(resource: ResourceType, document: Json, old: Json | None) -> Json:
    """Return the object as it is stored. Raises StatusError: 422, the API server refuses it."""
    name = document["metadata"]["name"]
    if resource.group == "autoscaling":
        problems = validate_create(document) if old is None else validate_update(document, old)
        if problems:
            raise invalid(resource.kind, resource.group, name, problems)
        return wire_form(document)
    if resource.scale:
        spec = {"replicas": 1} | (document.get("spec") or {})
        if not isinstance(spec["replicas"], int) or spec["replicas"] < 0:
            raise invalid(resource.kind, resource.group, name, [_negative(spec["replicas"])])
        return document | {"spec": spec}
    return _EVENT_DEFAULTS | document if resource.plural == "events" else document


def _check_preconditions(qualified: str, current: Json, given: JsonView, *, scale: bool = False) -> None:
    metadata = current["metadata"]
    name, uid = metadata["name"], metadata["uid"]
    if given.get("uid", uid) != uid:
        plural, dot, group = qualified.partition(".")
        text = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {uid}"
        raise conflict(f"{plural}/scale{dot}{group}" if scale else qualified, name, text)
    if (given.get("resourceVersion") or metadata["resourceVersion"]) != metadata["resourceVersion"]:
        raise conflict(qualified, name)


def _negative(replicas: object) -> fielderrors.FieldError:
    return fielderrors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")

"""The resource types that a simulated cluster serves, and its discovery documents.

Server-side tables: the columns that kubectl prints. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.show.kubectl import hpa_table_cells
from fleethpa.show.times import since
from schemas.kubernetes.shape import Json

VERSION: Final = "v1.37.1"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource of one API version."""

    group: str
    version: str
    plural: str
    kind: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    scale: bool = False
    status: bool = True
    categories: tuple[str, ...] = ()

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it, e.g. deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, e.g. Deployment.apps."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def stored_as(self) -> str:
        """The name under which objects are stored: versions of a resource share it, and so do both kinds of Event."""
        return "events" if self.plural == "events" else self.qualified


ALL = ("all",)
RESOURCES: Final = (
    ResourceType("", "v1", "namespaces", "Namespace", ("ns",), namespaced=False),
    ResourceType("", "v1", "nodes", "Node", ("no",), namespaced=False),
    ResourceType("", "v1", "pods", "Pod", ("po",), categories=ALL),
    ResourceType("", "v1", "services", "Service", ("svc",), categories=ALL),
    ResourceType("", "v1", "configmaps", "ConfigMap", ("cm",), status=False),
    ResourceType("", "v1", "events", "Event", ("ev",), status=False),
    ResourceType("", "v1", "replicationcontrollers", "ReplicationController", ("rc",), scale=True, categories=ALL),
    ResourceType("apps", "v1", "deployments", "Deployment", ("deploy",), scale=True, categories=ALL),
    ResourceType("apps", "v1", "statefulsets", "StatefulSet", ("sts",), scale=True, categories=ALL),
    ResourceType("apps", "v1", "replicasets", "ReplicaSet", ("rs",), scale=True, categories=ALL),
    ResourceType("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", ("hpa",), categories=ALL),
    ResourceType("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", ("hpa",), categories=ALL),
    ResourceType("events.k8s.io", "v1", "events", "Event", ("ev",), status=False),
    ResourceType("coordination.k8s.io", "v1", "leases", "Lease", status=False),
    ResourceType(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        status=False,
    ),
    ResourceType("example.com", "v1", "widgets", "Widget", ("wd",), scale=True),
)

METRICS_VERSIONS: Final = (
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("custom.metrics.k8s.io", "v1beta1"),
    ("external.metrics.k8s.io", "v1beta1"),
)

METRICS_GROUPS: Final = frozenset(group for group, _ in METRICS_VERSIONS)

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_BY_PATH = {(r.group, r.version, r.plural): r for r in RESOURCES}
_BY_KIND = {(r.group, r.version, r.kind): r for r in RESOURCES}


def by_path(group: str, version: str, plural: str) -> ResourceType | None:
    """Return the resource type that a URL names."""
    return _BY_PATH.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> ResourceType:
    """Return the resource type of a manifest. Raises ValueError: The simulated cluster does not serve it."""
    group, _, version = api_version.rpartition("/")
    found = _BY_KIND.get((group, version, kind))
    if found is None:
        raise ValueError(f"{kind} of {api_version}: simulated clusters do not serve this kind")
    return found


def groups(left_out: Container[str] = ()) -> list[Json]:
    """Return the entries of /apis, newest version of a group first."""
    versions: dict[str, list[str]] = {}
    for group, version in [(r.group, r.version) for r in RESOURCES] + list(METRICS_VERSIONS):
        if group and group not in left_out and version not in versions.setdefault(group, []):
            versions[group].append(version)
    return [_group(name, known) for name, known in versions.items()]


def has_group(name: str) -> bool:
    """Whether any resource of this API group is served; the core group has the empty name."""
    return not name or any(each["name"] == name for each in groups())


def group(name: str) -> Json | None:
    """Return the document of /apis/NAME."""
    found = next((g for g in groups() if g["name"] == name), None)
    return None if found is None else {"kind": "APIGroup", "apiVersion": "v1"} | found


def _group(name: str, versions: Iterable[str]) -> Json:
    known = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def resource_list(group_name: str, version: str, extra: Iterable[Json] = ()) -> Json | None:
    """Return the APIResourceList of a group version, with `extra` entries (metrics), or None where it is not served."""
    entries = [e for r in RESOURCES if (r.group, r.version) == (group_name, version) for e in _entries(r)] + list(extra)
    if not entries and (group_name, version) not in METRICS_VERSIONS:
        return None
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _entries(resource: ResourceType) -> list[Json]:
    main = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource.group == "authorization.k8s.io" else _VERBS,
        "storageVersionHash": "c2ltdWxhdGVk",
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    sub: Json = {"singularName": "", "namespaced": resource.namespaced, "verbs": ["get", "patch", "update"]}
    entries = [main]
    if resource.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append(sub | {"name": f"{resource.plural}/scale"} | scale)
    if resource.status:
        entries.append(sub | {"name": f"{resource.plural}/status", "kind": resource.kind})
    return entries


def metrics_entry(name: str, kind: str, *, namespaced: bool = True, verbs: tuple[str, ...] = ("get",)) -> Json:
    """Return one entry of a metrics API's resource list."""
    return {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


def openapi_index() -> Json:
    """Return the index of /openapi/v3."""
    paths = {}
    for group_name, version in {(r.group, r.version): None for r in RESOURCES}:
        path = f"apis/{group_name}/{version}" if group_name else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(group_name: str, version: str) -> Json | None:
    """Return a small OpenAPI v3 document of a group version.

    It says that PATCH takes `fieldValidation`, so kubectl leaves validation to the server, as with a real cluster.
    """
    served = [r for r in RESOURCES if (r.group, r.version) == (group_name, version)]
    if not served:
        return None
    prefix = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
    paths = {}
    for resource in served:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        paths[f"{prefix}{scope}/{resource.plural}/{{name}}"] = {"patch": _patch_operation(resource)}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION}, "paths": paths}


def _patch_operation(resource: ResourceType) -> Json:
    names = ("dryRun", "fieldManager", "fieldValidation")
    return {
        "parameters": [{"name": n, "in": "query", "schema": {"type": "string"}} for n in names],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }


Cells = Callable[[Json, int], Sequence[Any]]


def _created(document: Json, now_ms: int) -> str:
    return since(document["metadata"].get("creationTimestamp"), now_ms)


def _pod(document: Json, now_ms: int) -> list[Any]:
    status, metadata = document.get("status") or {}, document["metadata"]
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(c.get("ready")) for c in containers)
    reason = status.get("reason") or status.get("phase", "Pending")
    for container in containers:
        reason = container.get("state", {}).get("waiting", {}).get("reason", reason)
    if metadata.get("deletionTimestamp"):
        reason = "Terminating"
    restarts = sum(c.get("restartCount", 0) for c in containers)
    shown = f"{ready}/{len(document['spec']['containers'])}"
    return [metadata["name"], shown, reason, str(restarts), _created(document, now_ms), status.get("podIP", "<none>")]


def _deployment(document: Json, now_ms: int) -> list[Any]:
    status, spec = document.get("status") or {}, document["spec"]
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return [document["metadata"]["name"], ready, updated, available, _created(document, now_ms)]


def _stateful_set(document: Json, now_ms: int) -> list[Any]:
    ready = f"{(document.get('status') or {}).get('readyReplicas', 0)}/{document['spec'].get('replicas', 0)}"
    return [document["metadata"]["name"], ready, _created(document, now_ms)]


def _replica_set(document: Json, now_ms: int) -> list[Any]:
    status, wanted = document.get("status") or {}, document["spec"].get("replicas", 0)
    counts = [wanted, status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [document["metadata"]["name"], *counts, _created(document, now_ms)]


def _namespace(document: Json, now_ms: int) -> list[Any]:
    return [document["metadata"]["name"], "Active", _created(document, now_ms)]


def _event(document: Json, now_ms: int) -> list[Any]:
    about = document.get("involvedObject") or document.get("regarding") or {}
    last = document.get("lastTimestamp") or document.get("eventTime") or document["metadata"].get("creationTimestamp")
    subject = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    message = document.get("message") or document.get("note", "")
    return [since(last, now_ms), document.get("type", ""), document.get("reason", ""), subject, message.strip()]


def _other(document: Json, now_ms: int) -> list[Any]:
    return [document["metadata"]["name"], document["metadata"].get("creationTimestamp", "")]


_COLUMNS: dict[str, tuple[str, Cells]] = {
    "Pod": ("Name Ready Status Restarts Age IP", _pod),
    "Deployment": ("Name Ready Up-to-date Available Age", _deployment),
    "StatefulSet": ("Name Ready Age", _stateful_set),
    "ReplicaSet": ("Name Desired Current Ready Age", _replica_set),
    "ReplicationController": ("Name Desired Current Ready Age", _replica_set),
    "Namespace": ("Name Status Age", _namespace),
    "Event": ("LastSeen Type Reason Object Message", _event),
    "HorizontalPodAutoscaler": ("Name Reference Targets MinPods MaxPods Replicas Age", hpa_table_cells),
}
_SPACED = {"LastSeen": "Last Seen"}
_WIDE = {"IP"}


def columns(resource: ResourceType) -> list[Json]:
    """Return the column definitions of a resource's table."""
    names = _COLUMNS[resource.kind][0].split() if resource.kind in _COLUMNS else ["Name", "Created At"]
    return [
        {
            "name": _SPACED.get(name, name),
            "type": "date" if name == "Created At" else "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 1 if name in _WIDE else 0,
        }
        for name in names
    ]


def table(resource: ResourceType, documents: list[Json], metadata: Json, now_ms: int, include: str) -> Json:
    """Return a Table of documents.

    Args:
        metadata: The list's metadata (resourceVersion, continue).
        include: What each row carries of its object: Metadata, Object or None, as ?includeObject= says.
    """
    cells = _COLUMNS[resource.kind][1] if resource.kind in _COLUMNS else _other
    rows = [{"cells": cells(d, now_ms), "object": _object(d, include)} for d in documents]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return head | {"columnDefinitions": columns(resource), "rows": rows}


def _object(document: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return document
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": document["metadata"]}

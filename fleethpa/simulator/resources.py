"""The resource types that a simulated cluster serves: one table, and the discovery documents and kubectl's tables
made from it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.show.kubectl import hpa_table_cells
from fleethpa.show.times import since
from schemas.kubernetes.shape import Json

VERSION: Final = "v1.37.1"

Cells = Callable[[Json, int], Sequence[Any]]


def _created(document: Json, now_ms: int) -> str:
    return since(document["metadata"].get("creationTimestamp"), now_ms)


def _pod(document: Json, now_ms: int) -> list[Any]:
    status, metadata = document.get("status") or {}, document["metadata"]
    containers = status.get("containerStatuses") or ()
    reason = "Terminating" if metadata.get("deletionTimestamp") else status.get("phase", "Pending")
    shown = f"{sum(bool(c.get('ready')) for c in containers)}/{len(document['spec']['containers'])}"
    return [metadata["name"], shown, reason, "0", _created(document, now_ms), status.get("podIP", "<none>")]


def _deployment(document: Json, now_ms: int) -> list[Any]:
    status = document.get("status") or {}
    name, ready, created = _stateful_set(document, now_ms)
    return [name, ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0), created]


def _stateful_set(document: Json, now_ms: int) -> list[Any]:
    ready = f"{(document.get('status') or {}).get('readyReplicas', 0)}/{document['spec'].get('replicas', 0)}"
    return [document["metadata"]["name"], ready, _created(document, now_ms)]


def _namespace(document: Json, now_ms: int) -> list[Any]:
    return [document["metadata"]["name"], "Active", _created(document, now_ms)]


def _event(document: Json, now_ms: int) -> list[Any]:
    about = document.get("involvedObject") or {}
    last = document.get("lastTimestamp") or document.get("eventTime") or document["metadata"].get("creationTimestamp")
    subject = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    what = (document.get("type", ""), document.get("reason", ""), subject, document.get("message", "").strip())
    return [since(last, now_ms), *what]


def _other(document: Json, now_ms: int) -> list[Any]:
    return [document["metadata"]["name"], _created(document, now_ms)]


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource of one API version. `columns` and `cells` are the table that kubectl prints."""

    group: str
    version: str
    plural: str
    kind: str
    short_name: str = ""
    columns: str = "Name,Age"
    cells: Cells = _other
    namespaced: bool = True
    scale: bool = False
    status: bool = True
    in_all: bool = False
    """Whether `kubectl get all` lists it."""

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it and objects are stored, e.g. deployments.apps."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_AUTOSCALER = "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age"
RESOURCES: Final = (
    ResourceType("", "v1", "namespaces", "Namespace", "ns", "Name,Status,Age", _namespace, namespaced=False),
    ResourceType("", "v1", "pods", "Pod", "po", "Name,Ready,Status,Restarts,Age,IP", _pod, in_all=True),
    ResourceType("", "v1", "services", "Service", "svc", in_all=True),
    ResourceType("", "v1", "configmaps", "ConfigMap", "cm", status=False),
    ResourceType("", "v1", "events", "Event", "ev", "Last Seen,Type,Reason,Object,Message", _event, status=False),
    ResourceType(
        *("apps", "v1", "deployments", "Deployment", "deploy", "Name,Ready,Up-to-date,Available,Age", _deployment),
        scale=True,
        in_all=True,
    ),
    ResourceType(
        *("apps", "v1", "statefulsets", "StatefulSet", "sts", "Name,Ready,Age", _stateful_set), scale=True, in_all=True
    ),
    ResourceType(
        *("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
        *("hpa", _AUTOSCALER, hpa_table_cells),
        in_all=True,
    ),
    ResourceType("coordination.k8s.io", "v1", "leases", "Lease", status=False),
    ResourceType(
        *("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        namespaced=False,
        status=False,
    ),
    ResourceType("example.com", "v1", "widgets", "Widget", "wd", scale=True),
)

METRICS_VERSIONS: Final = (
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
)

METRICS_GROUPS: Final = frozenset(group for group, _ in METRICS_VERSIONS)

_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
_WIDE: Final = {"IP"}


def by_path(group: str, version: str, plural: str) -> ResourceType | None:
    """Return the resource type that a URL names."""
    return next((r for r in RESOURCES if (r.group, r.version, r.plural) == (group, version, plural)), None)


def by_kind(api_version: str, kind: str) -> ResourceType:
    """Return the resource type of a manifest. Raises ValueError: the simulated cluster does not serve it."""
    found = next((r for r in RESOURCES if (r.group_version, r.kind) == (api_version, kind)), None)
    if found is None:
        raise ValueError(f"{kind} of {api_version}: simulated clusters do not serve this kind")
    return found


def groups(left_out: Container[str] = ()) -> list[Json]:
    """Return the entries of /apis; every group has one version."""
    served = dict.fromkeys([(r.group, r.version) for r in RESOURCES if r.group] + list(METRICS_VERSIONS))
    versions = [(name, {"groupVersion": f"{name}/{v}", "version": v}) for name, v in served if name not in left_out]
    return [{"name": name, "versions": [version], "preferredVersion": version} for name, version in versions]


def group(name: str) -> Json | None:
    """Return the document of /apis/NAME."""
    found = next((g for g in groups() if g["name"] == name), None)
    return None if found is None else {"kind": "APIGroup", "apiVersion": "v1"} | found


def resource_list(group_name: str, version: str, extra: Iterable[Json] = ()) -> Json | None:
    """Return the APIResourceList of a group version, with `extra` entries (metrics), or None where it is not served."""
    entries = [e for r in RESOURCES if (r.group, r.version) == (group_name, version) for e in _entries(r)] + list(extra)
    if not entries and (group_name, version) not in METRICS_VERSIONS:
        return None
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _entries(resource: ResourceType) -> list[Json]:
    verbs = ["create"] if resource.group == "authorization.k8s.io" else _VERBS
    main = entry(resource.plural, resource.kind, namespaced=resource.namespaced, verbs=verbs)
    main["singularName"] = resource.kind.lower()
    main |= {"shortNames": [resource.short_name]} if resource.short_name else {}
    main |= {"categories": ["all"]} if resource.in_all else {}
    entries = [main]
    if resource.scale:
        scale = entry(f"{resource.plural}/scale", "Scale", verbs=["get", "patch", "update"])
        entries.append(scale | {"group": "autoscaling", "version": "v1"})
    if resource.status:
        verbs = ["get", "patch", "update"]
        entries.append(entry(f"{resource.plural}/status", resource.kind, namespaced=resource.namespaced, verbs=verbs))
    return entries


def entry(name: str, kind: str, *, namespaced: bool = True, verbs: Sequence[str] = ("get",)) -> Json:
    """Return one entry of a resource list."""
    return {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


def openapi_index() -> Json:
    """Return the index of /openapi/v3."""
    paths = [f"apis/{r.group_version}" if r.group else f"api/{r.version}" for r in RESOURCES]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi(group_name: str, version: str) -> Json | None:
    """Return a small OpenAPI v3 document of a group version.

    It states that PATCH takes `fieldValidation`, so kubectl leaves validation to the server, as with a real cluster.
    """
    served = [r for r in RESOURCES if (r.group, r.version) == (group_name, version)]
    prefix = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
    paths = {}
    for resource in served:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        paths[f"{prefix}{scope}/{resource.plural}/{{name}}"] = {"patch": _patch_operation(resource)}
    info = {"title": "Kubernetes", "version": VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths} if served else None


def _patch_operation(resource: ResourceType) -> Json:
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    answers = {"200": {"description": "OK"}}
    action = {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind}
    return {"parameters": [parameter], "responses": answers} | action


def table(resource: ResourceType, documents: list[Json], metadata: Json, now_ms: int, include: str) -> Json:
    """Return a Table of documents, as kubectl asks for it.

    Args:
        metadata: the list's metadata.
        include: what each row carries of its object: Metadata, Object or None, as ?includeObject= names it.
    """
    columns = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(name in _WIDE),
        }
        for name in resource.columns.split(",")
    ]
    rows = [{"cells": resource.cells(d, now_ms), "object": _object(d, include)} for d in documents]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return head | {"columnDefinitions": columns, "rows": rows}


def _object(document: Json, include: str) -> Json | None:
    if include == "Object":
        return document
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": document["metadata"]}
    return None if include == "None" else partial

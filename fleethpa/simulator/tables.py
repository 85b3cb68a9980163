"""Server-side tables: the columns that kubectl prints. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleethpa.cli.kubectl.ages import since
from fleethpa.cli.kubectl.hpacolumns import hpa_table_cells
from fleethpa.simulator.resources import ResourceType
from schemas.kubernetes.jsontypes import Json

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

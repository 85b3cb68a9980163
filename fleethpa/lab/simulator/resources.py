"""What a simulated cluster keeps and serves: its objects, and the types of these with their discovery and tables.

A watch is a stream of JSON lines from a resource version on, filtered as the list is; the history for it is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.lab.simulator.requests import Ask, Matcher, StatusError, expired
from fleethpa.show.kubectl import hpa_table_cells
from fleethpa.show.text import since
from schemas.kubernetes.shape import Json

Key = tuple[str, str, str]
"""(qualified plural of the resource, namespace or "", name)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: ADDED, MODIFIED or DELETED, with the object before it, so that watches can filter."""

    version: int
    type: str
    key: Key
    object: Json
    previous: Json | None


class Store:
    """Objects by key. A stored document is never changed in place: every write brings a new one."""

    def __init__(self, *, history: int = 5_000) -> None:
        self.version = 1
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._forgotten = 0
        self._watchers: set[asyncio.Queue[Change | StatusError | None]] = set()

    def get(self, key: Key) -> Json | None:
        """Return an object, or None."""
        return self._objects.get(key[0], {}).get(key[1:])

    def listing(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource by namespace and name; of all namespaces where that is empty."""
        documents = self._objects.get(resource, {})
        return [documents[key] for key in sorted(key for key in documents if not namespace or key[0] == namespace)]

    def keys_in(self, namespace: str) -> list[Key]:
        """Return the keys of everything in a namespace."""
        return [(r, *key) for r, objects in self._objects.items() for key in objects if key[0] == namespace]

    def put(self, key: Key, document: Json) -> Json:
        """Store a document under the next resource version and return it as stored."""
        previous = self.get(key)
        stored = self._next_version(document)
        self._objects.setdefault(key[0], {})[key[1:]] = stored
        self._report(Change(self.version, "MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, key: Key) -> Json:
        """Remove an object and return its last state, with the resource version of the deletion."""
        previous = self._objects[key[0]].pop(key[1:])
        last = self._next_version(previous)
        self._report(Change(self.version, "DELETED", key, last, previous))
        return last

    def _next_version(self, document: Json) -> Json:
        self.version += 1
        metadata, version = document["metadata"], {"resourceVersion": str(self.version)}
        # Observers know events by their bytes, so it is where API servers write it.
        names = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
        return document | {"metadata": names | version | metadata | version}

    def since(self, version: int) -> list[Change]:
        """Return the changes after a version.

        Raises StatusError: 410, that far back nothing is kept; 504, this version has not been reached.
        """
        if version < self._forgotten:
            raise expired(version, self._forgotten + 1)
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            message = f"Timeout: Too large resource version: {version}, current: {self.version}"
            raise StatusError(504, message, details={"causes": [cause], "retryAfterSeconds": 1})
        return [change for change in self._history if change.version > version]

    def subscribe(self) -> asyncio.Queue[Change | StatusError | None]:
        """Return a queue of all later changes. None in it ends the watch, an error ends it with that error."""
        queue: asyncio.Queue[Change | StatusError | None] = asyncio.Queue()
        self._watchers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Change | StatusError | None]) -> None:
        """Stop filling a queue."""
        self._watchers.discard(queue)

    def end_watches(self, error: StatusError | None = None) -> None:
        """End every open watch, as an API server that shuts down does; with an error if one is given."""
        for queue in self._watchers:
            queue.put_nowait(error)

    def compact(self) -> None:
        """Forget the history, so that any watch from before now is answered with 410."""
        self._history.clear()
        self._forgotten = self.version

    def _report(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for queue in self._watchers:
            queue.put_nowait(change)


class Watch:
    """One open watch: subscribed from its creation on, so that nothing falls between its first and later events."""

    def __init__(self, store: Store, ask: Ask, resource: ResourceType, *, bookmark_s: float) -> None:
        """Open the watch. Raises StatusError: 400, 410 or 504: the resource version asked for cannot be served."""
        self._store, self._ask, self._resource, self._matches = store, ask, resource, ask.matcher()
        self._bookmark_s = bookmark_s if ask.query.get("allowWatchBookmarks") in ("1", "true") else None
        version = ask.query.get("resourceVersion", "")
        if version in ("", "0"):
            documents = store.listing(resource.qualified, ask.namespace)
            self._first: list[Json] = [
                {"type": "ADDED", "object": document} for document in documents if self._matches(document)
            ]
        elif version.isdecimal():
            events = [visible(change, ask, resource, self._matches) for change in store.since(int(version))]
            self._first = [event for event in events if event is not None]
        else:
            raise StatusError(400, f"invalid resource version {version!r}: it is not a number")
        self._queue = store.subscribe()

    def close(self) -> None:
        """Give up the subscription."""
        self._store.unsubscribe(self._queue)

    async def events(self) -> AsyncIterator[Json]:
        """Yield events until the time asked for is over or the server ends the watch."""
        for event in self._first:
            yield event
        clock = asyncio.get_running_loop().time
        deadline = clock() + float(self._ask.query.get("timeoutSeconds") or 3600)
        while (left := deadline - clock()) > 0:
            try:
                async with asyncio.timeout(min(left, self._bookmark_s or left)):
                    change = await self._queue.get()
            except TimeoutError:
                if self._bookmark_s is not None:
                    yield self._bookmark()
                continue
            if change is None:
                return
            if isinstance(change, StatusError):
                yield {"type": "ERROR", "object": change.status()}
                return
            shown = visible(change, self._ask, self._resource, self._matches)
            if shown is not None:
                yield shown

    def _bookmark(self) -> Json:
        metadata: Json = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        head: Json = {"kind": self._resource.kind, "apiVersion": self._resource.group_version}
        return {"type": "BOOKMARK", "object": head | {"metadata": metadata}}


def visible(change: Change, ask: Ask, resource: ResourceType, matches: Matcher) -> Json | None:
    """Return the event that a watcher gets: leaving the selection is a deletion, entering it an addition."""
    if change.key[0] != resource.qualified or ask.namespace not in ("", change.key[1]):
        return None
    now = change.type != "DELETED" and matches(change.object)
    before = change.previous is not None and matches(change.previous)
    if not now and not before:
        return None
    kind = "DELETED" if not now else ("MODIFIED" if before else "ADDED")
    return {"type": kind, "object": change.object}


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


def _replica_set(document: Json, now_ms: int) -> list[Any]:
    status = document.get("status") or {}
    counts = (document["spec"].get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0))
    return [document["metadata"]["name"], *counts, _created(document, now_ms)]


def _ingress(document: Json, now_ms: int) -> list[Any]:
    spec = document.get("spec") or {}
    hosts = ",".join(rule["host"] for rule in spec.get("rules") or () if rule.get("host"))
    ports = "80, 443" if spec.get("tls") else "80"
    shown = (spec.get("ingressClassName") or "<none>", hosts or "*", "", ports)
    return [document["metadata"]["name"], *shown, _created(document, now_ms)]


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
        *("apps", "v1", "replicasets", "ReplicaSet", "rs", "Name,Desired,Current,Ready,Age", _replica_set),
        scale=True,
        in_all=True,
    ),
    ResourceType(
        *("networking.k8s.io", "v1", "ingresses", "Ingress", "ing", "Name,Class,Hosts,Address,Ports,Age", _ingress)
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
    resource_type = next((r for r in RESOURCES if (r.group_version, r.kind) == (api_version, kind)), None)
    if resource_type is None:
        raise ValueError(f"{kind} of {api_version}: simulated clusters do not serve this kind")
    return resource_type


def groups(left_out: Container[str] = ()) -> list[Json]:
    """Return the entries of /apis; every group has one version."""
    served = dict.fromkeys([(r.group, r.version) for r in RESOURCES if r.group] + list(METRICS_VERSIONS))
    versions = [(name, {"groupVersion": f"{name}/{v}", "version": v}) for name, v in served if name not in left_out]
    return [{"name": name, "versions": [version], "preferredVersion": version} for name, version in versions]


def group(name: str) -> Json | None:
    """Return the document of /apis/NAME."""
    document = next((g for g in groups() if g["name"] == name), None)
    return None if document is None else {"kind": "APIGroup", "apiVersion": "v1"} | document


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

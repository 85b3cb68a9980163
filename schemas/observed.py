"""Entries about what is observed: HPAs and commands about them, pods, scale subresources, answers of metrics APIs,
pushed samples, and the reports of observers and reconcilers about themselves.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from schemas.limits import MAX_WEIGHT, ChunkCount, Count, Int64, Positive, TimeMs

Origin = Literal["cluster", "central"]
Mode = Literal["off", "shadow", "enforce"]

IGNORED: Final = "ignored"
"""Field of an HPA object that is a stub: why it is ignored."""


class EntryBody(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="kind",
    tag=lambda name: name[0].lower() + name[1:],
):
    """What the body of an entry of the log has: a `kind`, which is the name of its type."""


FLEET_KIND: Final = "FleetHPA"
FLEET_API_VERSION: Final = "fleethpa.io/v1alpha1"


class FleetCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cluster of a FleetHPA. `maxReplicas` is always there: without one of its own, it is that of the FleetHPA."""

    name: str
    max_replicas: Count
    min_replicas: Count = 0
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1


class FleetSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How a FleetHPA is divided among clusters: the part of its spec that an HPA has not.

    `rebalanceAfterMs`: replicas move between clusters once the division has differed for so long. `spillAfterMs`: a
    cluster whose pods wait for a node for so long gets no more than it has room for. `awaySpillAfterMs`: what a cluster
    has counts no longer once it has been away for so long. 0: never.
    """

    clusters: list[FleetCluster]
    strategy: Literal["Weighted", "Ordered"] = "Weighted"
    rebalance_after_ms: TimeMs = 300_000
    spill_after_ms: TimeMs = 0
    away_spill_after_ms: TimeMs = 0

    def fields(self) -> dict[str, Any]:
        """Return the fields of a FleetHPA's spec that an HPA has not, as its manifest has them."""
        placement = {"strategy": self.strategy, "rebalanceAfter": _duration(self.rebalance_after_ms)}
        if self.spill_after_ms:
            placement["spillAfter"] = _duration(self.spill_after_ms)
        fields: dict[str, Any] = {"clusters": msgspec.to_builtins(self.clusters), "placement": placement}
        if self.away_spill_after_ms:
            fields["whenAway"] = {"policy": "Spill", "after": _duration(self.away_spill_after_ms)}
        return fields


def _duration(time_ms: int) -> str:
    """Write a duration as manifests have it."""
    return f"{time_ms}ms" if time_ms % 1000 else f"{time_ms // 1000}s"


ABSENT: Final = "none"
"""The version of a central HPA that does not exist."""


class AutoscalerSet(EntryBody, frozen=True, kw_only=True):
    """An HPA was created or changed. In the log `hpa` is a valid, defaulted autoscaling/v2 object (JSON); on the
    public topic any version.

    `origin` `central`: lives only in fleethpa; uid and generation are given by the fold. `mode` sets its mode with it
    (central only). `manager`: field manager that last wrote the spec in the cluster, where the API shows it;
    `managerTime` when. No decision depends on it. An object with a field `ignored` is a stub of one that exceeds a
    limit (`schemas.fitting`).

    `fleet`: it is a FleetHPA, `hpa` is its object, and the record is of cluster `@fleet`. `revision`: of the spec of
    the FleetHPA of this namespace and name, as that and the HPA in each of its clusters have it; 0: it belongs to none.

    `changes`: the version of the central HPA that its writer read (`HpaView.version`), or `none` where it read that
    there is no such HPA. The fold refuses the entry where another version is there by now; empty: it replaces whatever
    is there. `proven`: as of `Command`.
    """

    hpa: dict[str, Any]
    origin: Origin = "cluster"
    mode: Mode | None = None
    author: str = ""
    reason: str = ""
    session: str = ""
    manager: str = ""
    manager_time: TimeMs = 0
    fleet: FleetSpec | None = None
    revision: TimeMs = 0
    changes: str = ""
    proven: bool = False


class AutoscalerDeleted(EntryBody, frozen=True, kw_only=True):
    """An HPA was deleted; empty `uid`: the one with this name. `statedBy`: as of `Command`."""

    name: str
    uid: str = ""
    origin: Origin = "cluster"
    author: str = ""
    reason: str = ""
    session: str = ""
    stated_by: str = ""


class Target(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A scale subresource of a namespace, by group, kind and name (the version plays no part)."""

    kind: str
    name: str
    group: str = ""


class ConflictingAutoscaler(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """An object other than an HPA that drives `target`, such as a ScaledObject of KEDA."""

    kind: str
    name: str
    target: Target


class AutoscalerList(EntryBody, frozen=True, kw_only=True):
    """A chunk of a full list of a namespace's HPAs, as `PodList`; removes only what came from the cluster.

    `conflicting`: other objects that drive a target in this namespace.
    `managers`: name of an HPA of this chunk → `[manager, managerTime]`, as `AutoscalerSet` has them.
    """

    list_id: str
    hpas: list[dict[str, Any]]
    chunk: Count = 0
    chunks: ChunkCount = 1
    conflicting: list[ConflictingAutoscaler] = []
    session: str = ""
    managers: dict[str, tuple[str, TimeMs]] = {}


class Command(EntryBody, frozen=True, kw_only=True):
    """`mode`, `pause`, `resume` or `override`, for one HPA (`name`), a namespace (empty `name`), a cluster or all.

    Of an HPA or a namespace its record names cluster and namespace; else the scope is `cluster` (`*`: every cluster),
    and ingest copies it into every partition. `pause` and `resume` are on `fleethpa.settings`, which never expires, and
    so is `mode` of clusters; `mode` of HPAs and namespaces is on `fleethpa.autoscalers`. `pauseKind`: `all`, or only
    `scaleUp` / `scaleDown`. `until`: when a pause ends by itself (0: never). `override` is of one HPA and on
    `fleethpa.settings`: its `replicas` until `until`; without `replicas` it ends.

    `statedBy`: the object of the hub's API that states it, as `Pause/shop/maintenance`; empty: a command did. `proven`:
    the API server of the hub vouches for `author`.
    """

    command: Literal["mode", "pause", "resume", "override"]
    name: str = ""
    cluster: str = ""
    mode: Mode | None = None
    pause_kind: Literal["all", "scaleUp", "scaleDown"] = "all"
    until: TimeMs = 0
    replicas: Positive | None = None
    author: str = ""
    reason: str = ""
    stated_by: str = ""
    proven: bool = False

    @property
    def is_about_pauses(self) -> bool:
        """Whether it makes or ends a pause or an override, so that its record never expires."""
        return self.command != "mode"


class Container(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A container: its name and requests (quantity texts); `restartAlways` marks a sidecar init container."""

    name: str
    requests: dict[str, str] = {}
    restart_always: bool = False


class Pod(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision needs of a pod.

    `ready` is the status of the Ready condition (`True`, `False`, `Unknown`), None without one; `readyAt` its
    lastTransitionTime (None: zero time). `podRequests` are pod-level requests (None: not set).
    """

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    phase: str = "Running"
    start: TimeMs | None = None
    ready: str | None = None
    ready_at: TimeMs | None = None
    deleting: bool = False
    containers: list[Container] = []
    init_containers: list[Container] = []
    pod_requests: dict[str, str] | None = None
    overhead: dict[str, str] = {}
    owner: str = ""


PodShape = tuple[list[Container], list[Container], dict[str, str] | None, dict[str, str]]
"""Containers, init containers, pod-level requests and overhead of a pod."""
_SHAPE: Final = msgspec.msgpack.Decoder(PodShape)
_ENCODER: Final = msgspec.msgpack.Encoder()


def shape_of(pod: Pod) -> bytes:
    """Return a key of what a pod requests: pods of one shape have the same."""
    return _ENCODER.encode((pod.containers, pod.init_containers, pod.pod_requests, pod.overhead))


def decode_shape(shape: bytes) -> PodShape:
    """Return what the key of a shape says."""
    known: PodShape = _SHAPE.decode(shape)
    return known


class PodSet(EntryBody, frozen=True, gc=False, kw_only=True):
    """A pod was created or changed."""

    pod: Pod
    session: str = ""


class PodDeleted(EntryBody, frozen=True, kw_only=True):
    """A pod is gone."""

    name: str
    session: str = ""


class PodList(EntryBody, frozen=True, kw_only=True):
    """A chunk of a full list of a namespace's pods; the last chunk (`chunk == chunks - 1`) removes the pods that no
    chunk of `listId` named.
    """

    list_id: str
    pods: list[Pod]
    chunk: Count = 0
    chunks: ChunkCount = 1
    session: str = ""


Reason = Literal["unreachable", "forbidden", "failing", "identity"]
"""Why something cannot be seen: no answer came, the right to see it is missing, the answer was another error, or the
API server did not show the UID of its cluster that settings state.
"""


OF_API_SERVER: frozenset[Reason] = frozenset({"unreachable", "identity"})
"""Reasons that apply to everything that is asked of the API server."""


API_SERVER_PART = "apiServer"
CANARY_PART = "canary"
MEMBERSHIP_PART = "membership"
NATIVE_EVIDENCE_PART = "nativeEvidence"
CONFLICTING_PART = "scaledobjects"
"""The `part` of troubles of an observer (`ObserverTrouble`)."""
REFUSED_PART = "refusedReports"
"""The `part` of the trouble that ingest adds to the reports of an agent of which it refused something."""


class ScaleSet(EntryBody, frozen=True, gc=False, kw_only=True):
    """What `/scale` of a target shows, or (`error`) why it cannot be read, in the API server's words.

    `manager`: field manager that last wrote `spec.replicas`, where the API shows it; `managerTime` when.
    """

    target: Target
    error: str | None = None
    spec_replicas: Count = 0
    status_replicas: Count = 0
    selector: str = ""
    resource_version: str = ""
    uid: str = ""
    manager: str = ""
    manager_time: TimeMs = 0
    session: str = ""


class WriteProblem(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Why not everything can be written in a cluster: the error, and why in one word."""

    error: str
    reason: Reason


class Serving(EntryBody, frozen=True, gc=False, kw_only=True):
    """A reconciler is alive and carries out what is decided for these clusters. Every 10 s per reconciler.

    `problems`: cluster → why not everything can be written there now. Ingest copies it into every partition of the log.
    """

    session: str
    clusters: list[str]
    problems: dict[str, WriteProblem] = {}


HPA_GATES: Final = ("HPAConfigurableTolerance", "HPAGeneration", "HPAScaleToZero", "PodLevelResources")
"""Feature gates that change decisions of the HPA controller, as a heartbeat may state them."""


class Heartbeat(EntryBody, frozen=True, gc=False, kw_only=True):
    """The observer session is alive and what it sent about these namespaces still holds. Every 10 s per session, for
    all namespaces of a cluster together that are in one partition.

    `namespaces`: those that it is about beside that of its record. `watches`: what it watches (`pods`, `autoscalers`,
    `scales`); `problems`: watch → error, where a watch is down or forbidden; `reasons`: watch → why, for each of the
    problems. `kubernetes`: version of the cluster's API server, such as `v1.36.3`, and behind it, where they could be
    read, those of `HPA_GATES` that it has, such as `v1.36.3 HPAConfigurableTolerance=true,HPAScaleToZero=false`;
    empty: not known.
    """

    session: str
    watches: list[str] = []
    problems: dict[str, str] = {}
    reasons: dict[str, Reason] = {}
    kubernetes: str = ""
    namespaces: list[str] = []


class ObserverTrouble(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that an observer cannot do in a cluster.

    `part`: `apiServer`; a watch (`pods`, `autoscalers`, `scaledobjects`, or of what HPAs scale, by kind and group:
    `scales/Widget.example.com`); reads of `/scale` (`scales`, and `scaleReads/Widget.example.com` where the right is
    missing); a metrics API (`metrics.k8s.io`, `custom.metrics.k8s.io`, `external.metrics.k8s.io`), or the name of a
    polled source that is asked in place of one, as `prometheus`; `canary`, the proof that no native controller runs;
    `nativeEvidence`, something written in the native controller's name although it was proven absent; `membership`,
    what the object that names the cluster reports of it, in a last report why it left; or `refusedReports`, which
    ingest adds: what it refused lately of an agent's reports. `since`: when it began, by the observer's clock (ms).
    `namespaces`: where, at most 20 of them by name, `namespaceCount` in all; none: in the whole cluster. `rights`: what
    is missing, for `forbidden`, as `verb resource.group` or `verb resource.group/subresource`.
    """

    part: str
    reason: Reason
    since: TimeMs
    error: str = ""
    namespaces: list[str] = []
    namespace_count: int = 0
    rights: list[str] = []


class ClusterReport(EntryBody, frozen=True, gc=False, kw_only=True):
    """An observer session's report on a whole cluster: every 10 s, and at once when a trouble begins or ends.

    Its record names neither cluster nor namespace. `instance`: name of the observer, the same after a restart.
    `started`: when the session began (ms). `troubles`: all there are now, so an empty list says that all is well.
    `stopped`: the last report of an observer that was stopped on purpose. No decision depends on it.
    """

    cluster: str
    session: str
    instance: str = ""
    started: TimeMs = 0
    troubles: list[ObserverTrouble] = []
    stopped: bool = False


MetricType = Literal["Resource", "ContainerResource", "Pods", "Object", "External"]


class Point(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One pushed sample (OpenTelemetry, Prometheus, our JSON).

    `type` says whose value it is: `Resource`/`ContainerResource`/`Pods` carry `pod`, `Object` carries `objectKind`
    and `object`, `External` carries only `labels`. `temporality` `cumulative` (with `startTime` where known) and
    `delta` pass through ingest as they are; the fold makes rates. `utilization`: the value is a share of the request
    (milli of 1, so 670 is 67%), as OpenTelemetry's `*_request_utilization`.
    """

    type: MetricType
    metric: str
    milli: Int64
    time: TimeMs
    pod: str = ""
    container: str = ""
    object_kind: str = ""
    object: str = ""
    labels: dict[str, str] = {}
    temporality: Literal["gauge", "delta", "cumulative"] = "gauge"
    start_time: TimeMs = 0
    utilization: bool = False


class Samples(EntryBody, frozen=True, gc=False, kw_only=True):
    """Pushed samples of one namespace."""

    points: list[Point]

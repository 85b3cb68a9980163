"""What crosses the public topics and the log.

A public record of ours is `{"v":1,"cluster","namespace","time","session","entries":[body, …]}`, each body tagged by
`kind`. Foreign producers
may send other formats (OTLP, Prometheus); ingest turns those into the same bodies. A log record is
`{"v":1,"entries":[{"key","kind","source","body"}, …]}`; one without entries is a tick.

Fields are only ever added, with a default. Times are integer milliseconds since the Unix epoch (`time`, `…Ms`),
metric values integers in milli
units (signed 64 bit), requests and tolerances Kubernetes quantity texts.
"""

from typing import Any, Literal

from msgspec import Struct

VERSION = 1

Origin = Literal["cluster", "central"]
Mode = Literal["off", "shadow", "enforce"]
MetricType = Literal["Resource", "ContainerResource", "Pods", "Object", "External"]


# --- metrics APIs: what they answered ---------------------------------------------------------------------------------


class PodUsage(Struct, frozen=True, gc=False, array_like=True):
    """One PodMetrics item: `[pod, time, windowMs, [[container, {resource: milli}], …]]`, containers in answered
    order.
    """

    pod: str
    time: int
    window_ms: int
    containers: list[tuple[str, dict[str, int]]]


class PodValue(Struct, frozen=True, gc=False, array_like=True):
    """One MetricValue of a pod: `[pod, milli, time, windowMs]`."""

    pod: str
    milli: int
    time: int
    window_ms: int = 60_000


class MetricAnswer(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One answer of a metrics API to one query; replaces the former answer to the same query as a whole.

    `api` says which API and so which fields matter:
    - `resource`: `selector` (string form of the target's pod selector) → `usages`;
    - `pods`: `metric`, `metricSelector`, `selector` → `values`;
    - `object`: `metric`, `metricSelector`, `groupKind` (`Kind.group`, no dot for the core group), `object` → `milli`,
      `time`;
    - `external`: `metric`, `metricSelector` → `items` (`[milli, time]`, in answered order).
    `error`: the API's own message, without the controller's prefixes; then nothing else counts. An empty list is a
    valid answer, not an error.
    """

    api: Literal["resource", "pods", "object", "external"]
    selector: str = ""
    metric: str = ""
    metric_selector: str = ""
    group_kind: str = ""
    object: str = ""
    error: str | None = None
    usages: list[PodUsage] = []
    values: list[PodValue] = []
    milli: int = 0
    time: int = 0
    items: list[tuple[int, int]] = []


def query_of(answer: MetricAnswer) -> tuple[str, str, str, str, str, str]:
    """What was asked: the identity under which a newer answer replaces this one."""
    return (
        answer.api,
        answer.selector,
        answer.metric,
        answer.metric_selector,
        answer.group_kind,
        answer.object,
    )


class Answers(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="answers"
):
    """Answers of the metrics APIs for one namespace, asked together."""

    items: list[MetricAnswer]
    session: str = ""


# --- pushed samples ---------------------------------------------------------------------------------------------------


class Point(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One pushed sample (OpenTelemetry, Prometheus, our JSON).

    `type` says whose value it is: `Resource`/`ContainerResource`/`Pods` carry `pod`, `Object` carries `objectKind`
    and `object`, `External` carries
    only `labels`. `temporality` `cumulative` (with `startTime` where known) and `delta` pass through ingest as they
    are; the fold makes rates.
    `utilization`: the value is a share of the request (milli of 1, so 670 is 67 %), as OpenTelemetry's
    `*_request_utilization`.
    """

    type: MetricType
    metric: str
    milli: int
    time: int
    pod: str = ""
    container: str = ""
    object_kind: str = ""
    object: str = ""
    labels: dict[str, str] = {}
    temporality: Literal["gauge", "delta", "cumulative"] = "gauge"
    start_time: int = 0
    utilization: bool = False


class Samples(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="samples"
):
    """Pushed samples of one namespace."""

    points: list[Point]


# --- pods -------------------------------------------------------------------------------------------------------------


class Container(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A container: its name and requests (quantity texts); `restartAlways` marks a sidecar init container."""

    name: str
    requests: dict[str, str] = {}
    restart_always: bool = False


class Pod(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision needs of a pod.

    `ready` is the status of the Ready condition (`True`, `False`, `Unknown`), None without one; `readyAt` its
    lastTransitionTime (None: zero time).
    `podRequests` are pod-level requests (None: not set).
    """

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    phase: str = "Running"
    start: int | None = None
    ready: str | None = None
    ready_at: int | None = None
    deleting: bool = False
    containers: list[Container] = []
    init_containers: list[Container] = []
    pod_requests: dict[str, str] | None = None
    overhead: dict[str, str] = {}
    owner: str = ""


class PodSet(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podSet"
):
    """A pod was created or changed."""

    pod: Pod
    session: str = ""


class PodDeleted(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podDeleted"
):
    """A pod is gone."""

    name: str
    session: str = ""


class PodList(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="podList"):
    """A chunk of a full list of a namespace's pods; the last chunk (`chunk == chunks - 1`) removes the pods that no
    chunk of `listId` named.
    """

    list_id: str
    pods: list[Pod]
    chunk: int = 0
    chunks: int = 1
    session: str = ""


# --- autoscalers ------------------------------------------------------------------------------------------------------


class AutoscalerSet(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerSet"
):
    """An HPA was created or changed. In the log `hpa` is a valid, defaulted autoscaling/v2 object (JSON); on the
    public topic any version.

    `origin` `central`: lives only in fleethpa; uid and generation are given by the fold. `mode` sets its mode with it
    (central only). `manager`: field manager that last wrote the spec in the cluster, where the API shows it;
    `managerTime` when. No decision depends on it.
    """

    hpa: dict[str, Any]
    origin: Origin = "cluster"
    mode: Mode | None = None
    author: str = ""
    reason: str = ""
    session: str = ""
    manager: str = ""
    manager_time: int = 0


class AutoscalerDeleted(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerDeleted"
):
    """An HPA was deleted; empty `uid`: whichever bears the name."""

    name: str
    uid: str = ""
    origin: Origin = "cluster"
    author: str = ""
    reason: str = ""
    session: str = ""


class AutoscalerList(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="autoscalerList"
):
    """A chunk of a full list of a namespace's HPAs, as `PodList`; removes only what came from the cluster.

    `rivals`: other objects that drive a target in this namespace, such as KEDA ScaledObjects:
    `[{"kind","name","target":{"group","kind","name"}}]`.
    `managers`: name of an HPA of this chunk → `[manager, managerTime]`, as `AutoscalerSet` has them.
    """

    list_id: str
    hpas: list[dict[str, Any]]
    chunk: int = 0
    chunks: int = 1
    rivals: list[dict[str, Any]] = []
    session: str = ""
    managers: dict[str, tuple[str, int]] = {}


class Command(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="command"):
    """`mode`, `pause` or `resume`, for one HPA (`name`), a namespace (empty `name`), a cluster or everything.

    On `fleethpa.autoscalers` its record names cluster and namespace. On `fleethpa.settings` the scope is `cluster`
    (`*`: every cluster); ingest copies it
    into every partition. `pauseKind`: `all`, or only `scaleUp` / `scaleDown`. `until`: when a pause ends by itself
    (0: never).
    """

    command: Literal["mode", "pause", "resume"]
    name: str = ""
    cluster: str = ""
    mode: Mode | None = None
    pause_kind: Literal["all", "scaleUp", "scaleDown"] = "all"
    until: int = 0
    author: str = ""
    reason: str = ""


# --- scales -----------------------------------------------------------------------------------------------------------


class Target(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A scale subresource of a namespace, by group, kind and name (the version plays no part)."""

    kind: str
    name: str
    group: str = ""


class ScaleSet(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="scaleSet"
):
    """What `/scale` of a target says, or (`error`) why it cannot be read, in the API server's words.

    `manager`: field manager that last wrote `spec.replicas`, where the API shows it; `managerTime` when.
    """

    target: Target
    error: str | None = None
    spec_replicas: int = 0
    status_replicas: int = 0
    selector: str = ""
    resource_version: str = ""
    uid: str = ""
    manager: str = ""
    manager_time: int = 0
    session: str = ""


class Heartbeat(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="heartbeat"
):
    """The observer session is alive and what it sent about this namespace still holds. Every 10 s per session and
    namespace.

    `watches`: what it watches (`pods`, `autoscalers`, `scales`); `problems`: watch → error, where a watch is down or
    forbidden.
    """

    session: str
    watches: list[str] = []
    problems: dict[str, str] = {}


# --- settings ---------------------------------------------------------------------------------------------------------


class ClusterSettings(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Everything that changes decisions in a cluster; None leaves what holds. `*` as cluster is the default for all.

    Defaults are upstream's flags. `sources`: metric type → `api` (metrics APIs) or `samples` (pushed). `namespaces`:
    namespace → mode.
    `nativeController` `absent` is the proof that nothing else acts on the cluster's HPA objects; without it enforcing
    them is refused.
    """

    sync_period_ms: int | None = None
    tolerance: str | None = None
    downscale_stabilization_ms: int | None = None
    cpu_initialization_period_ms: int | None = None
    initial_readiness_delay_ms: int | None = None
    sources: dict[MetricType, Literal["api", "samples"]] | None = None
    sample_age_limit_ms: int | None = None
    default_mode: Mode | None = None
    namespaces: dict[str, Mode] | None = None
    frozen: bool | None = None
    native_controller: Literal["absent", "present", "unknown"] | None = None
    max_step: int | None = None
    hold_on_overflow: bool | None = None


class SettingsSet(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="settings"
):
    """Settings of a cluster (`*`: all) were changed; ingest copies it into every partition."""

    cluster: str
    settings: ClusterSettings
    author: str = ""
    reason: str = ""


class EngineSet(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="engine"):
    """From here on decisions are made by this engine; `partitions` records the partition count, fixed for life."""

    engine: int
    partitions: int = 0
    author: str = ""
    reason: str = ""


class WatermarkReset(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="watermarkReset"
):
    """The source topic was made again: forget which of its offsets have been seen."""

    topic: str
    source_partition: int
    author: str = ""
    reason: str = ""


class Restart(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="restart"):
    """Memory was lost here: windows and scale events start anew, as after a restart of upstream's controller."""

    reason: str
    author: str = ""


# --- outcomes ---------------------------------------------------------------------------------------------------------


class Outcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="outcome"):
    """What became of the write that decision `decision` wanted; the first per decision wins.

    `applied` (the scale now shows `specReplicas`), `superseded` (a newer decision took its place), `stale` (time to
    live passed), `refused` (a guard said no: `error`
    says why), `failed` (the API said no: `error` is its text). Scale fields: the newest observation, where one was
    made.
    """

    decision: str
    name: str
    uid: str
    result: Literal["applied", "superseded", "stale", "refused", "failed"]
    error: str = ""
    spec_replicas: int | None = None
    status_replicas: int | None = None
    selector: str | None = None
    resource_version: str = ""
    attempts: int = 0


Body = (
    Answers
    | Samples
    | PodSet
    | PodDeleted
    | PodList
    | AutoscalerSet
    | AutoscalerDeleted
    | AutoscalerList
    | Command
    | ScaleSet
    | Heartbeat
    | SettingsSet
    | EngineSet
    | WatermarkReset
    | Restart
    | Outcome
)
"""Any body; tagged by `kind`."""

WHOLE_PARTITION_KEY = "*"
"""Key of entries that concern a whole partition (settings, engine, resets, cluster-wide commands); copied into every
partition.
"""


class PublicRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A record of ours on a public topic. `time`: when it was observed; entries are of one namespace (settings: empty
    cluster and namespace).
    """

    v: int
    entries: list[Body]
    time: int = 0
    cluster: str = ""
    namespace: str = ""


class Source(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Where an entry came from: position in a public topic, place within that record, and its time (source timestamp,
    ms).
    """

    topic: str
    partition: int
    offset: int
    index: int
    time: int


class Entry(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One entry of the log. `source` is None for entries that ingest or the decider's operator made itself."""

    key: str
    body: Body
    source: Source | None = None


class LogRecord(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A batch of entries of one partition, or a tick (no entries)."""

    v: int
    entries: list[Entry]

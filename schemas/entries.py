"""What crosses the public topics and the log.

A public record of ours is `{"v":1,"cluster","namespace","time","session","entries":[body, …]}`, each body tagged by
`kind` and defined here or in the module of its subject (`observed`, `answers`, `settings`, `capacity`, `agents`).
Foreign producers may send other formats (OTLP, Prometheus); ingest turns those into the same bodies. A log record is
`{"v":1,"entries":[{"key","kind","source","body"}, …]}`; one without entries is a tick.

Fields are only ever added, with a default. Times are integer milliseconds since the Unix epoch (`time`, `…Ms`), metric
values integers in milli units (signed 64 bit), requests and tolerances Kubernetes quantity texts.
"""

from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from schemas import topics
from schemas.agents import AgentSet
from schemas.answers import Answers
from schemas.capacity import CapacityAllotment, CapacityGroupSet, CapacityReport
from schemas.limits import AllotmentNumber, Count, Positive, SyncPeriods, TimeMs
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    EntryBody,
    Heartbeat,
    PodDeleted,
    PodList,
    PodSet,
    Samples,
    ScaleSet,
    Serving,
)
from schemas.settings import EngineSet, LogTimeSet, Restart, SettingsSet, WatermarkReset

HUB_HOLDER: Final = "hub/"
"""What the holder begins with while a hub is in charge."""


class LeftNative(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a native HPA of the stand-in had in its status when it was taken away.

    `last_scale`: when its controller scaled last (Unix ms); None: never. `scaled_to_zero`: to zero.
    """

    namespace: str
    name: str
    last_scale: TimeMs | None = None
    scaled_to_zero: bool = False


class ControlTransferred(EntryBody, frozen=True, kw_only=True):
    """A cluster changed hands. Its record names neither cluster nor namespace; ingest copies it into every partition,
    with the natives of that partition's namespaces only.

    `holder`: in charge from now on: `hub/REGION/INCARNATION`, `stand-in` or `closing`; `before`: until now; empty:
    unknown. `generation` rises with each change. `time`: when it happened (Unix ms), maybe long before it could be
    reported. `reason`: why the stand-in took over. `natives`: at a hand-back, what was taken away.
    """

    cluster: str
    holder: str
    generation: Positive
    time: TimeMs
    before: str = ""
    reason: str = ""
    natives: list[LeftNative] = field(default_factory=list)


class Outcome(EntryBody, frozen=True, kw_only=True):
    """The result of the write that decision `decision` wanted; only the first per decision counts.

    `applied` (the scale now shows `specReplicas`), `superseded` (a newer decision took its place), `stale` (time to
    live passed), `refused` (by a guard: `error` is the reason), `failed` (by the API: `error` is its text). Scale
    fields: the newest observation, where one was made.
    """

    decision: str
    name: str
    uid: str
    result: Literal["applied", "superseded", "stale", "refused", "failed"]
    error: str = ""
    spec_replicas: Count | None = None
    status_replicas: Count | None = None
    selector: str | None = None
    resource_version: str = ""
    attempts: int = 0


class FleetReportItem(Struct, array_like=True, frozen=True, gc=False):
    """What an HPA in a cluster reports to its FleetHPA `name`, once per evaluation at its own time.

    `revision`: of the spec that the cluster has. `obeys`: number of the allotment that it obeys (0: none).
    `replicas`, `most`: what it has at least and at most, by its scale or a write in flight. `part`: JSON of what its
    pods and metrics contribute (`streams.hpa.parts.PartObservation`). `returns`: how often the cluster has been away:
    it obeys nothing that was allotted to it before.
    """

    name: str
    revision: TimeMs
    obeys: AllotmentNumber
    replicas: Count
    most: Count
    part: str
    returns: Count = 0


class FleetReport(EntryBody, frozen=True, kw_only=True, tag="report"):
    """What one cluster (`member`) reports to FleetHPAs of the record's namespace at `at` (log time of its partition,
    ms): an item for each of them.
    """

    member: str
    at: TimeMs
    items: list[FleetReportItem]


class FleetAllotment(EntryBody, frozen=True, kw_only=True, tag="allotment"):
    """The share that FleetHPA `name` gives to the cluster of the record. `decision`: the decision that gave it.

    Of one `revision` of the spec the highest `number` counts; one of a revision that the cluster has not is ignored.
    `replicas` None: the cluster keeps what it has, since what was allotted to it is not known any more. `returns`: of
    the report that it follows from; any other is ignored by a cluster that was away since.
    """

    name: str
    revision: TimeMs
    number: AllotmentNumber
    replicas: Count | None
    decision: str
    returns: Count = 0


VERSION = 1

PlainBody = (
    Samples
    | PodSet
    | PodDeleted
    | PodList
    | AutoscalerSet
    | AutoscalerDeleted
    | AutoscalerList
    | Command
    | ScaleSet
    | Heartbeat
    | ClusterReport
    | Serving
    | SettingsSet
    | EngineSet
    | WatermarkReset
    | Restart
    | LogTimeSet
    | Outcome
    | AgentSet
    | ControlTransferred
    | FleetReport
    | FleetAllotment
    | CapacityGroupSet
    | CapacityReport
    | CapacityAllotment
)
"""Any body but answers of metrics APIs, which the fold leaves encoded."""
Body = Answers | PlainBody
"""Any body; tagged by `kind`."""


NOTHING: Final = ""
"""Handler of a kind of entry from which nothing follows: it is in the log for readers."""


class EntryKind(NamedTuple):
    """A kind of entry: its body, the topics that may carry it, and what folds it: a method of
    `streams.state.fold.EntryFold`, a function in `HANDLERS` of `streams.attachments`, or `NOTHING`.

    `scope`: what it is about: the `namespace` of its record, a whole `cluster` or a CapacityGroup (`group`), whose
    entries go into one partition, or every `partition`, into each of which it is copied. `is_observed`: it is observed
    in a cluster, or became of a write there: the agent of a cluster may report these kinds and no other (of
    `autoscalerSet` and `autoscalerDeleted` those of origin cluster), and nobody else may report them of that cluster.
    `is_of_fleet`: a record of `@fleet` may carry it; of the two above those of central HPAs.
    """

    body: type[EntryBody]
    topics: tuple[str, ...]
    handler: str
    scope: Literal["namespace", "cluster", "group", "partition"] = "namespace"
    is_observed: bool = False
    is_of_fleet: bool = False

    @property
    def tag(self) -> str:
        """Its name in a record (`kind`)."""
        return str(self.body.__struct_config__.tag)


_OBSERVED: Final = (topics.SAMPLES, topics.PODS, topics.AUTOSCALERS, topics.SCALES)
_SPECS: Final = (topics.AUTOSCALERS, topics.SPECS)

KINDS: Final = (
    EntryKind(Answers, (topics.SAMPLES,), "answers", is_observed=True),
    EntryKind(Samples, (topics.SAMPLES,), "samples", is_observed=True),
    EntryKind(PodSet, (topics.PODS,), "pod_set", is_observed=True),
    EntryKind(PodDeleted, (topics.PODS,), "pod_deleted", is_observed=True),
    EntryKind(PodList, (topics.PODS,), "pod_list", is_observed=True),
    EntryKind(AutoscalerSet, _SPECS, "autoscaler_set", is_observed=True),
    EntryKind(AutoscalerDeleted, _SPECS, "autoscaler_deleted", is_observed=True),
    EntryKind(AutoscalerList, (topics.AUTOSCALERS,), "autoscaler_list", is_observed=True),
    EntryKind(Command, (*_SPECS, topics.SETTINGS), "command", is_of_fleet=True),
    EntryKind(ScaleSet, (topics.SCALES,), "scale_set", is_observed=True),
    EntryKind(Heartbeat, _OBSERVED, "heartbeat", is_observed=True),
    EntryKind(ClusterReport, (topics.SCALES,), "cluster_report", "cluster", is_observed=True),
    EntryKind(Serving, (topics.SCALES,), "serving", "partition", is_observed=True),
    EntryKind(ControlTransferred, (topics.SCALES,), "control_transferred", "partition", is_observed=True),
    EntryKind(SettingsSet, (topics.SETTINGS,), "settings", "partition"),
    EntryKind(EngineSet, (topics.SETTINGS,), "engine", "partition"),
    EntryKind(WatermarkReset, (topics.SETTINGS,), "watermark_reset", "partition"),
    EntryKind(Restart, (topics.SETTINGS,), "restart", "partition"),
    EntryKind(LogTimeSet, (topics.SETTINGS,), "log_time", "partition"),
    EntryKind(AgentSet, (topics.SETTINGS,), "agent", "partition"),
    EntryKind(CapacityGroupSet, (topics.SETTINGS,), "capacity_group", "partition"),
    EntryKind(Outcome, (topics.OUTCOMES,), "outcome", is_observed=True),
    EntryKind(FleetReport, (topics.REPORTS,), "report", is_of_fleet=True),
    EntryKind(FleetAllotment, (topics.REPORTS,), "allotment"),
    EntryKind(CapacityReport, (topics.REPORTS,), "capacity_report", "group"),
    EntryKind(CapacityAllotment, (topics.REPORTS,), "capacity_allotment"),
)
"""Each kind once, from which follow the dispatch of the fold and what ingest reads of which topic. A `command` whose
record on the topic of settings names no namespace is about a cluster or all, and is copied into every partition.
"""

WHOLE_PARTITION_KEY = "*"
"""Key of entries that are of no namespace. Those that concern every partition (settings, agents, engine, resets,
log time, cluster-wide commands) are copied into all of them; a cluster's reports go into one, that of the cluster's
name.
"""


def central_name(body: Body) -> str | None:
    """The name of the central HPA that an entry makes, changes or ends; None: it is about none."""
    if not isinstance(body, AutoscalerSet | AutoscalerDeleted) or body.origin != "central":
        return None
    if isinstance(body, AutoscalerDeleted):
        return body.name
    metadata = body.hpa.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""


class PublicRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A record of ours on a public topic. `time`: when it was observed; entries are of one namespace (settings and
    cluster reports: empty cluster and namespace).
    """

    v: int
    entries: list[Body]
    time: TimeMs = 0
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


class LogRecord(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A batch of entries of one partition, or a tick (no entries).

    `by`: who appended a record without entries; empty: the decider. Records with entries are ingest's. `every`: of a
    tick of the decider's: from now on, each HPA is evaluated in every so many sync periods only, since the decider of
    the partition is behind.
    """

    v: int
    entries: list[Entry]
    by: Literal["", "ingest"] = ""
    every: SyncPeriods = 1

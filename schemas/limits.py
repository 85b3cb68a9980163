"""Limits of size and number on what comes from outside: one table, the same for every source.

Ingest refuses what exceeds them, and names the object, the field, the limit and the value; what is in the log is within
them. `docs/limits.md` is made of this table, and of the limits that a leaf has beside what it bounds by them.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from schemas.codec import encode
from schemas.topics import MAX_LOG_RECORD_BYTES, MAX_PARTITIONS, MAX_ROW_BYTES, REJECTED_KEPT_BYTES

MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, which RFC 3339 can still write."""
MOST_REPLICAS: Final = 2**31 - 1

TimeMs = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
"""Milliseconds since 1970; where a field says so, 0 is none."""
WindowMs = Annotated[int, Meta(ge=-MAX_TIME_MS, le=MAX_TIME_MS)]
"""Milliseconds that a sample was measured over. A negative window counts, as upstream has it."""
Count = Annotated[int, Meta(ge=0, le=MOST_REPLICAS)]
Positive = Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]
MOST_SYNC_PERIODS: Final = 8
SyncPeriods = Annotated[int, Meta(ge=1, le=MOST_SYNC_PERIODS)]
"""From one evaluation of an HPA to the next: more than one while the decider is behind."""
AllotmentNumber = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Of an allotment, in order; 0: of none. After a loss of state the numbers go on from a log offset."""
MAX_WEIGHT: Final = 1_000_000
"""Of a cluster of a FleetHPA."""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Whole numbers of a record: one beyond its bounds is refused where it is decoded."""

REJECTED = "`fleethpa.rejected` has the record and the reason"
IGNORED = (
    "fleethpa ignores the HPA and scales nothing by it: `get hpa`, each decision (`refused`), the condition "
    "AbleToScale where fleethpa writes the status; `fleethpa.rejected`"
)
SHORTENED = "the text is cut, and ends with `… (cut, it has N characters)`"


@dataclass(frozen=True)
class Limit:
    """The most that is taken of something.

    `what`: the object and the field, in the words of the error. `most`: the largest value that is taken.
    `refused_by`: the process or the stage that refuses more. `shown`: what the user sees then.
    """

    what: str
    most: int
    unit: str
    refused_by: str
    shown: str


class Refusal(Exception):  # noqa: N818 - also a value that is collected, not only raised
    """Why something that comes from outside was not taken.

    Args:
        code: one camelCase word of a small set, a metric label.
        text: what is wrong, naming the field, for the person who sent it.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class OverLimitError(Refusal, ValueError):
    """Something is larger, or there are more of it, than a limit allows. The text names object, limit and value."""

    def __init__(self, limit: Limit, of: str, value: int) -> None:
        self.limit = limit
        super().__init__("overLimit", f"{limit.what} of {of}: {value} {limit.unit}, the limit is {limit.most}")


def check(limit: Limit, value: int, of: str) -> None:
    """Check a size or a number.

    Args:
        of: the object, as the user knows it.

    Raises:
        OverLimitError: the value exceeds the limit.
    """
    if value > limit.most:
        raise OverLimitError(limit, of, value)


_MOST_BYTES = 6
"""Bytes of one character in JSON."""


def shortened(text: str, limit: Limit) -> str:
    """Return a text whose JSON is within a limit in bytes; a longer one is cut, and ends with a mark."""
    if len(text) * _MOST_BYTES <= limit.most or len(encode(text)) - 2 <= limit.most:
        return text
    mark = f"… (cut, it has {len(text)} characters)"
    room = limit.most - len(encode(mark)) + 2
    kept, over = 0, min(len(text), room) + 1
    while over - kept > 1:
        middle = (kept + over) // 2
        kept, over = (middle, over) if len(encode(text[:middle])) - 2 <= room else (kept, middle)
    return text[:kept] + mark


_JSON = "bytes of JSON"
_ALL = "observer, ingest"

# --- HPAs -------------------------------------------------------------------------------------------------------------

HPA_SPEC = Limit("spec", 16 * 1024, _JSON, _ALL, IGNORED)
HPA_OBJECT = Limit("object with metadata and status, without managed fields,", 64 * 1024, _JSON, _ALL, IGNORED)
HPA_METRICS = Limit("spec.metrics", 50, "metrics", _ALL, IGNORED)
HPA_TEXT = Limit("a text in the spec", 512, "characters", _ALL, IGNORED)
HPA_SELECTOR = Limit("a metric selector", 2 * 1024, _JSON, _ALL, IGNORED)
UID = Limit("metadata.uid", 128, "characters", _ALL, IGNORED)
HPA_DEPTH = Limit("depth", 32, "levels of JSON", "ingest", REJECTED)  # deeper than any field of an HPA

JSON_DEPTH = Limit(
    "JSON in a found Secret, a provider file or the answer of a plugin",
    64,
    "levels",
    "observer, reconciler",
    "the cluster keeps what was known of it; the error names the object, in `get clusters` and on `/readyz`",
)

CLUSTER_ANSWER = Limit(
    "an answer of an API server, unpacked, and an event of a watch",
    64 * 1024 * 1024,
    "bytes",
    "observer, reconciler, agent",
    "the answer is an error that names the limit; the next one is asked for as usual",
)

# --- pods, scales, metrics --------------------------------------------------------------------------------------------

POD = Limit("object", 16 * 1024, _JSON, _ALL, "the pod is taken without labels, so it counts for no HPA; " + REJECTED)
POD_QUANTITY = Limit("request or overhead", 64, "characters", "ingest", REJECTED)
SELECTOR = Limit(
    "pod selector", 2 * 1024, "characters", _ALL, "the scale counts as unreadable: condition AbleToScale; " + REJECTED
)
SCALE_NAME = Limit("a name, uid or version", 253, "characters", _ALL, REJECTED)
QUESTION = Limit("a selector", 2 * 1024, "characters", "ingest", "the answer is left out; " + REJECTED)
QUESTION_TEXT = Limit("a name", 512, "characters", "ingest", "the answer or sample is left out; " + REJECTED)
LABELS = Limit("labels", 4 * 1024, "characters", "ingest", "the sample is left out; " + REJECTED)
_ANSWER = "the metric has failed, with an error that names it; of another producer than an observer: " + REJECTED
ANSWER = Limit("answer of a metrics API", 320 * 1024, _JSON, "observer; ingest", _ANSWER)
ANSWER_PODS = Limit("pods in an answer of a metrics API", 10_000, "pods", "observer; ingest", _ANSWER)
LIST_CHUNKS = Limit("chunks of a list", 10_000, "chunks", "ingest", REJECTED)
ChunkCount = Annotated[int, Meta(ge=1, le=LIST_CHUNKS.most)]
POINTS = Limit("samples in one entry of the log", 500, "samples", "ingest", "nothing: more samples make more entries")

AHEAD = Limit("time of a pushed sample after now", 300_000, "ms", "ingest", REJECTED)

# --- texts ------------------------------------------------------------------------------------------------------------

ERROR = Limit("error of a metrics API, of `/scale` or of a write", 4 * 1024, _JSON, _ALL, SHORTENED)
PROBLEM = Limit("problem that an observer or a reconciler reports", 1_000, _JSON, _ALL, SHORTENED)
ASKED = Limit("what a polled source was asked, in its answer", 2 * 1024, _JSON, "ingest", SHORTENED)
TEXT = Limit("author, reason, field manager", 512, _JSON, _ALL, SHORTENED)
NAME = Limit("session, part, kind and other names", 512, "characters", "ingest", REJECTED)

# --- reports and settings ---------------------------------------------------------------------------------------------

REPORT = Limit("clusterReport", 16 * 1024, _JSON, _ALL, "the first troubles are kept; " + REJECTED)
TROUBLES = Limit("troubles in a clusterReport", 500, "troubles", "ingest", REJECTED)
TROUBLE_NAMESPACES = Limit("namespaces of a trouble", 20, "names", "ingest", REJECTED)
WATCHES = Limit("watches and problems in a heartbeat", 64, "names", "ingest", REJECTED)
BEAT_NAMESPACES = Limit("further namespaces of a heartbeat", 999, "names", "ingest", REJECTED)
SETTINGS = Limit("settings", 64 * 1024, _JSON, "ingest; the command line", "the command fails; " + REJECTED)

# --- what is stored ---------------------------------------------------------------------------------------------------

_SHOWN = "it is not stored: trouble `overLimit` in `get clusters`, `doctor`"


def _in_namespace(what: str, kibibytes: int) -> Limit:
    return Limit(what, kibibytes * 1024, "bytes stored of one namespace", "fold", _SHOWN)


def _in_partition(what: str, kibibytes: int, shown: str = _SHOWN, refused_by: str = "fold") -> Limit:
    return Limit(what, kibibytes * 1024, "bytes stored in one log partition", refused_by, shown)


# Of each kind by itself, so that none takes the room of another. The sums decide what is stored and so what is decided;
# into how many rows it is cut (`ROW`) decides nothing.
NAMESPACE_HPAS = _in_namespace("HPAs", 640)
NAMESPACE_CONFLICTING = _in_namespace("other autoscalers of targets", 64)
NAMESPACE_COMMANDS = _in_namespace("modes and pauses", 64)
NAMESPACE_PODS = _in_namespace("pods", 16 * 1024)
NAMESPACE_ANSWERS = _in_namespace("answers of metrics APIs", 24 * 1024)
NAMESPACE_SAMPLES = _in_namespace("pushed samples", 6 * 1024)
NAMESPACE_SCALES = _in_namespace("scales", 4 * 1024)
NAMESPACE_ARRIVALS = _in_namespace("questions to metrics APIs", 2_560)
NAMESPACE_SERIES_ARRIVALS = _in_namespace("pushed metrics", 1_536)
NAMESPACE_VIEW = _in_namespace("what is seen for partial views", 768)

CLUSTER_BYTES = _in_partition("everything of the cluster", 256 * 1024)
CLUSTER_HPAS = Limit(
    "HPAs of the cluster", 10_000, "objects in one log partition, or the agent's `--max-hpas`", "fold", _SHOWN
)
CLUSTER_NAMESPACES = Limit(
    "namespaces of the cluster", 2_000, "names in one log partition, or the agent's `--max-namespaces`", "fold", _SHOWN
)
UNKNOWN_NAMESPACES = Limit("samples of namespaces that no observer reports", 0, "entries", "fold", _SHOWN)
UNUSABLE_HPA = Limit("HPAs that cannot be used", 0, "objects", "fold", _SHOWN)
CHANGED_MEANWHILE = Limit("central HPAs that were changed since their writer read them", 0, "entries", "fold", _SHOWN)
CLUSTERS = Limit("clusters", 5_000, "names in one log partition", "fold", _SHOWN)
ALL_REPORTS = _in_partition("clusterReports of all observers", 256, "their errors are left out")
ALL_SETTINGS = _in_partition("settings of all clusters", 192)
ALL_PAUSES = _in_partition("pauses of all clusters", 48, "reasons and authors are left out")
ALL_PROBLEMS = _in_partition("problems of all reconcilers", 96, "the texts are cut")
ALL_TRANSFERS = _in_partition("changes of hands", 96, "the older changes are left out")
ALL_VERSIONS = _in_partition("versions of all clusters", 96)
VERSION = Limit("version and feature gates of a cluster", 160, "characters", "ingest", REJECTED)

FLEET_CLUSTERS = Limit("clusters of a FleetHPA", 64, "clusters", "ingest; the command line", REJECTED)
CAPACITY_SPEC = Limit("spec of a CapacityGroup", 16 * 1024, _JSON, "ingest; the command line", REJECTED)
CAPACITY_PRIORITIES = Limit("priorities of a CapacityGroup", 64, "priorities", "ingest; the command line", REJECTED)
CAPACITY_CLUSTERS = Limit("clusters of a CapacityGroup", 64, "names or globs", "ingest; the command line", REJECTED)
ALL_GROUPS = _in_partition("specs of all CapacityGroups", 128, refused_by="fold; the command line")
CAPACITY_MEMBERS = Limit(
    "HPAs of a CapacityGroup", 2_000, "HPAs", "fold", "it gets no allotment: without one `Hold` adds nothing; " + _SHOWN
)
ALL_MEMBERS = Limit(
    "HPAs of all CapacityGroups of one log partition",
    256 * 1024,
    "bytes of names and numbers",
    "fold",
    "it gets no allotment: without one `Hold` adds nothing; " + _SHOWN,
)
UNITS_FACTOR = Limit(
    "units of the annotation `fleethpa.io/units` of a cluster's own HPA, in what one of its pods requests",
    4,
    "times the request, at least once",
    "fold",
    "it counts with the nearest of them; where its pods request nothing of that name, the annotation does not count",
)
FLEET_PART = Limit(
    "part of a report to a FleetHPA",
    64 * 1024,
    "characters of JSON",
    "fold",
    "it is not sent, so that the cluster counts as away: trouble `overLimit` in `get clusters`, `doctor`",
)
FLEET_PARTS = Limit(
    "parts of all clusters of a FleetHPA",
    640 * 1024,
    "bytes of JSON",
    "fold",
    "the report is not taken, so that the cluster counts as away: trouble `overLimit` in `get clusters`, `doctor`",
)
FLEET_PAST = Limit(
    "recommendations, additions and removals in a report to a FleetHPA",
    500,
    "of each",
    "fold",
    "the older ones are left out",
)

# --- shares -----------------------------------------------------------------------------------------------------------

SHARE_PERCENT = Limit(
    "share of one namespace, one cluster or one producer where several want the same (`schemas/shares.py`)",
    25,
    "percent in flight at once, at least one",
    "ingest, observer, fold",
    "nothing is lost: what waits has its turn, the one who used least first",
)

RECORD_BYTES = Limit(
    "least size that a record of an agent or of an additional sample topic counts for in every rate",
    256,
    "bytes",
    "ingest",
    "code `overRate`: batches are passed over, one record in `fleethpa.rejected` for all that follow each other",
)
CYCLE_RECORDS = Limit(
    "records of agents, or of additional sample topics, that ingest writes in one cycle, each topic in its turn",
    500,
    "records",
    "ingest",
    "nothing: the others follow in the next cycles",
)
CYCLE_BYTES = Limit(
    "their bytes in one cycle",
    4 * 1024 * 1024,
    "bytes, or one record",
    "ingest",
    "nothing: the others follow in the next cycles",
)

# --- records ----------------------------------------------------------------------------------------------------------

PUBLIC_RECORD = Limit("value of a public record", 4 * 1024 * 1024, "bytes", "ingest", REJECTED)
BATCH = Limit(
    "a compressed batch of records, unpacked,",
    16 * 1024 * 1024,
    "bytes",
    "every process that reads Kafka",
    "it is passed over and logged; ingest: topic, partition and offsets in " + REJECTED,
)
LOG_RECORD = Limit("record of the log", MAX_LOG_RECORD_BYTES, "bytes", "ingest", "samples are split; " + REJECTED)
LIST = Limit("chunk of a full list", MAX_LOG_RECORD_BYTES - 4 * 1024, _JSON, "ingest", REJECTED)
REJECTED_VALUE = Limit(
    "value in `fleethpa.rejected`", REJECTED_KEPT_BYTES, "bytes", "ingest", "the first part, with length and SHA-256"
)
REASON = Limit("reason in `fleethpa.rejected`", 8 * 1024, "bytes", "ingest", "the first part")
DECISION = Limit("decision", 128 * 1024, _JSON, "fold", IGNORED)
ROW = Limit(
    "state row of a namespace", MAX_ROW_BYTES, "bytes of MessagePack", "fold", "nothing: it is cut into several rows"
)
BUNDLE = Limit(
    "a bundle of `export bundle`",
    64 * 1024 * 1024,
    "bytes",
    "the command line",
    "the command fails and says to choose a shorter time",
)
PACKED_RATIO = Limit(
    "frames and snapshots of an archive, and state rows, unpacked, per byte",
    1_000,
    "bytes",
    "the command line; the page; deciders",
    "the file or row is an error that names it, before it is unpacked",
)
PACKED_FREE = Limit("the same, whatever the size", 1024 * 1024, "bytes", PACKED_RATIO.refused_by, PACKED_RATIO.shown)
LOG_PARTITIONS = Limit(
    "partitions of the log", MAX_PARTITIONS, "partitions", "ingest; the command line", "the command fails"
)

LIMITS: tuple[Limit, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Limit))
"""Every limit, in the order above."""


def share_of(total: int) -> int:
    """Return how many of `total` (slots, members, places in a queue) one key may have: a quarter, at least one."""
    return max(1, total * SHARE_PERCENT.most // 100)

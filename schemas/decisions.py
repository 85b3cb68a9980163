"""The decision record: what was decided for one HPA at one moment, from what, and why; its links and its headers.

Each record holds everything. Numbers are integers; decimals (ratios, tolerances) are texts, shortest form that reads
back as the same double. Id, number and the hash of the record before place a decision in its partition.
"""

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from schemas.observed import Mode, Origin, Target
from schemas.topics import Headers

REMEMBERED = 20_000
"""How many decisions back a second copy is compared; a paused worker repeats at most what one take produced."""


class Links(Struct):
    """The fields of a decision record that chain it to the one before it."""

    id: str
    seq: int
    prev: str


_LINKS = msgspec.json.Decoder(Links)


def links_of(value: bytes) -> Links:
    """Read the links of a decision record, and nothing more.

    Raises msgspec.DecodeError: it is not a decision. Raises UnicodeDecodeError: likewise.
    """
    return _LINKS.decode(value)


def log_offset_of(decision_id: str) -> int:
    """Return the offset of the log record that a decision is of.

    Raises ValueError: the text is not the id of a decision.
    """
    parts = decision_id.split("-", 2)
    if len(parts) < 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise ValueError(f"{decision_id!r} is not a decision id")
    return int(parts[1])


def uid_of(decision_id: str) -> str:
    """Return the uid of the HPA that a decision is of."""
    return decision_id.split("-", 2)[2].removesuffix("-c")


DECISION_TYPE = "io.fleethpa.decision.v1"
"""`ce_type` of a decision record."""
_SOURCE = "/clusters/"


def source_header(cluster: str) -> tuple[str, bytes]:
    """The header that names the cluster."""
    return "ce_source", f"{_SOURCE}{cluster}".encode()


def cluster_of(headers: Headers) -> str:
    """The cluster that a record is about; empty: the headers do not say."""
    return _cluster_named(dict(headers).get("ce_source", b""))


@lru_cache(maxsize=4_096)
def _cluster_named(source: bytes) -> str:
    return source.decode(errors="replace").removeprefix(_SOURCE)


ENGINE = 1
"""Rises only when some log would give other bytes. A log names its engine; a record of it changes the engine."""
REFUSAL_REASON = "EnforcingRefused"
"""Reason of the condition AbleToScale, and of the Event, by which an HPA shows that enforcing it is refused."""
IGNORED_REASON = "Ignored"
"""The same of an HPA by which nothing is decided, as it exceeds a limit (`schemas.limits`)."""

NO_OUTCOME = "no outcome came back"
"""How the error of a write begins whose outcome did not come in time."""
UNANSWERED = ("no answer within two sync periods", "no report of the cluster's observer has come for more than 30s")
"""How the errors begin that say that nothing came into the log: about a metric, and about a scale."""

Direction = Literal["ScaleUp", "ScaleDown", "None"]

WITHIN_TOLERANCE = "withinTolerance"
"""Note of a metric whose ratio is within the tolerance."""


class InputPosition(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Which prefix of the log a decision follows from.

    `hash`: running SHA-256 (hex) over the records of that log partition up to and including `offset`:
    h(n) = SHA-256(h(n-1) || timestamp || value), timestamp in milliseconds as 8 bytes big-endian; before the first
    record 32 zero bytes. `sources`: per metric, in spec order, the newest source position it used,
    `topic-partition@offset`, or empty.
    """

    partition: int
    offset: int
    hash: str
    sources: list[str] = []


class MetricDecision(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One metric of a decision. Values are in milli units, `utilization` in percent.

    `proposal`: None where the metric failed (`error`). `ratio`, the text of the double, is of `podsUsed` (with a sample
    and counted), `proposal` also of `podsNotReady` and `podsMissing`. `note`: which rule kept the count
    (`withinTolerance`, `directionFlip`, `countGuard`), or empty. `podsIgnored`; `oldest`/`newest`: sample times.
    """

    type: str
    name: str
    value: int | None = None
    utilization: int | None = None
    target: int | None = None
    target_utilization: int | None = None
    ratio: str = ""
    proposal: int | None = None
    note: str = ""
    error: str = ""
    reason: str = ""
    pods_used: int = 0
    pods_not_ready: int = 0
    pods_missing: int = 0
    pods_ignored: int = 0
    oldest: int | None = None
    newest: int | None = None


class Step(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One step on the way from the proposal to the final count: what went `in`, what came `out`, and its numbers in
    `detail`.

    `step`: `metrics`, `stabilization`, `scaleUpPolicy`, `scaleDownPolicy`, `scaleUpLimit`, `bounds`, `fromZero`,
    `guard`, `removalBudget`, `additionBudget`, `partialView`, `scaleDownBlock`, `fallback`, `override`, `allotment`,
    `capacity`; of a FleetHPA `clusters` (what each keeps or counts with by its own metrics) and `shares` (which
    clusters do not have theirs, and why). `until`: when that limit ends (ms).
    """

    step: str
    in_: int = field(name="in")
    out: int
    detail: dict[str, Any] = {}
    until: int | None = None


ColumnType = Literal["", "text", "integer", "texts", "time", "json", "result"]
"""The type of a field's column in exports; `result`: the member `result` of it, as a text; empty: it has no column."""


def about(text: str, column: ColumnType = "", *, label: str = "") -> Meta:
    """Declare a field of a decision: what it means, its column, and the label of its own line in `explain` (empty: it
    has none there). The schema, the reference, exports and `explain` read this (`schemas.decisionfields`).
    """
    return Meta(description=text, extra={"column": column, "label": label})


class Decision(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A decision record."""

    id: Annotated[str, about("partition, log offset and uid of the HPA; of a completion with `-c` at the end", "text")]
    seq: Annotated[int, about("its number among the decisions of its partition", "integer")]
    prev: Annotated[str, about("SHA-256 (hex) of the record before it", "text")]
    cluster: Annotated[str, about("cluster of the HPA; `@fleet`: a FleetHPA", "text")]
    namespace: Annotated[str, about("namespace of the HPA", "text")]
    name: Annotated[str, about("name of the HPA", "text")]
    uid: Annotated[str, about("uid of the HPA", "text")]
    time: Annotated[str, about("log time of the record that it follows from (RFC 3339)", "time")]
    input: Annotated[InputPosition, about("which prefix of the log it follows from")]
    kind: Annotated[
        Literal["evaluation", "completion"],
        about("`evaluation`; `completion`: the end of the write that an evaluation wanted", "text"),
    ] = "evaluation"
    scale_target_ref: Annotated[dict[str, str], about("what the HPA scales, as its spec has it")] = {}
    target: Annotated[Target | None, about("the same as kind, group and name")] = None
    mode: Annotated[Mode, about("mode in force; only `enforce` writes", "text")] = "shadow"
    origin: Annotated[Origin, about("where the HPA lives: `cluster`, or `central` (the log)", "text")] = "cluster"
    current_replicas: Annotated[int, about("replicas before it, by the scale", "integer")] = 0
    raw_desired_replicas: Annotated[
        int | None, about("what the metrics ask for, before any limit; null: nothing", "integer")
    ] = None
    final_desired_replicas: Annotated[
        int, about("replicas after it; if nothing changes the current ones", "integer")
    ] = 0
    direction: Annotated[Direction, about("from the current to the final replicas", "text")] = "None"
    reason: Annotated[
        str, about("why, as upstream words a rescale; else the reason of the condition that explains it", "text")
    ] = ""
    selected_metric: Annotated[str, about("the metric whose proposal was taken", "text")] = ""
    metrics: Annotated[list[MetricDecision], about("what each metric of the spec gave", "json")] = []
    steps: Annotated[list[Step], about("the way from the proposal to the final replicas", "json")] = []
    constraints_applied: Annotated[list[str], about("what held, cut or replaced the proposal", "texts")] = []
    states: Annotated[
        list[str],
        about(
            "what the HPA was found in: `saturated` (at maxReplicas, and its metrics ask for more), `content` (at "
            "maxReplicas with enough), `blocked` (pods without metrics keep a metric from changing the count), "
            "`disabled` (the spec disables the direction that its metrics ask for), `flapping`",
            "texts",
        ),
    ] = []
    wants: Annotated[int | None, about("replicas to write; null: no write is wanted", "integer")] = None
    expires: Annotated[int | None, about("when that write expires (Unix ms)")] = None
    observed: Annotated[dict[str, Any], about("what was seen of scale, pods and other writers")] = {}
    completes: Annotated[str, about("id of the evaluation whose write ended", "text")] = ""
    outcome: Annotated[dict[str, Any], about("how that write ended, as its reconciler reported it", "result")] = {}
    status: Annotated[dict[str, Any] | None, about("status of the HPA after it; null: a write is still wanted")] = None
    events: Annotated[list[tuple[str, str, str]], about("Events of the HPA: type, reason, message")] = []
    error: Annotated[str, about("why metrics or the scale could not be read", "text")] = ""
    labels: Annotated[dict[str, Any], about("labels of upstream's own metrics about the evaluation")] = {}
    paused: Annotated[str, about("why a change that was asked for is not written", "text")] = ""
    refused: Annotated[str, about("why enforcing is refused, and the next step", "text")] = ""
    min_replicas: Annotated[int, about("minReplicas of the spec; of a FleetHPA less what is away", "integer")] = 1
    max_replicas: Annotated[int, about("maxReplicas of the spec; of a FleetHPA less what is away", "integer")] = 0
    spec_hash: Annotated[str, about("hash of the spec", "text")] = ""
    generation: Annotated[int, about("generation of the spec", "integer")] = 0
    engine: Annotated[int, about("engine that decided", "integer")] = 1
    author: Annotated[str, about("who applied the spec of a central HPA", "text", label="Spec by")] = ""
    change_reason: Annotated[str, about("why, as they said", "text", label="Because")] = ""
    shows_refusal: Annotated[
        bool,
        about(
            "enforcing is refused where no native controller looks after the status, so `status` and `events` are "
            "written to the cluster and say it"
        ),
    ] = False
    rules: Annotated[
        str, about("version of Kubernetes whose rules decided, with gates that differ from its defaults; empty: v1.37")
    ] = ""

"""The decision record: what was decided for one HPA at one moment, from what, and why; its links and its headers.

Each record holds everything. Numbers are integers; decimals (ratios, tolerances) are texts, shortest form that reads
back as the same double. Id, number and the hash of the record before place a decision in its partition.
"""

from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

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
    """Give the offset of the log record that a decision is of.

    Raises ValueError: the text is not the id of a decision.
    """
    parts = decision_id.split("-", 2)
    if len(parts) < 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise ValueError(f"{decision_id!r} is not a decision id")
    return int(parts[1])


def uid_of(decision_id: str) -> str:
    """Give the uid of the HPA that a decision is of."""
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
UNANSWERED = ("no answer within two sync periods", "the cluster's observer has been silent for more than 30s")
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

    `proposal` is None where the metric failed (`error`). `ratio` is the text of the double. `note` says which rule kept
    the count: `withinTolerance`, `directionFlip`, `countGuard`, or is empty. Pod counts: `podsUsed` (with a sample and
    counted), `podsNotReady`, `podsMissing`, `podsIgnored`. `oldest`/`newest`: sample times.
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
    `guard`, `removalBudget`, `additionBudget`, `partialView`, `fallback`, `override`, `allotment`, `capacity`; of a
    FleetHPA `clusters` (what each keeps or counts with by its own metrics) and `shares` (which clusters do not have
    theirs, and why). `until`: when that limit ends (ms).
    """

    step: str
    in_: int = field(name="in")
    out: int
    detail: dict[str, Any] = {}
    until: int | None = None


class Decision(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A decision record. See schemas/json/decision.json for every field.

    `kind` `evaluation`, or `completion` (`completes` names the evaluation whose write ended, `outcome` how). `wants`:
    replicas to write (None: no write is wanted); `expires`: when that write is no longer valid (ms). `shows_refusal`:
    enforcing was refused where no native controller looks after the HPA's status, so `status` and `events` say so and
    are written to the cluster. `rules`: version of Kubernetes by whose rules it was decided, and the feature gates that
    differ from its defaults; empty: v1.37.
    """

    id: str
    seq: int
    prev: str
    cluster: str
    namespace: str
    name: str
    uid: str
    time: str
    input: InputPosition
    kind: Literal["evaluation", "completion"] = "evaluation"
    scale_target_ref: dict[str, str] = {}
    target: Target | None = None
    mode: Mode = "shadow"
    origin: Origin = "cluster"
    current_replicas: int = 0
    raw_desired_replicas: int | None = None
    final_desired_replicas: int = 0
    direction: Direction = "None"
    reason: str = ""
    selected_metric: str = ""
    metrics: list[MetricDecision] = []
    steps: list[Step] = []
    constraints_applied: list[str] = []
    wants: int | None = None
    expires: int | None = None
    observed: dict[str, Any] = {}
    completes: str = ""
    outcome: dict[str, Any] = {}
    status: dict[str, Any] | None = None
    events: list[tuple[str, str, str]] = []
    error: str = ""
    labels: dict[str, Any] = {}
    paused: str = ""
    refused: str = ""
    min_replicas: int = 1
    max_replicas: int = 0
    spec_hash: str = ""
    generation: int = 0
    engine: int = 1
    author: str = ""
    change_reason: str = ""
    shows_refusal: bool = False
    rules: str = ""

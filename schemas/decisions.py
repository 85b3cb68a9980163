"""The decision record: what was decided for one HPA at one moment, from what, and why; its links and its headers.

A record is full or short. A full one holds everything; a short one repeats the HPA's last full record (`sameAs`) but
for the values that it names, and `expand` gives it back whole. Numbers are integers; decimals (ratios, tolerances) are
texts, shortest form that reads back as the same double. Id, number and the hash of the record before place a decision
in its partition.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from schemas.constraints import TOLERANCE
from schemas.kubernetes.quantity import Format, format_milli
from schemas.observed import Mode, Origin, Target
from schemas.topics import Headers

REMEMBERED = 20_000
"""How many decisions back a second copy is compared; a paused worker repeats at most what one take produced."""


class Links(Struct):
    """The fields of any decision record, full or short, that chain it to the one before it."""

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


FULL_TYPE = "io.fleethpa.decision.v1"
SHORT_TYPE = "io.fleethpa.decision.short.v1"
"""`ce_type` of a full record, and of one that repeats a full one but for its values."""
_SHORT = SHORT_TYPE.encode()
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


def is_short(headers: Headers) -> bool:
    """Whether a record repeats a full one but for its values."""
    return dict(headers).get("ce_type") == _SHORT


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
Values = tuple[int | None, int | None, int | None, str, str]
"""What a short record has of a metric: value, utilization, proposal, ratio and note, as in `MetricDecision`."""


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
    """A full decision record. See schemas/json/decision.json for every field.

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


class ShortDecision(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """An evaluation that repeats full record `sameAs` but for its values. `m`: per metric `[value, utilization,
    proposal, ratio, note]`, in spec order.
    """

    id: str
    seq: int
    prev: str
    same_as: str
    time: str
    input: InputPosition
    m: list[Values] = []
    raw_desired_replicas: int | None = None
    newest: list[int | None] = []


def expand(short: ShortDecision, full: Decision) -> Decision:
    """Give the short record back whole: status, events and constraints too, with the short record's values.

    Only what explains the steps (windows, recommendations, until when) stays the full record's.

    Raises ValueError: `full` is not the record that `short` repeats.
    """
    if short.same_as != full.id:
        raise ValueError(f"decision {short.id} repeats {short.same_as}, not {full.id}")
    metrics = [_with_values(short, full, i) for i in range(len(full.metrics))]
    proposal = short.raw_desired_replicas
    return structs.replace(
        full,
        id=short.id,
        seq=short.seq,
        prev=short.prev,
        time=short.time,
        input=short.input,
        raw_desired_replicas=proposal,
        metrics=metrics,
        steps=[_with_proposal(step, proposal) for step in full.steps],
        constraints_applied=with_tolerance(full.constraints_applied, is_short_held(short, full.current_replicas)),
        status=_status_with(full.status, metrics),
    )


def is_held_by_tolerance(proposal: int | None, current_replicas: int | None, notes: Iterable[str]) -> bool:
    """Tell whether the tolerance holds the replicas: the metrics ask for those there are, and one is within it."""
    return proposal == current_replicas and WITHIN_TOLERANCE in notes


def is_short_held(short: "ShortDecision | ShortOutline", current_replicas: int) -> bool:
    """Tell whether the tolerance holds the replicas in a short record; `current_replicas` is of the full one."""
    return is_held_by_tolerance(short.raw_desired_replicas, current_replicas, [each[-1] for each in short.m])


def with_tolerance(constraints: Iterable[str], is_held: bool) -> list[str]:
    """Give the constraints of a short record from those of the full one that it repeats."""
    rest = [each for each in constraints if each != TOLERANCE]
    return [TOLERANCE, *rest] if is_held else rest


def _with_values(short: ShortDecision, full: Decision, index: int) -> MetricDecision:
    metric = full.metrics[index]
    if index >= len(short.m):
        return metric
    value, utilization, proposal, ratio, note = short.m[index]
    newest = short.newest[index] if index < len(short.newest) else metric.newest
    return structs.replace(
        metric, value=value, utilization=utilization, proposal=proposal, ratio=ratio, note=note, newest=newest
    )


def _with_proposal(step: Step, proposal: int | None) -> Step:
    if proposal is None or step.step not in ("metrics", "stabilization"):
        return step
    return structs.replace(step, out=proposal) if step.step == "metrics" else structs.replace(step, in_=proposal)


def _status_with(status: dict[str, Any] | None, metrics: list[MetricDecision]) -> dict[str, Any] | None:
    """Put the metrics' values into a status."""
    current = (status or {}).get("currentMetrics")
    if status is None or not current or len(current) != len(metrics):
        return status
    return {**status, "currentMetrics": [_shown(*pair) for pair in zip(current, metrics, strict=True)]}


def _shown(shown: dict[str, Any], metric: MetricDecision) -> dict[str, Any]:
    key = next((key for key in shown if key != "type"), None)
    if key is None or metric.value is None:
        return shown
    text = format_milli(metric.value, format_of(shown[key]))
    values: dict[str, Any] = {name: text for name in shown[key]["current"] if name != "averageUtilization"}
    if metric.utilization is not None:
        values["averageUtilization"] = metric.utilization
    return {**shown, key: {**shown[key], "current": values}}


def format_of(shown: dict[str, Any]) -> Format:
    """How the values of a metric of a status are printed: upstream prints the averages of resource memory in BinarySI,
    everything else in DecimalSI.
    """
    return "BinarySI" if shown.get("name") == "memory" else "DecimalSI"


# --- outlines ---------------------------------------------------------------------------------------------------------


class MetricOutline(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What a chart shows of a metric: fields of `MetricDecision`."""

    type: str
    name: str
    value: int | None = None
    utilization: int | None = None
    target: int | None = None
    target_utilization: int | None = None
    error: str = ""
    pods_used: int = 0


class DecisionOutline(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What charts and timelines show of a full decision record: fields of `Decision`, decoded without the others."""

    id: str
    uid: str
    kind: Literal["evaluation", "completion"] = "evaluation"
    current_replicas: int = 0
    final_desired_replicas: int = 0
    direction: Direction = "None"
    reason: str = ""
    metrics: list[MetricOutline] = []
    constraints_applied: list[str] = []
    observed: dict[str, Any] = {}
    error: str = ""
    paused: str = ""
    refused: str = ""
    min_replicas: int = 1
    max_replicas: int = 0
    spec_hash: str = ""
    generation: int = 0
    author: str = ""


class ShortOutline(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What charts and timelines show of a short decision record: fields of `ShortDecision`."""

    id: str
    m: list[Values] = []
    raw_desired_replicas: int | None = None


def outlined(short: ShortOutline, full: DecisionOutline) -> DecisionOutline:
    """Give the outline of a short record from that of the full one that it repeats, as `expand` does."""
    metrics = [
        structs.replace(metric, value=values[0], utilization=values[1])
        for metric, values in zip(full.metrics, short.m, strict=False)
    ]
    constraints = with_tolerance(full.constraints_applied, is_short_held(short, full.current_replicas))
    metrics += full.metrics[len(metrics) :]
    return structs.replace(full, id=short.id, metrics=metrics, constraints_applied=constraints)

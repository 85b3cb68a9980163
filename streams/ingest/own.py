"""Our own JSON: public records, the simple sample that anyone can send, and which topic may carry which kinds.

Kinds belong to topics, so that writers of samples cannot change settings. `schemas/json/` describes the formats.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas import topics
from schemas.agents import agent_of_reports
from schemas.codec import encode
from schemas.entries import VERSION, Body, PublicRecord, central_name
from schemas.limits import Refusal
from schemas.observed import Command, MetricType, Point
from streams.ingest.checks import check_cluster, check_namespace, check_text, time_to_ms, to_milli

T = TypeVar("T")
_RECORD = msgspec.json.Decoder(PublicRecord)


class ObjectReference(Struct, frozen=True, kw_only=True, rename="camel"):
    """The object that an `Object` metric describes."""

    kind: str
    name: str
    group: str = ""


class PublicSample(Struct, frozen=True, kw_only=True, rename="camel"):
    """One sample: `{"v":1,"ts":…,"cluster":"prod-eu","namespace":"shop","metric":"queue_depth","type":"External",
    "value":610}`.

    `ts`: integer milliseconds or RFC 3339; absent: the Kafka record's own time. `value`: a number or a Kubernetes
    quantity text. `pod` goes with Resource, ContainerResource and Pods; `container` with ContainerResource; `object`
    with Object; `labels` are what a metric selector asks for. `target` and `unit` are for readers only.
    """

    v: Literal[1]
    cluster: str
    namespace: str
    metric: str
    type: MetricType
    value: int | float | str
    ts: int | str | None = None
    pod: str | None = None
    container: str | None = None
    object: ObjectReference | None = None
    labels: dict[str, str] | None = None
    temporality: Literal["gauge", "delta", "cumulative"] = "gauge"
    start: int | str | None = None
    utilization: bool = False
    target: dict[str, Any] | None = None
    unit: str | None = None


def check_version(document: dict[str, Any]) -> None:
    """Refuse a version other than ours. Raises Refusal: `unknownVersion`."""
    version = document.get("v")
    if version != VERSION or isinstance(version, bool):
        raise Refusal("unknownVersion", f"version (v) {str(version)[:40]} is not known here; known is {VERSION}")


def read_record(document: dict[str, Any], refuse: Callable[[Refusal], None]) -> tuple[PublicRecord, list[int]]:
    """Read a record of ours, and the places of its entries in the document: one that does not fit its type is refused
    by itself, so that one bad number takes no other entry of its namespace with it.

    Raises Refusal: `unknownVersion`, `wrongType` with the path of the field.
    """
    check_version(document)
    entries = document.get("entries")
    if not isinstance(entries, list):
        return _convert(document, PublicRecord), []
    try:
        return msgspec.convert(document, PublicRecord), list(range(len(entries)))
    except (msgspec.ValidationError, RecursionError):
        record = _convert(document | {"entries": []}, PublicRecord)
        good: dict[int, Body] = {}
        for index, entry in enumerate(entries):
            try:
                good[index] = _convert({"v": VERSION, "entries": [entry]}, PublicRecord).entries[0]
            except Refusal as refusal:
                refuse(Refusal(refusal.code, refusal.text.replace("$.entries[0]", f"$.entries[{index}]")))
        return structs.replace(record, entries=list(good.values())), list(good)


def read_as_written(value: bytes) -> PublicRecord | None:
    """Read a record that fleethpa's own encoder wrote; None: it may be one of ours, but not byte for byte.

    Equal bytes prove in one go that no field is unknown and no key duplicate.
    """
    try:
        record = _RECORD.decode(value)
        return record if record.v == VERSION and encode(record) == value else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_sample(document: dict[str, Any], record_time_ms: int) -> tuple[str, str, Point]:
    """Read a simple sample: its cluster, its namespace and the point.

    Raises Refusal: `unknownVersion`, `wrongType`, `badName`, `badTime`, `notANumber`, `outOfRange`.
    """
    check_version(document)
    sample = _convert(document, PublicSample)
    check_cluster(sample.cluster)
    check_namespace(sample.namespace)
    reference = sample.object
    point = Point(
        type=sample.type,
        metric=check_text(sample.metric, "metric"),
        milli=to_milli(sample.value),
        time=record_time_ms if sample.ts is None else time_to_ms(sample.ts, "ts"),
        pod=sample.pod or "",
        container=sample.container or "",
        object_kind=_group_kind(reference) if reference else "",
        object=reference.name if reference else "",
        labels=sample.labels or {},
        temporality=sample.temporality,
        start_time=0 if sample.start is None else time_to_ms(sample.start, "start"),
        utilization=sample.utilization,
    )
    return sample.cluster, sample.namespace, point


def _group_kind(reference: ObjectReference) -> str:
    return f"{reference.kind}.{reference.group}" if reference.group else reference.kind


def _convert(document: Any, type_: type[T]) -> T:
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise Refusal("wrongType", f"not a {type_.__name__}: {error}") from error
    except RecursionError as error:
        raise Refusal("malformed", "nested too deeply") from error


_HEARTBEAT = frozenset({"heartbeat"})

KINDS: dict[str, frozenset[str]] = {
    topics.SAMPLES: _HEARTBEAT | {"answers", "samples"},
    topics.PODS: _HEARTBEAT | {"podSet", "podDeleted", "podList"},
    topics.AUTOSCALERS: _HEARTBEAT | {"autoscalerSet", "autoscalerDeleted", "autoscalerList", "command"},
    topics.SPECS: frozenset({"autoscalerSet", "autoscalerDeleted", "command"}),
    topics.SCALES: _HEARTBEAT | {"scaleSet", "clusterReport", "serving", "handsChanged"},
    topics.SETTINGS: frozenset(
        {"settings", "agent", "engine", "watermarkReset", "restart", "command", "guardrailResume", "capacityGroup"}
    ),
    topics.OUTCOMES: frozenset({"outcome"}),
    topics.BREAKER: frozenset({"breaker"}),
    topics.REPORTS: frozenset({"report", "allotment", "capacityReport", "capacityAllotment"}),
}

SAMPLE_KINDS = frozenset({"samples"})
"""What a topic of other producers may carry: pushed samples and nothing else."""

OBSERVED = frozenset().union(
    *(KINDS[topic] for topic in topics.PUBLIC_TOPICS if topic not in (topics.SETTINGS, topics.BREAKER, topics.REPORTS))
) - {"command"}
"""What is observed in a cluster or became of a write there; of `autoscalerSet` and `autoscalerDeleted` only those of
origin cluster. An agent may report nothing else.
"""

WHOLE_PARTITION = (KINDS[topics.SETTINGS] - {"command"}) | KINDS[topics.BREAKER] | {"serving", "handsChanged"}
"""Kinds that always concern every partition; a `command` does whose record on the topic of settings names no namespace.
"""


def kinds_of(topic: str) -> frozenset[str]:
    """The kinds of entries that a topic may carry."""
    return KINDS.get(topic) or (OBSERVED if agent_of_reports(topic) else SAMPLE_KINDS)


def topics_of(kind: str) -> list[str]:
    """The topics that may carry a kind of entry."""
    return [topic for topic, kinds in KINDS.items() if kind in kinds]


def topic_of(namespace: str, bodies: Sequence[Body]) -> str:
    """The topic of a record about a namespace, or (empty) about clusters; pauses are all that such a record holds."""
    if not namespace or all(isinstance(body, Command) and body.is_about_pauses for body in bodies):
        return topics.SETTINGS
    return topics.AUTOSCALERS if central_name(bodies[0]) is None else topics.SPECS


def takes_foreign(topic: str) -> bool:
    """Whether a topic takes samples in formats other than ours."""
    return topic == topics.SAMPLES or topic not in KINDS

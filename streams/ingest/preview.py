"""What ingest would read from a message, before the message is sent."""

from collections import Counter
from typing import Any

from msgspec import Struct

from schemas import topics
from schemas.entries import Body
from schemas.keys import namespace_key
from schemas.samples import Answers, Samples
from schemas.topics import Headers
from streams.ingest import messageformats, topickinds
from streams.ingest.batch import log_entries
from streams.ingest.convertrecord import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord, Refusal

_LONG_AGO_MS = 1
"""Kafka's timestamp of a record that no broker has stamped."""


class CheckReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `check_record`.

    `result`: `ok`, `partial` (some of it refused), `rejected`, or `unmatched` (nothing of it is wanted). `keys`: key in
    the log (`cluster/namespace`, `*` for every partition) → entries. `entries`: kind → count. `left_out`: reason →
    points that are not taken and not wrong. `reasons`: what is wrong. `metrics`: the HPA metrics that samples became.
    """

    format: str
    topic: str
    result: str
    samples: int
    entries: dict[str, int]
    keys: dict[str, int]
    metrics: dict[str, int]
    left_out: dict[str, int]
    reasons: list[str]

    @property
    def is_rejected(self) -> bool:
        """Whether the message, or a part of it, would go to the topic of rejected records."""
        return self.result != "ok"


def check_record(value: bytes, headers: Headers = (), mapping: Mapping | None = None, topic: str = "") -> CheckReport:
    """Say what ingest would make of a message.

    Args:
        topic: where it would be sent; empty: the topic that takes its first entry.
    """
    topic = topic or _fitting_topic(value, headers)
    raw = RawRecord(topic, 0, 0, _LONG_AGO_MS, value, headers)
    found = convert(raw, Resolver(mapping or Mapping()))
    _refuse_too_large(found, raw)
    return CheckReport(
        format=found.format,
        topic=topic,
        result=found.result,
        samples=found.points + _answered(found),
        entries=dict(Counter(kind_of(piece.body) for piece in found.pieces)),
        keys=dict(
            Counter("*" if p.is_whole_partition else namespace_key(p.cluster, p.namespace) for p in found.pieces)
        ),
        metrics=_metrics(found),
        left_out=dict(found.left_out),
        reasons=list(dict.fromkeys(refusal.text for refusal in found.refusals)) or _why_nothing(found),
    )


def kind_of(body: Body) -> str:
    """The `kind` that a body bears on the wire."""
    return str(body.__struct_config__.tag)


def _fitting_topic(value: bytes, headers: Headers) -> str:
    """The public topic of a record of ours; the topic of samples for everything else."""
    if messageformats.is_protobuf(value, headers):
        return topics.SAMPLES
    try:
        document: dict[str, Any] = messageformats.parse_document(value) if value else {}
    except Refusal:
        return topics.SAMPLES  # the conversion names the fault
    entries = document.get("entries")
    first = entries[0] if isinstance(entries, list) and entries else {}
    kind = str(first.get("kind", "")) if isinstance(first, dict) else ""
    if kind == "command" and not (document.get("namespace") and first.get("command") == "mode"):
        return topics.SETTINGS
    return next(iter(topickinds.topics_of(kind)), topics.SAMPLES)


def _refuse_too_large(found: Conversion, raw: RawRecord) -> None:
    for entry in log_entries(found.pieces, raw, found.time_ms, topics.DEFAULT_PARTITIONS):
        if isinstance(entry, Refusal):
            found.refuse(entry)


def _answered(found: Conversion) -> int:
    answers = [item for piece in found.pieces if isinstance(piece.body, Answers) for item in piece.body.items]
    return sum(len(answer.usages) + len(answer.values) + len(answer.items) for answer in answers)


def _metrics(found: Conversion) -> dict[str, int]:
    points = [point for piece in found.pieces if isinstance(piece.body, Samples) for point in piece.body.points]
    return dict(Counter(f"{point.type} {point.metric}" for point in points))


def _why_nothing(found: Conversion) -> list[str]:
    return [] if found.pieces else [found.reason()]

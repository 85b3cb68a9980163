"""One record of a public topic in, pieces for the log and refusals out. Whatever the bytes are, nothing is raised.

The format of a record follows from the `content-type` header, else from the content.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.batches import PassedOver
from schemas import limits, topics
from schemas.entries import PublicRecord
from schemas.limits import MAX_TIME_MS, Refusal
from schemas.observed import Point, Samples
from schemas.topics import Headers
from streams.ingest import otlp, own
from streams.ingest.bodies import check_one_hpa, normalize
from streams.ingest.mapping import Resolver
from streams.ingest.observedchecks import check_point
from streams.ingest.otlp import SourceSeries
from streams.ingest.pieces import Conversion, Piece, RawRecord, SourcePlace, header

OTLP_PROTO = "otlp_proto"
OTLP_JSON = "otlp_json"
RECORD = "fleethpa"
SAMPLE = "fleethpa_sample"

_PROTOBUF_TYPES = frozenset({"application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"})
_OWN = 'fleethpa JSON ({"v":1,"entries":[…]} or {"v":1,"metric":…})'


def is_protobuf(value: bytes, headers: Headers) -> bool:
    """Whether the value is OTLP protobuf: by its header, else by its first byte (field 1, length-delimited)."""
    declared = header(headers, "content-type").partition(";")[0].strip().lower()
    if declared in _PROTOBUF_TYPES:
        return True
    return value[:1] == b"\x0a" and not declared.endswith("json") and not _is_json_after_blank(value)


def _is_json_after_blank(value: bytes) -> bool:
    """A JSON text may begin with line feeds, each of which is the byte 0x0a too."""
    return value[:4096].lstrip(b" \t\r\n")[:1] == b"{" and _parses(value)


def _parses(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class SampleFormat:
    """A format in which other producers push samples.

    `words`: as an error names what is expected. `series` reads a message: its values, or why one of them is not read.
    It gets the JSON document if the format is known by a top-level `key` of it, else the bytes, of which `matches`
    says, from them and the headers alone, whether they are of this format. `example`: a message with samples of a time
    (Unix ms), for `fleethpa admin ingest sample`.
    """

    name: str
    words: str
    series: Callable[[Any], Iterable[SourceSeries | Refusal]]
    example: Callable[[int], bytes]
    key: str = ""
    matches: Callable[[bytes, Headers], bool] = lambda value, headers: False


SAMPLE_FORMATS: tuple[SampleFormat, ...] = (
    SampleFormat(
        name=OTLP_PROTO,
        words="OTLP metrics (protobuf)",
        series=otlp.read_protobuf,
        example=otlp.example_protobuf,
        matches=is_protobuf,
    ),
    SampleFormat(
        name=OTLP_JSON,
        words="OTLP metrics (JSON)",
        series=otlp.read_json,
        example=otlp.example_json,
        key="resourceMetrics",
    ),
)
"""All of them; a message is of the first that fits. fleethpa's own JSON is read beside them. Their names are also in
`FORMATS` of `fleethpa/cli/topics.py`, which is imported for help and must not import what reads messages.
"""


def _expected() -> str:
    return " or ".join([*(each.words for each in SAMPLE_FORMATS), _OWN])


def check_size(value: bytes | None) -> bytes:
    """Return the value unless it is absent, empty or absurdly large. Raises Refusal: `empty`, `overLimit`, or why
    the batch of the record was passed over.
    """
    if isinstance(value, PassedOver):
        raise value.refusal
    if not value:
        raise Refusal("empty", "the record has no value")
    # Unread: no accepted producer sends larger ones, and reading one costs memory.
    limits.check(limits.PUBLIC_RECORD, len(value), "this topic")
    return value


def parse_document(value: bytes) -> dict[str, Any]:
    """Read a JSON object in which no key occurs twice. Raises Refusal: `malformed`, `duplicateKey`, `unknownFormat`."""
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        if value.lstrip()[:1] not in (b"{", b"["):
            raise Refusal("unknownFormat", f"first byte 0x{value[0]:02x}: expected {_expected()}") from error
        raise Refusal("malformed", f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refusal("unknownFormat", f"a JSON {type(document).__name__}: expected an object: {_expected()}")
    _refuse_duplicates(value, document)
    return document


def _refuse_duplicates(value: bytes, document: dict[str, Any]) -> None:
    """fleethpa's own producers use the same encoder, so equal bytes prove cheaply that no key is duplicate."""
    try:
        if orjson.dumps(document) != value:
            json.loads(value, object_pairs_hook=_unique)
    except (orjson.JSONEncodeError, RecursionError) as error:
        # orjson reads four times as deep as it writes, and all that is taken is written again.
        raise Refusal("malformed", "not JSON that can be used: nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Refusal("duplicateKey", f"key {key[:80]!r} occurs twice in one JSON object")
        seen.add(key)


def _own_format(document: dict[str, Any]) -> str:
    """Tell fleethpa's own JSON formats apart by their top-level keys. Raises Refusal: `unknownFormat`."""
    if "v" in document:
        return RECORD if "entries" in document or "metric" not in document else SAMPLE
    if "value" in document and "timestamp" in document and ("labels" in document or "name" in document):
        raise Refusal(
            "unknownFormat",
            "JSON of prometheus-kafka-adapter is no longer read: send OTLP from an OpenTelemetry Collector, or have "
            "the Prometheus asked (run observer --prometheus)",
        )
    keys = ", ".join(sorted(document)[:8]) or "none"
    raise Refusal("unknownFormat", f"JSON with keys {keys[:200]}: expected {_expected()}")


_TYPED = frozenset({topics.SAMPLES, topics.PODS, topics.SCALES, topics.OUTCOMES})
"""Topics whose bodies hold no free JSON, so that a decoder of their types reads what a reader of any JSON would."""

_CLUSTER_HEADERS = ("cluster", "k8s.cluster.name", "fleethpa-cluster")


def convert(raw: RawRecord, resolver: Resolver) -> Conversion:
    """Convert one record. `refusals` has what is invalid; the valid parts are still converted."""
    received_ms = min(max(raw.timestamp_ms, 0), MAX_TIME_MS)
    conversion = Conversion(time_ms=received_ms, received_ms=received_ms, size=len(raw.value or b""))
    try:
        _convert(raw, resolver, conversion)
    except Refusal as refusal:
        conversion.refuse(refusal)
    return conversion


def _convert(raw: RawRecord, resolver: Resolver, conversion: Conversion) -> None:
    value = check_size(raw.value)
    for each in SAMPLE_FORMATS:
        if each.matches(value, raw.headers):
            _foreign(each, value, raw, resolver, conversion)
            return
    if raw.topic in _TYPED and (known := own.read_as_written(value)) is not None:
        conversion.format = RECORD
        _record(known, range(len(known.entries)), raw, conversion)
        return
    document = parse_document(value)
    for each in SAMPLE_FORMATS:
        if each.key and each.key in document:
            _foreign(each, document, raw, resolver, conversion)
            return
    conversion.format = _own_format(document)
    if conversion.format == RECORD:
        _record(*own.read_record(document, conversion.refuse), raw, conversion)
    else:
        _add_points(conversion, [own.read_sample(document, conversion.time_ms)], raw.topic)


def _record(record: PublicRecord, places: Sequence[int], raw: RawRecord, conversion: Conversion) -> None:
    conversion.time_ms = record.time or conversion.time_ms
    place = SourcePlace(raw.topic, record.cluster, record.namespace)
    check_one_hpa(record.entries, raw.topic)
    for index, body in zip(places, record.entries, strict=True):
        try:
            piece = normalize(body, place, conversion.refuse)
        except Refusal as refusal:
            conversion.refuse(Refusal(refusal.code, f"entries[{index}]: {refusal.text}"))
            continue
        conversion.pieces.append(piece)
        conversion.points += len(body.points) if isinstance(body, Samples) else 0


def _foreign(
    format_: SampleFormat, message: bytes | dict[str, Any], raw: RawRecord, resolver: Resolver, conversion: Conversion
) -> None:
    conversion.format = format_.name
    cluster = next((text for name in _CLUSTER_HEADERS if (text := header(raw.headers, name))), "")
    _add_points(conversion, _resolved(format_.series(message), raw.topic, cluster, resolver, conversion), raw.topic)


def _resolved(
    series: Iterable[SourceSeries | Refusal], topic: str, cluster: str, resolver: Resolver, conversion: Conversion
) -> Iterator[tuple[str, str, Point]]:
    for each in series:
        try:
            if isinstance(each, Refusal):
                raise each
            yield resolver.resolve(each, topic, cluster)
        except Refusal as refusal:
            conversion.refuse(refusal)


def _add_points(conversion: Conversion, points: Iterable[tuple[str, str, Point]], topic: str) -> None:
    """Group points by namespace, in order of first appearance."""
    if not own.accepts_foreign(topic):
        raise Refusal("wrongTopic", f"{conversion.format} is not read from {topic}; send it to {topics.SAMPLES}")
    groups: dict[tuple[str, str], list[Point]] = {}
    for cluster, namespace, point in points:
        try:
            check_point(point)
        except Refusal as refusal:
            conversion.refuse(Refusal(refusal.code, f"{cluster}/{namespace}: {refusal.text}"))
            continue
        groups.setdefault((cluster, namespace), []).append(point)
        conversion.points += 1
    for (cluster, namespace), group in groups.items():
        for start in range(0, len(group), limits.POINTS.most):
            chunk = group[start : start + limits.POINTS.most]
            conversion.pieces.append(Piece(cluster, namespace, Samples(points=chunk)))

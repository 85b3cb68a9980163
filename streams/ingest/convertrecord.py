"""One record of a public topic in, pieces for the log and refusals out. Whatever the bytes are, nothing is raised."""

from collections.abc import Iterable, Iterator

from schemas import limits, topics
from schemas.entries import PublicRecord
from schemas.samples import Point, Samples
from streams.ingest import messageformats, otlp, otlp_json, own, prometheus, topickinds
from streams.ingest.bodies import SourcePlace, normalize
from streams.ingest.mapping import Resolver
from streams.ingest.pieces import MAX_TIME_MS, Conversion, Piece, RawRecord, Refusal, header
from streams.ingest.samplechecks import check_point
from streams.ingest.series import SourceSeries

_TYPED = frozenset({topics.SAMPLES, topics.PODS, topics.SCALES, topics.OUTCOMES, topics.BREAKER})
"""Topics whose bodies hold no free JSON, so that a decoder of their types reads what a reader of any JSON would."""

_CLUSTER_HEADERS = ("cluster", "k8s.cluster.name", "fleethpa-cluster")


def convert(raw: RawRecord, resolver: Resolver) -> Conversion:
    """Convert one record. `refusals` has what is invalid; the valid parts are still converted."""
    received_ms = min(max(raw.timestamp_ms, 0), MAX_TIME_MS)
    found = Conversion(time_ms=received_ms, received_ms=received_ms)
    try:
        _convert(raw, resolver, found)
    except Refusal as refusal:
        found.refuse(refusal)
    return found


def _convert(raw: RawRecord, resolver: Resolver, found: Conversion) -> None:
    value = messageformats.check_size(raw.value)
    if messageformats.is_protobuf(value, raw.headers):
        found.format = messageformats.OTLP_PROTO
        _foreign(otlp.read_protobuf(value), raw, resolver, found)
        return
    if raw.topic in _TYPED and (known := own.read_as_written(value)) is not None:
        found.format = messageformats.RECORD
        _record(known, raw, found)
        return
    document = messageformats.parse_document(value)
    found.format = messageformats.of_document(document)
    if found.format == messageformats.RECORD:
        _record(own.read_record(document), raw, found)
    elif found.format == messageformats.SAMPLE:
        _take(found, [own.read_sample(document, found.time_ms)], raw.topic)
    elif found.format == messageformats.OTLP_JSON:
        _foreign(otlp_json.read_json(document), raw, resolver, found)
    else:
        _foreign([prometheus.read(document)], raw, resolver, found)


def _record(record: PublicRecord, raw: RawRecord, found: Conversion) -> None:
    if not 0 <= record.time <= MAX_TIME_MS:
        raise Refusal("badTime", f"time is {record.time}: expected milliseconds since 1970, up to the year 9999")
    found.time_ms = record.time or found.time_ms
    place = SourcePlace(raw.topic, record.cluster, record.namespace)
    for index, body in enumerate(record.entries):
        try:
            piece = normalize(body, place, found.refuse)
        except Refusal as refusal:
            found.refuse(Refusal(refusal.code, f"entries[{index}]: {refusal.text}"))
            continue
        found.pieces.append(piece)
        found.points += len(body.points) if isinstance(body, Samples) else 0


def _foreign(series: Iterable[SourceSeries | Refusal], raw: RawRecord, resolver: Resolver, found: Conversion) -> None:
    cluster = next((text for name in _CLUSTER_HEADERS if (text := header(raw.headers, name))), "")
    _take(found, _resolved(series, raw.topic, cluster, resolver, found), raw.topic)


def _resolved(
    series: Iterable[SourceSeries | Refusal], topic: str, cluster: str, resolver: Resolver, found: Conversion
) -> Iterator[tuple[str, str, Point]]:
    for each in series:
        try:
            if isinstance(each, Refusal):
                raise each
            yield resolver.resolve(each, topic, cluster)
        except Refusal as refusal:
            found.refuse(refusal)


def _take(found: Conversion, points: Iterable[tuple[str, str, Point]], topic: str) -> None:
    """Group points by namespace, in order of first appearance."""
    if not topickinds.takes_foreign(topic):
        raise Refusal("wrongTopic", f"{found.format} is not read from {topic}; send it to {topics.SAMPLES}")
    groups: dict[tuple[str, str], list[Point]] = {}
    for cluster, namespace, point in points:
        try:
            check_point(point)
        except Refusal as refusal:
            found.refuse(Refusal(refusal.code, f"{cluster}/{namespace}: {refusal.text}"))
            continue
        groups.setdefault((cluster, namespace), []).append(point)
        found.points += 1
    for (cluster, namespace), group in groups.items():
        for start in range(0, len(group), limits.POINTS.most):
            chunk = group[start : start + limits.POINTS.most]
            found.pieces.append(Piece(cluster, namespace, Samples(points=chunk)))

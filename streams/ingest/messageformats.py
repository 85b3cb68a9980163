"""Which format a record has: from the `content-type` header, else from the content."""

import json
from typing import Any

import orjson

from schemas import limits
from schemas.topics import Headers
from streams.ingest.numberchecks import check_limit
from streams.ingest.pieces import Refusal, header

OTLP_PROTO = "otlp_proto"
OTLP_JSON = "otlp_json"
PROMETHEUS = "prometheus"
RECORD = "fleethpa"
SAMPLE = "fleethpa_sample"

FORMATS = (OTLP_PROTO, OTLP_JSON, PROMETHEUS, RECORD, SAMPLE)

_PROTOBUF_TYPES = frozenset({"application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"})
_KNOWN = (
    "OTLP metrics (protobuf or JSON), prometheus-kafka-adapter JSON, "
    'or fleethpa JSON ({"v":1,"entries":[…]} or {"v":1,"metric":…})'
)


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


def check_size(value: bytes | None) -> bytes:
    """Give the value back unless it is absent, empty or absurdly large.

    Raises:
        Refusal: `empty`, `overLimit`.
    """
    if not value:
        raise Refusal("empty", "the record has no value")
    # Unread: no accepted producer sends larger ones, and reading one costs memory.
    check_limit(limits.PUBLIC_RECORD, len(value), "this topic")
    return value


def parse_document(value: bytes) -> dict[str, Any]:
    """Read a JSON object in which no key occurs twice.

    Raises:
        Refusal: `malformed`, `duplicateKey`, `unknownFormat`.
    """
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        if value.lstrip()[:1] not in (b"{", b"["):
            raise Refusal("unknownFormat", f"first byte 0x{value[0]:02x}: expected {_KNOWN}") from error
        raise Refusal("malformed", f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refusal("unknownFormat", f"a JSON {type(document).__name__}: expected an object: {_KNOWN}")
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


def of_document(document: dict[str, Any]) -> str:
    """Tell JSON formats apart by their top-level keys.

    Raises:
        Refusal: `unknownFormat`.
    """
    if "resourceMetrics" in document:
        return OTLP_JSON
    if "v" in document:
        return RECORD if "entries" in document or "metric" not in document else SAMPLE
    if "value" in document and "timestamp" in document and ("labels" in document or "name" in document):
        return PROMETHEUS
    keys = ", ".join(sorted(document)[:8]) or "none"
    raise Refusal("unknownFormat", f"JSON with keys {keys[:200]}: expected {_KNOWN}")

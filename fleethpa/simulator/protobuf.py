"""The few messages that kubectl sends as protobuf: `autoscale`, `create namespace` and `auth can-i`.

Wire form: the magic bytes, then a runtime.Unknown with the type (field 1) and the object's bytes (field 2).
Source: k8s.io/api generated.proto of autoscaling/v1, authorization/v1, core/v1 and meta/v1.
"""

from __future__ import annotations

from typing import Any, Final

from fleethpa.simulator.apistatus import StatusError
from schemas.kubernetes.jsontypes import Json

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

# Message layouts: field number -> (JSON name, type). A type that is a dict is a message of its own.
_METADATA: dict[int, tuple[str, Any]] = {1: ("name", "text"), 2: ("generateName", "text"), 3: ("namespace", "text")}
_METADATA |= {11: ("labels", "map"), 12: ("annotations", "map")}
_TARGET = {1: ("kind", "text"), 2: ("name", "text"), 3: ("apiVersion", "text")}
_HPA_SPEC: dict[int, tuple[str, Any]] = {1: ("scaleTargetRef", _TARGET), 2: ("minReplicas", "int")}
_HPA_SPEC |= {3: ("maxReplicas", "int"), 4: ("targetCPUUtilizationPercentage", "int")}
_ATTRIBUTES = {1: ("namespace", "text"), 2: ("verb", "text"), 3: ("group", "text"), 4: ("version", "text")}
_ATTRIBUTES |= {5: ("resource", "text"), 6: ("subresource", "text"), 7: ("name", "text")}
_MESSAGES: dict[tuple[str, str], dict[int, tuple[str, Any]]] = {
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {1: ("metadata", _METADATA), 2: ("spec", _HPA_SPEC)},
    ("v1", "Namespace"): {1: ("metadata", _METADATA)},
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {2: ("spec", {1: ("resourceAttributes", _ATTRIBUTES)})},
}


def decode(raw: bytes) -> Json:
    """Return the object as JSON would carry it.

    Raises:
        ApiError: 400, broken bytes; 415, a kind that is not known here.
    """
    if not raw.startswith(_MAGIC):
        raise StatusError(400, "the body does not begin as a Kubernetes protobuf message does")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        kind_of = _message(envelope[1], {1: ("apiVersion", "text"), 2: ("kind", "text")})
        layout = _MESSAGES.get((kind_of["apiVersion"], kind_of["kind"]))
        if layout is None:
            text = f"simulated clusters read {kind_of['kind']} as JSON or YAML only, not as protobuf"
            raise StatusError(415, text)
        return kind_of | {"metadata": {}} | _message(envelope[2], layout)
    except (IndexError, KeyError, UnicodeDecodeError, TypeError) as error:
        raise StatusError(400, f"the protobuf body cannot be read: {error!r}") from error


def _message(raw: bytes, layout: dict[int, tuple[str, Any]]) -> Json:
    document: Json = {}
    for number, value in _fields(raw):
        if number not in layout:
            continue  # e.g. an empty status
        name, kind = layout[number]
        if kind == "map":
            entry = _message(value, {1: ("key", "text"), 2: ("value", "text")})
            document.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        elif isinstance(kind, dict):
            document[name] = _message(value, kind)
        elif kind == "int":
            document[name] = value - (1 << 64) if value >> 63 else value
        elif value:
            document[name] = value.decode()
    return document


def _fields(raw: bytes) -> list[tuple[int, Any]]:
    """Return (field number, value) of a message: varints as int, lengths as bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if tag & 7 == 2:
            if at + value > len(raw):
                raise IndexError("a field is longer than its message")
            found.append((tag >> 3, raw[at : at + value]))
            at += value
        elif tag & 7 == 0:
            found.append((tag >> 3, value))
        else:
            raise TypeError(f"wire type {tag & 7} is not used by these messages")
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not raw[at - 1] & 0x80:
            return value, at

"""Requests as the API server reads them: the URL, label and field selectors, and the few protobuf messages of kubectl
(`autoscale`, `create namespace`, `auth can-i`). Pure.

Source: k8s.io/api generated.proto of autoscaling/v1, authorization/v1, core/v1 and meta/v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

from fleethpa.simulator import patching
from fleethpa.simulator.faults import StatusError
from fleethpa.simulator.patching import FieldWriter
from schemas.kubernetes.shape import Json, JsonView

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

    Raises ApiError: 400, broken bytes; 415, a kind that is not known here.
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


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for resources."""

    method: str
    group: str
    version: str
    namespace: str
    path: tuple[str, ...]
    """What follows the namespace: plural, name, subresource; in metrics APIs what they define."""
    query: Mapping[str, str]

    @property
    def plural(self) -> str:
        return self.path[0]

    @property
    def name(self) -> str:
        return self.path[1] if len(self.path) > 1 else ""

    @property
    def subresource(self) -> str:
        return "/".join(self.path[2:])

    @property
    def resource(self) -> str:
        """The plural with its subresource, as access rules name it."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    @property
    def verb(self) -> str:
        """The verb of access rules."""
        if self.method == "GET":
            if self.query.get("watch") in ("1", "true"):
                return "watch"
            return "get" if self.name else "list"
        return (
            "deletecollection"
            if self.method == "DELETE" and not self.name
            else _VERBS.get(self.method, self.method.lower())
        )

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query


def parse(method: str, path: str, query: Mapping[str, str]) -> Ask | None:
    """Read a URL of the form /api/V/... or /apis/G/V/..., or return None where it names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    return Ask(method, group, version, namespace, tuple(rest), query)


def writer_of(ask: Ask, user_agent: str) -> FieldWriter:
    """Return the hand behind a write."""
    manager = ask.query.get("fieldManager") or user_agent.partition("/")[0] or "unknown"
    return FieldWriter(manager, subresource="status" if ask.subresource == "status" else "")


def parse_body(content_type: str, raw: bytes) -> Any:
    """Read a body. Raises ApiError: 400, or 415 for protobuf of a kind that is not known here."""
    if not raw:
        return {}
    if content_type.startswith(CONTENT_TYPE):
        return decode(raw)
    try:
        if "yaml" in content_type:
            return yaml.safe_load(raw)
        return orjson.loads(raw)
    except (orjson.JSONDecodeError, yaml.YAMLError) as error:
        raise StatusError(400, f"the body is neither JSON nor YAML: {error}") from error


def patch_type(content_type: str) -> str:
    """Return the patch type without parameters; the client's default is a merge patch here."""
    return content_type.partition(";")[0].strip() or patching.MERGE_PATCH


Matcher = Callable[[JsonView], bool]

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^()]*)\)$")
_EQUALS = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=,()]+)$")


def label_matcher(selector: str) -> Matcher:
    """Parse a label selector in its string form; the empty one matches everything.

    Raises ApiError: 400, the selector cannot be parsed.
    """
    terms = [_label_term(term.strip(), selector) for term in _split(selector)]

    def matches(document: JsonView) -> bool:
        labels = document.get("metadata", {}).get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def _split(selector: str) -> list[str]:
    parts = re.split(r",(?![^()]*\))", selector)
    return [part for part in parts if part.strip()]


def _label_term(term: str, selector: str) -> Matcher:
    if found := _SET.match(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALS.match(term):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(term):
        key, wanted = found["key"], not found["not"]
        return lambda labels: (key in labels) is wanted
    raise StatusError(400, f"unable to parse requirement: {selector!r} is not a label selector")


def field_matcher(selector: str) -> Matcher:
    """Parse a field selector; fields that an object does not have are the empty string.

    Raises ApiError: 400, the selector cannot be parsed.
    """
    terms = []
    for term in selector.split(","):
        found = re.match(r"^([A-Za-z.]+)(==|=|!=)(.*)$", term.strip())
        if term.strip() and not found:
            raise StatusError(400, f"invalid field selector {selector!r}: use field=value or field!=value")
        if found:
            terms.append((found[1].split("."), found[2] != "!=", found[3]))

    def matches(document: JsonView) -> bool:
        return all((_field(document, path) == value) is wanted for path, wanted, value in terms)

    return matches


def _field(document: Any, path: list[str]) -> str:
    for part in path:
        if not isinstance(document, Mapping):
            return ""
        document = document.get(part)
    return "" if document is None else str(document)


def selector_string(selector: JsonView | None) -> str:
    """Write a metav1.LabelSelector in the string form that /scale carries."""
    selector = selector or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        if operator in ("Exists", "DoesNotExist"):
            terms.append(key if operator == "Exists" else f"!{key}")
        else:
            terms.append(f"{key} {operator.lower()} ({','.join(sorted(expression['values']))})")
    return ",".join(terms)

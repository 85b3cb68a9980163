"""Requests as the API server reads them: the URL, the body, label and field selectors. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from fleethpa.simulator.patching import MERGE_PATCH, FieldWriter
from fleethpa.simulator.statuses import StatusError
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.kubernetes.shape import JsonView

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
        if self.method != "GET":
            return _VERBS.get(self.method, self.method.lower())
        if self.query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if self.name else "list"

    def writer(self, user_agent: str) -> FieldWriter:
        """Return the client behind a write."""
        manager = self.query.get("fieldManager") or user_agent.partition("/")[0] or "unknown"
        return FieldWriter(manager, subresource=self.subresource, dry="dryRun" in self.query)

    def matcher(self) -> Matcher:
        """Return the test that the name and the selectors make. Raises StatusError: 400."""
        labels = label_matcher(self.query.get("labelSelector", ""))
        fields = field_matcher(self.query.get("fieldSelector", ""))
        return lambda d: labels(d) and fields(d) and self.name in ("", d["metadata"]["name"])


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
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return Ask(method, group, version, namespace, tuple(rest), query)


def parse_body(content_type: str, raw: bytes) -> Any:
    """Read a body; no body is an empty object. Raises StatusError: 400, or 415 for protobuf."""
    if not raw:
        return {}
    if "protobuf" in content_type:
        raise StatusError(415, "simulated clusters read JSON and YAML only: use kubectl apply with a manifest")
    try:
        return yaml.safe_load(raw) if "yaml" in content_type else orjson.loads(raw)
    except (orjson.JSONDecodeError, yaml.YAMLError) as error:
        raise StatusError(400, f"the body is neither JSON nor YAML: {error}") from error


def patch_type(content_type: str) -> str:
    """Return the patch type without parameters; without one it is a merge patch."""
    return content_type.partition(";")[0].strip() or MERGE_PATCH


Matcher = Callable[[JsonView], bool]


def label_matcher(selector: str) -> Matcher:
    """Parse a label selector; the empty one matches everything. Raises StatusError: 400."""
    try:
        parsed = parse_selector(selector)
    except SelectorError as error:
        raise StatusError(400, str(error)) from error
    return lambda document: parsed.matches(document["metadata"].get("labels") or {})


def field_matcher(selector: str) -> Matcher:
    """Parse a field selector; a field that an object does not have is the empty string. Raises StatusError: 400."""
    terms = []
    for term in filter(None, selector.split(",")):
        found = re.match(r"^([A-Za-z.]+)(==|=|!=)(.*)$", term.strip())
        if not found:
            raise StatusError(400, f"invalid field selector {selector!r}: use field=value or field!=value")
        terms.append((found[1].split("."), found[2] != "!=", found[3]))
    return lambda document: all((_field(document, path) == value) is wanted for path, wanted, value in terms)


def _field(document: Any, path: list[str]) -> str:
    for part in path:
        if not isinstance(document, Mapping):
            return ""
        document = document.get(part)
    return "" if document is None else str(document)

"""What a request asks for, as the API server reads a URL. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from fleethpa.simulator import patching, protobuf
from fleethpa.simulator.apistatus import StatusError
from fleethpa.simulator.managedfields import FieldWriter

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
    """Read a body.

    Raises:
        ApiError: 400, or 415 for protobuf of a kind that is not known here.
    """
    if not raw:
        return {}
    if content_type.startswith(protobuf.CONTENT_TYPE):
        return protobuf.decode(raw)
    try:
        if "yaml" in content_type:
            return yaml.safe_load(raw)
        return orjson.loads(raw)
    except (orjson.JSONDecodeError, yaml.YAMLError) as error:
        raise StatusError(400, f"the body is neither JSON nor YAML: {error}") from error


def patch_type(content_type: str) -> str:
    """Return the patch type without parameters; the client's default is a merge patch here."""
    return content_type.partition(";")[0].strip() or patching.MERGE_PATCH

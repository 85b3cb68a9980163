"""Requests as the API server reads and refuses them: URL, body, selectors, patches, `managedFields`, `metav1.Status`.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

from schemas.kubernetes.fielderrors import FieldError, aggregate
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.kubernetes.shape import Json, JsonView

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(Exception):
    """A request that fails with a Kubernetes Status."""

    def __init__(
        self, code: int, message: str, *, reason: str = "", details: Json | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s
        self.reason = reason or _REASONS.get(code, "")
        self.details = (details or {}) | ({"retryAfterSeconds": retry_after_s} if retry_after_s else {})

    def status(self) -> Json:
        """Return the body."""
        head: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return head | {"message": self.message, "reason": self.reason, "details": self.details, "code": self.code}


def _details(resource: str, name: str) -> Json:
    plural, _, group = resource.partition(".")
    return {"name": name, "kind": plural} | ({"group": group} if group else {})


def not_served() -> StatusError:
    """Return the answer to a path that names no resource."""
    return StatusError(404, "the server could not find the requested resource")


def not_found(resource: str, name: str) -> StatusError:
    """Return the answer for an object that does not exist. `resource`: plural and group, e.g. deployments.apps."""
    return StatusError(404, f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: str, name: str) -> StatusError:
    """Return the answer to a creation under a name that is taken."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=_details(resource, name))


def conflict(resource: str, name: str, text: str = MODIFIED) -> StatusError:
    """Return the answer to a write whose precondition fails, by default that on the resource version."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {text}'
    return StatusError(409, message, details=_details(resource, name))


def invalid(kind: str, group: str, name: str, problems: Sequence[FieldError]) -> StatusError:
    """Return the answer to an object that breaks the rules of its type."""
    subject = f"{kind}.{group}" if group else kind
    causes = [{"reason": problem.type, "message": problem.body, "field": problem.field} for problem in problems]
    details: Json = {"name": name} if name else {}
    details |= {"group": group, "kind": kind, "causes": causes}
    text = aggregate([problem.string for problem in problems])
    return StatusError(422, f'{subject} "{name}" is invalid: {text}', details=details)


def expired(asked: int, oldest: int) -> StatusError:
    """Return the answer to a watch from a resource version that is no longer kept."""
    return StatusError(410, f"too old resource version: {asked} ({oldest})")


# --- the URL, the body, selectors -------------------------------------------------------------------------------------


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
        match = re.match(r"^([A-Za-z.]+)(==|=|!=)(.*)$", term.strip())
        if not match:
            raise StatusError(400, f"invalid field selector {selector!r}: use field=value or field!=value")
        terms.append((match[1].split("."), match[2] != "!=", match[3]))
    return lambda document: all((_field(document, path) == value) is wanted for path, wanted, value in terms)


def _field(document: Any, path: list[str]) -> str:
    for part in path:
        if not isinstance(document, Mapping):
            return ""
        document = document.get(part)
    return "" if document is None else str(document)


# --- patches, and who set what ----------------------------------------------------------------------------------------


MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (MERGE_PATCH, "application/strategic-merge-patch+json", APPLY_PATCH)

_LIST_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge joins by a key. It replaces every other list as a whole."""


def patched(document: Json, content_type: str, patch: Any) -> Json:
    """Return a document after a patch. Raises StatusError: 400, not an object; 415, another type of patch."""
    if content_type not in PATCHES:
        accepted = ", ".join(PATCHES)
        message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise StatusError(415, message)
    if not isinstance(patch, dict):
        raise StatusError(400, "a patch is an object")
    merged: Json = _merge(document, patch, {} if content_type == MERGE_PATCH else _LIST_KEYS)
    return merged


def _merge(target: Any, patch: Any, list_keys: Mapping[str, str]) -> Any:
    """Apply a merge patch (RFC 7386): null removes a member. The lists in `list_keys` are joined by their key."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue  # the order of elements and retained keys, which have no effect here
        key = list_keys.get(name, "")
        if value is None:
            result.pop(name, None)
        elif key and isinstance(value, list) and all(isinstance(item, dict) and key in item for item in value):
            result[name] = _join(result.get(name) or [], value, key, list_keys)
        else:
            result[name] = _merge(result.get(name), value, list_keys)
    return result


def _join(old: list[Any], new: list[Any], key: str, list_keys: Mapping[str, str]) -> list[Any]:
    merged = {item[key]: item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = _merge(merged.get(item[key]), item, list_keys)
    return list(merged.values())


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """The client behind a write: `manager` is ?fieldManager=, else the User-Agent up to its first slash."""

    manager: str
    subresource: str = ""
    dry: bool = False
    """The write is checked and answered, but not stored."""

    def entry(self, api_version: str, time: str) -> Json:
        """Return a managedFields entry without fields."""
        entry = {"manager": self.manager, "operation": "Update", "apiVersion": api_version, "time": time}
        return entry | {"fieldsType": "FieldsV1"} | ({"subresource": self.subresource} if self.subresource else {})

    def owns(self, entry: JsonView) -> bool:
        """Whether an entry is this writer's."""
        return (entry["manager"], entry.get("subresource", "")) == (self.manager, self.subresource)


Path = tuple[str, ...]
"""A field as managedFields names it, such as (f:spec, f:replicas)."""


def _owned(document: JsonView) -> dict[Path, Any]:
    """Return the values that have an owner, by path."""
    places = {
        ("f:spec",): document.get("spec"),
        ("f:status",): document.get("status"),
        ("f:metadata", "f:labels"): (document.get("metadata") or {}).get("labels"),
    }
    known = {place: members for place, members in places.items() if isinstance(members, Mapping)}
    return {(*place, f"f:{name}"): value for place, members in known.items() for name, value in members.items()}


def changed_fields(old: JsonView, new: JsonView) -> set[Path]:
    """Return the fields that are new, changed or gone."""
    before, after = _owned(old), _owned(new)
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def record(entries: Iterable[Json], fields: set[Path], writer: FieldWriter, entry: Json) -> list[Json]:
    """Return managedFields after `writer` has set these fields. `entry`: the writer's, without fields."""
    kept, own = [], set(fields)
    for old in entries:
        paths = _paths(old["fieldsV1"])
        if writer.owns(old):
            own |= paths
        elif left := paths - fields:
            kept.append(old | {"fieldsV1": _tree(left)})
    return [*kept, entry | {"fieldsV1": _tree(own)}] if own else kept


def _paths(tree: JsonView, above: Path = ()) -> set[Path]:
    paths: set[Path] = set()
    for name, below in tree.items():
        paths |= _paths(below, (*above, name)) if below else {(*above, name)}
    return paths


def _tree(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        place = tree
        for name in path:
            place = place.setdefault(name, {})
    return tree

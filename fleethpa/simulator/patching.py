"""The patch types of the API server: JSON patch, merge patch, and strategic merge by the well-known list keys.

Who set which part of an object: `metadata.managedFields`, to the depth of the members of spec and of the labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.simulator.faults import StatusError
from schemas.kubernetes.shape import Json


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """The hand behind a write: `manager` is ?fieldManager=, else the User-Agent up to its first slash."""

    manager: str
    operation: str = "Update"
    subresource: str = ""

    def entry(self, api_version: str, time: str) -> Json:
        """Return a managedFields entry without fields."""
        entry = {"manager": self.manager, "operation": self.operation, "apiVersion": api_version, "time": time}
        entry["fieldsType"] = "FieldsV1"
        return entry | ({"subresource": self.subresource} if self.subresource else {})

    def owns(self, entry: Json) -> bool:
        """Whether an entry is this writer's."""
        found = (entry["manager"], entry["operation"], entry.get("subresource", ""))
        return found == (self.manager, self.operation, self.subresource)


def changed(old: Json | None, new: Json, part: str) -> set[str]:
    """Return the members of `part` that are new, changed or gone."""
    before, after = (old or {}).get(part) or {}, new.get(part) or {}
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def changed_labels(old: Json | None, new: Json) -> set[str]:
    """Return the names of labels that are new, changed or gone."""
    before, after = (((old or {}).get("metadata") or {}).get("labels") or {}), new["metadata"].get("labels") or {}
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def record(entries: Iterable[Json], fields: dict[str, set[str]], writer: FieldWriter, entry: Json) -> list[Json]:
    """Return managedFields after `writer` has set `fields` (part of the object, or `labels`: members)."""
    kept: list[Json] = []
    own: dict[str, Json] = {}
    for old in entries:
        if writer.owns(old):
            own = _parts(old)
        elif rest := _without(old, fields):
            kept.append(rest)
    for part, members in fields.items():
        if members:
            own.setdefault(f"f:{part}", {}).update({f"f:{name}": {} for name in sorted(members)})
    return [*kept, entry | {"fieldsV1": _nested(own)}] if own else kept


def _without(entry: Json, fields: dict[str, set[str]]) -> Json | None:
    left = {}
    for part, members in _parts(entry).items():
        lost = {f"f:{name}" for name in fields.get(part[2:], ())}
        if rest := {name: value for name, value in members.items() if name not in lost}:
            left[part] = rest
    return entry | {"fieldsV1": _nested(left)} if left else None


def _parts(entry: Json) -> dict[str, Json]:
    """The fields of an entry by part; labels, which are part of the metadata, are a part of their own."""
    parts = {part: dict(members) for part, members in entry["fieldsV1"].items() if part != "f:metadata"}
    labels = entry["fieldsV1"].get("f:metadata", {}).get("f:labels")
    return parts | ({"f:labels": dict(labels)} if labels else {})


def _nested(parts: dict[str, Json]) -> Json:
    rest = {part: members for part, members in parts.items() if part != "f:labels"}
    return rest | ({"f:metadata": {"f:labels": parts["f:labels"]}} if "f:labels" in parts else {})


def refuse_conflicts(current: Json, applied: Json, writer: FieldWriter) -> None:
    """Check a server-side apply without force.

    Raises ApiError: 409, a member of spec that the apply would change belongs to another manager.
    """
    spec = current.get("spec") or {}
    wanted = {name for name, value in (applied.get("spec") or {}).items() if spec.get(name) != value}
    causes = []
    for entry in current["metadata"].get("managedFields") or ():
        taken = {name[2:] for name in entry["fieldsV1"].get("f:spec", {})} & wanted
        if entry["manager"] != writer.manager:
            text = f'conflict with "{entry["manager"]}" using {entry["apiVersion"]}'
            causes += [
                {"reason": "FieldManagerConflict", "message": text, "field": f".spec.{n}"} for n in sorted(taken)
            ]
    if causes:
        plural = "conflict" if len(causes) == 1 else "conflicts"
        listed = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        message = f"Apply failed with {len(causes)} {plural}: {listed}"
        raise StatusError(409, message, details={"causes": causes})


JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

# Lists that strategic merge joins by a key; every other list is replaced as a whole.
_LIST_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
}


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and return the result; null removes a member."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic_merge(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch: as merge, but well-known lists are joined by key, `$patch: delete` included."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue  # element order and retained keys: without effect here
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in _LIST_KEYS and _keyed(value, _LIST_KEYS[key]):
            result[key] = _join(result.get(key) or [], value, _LIST_KEYS[key])
        else:
            result[key] = strategic_merge(result.get(key), value)
    return result


def _keyed(items: list[Any], key: str) -> bool:
    return all(isinstance(item, dict) and key in item for item in items)


def _join(old: list[Any], new: list[Any], key: str) -> list[Any]:
    merged = {item[key]: item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic_merge(merged.get(item[key]), item)
    return list(merged.values())


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply a JSON patch (RFC 6902).

    Raises ApiError: 422, an operation does not fit the object; a failed `test` among them.
    """
    result = deepcopy(target)
    for operation in operations:
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise StatusError(
                422, f"the server rejected our request due to an error in our request: {error}"
            ) from error
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation["op"], operation["path"]
    if op == "test":
        if _get(document, path) != operation["value"]:
            raise ValueError(f"testing value {path} failed")
        return document
    if op in ("add", "replace"):
        return _put(document, path, deepcopy(operation["value"]), replace=op == "replace")
    if op == "remove":
        return _remove(document, path)
    if op in ("move", "copy"):
        value = deepcopy(_get(document, operation["from"]))
        if op == "move":
            document = _remove(document, operation["from"])
        return _put(document, path, value, replace=False)
    raise ValueError(f"unknown operation {op!r}")


def _tokens(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"path {path!r} does not begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(document: Any, path: str) -> Any:
    for token in _tokens(path):
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


def _parent(document: Any, path: str) -> tuple[Any, str]:
    tokens = _tokens(path)
    for token in tokens[:-1]:
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document, tokens[-1]


def _put(document: Any, path: str, value: Any, *, replace: bool) -> Any:
    if not path:
        return value
    parent, token = _parent(document, path)
    if isinstance(parent, list):
        if replace:
            parent[int(token)] = value
        else:
            parent.insert(len(parent) if token == "-" else int(token), value)
    elif replace and token not in parent:
        raise KeyError(f"replace operation does not apply: doc is missing key: {path}")
    else:
        parent[token] = value
    return document


def _remove(document: Any, path: str) -> Any:
    parent, token = _parent(document, path)
    if isinstance(parent, list):
        del parent[int(token)]
    else:
        del parent[token]
    return document

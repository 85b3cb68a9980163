"""Patches of objects, and `metadata.managedFields`: who set which member of spec and status, and which label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.simulator.statuses import StatusError
from schemas.kubernetes.shape import Json, JsonView

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
    found: set[Path] = set()
    for name, below in tree.items():
        found |= _paths(below, (*above, name)) if below else {(*above, name)}
    return found


def _tree(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        place = tree
        for name in path:
            place = place.setdefault(name, {})
    return tree

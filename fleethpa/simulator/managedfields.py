"""Who set which part of an object: `metadata.managedFields`, to the depth of the members of spec and of the labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleethpa.simulator.apistatus import StatusError
from schemas.kubernetes.jsontypes import Json


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

    Raises:
        ApiError: 409, a member of spec that the apply would change belongs to another manager.
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

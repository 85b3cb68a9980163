"""Where an object of any kind may act, and how the records that it leads to are marked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from msgspec import structs

from fleethpa.changes.records import PlannedRecord
from fleethpa.frame.errors import CommandError
from fleethpa.hub.kinds import API_VERSION, RESERVED, Author, HubObject
from fleethpa.hub.scene import ObjectRefusedError, Scene
from schemas.kubernetes.selectors import SelectorError, matches_label_selector
from schemas.kubernetes.shape import Json


def sentence_of(error: CommandError) -> str:
    """An error as one sentence of a condition."""
    return " ".join(filter(None, (f"{error.what}.", error.cause.replace("\n", "; "))))


def because(item: HubObject) -> str:
    """Why a record is written, for its `reason`."""
    return f"{item.key}, generation {item.generation}"


def marked(record: PlannedRecord, item: HubObject, author: Author) -> PlannedRecord:
    """A record with whether its author is proven, and for a deletion the object that it follows from."""
    fields: dict[str, Any] = {"proven": author.proven, "stated_by": item.key}
    known = {name: value for name, value in fields.items() if name in record.body.__struct_fields__}
    return replace(record, body=structs.replace(record.body, **known))


def clusters_meant(scene: Scene, item: HubObject, globs: Sequence[str], namespace: str) -> list[str]:
    """The member clusters that an object means by names or globs, of those that it may act on.

    Raises ObjectRefusedError: a name is not allowed or not known, or nothing that is allowed is meant. The text names
    no other cluster.
    """
    known = [name for name in scene.state.clusters if name not in RESERVED]
    may = [name for name in known if scene.access.allows(item.namespace, name, namespace)]
    for glob in globs:
        if set(glob) & set("*?["):
            continue
        if not scene.access.allows(item.namespace, glob, namespace):
            raise ObjectRefusedError(
                "Forbidden",
                f"No FleetAccess lets namespace {item.namespace} of the hub act on namespace {namespace} of cluster "
                f"{glob}. Next: kubectl get fleetaccesses",
            )
        if glob not in known:
            raise ObjectRefusedError("NoCluster", f"Cluster {glob} is not known: no observer has reported it.")
    matches = [name for name in may if any(fnmatchcase(name, glob) for glob in globs)]
    if globs and not matches:
        raise ObjectRefusedError(
            "Forbidden" if not may else "NoCluster",
            f"No cluster that namespace {item.namespace} of the hub may act on in namespace {namespace} matches "
            f"{', '.join(globs)}.",
        )
    return sorted(matches)


def clusters_selected(scene: Scene, item: HubObject, selector: Mapping[str, Any], namespace: str) -> list[str]:
    """The clusters whose ClusterConfigs have these labels, of those that an object may act on."""
    try:
        labelled = {
            each.name
            for each in scene.of_kind("ClusterConfig")
            if matches_label_selector(selector, each.metadata.get("labels") or {})
        }
    except SelectorError as error:
        raise ObjectRefusedError("Invalid", f"spec.clusterSelector cannot be read: {error}") from error
    return sorted(
        name for name in labelled & scene.state.clusters.keys() if scene.access.allows(item.namespace, name, namespace)
    )


def object_manifest(item: HubObject, metadata: Json) -> Json:
    """An object of a kind that `apply` reads, as its manifest."""
    return {"apiVersion": API_VERSION, "kind": item.kind.name, "metadata": metadata, "spec": item.body["spec"]}

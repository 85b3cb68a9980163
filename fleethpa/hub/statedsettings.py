"""The groups and settings of the log that CapacityGroups and ClusterConfigs ask for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from msgspec import structs

from fleethpa.changes.capacitygroups import applied_groups, capacity_group, deleted_groups, refused_groups
from fleethpa.changes.manifests import FileManifest
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.settings import parse_changes
from fleethpa.hub.kinds import ClusterConfigSpec, HubObject
from fleethpa.hub.scene import ObjectRefusedError, ObjectVerdict, Scene
from fleethpa.hub.statement import because, marked, object_manifest, sentence_of
from schemas.capacity import CapacityGroupSet, CapacitySpec
from schemas.keys import EVERY_CLUSTER
from schemas.settings import SETTING_NAMES, ClusterSettings, SettingsSet

_LEFT_ALONE: Final = ("native_controller", "native_evidence", "managed_by")
"""Settings that processes of fleethpa write themselves."""


def group_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a CapacityGroup."""
    group = capacity_group(FileManifest(item.key, object_manifest(item, {"name": item.name})))
    known = scene.state.capacity_groups.get(item.name)
    for spec in (group.spec, *((known.spec,) if known is not None and known.stated_by != item.key else ())):
        _check_reach(scene, item, spec)
    if known is not None and known.stated_by not in ("", item.key) and scene.is_there(known.stated_by):
        raise ObjectRefusedError(
            "Conflict", f"CapacityGroup {item.name} is stated by {known.stated_by}: a name is of the fleet."
        )
    if problems := refused_groups([group], scene.state):
        raise ObjectRefusedError("Refused", sentence_of(next(iter(problems.values()))))
    author = scene.author(item)
    writes = applied_groups([group], scene.state, scene.now_ms, author.name, because(item))
    if known is not None and not writes and known.stated_by != item.key:
        entry = CapacityGroupSet(
            name=item.name, revision=known.revision, spec=known.spec, author=author.name, reason=because(item)
        )
        writes = [PlannedRecord(f"capacitygroup {item.name} configured", entry, EVERY_CLUSTER)]
    return ObjectVerdict(writes=tuple(marked(each, item, author) for each in writes))


def _check_reach(scene: Scene, item: HubObject, spec: CapacitySpec) -> None:
    """Refuse a group that reaches further than the object may act. Raises ObjectRefusedError."""
    for cluster in spec.clusters or ["*"]:
        for namespace in spec.namespaces:
            if not scene.access.allows(item.namespace, cluster, namespace):
                raise ObjectRefusedError(
                    "Forbidden",
                    f"No FleetAccess lets namespace {item.namespace} of the hub act on all that the group {item.name} "
                    f"means by cluster {cluster}, namespace {namespace}.",
                )


def group_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a CapacityGroup: it is deleted, or given back where nothing may be done any more."""
    known = scene.state.capacity_groups.get(item.name)
    if known is None or known.stated_by != item.key:
        return
    try:
        _check_reach(scene, item, known.spec)
    except ObjectRefusedError:
        yield from groups_given_back(scene, item.key)
        return
    for record in deleted_groups([item.name], scene.now_ms, "", f"{item.key} was deleted"):
        yield replace(record, body=structs.replace(record.body, stated_by=item.key))


def groups_given_back(scene: Scene, key: str) -> Iterator[PlannedRecord]:
    """The records that leave the groups of an object as they are, and give them to the log."""
    for name, row in scene.state.capacity_groups.items():
        if row.stated_by == key:
            body = CapacityGroupSet(name=name, revision=scene.now_ms, spec=row.spec, reason=f"{key} gave it back")
            yield PlannedRecord(f"capacitygroup {name} given back", body, EVERY_CLUSTER)


def settings_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a ClusterConfig."""
    spec: ClusterConfigSpec = item.spec
    changes = parse_changes(tuple(f"{name}={value}" for name, value in spec.settings.items()))
    cluster = item.name
    wanted = structs.replace(changes.settings(ClusterSettings()), managed_by=item.key)
    held = scene.state.settings.get(cluster, ClusterSettings())
    left = [name for name in _LEFT_ALONE if getattr(wanted, name) is None]
    if _stating(held, left) == _stating(wanted, left):
        return ObjectVerdict()
    author = scene.author(item)
    surplus = [
        name
        for name, field in SETTING_NAMES.items()
        if field not in left and getattr(wanted, field) is None and getattr(held, field) is not None
    ]
    body = SettingsSet(
        cluster=cluster, settings=wanted, author=author.name, reason=because(item), unset=surplus, proven=author.proven
    )
    return ObjectVerdict(writes=(PlannedRecord(f"settings of {cluster} changed", body, cluster),))


def _stating(settings: ClusterSettings, left: Iterable[str]) -> ClusterSettings:
    return structs.replace(settings, **dict.fromkeys(left, None))


def settings_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a ClusterConfig: what it stated is unset."""
    held = scene.state.settings.get(item.name)
    if held is None or held.managed_by != item.key:
        return
    stated_names = item.spec.settings if item.spec is not None else {}
    proven = () if "native-controller" in stated_names else ("native_controller", "native_evidence")
    unset = [name for name, field in SETTING_NAMES.items() if field not in proven and getattr(held, field) is not None]
    body = SettingsSet(
        cluster=item.name, settings=ClusterSettings(), unset=unset, author="", reason=f"{item.key} was deleted"
    )
    yield PlannedRecord(f"settings of {item.name} removed", body, item.name)


def settings_given_back(scene: Scene, key: str) -> Iterator[PlannedRecord]:
    """The records that leave the settings of an object as they are, and give them to the log."""
    for cluster, settings in scene.state.settings.items():
        if settings.managed_by == key:
            why = f"{key} gave them back"
            entry = SettingsSet(cluster=cluster, settings=ClusterSettings(), unset=["managedBy"], reason=why)
            yield PlannedRecord(f"settings of {cluster} given back", entry, cluster)

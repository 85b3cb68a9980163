"""The HPAs in the members that CentralHPAs and FleetHPAs ask for, with the schedules of Schedules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import structs

from fleethpa.changes.applying import ApplyPlan, look_ahead
from fleethpa.changes.fleetmanifests import fleet_manifest, fleet_records, members_of
from fleethpa.changes.manifests import BY_OWNER, FileManifest, Input
from fleethpa.changes.owners import Owner, object_owning
from fleethpa.changes.records import PlannedRecord, central_record, deleted_record
from fleethpa.changes.schedules import kept_by, made, schedule_of, spec_at, with_schedule
from fleethpa.fleet.views import HpaView
from fleethpa.hub.access import MODES
from fleethpa.hub.kinds import GROUP, RESTORED_ANNOTATION, CentralHpaSpec, HubObject, ScheduleSpec
from fleethpa.hub.scene import ObjectRefusedError, ObjectVerdict, Scene, plain_spec
from fleethpa.hub.statement import because, clusters_meant, clusters_selected, marked, object_manifest, sentence_of
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.shape import Json
from schemas.observed import Mode
from streams.state.hpastate import OBJECT_ANNOTATION

_TOOLS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


def _metadata(item: HubObject, owner: Owner, namespace: str, name: str) -> Json:
    """That of an HPA: labels and annotations of the object, as far as it may have them, and its owner."""
    kept = {
        key: value
        for key, value in item.annotations.items()
        if key in BY_OWNER or not (key.startswith(f"{GROUP}/") or key in _TOOLS)
    }
    annotations = kept | {OBJECT_ANNOTATION: msgspec.json.encode(owner).decode()}
    labels = item.metadata.get("labels") or {}
    return {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}


def _conflict(scene: Scene, item: HubObject, hpa: HpaId) -> str:
    """Why an object cannot have an HPA: another one makes it; empty: none does."""
    view = scene.state.hpas.get(hpa)
    other = None if view is None else object_owning(view)
    return f"HPA {hpa} is made by {other.object}." if other is not None and other.object != item.key else ""


def _above(scene: Scene, item: HubObject, hpa: HpaId, mode: Mode | None) -> str:
    """Why an HPA may not have the mode that its object states; empty: it may. None: whatever its cluster's setting is,
    now or later.
    """
    most = scene.access.max_mode(item.namespace, hpa.cluster, hpa.namespace)
    if MODES.index(mode or MODES[-1]) <= MODES.index(most):
        return ""
    wanted = f"of mode {mode}" if mode is not None else "without a mode"
    return f"HPA {hpa} {wanted}: FleetAccess lets namespace {item.namespace} of the hub set at most mode {most} there."


def _check_restored(item: HubObject, views: Iterable[HpaView]) -> None:
    """Refuse an object that is older than what the log has of it. Raises ObjectRefusedError."""
    if item.annotations.get(RESTORED_ANNOTATION) == "accept":
        return
    for view in views:
        owner = object_owning(view)
        if owner is not None and owner.uid == item.uid and owner.generation > item.generation:
            raise ObjectRefusedError(
                "Restored",
                f"The log has generation {owner.generation} of this object, and the API server has "
                f"{item.generation}: its data were restored. The log keeps what it has. Next: make the change again, "
                f"or to take the older object: kubectl annotate {item.kind.plural} {item.name} -n {item.namespace} "
                f"{RESTORED_ANNOTATION}=accept",
            )


def central_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a CentralHPA."""
    spec: CentralHpaSpec = item.spec
    namespace, called = spec.namespace or item.namespace, spec.name or item.name
    mine = scene.made.get(item.key, [])
    _check_restored(item, mine)
    names = set(clusters_meant(scene, item, spec.clusters, namespace))
    if spec.cluster_selector is not None:
        names |= set(clusters_selected(scene, item, spec.cluster_selector, namespace))
    if not names:
        raise ObjectRefusedError(
            "NoCluster", "spec.clusters and spec.clusterSelector mean no cluster that is known and allowed."
        )
    author = scene.author(item)
    owner = Owner(object=item.key, uid=item.uid, generation=item.generation, mode=spec.mode)
    problems: list[tuple[str, str]] = []
    free = []
    for name in sorted(names):
        hpa = HpaId(name, namespace, called)
        if above := _above(scene, item, hpa, spec.mode):
            problems.append(("Forbidden", above))
        elif conflict := _conflict(scene, item, hpa):
            problems.append(("Conflict", conflict))
        else:
            free.append(name)
    metadata = _metadata(item, owner, namespace, called)
    plan = ApplyPlan(scene.state, author.name, because(item), scene.now_ms)
    plan.add(Input(hpas=[FileManifest(item.key, manifest_of(metadata, spec.template))]), free, None, spec.mode)
    for hpa in plan.unchanged:
        view = scene.state.hpas[hpa]
        if _differs(view, owner):
            body = kept_by(view.hpa, plan.meant[hpa], scene.now_ms)
            record = central_record(hpa, "configured", body, author.name, because(item), spec.mode, over=view)
            plan.writes.append(record)
    if plan.writes:
        look_ahead(plan, scene.present)
    problems += [("Invalid" if each.code == 2 else "Refused", sentence_of(each)) for each in plan.problems]
    writes = [marked(each, item, author) for each in plan.writes]
    for view in mine:
        is_meant = view.id[1:] == (namespace, called) and view.id.cluster in names
        if not is_meant and scene.access.allows(item.namespace, view.id.cluster, view.id.namespace):
            writes.append(_gone(view.id, item))
    reason, message = problems[0][0] if problems else "Accepted", " ".join(text for _, text in problems)
    hpas = tuple(HpaId(name, namespace, called) for name in free)
    return ObjectVerdict(reason, message, tuple(writes), hpas)


def _differs(view: HpaView, owner: Owner) -> bool:
    """Whether the log has another owner of an HPA, or another uid of it, or does not know what mode it states."""
    known = object_owning(view)
    return known is None or (known.object, known.uid, known.mode) != (owner.object, owner.uid, owner.mode)


def _gone(hpa: HpaId, item: HubObject) -> PlannedRecord:
    why = f"{item.key} was deleted" if item.is_ending else f"{because(item)} does not mean it any more"
    record = deleted_record(hpa, "", why)
    return replace(record, body=structs.replace(record.body, stated_by=item.key))


def unmarked(view: HpaView) -> PlannedRecord:
    """The record that gives an HPA back to the log, unchanged."""
    annotations = {name: text for name, text in view.annotations.items() if name != OBJECT_ANNOTATION}
    body = manifest_of(view.id._asdict() | {"labels": view.labels, "annotations": annotations}, view.spec)
    return central_record(view.id, "given back", body, "", "it belongs to the log again", over=view)


def hpas_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a CentralHPA: its HPAs are deleted, or given back where nothing may be done any more."""
    for view in scene.made.get(item.key, ()):
        may = scene.access.allows(item.namespace, view.id.cluster, view.id.namespace)
        yield _gone(view.id, item) if may else unmarked(view)


def fleet_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a FleetHPA."""
    fleet_hpa = HpaId(FLEET, item.namespace, item.name)
    view = scene.state.hpas.get(fleet_hpa)
    _check_restored(item, () if view is None else (view,))
    author = scene.author(item)
    owner = Owner(object=item.key, uid=item.uid, generation=item.generation)
    metadata = _metadata(item, owner, item.namespace, item.name)
    manifest = fleet_manifest(FileManifest(item.key, object_manifest(item, metadata)), item.namespace)
    names = [each.name for each in manifest.fleet.clusters]
    clusters_meant(scene, item, names, item.namespace)
    for hpa in members_of(scene.state, fleet_hpa):
        if not scene.access.allows(item.namespace, hpa.cluster, hpa.namespace):
            clusters = f"all clusters of FleetHPA {fleet_hpa}"
            text = f"No FleetAccess lets namespace {item.namespace} of the hub act on {clusters}."
            raise ObjectRefusedError("Forbidden", text)
    if above := next(filter(None, (_above(scene, item, fleet_hpa._replace(cluster=name), None) for name in names)), ""):
        raise ObjectRefusedError("Forbidden", above)
    hpas = tuple(fleet_hpa._replace(cluster=name) for name in names)
    if conflict := next(filter(None, (_conflict(scene, item, hpa) for hpa in hpas)), ""):
        raise ObjectRefusedError("Conflict", conflict)
    if view is not None and object_owning(view) == owner and not view.incomplete:
        return ObjectVerdict(hpas=(fleet_hpa, *hpas))
    records = fleet_records(manifest, scene.state, scene.now_ms, None, author.name, because(item))
    plan = ApplyPlan(scene.state, author.name, because(item), scene.now_ms, writes=records)
    look_ahead(plan, scene.present)
    if plan.problems:
        raise ObjectRefusedError("Refused", sentence_of(plan.problems[0]))
    return ObjectVerdict(writes=tuple(marked(each, item, author) for each in plan.writes), hpas=(fleet_hpa, *hpas))


def fleet_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a FleetHPA, as a whole."""
    fleet_hpa = HpaId(FLEET, item.namespace, item.name)
    hpas = {view.id for view in scene.made.get(item.key, ())}
    parts = [hpa for hpa in members_of(scene.state, fleet_hpa) if hpa in hpas]
    may = all(scene.access.allows(item.namespace, hpa.cluster, hpa.namespace) for hpa in parts)
    for hpa in sorted(hpas):
        yield _gone(hpa, item) if may else unmarked(scene.state.hpas[hpa])


# --- schedules --------------------------------------------------------------------------------------------------------


def _targets(scene: Scene, item: HubObject) -> list[HpaView]:
    return scene.made.get(f"CentralHPA/{item.namespace}/{item.spec.target.name}", [])


def _schedules_like(scene: Scene, item: HubObject) -> list[HubObject]:
    """The Schedules that are there for the target of one, the oldest first."""
    there = (each for each in scene.of_kind("Schedule") if each.spec is not None and not each.is_ending)
    place = (item.namespace, item.spec.target.name)
    return [each for each in there if (each.namespace, each.spec.target.name) == place]


def schedule_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a Schedule."""
    spec: ScheduleSpec = item.spec
    target = f"CentralHPA/{item.namespace}/{spec.target.name}"
    first = _schedules_like(scene, item)[0]
    if first.key != item.key:
        raise ObjectRefusedError("Conflict", f"{target} has the schedule of {first.key}, which is older.")
    if not scene.is_there(target):
        raise ObjectRefusedError("NotFound", f"There is no {target}.")
    author, writes, views = scene.author(item), [], _targets(scene, item)
    template = scene.objects[target].spec
    for view in views:
        if not scene.access.allows(item.namespace, view.id.cluster, view.id.namespace):
            raise ObjectRefusedError("Forbidden", f"No FleetAccess lets namespace {item.namespace} act on {view.id}.")
        plain = view.hpa | {"spec": plain_spec(view)}
        wanted, held = made(plain, spec.rules, spec.time_zone), schedule_of(view.hpa)
        if template is None or held == wanted:
            continue
        body = with_schedule(view.hpa, wanted, spec_at(plain, wanted, scene.now_ms))
        record = central_record(view.id, "has a schedule", body, author.name, because(item), over=view)
        writes.append(marked(record, item, author))
    return ObjectVerdict(writes=tuple(writes), hpas=tuple(view.id for view in views))


def schedule_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a Schedule: its HPAs have the spec that they have when no rule holds."""
    if item.spec is None:
        return
    for view in () if _schedules_like(scene, item) else _targets(scene, item):
        if schedule_of(view.hpa) is None or not scene.access.allows(item.namespace, view.id.cluster, view.id.namespace):
            continue
        body = with_schedule(view.hpa, None, plain_spec(view))
        yield central_record(view.id, "has no schedule any more", body, "", f"{item.key} was deleted", over=view)

"""From an object to the records that put it into the log, and from its deletion to those that take it out. Pure.

A verdict says what is to be written for the log to say what the object says; nothing, where it does already. It is
asked at each look, so that a record that was lost is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec import structs

from fleethpa.changes.applying import ApplyPlan, look_ahead
from fleethpa.changes.capacitygroups import applied_groups, capacity_group, deleted_groups, refused_groups
from fleethpa.changes.fleetmanifests import fleet_manifest, fleet_records, members_of
from fleethpa.changes.manifests import BY_OWNER, FileManifest, Input
from fleethpa.changes.owners import Owner, known_pauses, object_owning
from fleethpa.changes.records import PlannedRecord, central_record, deleted_record
from fleethpa.changes.schedules import kept_by, made, schedule_of, spec_at, with_schedule
from fleethpa.changes.settings import parse_changes
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import CommandError
from fleethpa.hub.access import MODES
from fleethpa.hub.kinds import (
    API_VERSION,
    GROUP,
    RESERVED,
    RESTORED_ANNOTATION,
    Author,
    CentralHpaSpec,
    ClusterConfigSpec,
    ClusterPauseSpec,
    HubObject,
    OverrideSpec,
    PauseSpec,
    ScheduleSpec,
    until_ms,
)
from fleethpa.hub.scene import ObjectRefusedError, ObjectVerdict, Scene, StatedPause, plain_spec
from schemas.capacity import CapacityGroupSet, CapacitySpec
from schemas.keys import EVERY_CLUSTER, FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.selectors import SelectorError, matches_label_selector
from schemas.kubernetes.shape import Json
from schemas.observed import Command, Mode
from schemas.pauses import OVERRIDE, is_in_force
from schemas.settings import SETTING_NAMES, ClusterSettings, SettingsSet
from streams.state.hpastate import OBJECT_ANNOTATION
from streams.state.rows import Pause

_LEFT_ALONE: Final = ("native_controller", "native_evidence", "managed_by")
"""Settings that processes of fleethpa write themselves."""
_TOOLS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
_KINDS: Final = {"All": "all", "ScaleUp": "scaleUp", "ScaleDown": "scaleDown"}


def stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about an object that nobody has deleted."""
    try:
        if item.spec is None:
            raise ObjectRefusedError("Invalid", item.problem)
        return _STATED[item.kind.name](scene, item)
    except ObjectRefusedError as refused:
        return ObjectVerdict(refused.reason, refused.message)
    except CommandError as error:
        return ObjectVerdict("Invalid", _sentence(error))


def ended(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The records to be written before a deleted object may go; none, once the log has its end."""
    return ObjectVerdict(writes=tuple(_ENDED[item.kind.name](scene, item)))


def given_back(scene: Scene, key: str) -> list[PlannedRecord]:
    """The records that leave everything as an object states it, and give it to the log."""
    writes = [_unmarked(view) for view in scene.made.get(key, ())]
    writes += [_pause_record(each, structs.replace(each.pause, stated_by="")) for each in scene.pauses.get(key, ())]
    for name, row in scene.state.capacity_groups.items():
        if row.stated_by == key:
            body = CapacityGroupSet(name=name, revision=scene.now_ms, spec=row.spec, reason=f"{key} gave it back")
            writes.append(PlannedRecord(f"capacitygroup {name} given back", body, EVERY_CLUSTER))
    why = f"{key} gave them back"
    for cluster, settings in scene.state.settings.items():
        if settings.managed_by == key:
            entry = SettingsSet(cluster=cluster, settings=ClusterSettings(), unset=["managedBy"], reason=why)
            writes.append(PlannedRecord(f"settings of {cluster} given back", entry, cluster))
    return writes


def _sentence(error: CommandError) -> str:
    return " ".join(filter(None, (f"{error.what}.", error.cause.replace("\n", "; "))))


def _because(item: HubObject) -> str:
    return f"{item.key}, generation {item.generation}"


def _marked(record: PlannedRecord, item: HubObject, author: Author) -> PlannedRecord:
    """A record with whether its author is proven, and for a deletion the object that it follows from."""
    fields: dict[str, Any] = {"proven": author.proven, "stated_by": item.key}
    known = {name: value for name, value in fields.items() if name in record.body.__struct_fields__}
    return replace(record, body=structs.replace(record.body, **known))


# --- where ------------------------------------------------------------------------------------------------------------


def _clusters(scene: Scene, item: HubObject, globs: Sequence[str], namespace: str) -> list[str]:
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
    found = [name for name in may if any(fnmatchcase(name, glob) for glob in globs)]
    if globs and not found:
        raise ObjectRefusedError(
            "Forbidden" if not may else "NoCluster",
            f"No cluster that namespace {item.namespace} of the hub may act on in namespace {namespace} matches "
            f"{', '.join(globs)}.",
        )
    return sorted(found)


def _selected(scene: Scene, item: HubObject, selector: Mapping[str, Any], namespace: str) -> list[str]:
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


# --- HPAs -------------------------------------------------------------------------------------------------------------


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


def _manifest(item: HubObject, metadata: Json) -> Json:
    """An object of a kind that `apply` reads, as its manifest."""
    return {"apiVersion": API_VERSION, "kind": item.kind.name, "metadata": metadata, "spec": item.body["spec"]}


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


def _central(scene: Scene, item: HubObject) -> ObjectVerdict:
    spec: CentralHpaSpec = item.spec
    namespace, called = spec.namespace or item.namespace, spec.name or item.name
    mine = scene.made.get(item.key, [])
    _check_restored(item, mine)
    names = set(_clusters(scene, item, spec.clusters, namespace))
    if spec.cluster_selector is not None:
        names |= set(_selected(scene, item, spec.cluster_selector, namespace))
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
    plan = ApplyPlan(scene.state, author.name, _because(item), scene.now_ms)
    plan.add(Input(hpas=[FileManifest(item.key, manifest_of(metadata, spec.template))]), free, None, spec.mode)
    for hpa in plan.unchanged:
        view = scene.state.hpas[hpa]
        if _differs(view, owner):
            body = kept_by(view.hpa, plan.meant[hpa], scene.now_ms)
            record = central_record(hpa, "configured", body, author.name, _because(item), spec.mode, over=view)
            plan.writes.append(record)
    if plan.writes:
        look_ahead(plan, scene.present)
    problems += [("Invalid" if each.code == 2 else "Refused", _sentence(each)) for each in plan.problems]
    writes = [_marked(each, item, author) for each in plan.writes]
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
    why = f"{item.key} was deleted" if item.is_ending else f"{_because(item)} does not mean it any more"
    record = deleted_record(hpa, "", why)
    return replace(record, body=structs.replace(record.body, stated_by=item.key))


def _unmarked(view: HpaView) -> PlannedRecord:
    annotations = {name: text for name, text in view.annotations.items() if name != OBJECT_ANNOTATION}
    body = manifest_of(view.id._asdict() | {"labels": view.labels, "annotations": annotations}, view.spec)
    return central_record(view.id, "given back", body, "", "it belongs to the log again", over=view)


def _end_of_hpas(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    for view in scene.made.get(item.key, ()):
        may = scene.access.allows(item.namespace, view.id.cluster, view.id.namespace)
        yield _gone(view.id, item) if may else _unmarked(view)


def _fleet(scene: Scene, item: HubObject) -> ObjectVerdict:
    whole = HpaId(FLEET, item.namespace, item.name)
    view = scene.state.hpas.get(whole)
    _check_restored(item, () if view is None else (view,))
    author = scene.author(item)
    owner = Owner(object=item.key, uid=item.uid, generation=item.generation)
    metadata = _metadata(item, owner, item.namespace, item.name)
    manifest = fleet_manifest(FileManifest(item.key, _manifest(item, metadata)), item.namespace)
    names = [each.name for each in manifest.fleet.clusters]
    _clusters(scene, item, names, item.namespace)
    for hpa in members_of(scene.state, whole):
        if not scene.access.allows(item.namespace, hpa.cluster, hpa.namespace):
            text = f"No FleetAccess lets namespace {item.namespace} of the hub act on all clusters of FleetHPA {whole}."
            raise ObjectRefusedError("Forbidden", text)
    if above := next(filter(None, (_above(scene, item, whole._replace(cluster=name), None) for name in names)), ""):
        raise ObjectRefusedError("Forbidden", above)
    hpas = tuple(whole._replace(cluster=name) for name in names)
    if conflict := next(filter(None, (_conflict(scene, item, hpa) for hpa in hpas)), ""):
        raise ObjectRefusedError("Conflict", conflict)
    if view is not None and object_owning(view) == owner and not view.incomplete:
        return ObjectVerdict(hpas=(whole, *hpas))
    records = fleet_records(manifest, scene.state, scene.now_ms, None, author.name, _because(item))
    plan = ApplyPlan(scene.state, author.name, _because(item), scene.now_ms, writes=records)
    look_ahead(plan, scene.present)
    if plan.problems:
        raise ObjectRefusedError("Refused", _sentence(plan.problems[0]))
    return ObjectVerdict(writes=tuple(_marked(each, item, author) for each in plan.writes), hpas=(whole, *hpas))


def _end_of_fleet(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    whole = HpaId(FLEET, item.namespace, item.name)
    made = {view.id for view in scene.made.get(item.key, ())}
    parts = [hpa for hpa in members_of(scene.state, whole) if hpa in made]
    may = all(scene.access.allows(item.namespace, hpa.cluster, hpa.namespace) for hpa in parts)
    for hpa in sorted(made):
        yield _gone(hpa, item) if may else _unmarked(scene.state.hpas[hpa])


# --- groups and settings ----------------------------------------------------------------------------------------------


def _group(scene: Scene, item: HubObject) -> ObjectVerdict:
    group = capacity_group(FileManifest(item.key, _manifest(item, {"name": item.name})))
    known = scene.state.capacity_groups.get(item.name)
    for spec in (group.spec, *((known.spec,) if known is not None and known.stated_by != item.key else ())):
        _check_reach(scene, item, spec)
    if known is not None and known.stated_by not in ("", item.key) and scene.is_there(known.stated_by):
        raise ObjectRefusedError(
            "Conflict", f"CapacityGroup {item.name} is stated by {known.stated_by}: a name is of the fleet."
        )
    if problems := refused_groups([group], scene.state):
        raise ObjectRefusedError("Refused", _sentence(next(iter(problems.values()))))
    author = scene.author(item)
    writes = applied_groups([group], scene.state, scene.now_ms, author.name, _because(item))
    if known is not None and not writes and known.stated_by != item.key:
        entry = CapacityGroupSet(
            name=item.name, revision=known.revision, spec=known.spec, author=author.name, reason=_because(item)
        )
        writes = [PlannedRecord(f"capacitygroup {item.name} configured", entry, EVERY_CLUSTER)]
    return ObjectVerdict(writes=tuple(_marked(each, item, author) for each in writes))


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


def _end_of_group(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    known = scene.state.capacity_groups.get(item.name)
    if known is None or known.stated_by != item.key:
        return
    try:
        _check_reach(scene, item, known.spec)
    except ObjectRefusedError:
        yield from given_back(scene, item.key)
        return
    for record in deleted_groups([item.name], scene.now_ms, "", f"{item.key} was deleted"):
        yield replace(record, body=structs.replace(record.body, stated_by=item.key))


def _settings(scene: Scene, item: HubObject) -> ObjectVerdict:
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
        cluster=cluster, settings=wanted, author=author.name, reason=_because(item), unset=surplus, proven=author.proven
    )
    return ObjectVerdict(writes=(PlannedRecord(f"settings of {cluster} changed", body, cluster),))


def _stating(settings: ClusterSettings, left: Iterable[str]) -> ClusterSettings:
    return structs.replace(settings, **dict.fromkeys(left, None))


def _end_of_settings(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
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


# --- pauses and overrides ---------------------------------------------------------------------------------------------


def _pause_record(scope: StatedPause, pause: Pause, *, proven: bool = False) -> PlannedRecord:
    """The record that puts a pause or an override in force."""
    return PlannedRecord(_named(scope, "paused"), _pause_command(scope, pause, proven), scope.cluster, scope.namespace)


def _pause_command(scope: StatedPause, pause: Pause, proven: bool = False) -> Command:
    is_override = scope.kind == OVERRIDE
    return Command(
        command="override" if is_override else "pause",
        name=scope.name,
        cluster="" if scope.namespace else scope.cluster,
        pause_kind="all" if is_override else scope.kind,  # type: ignore[arg-type]
        until=pause.until_ms,
        replicas=pause.replicas or None,
        author=pause.author,
        reason=pause.reason,
        stated_by=pause.stated_by,
        proven=proven,
    )


def _named(scope: StatedPause, words: str) -> str:
    what = "override" if scope.kind == OVERRIDE else "pause" if scope.kind == "all" else f"pause of {scope.kind}"
    place = "/".join(filter(None, (scope.cluster, scope.namespace, scope.name)))
    return f"{what} of {place} {words}"


def _end_of_pause(scene: Scene, scope: StatedPause, why: str) -> PlannedRecord:
    """The record that ends one pause; a resume of all kinds ends the others of the scope, which it states again."""
    is_override = scope.kind == OVERRIDE
    body = Command(
        command="override" if is_override else "resume",
        name=scope.name,
        cluster="" if scope.namespace else scope.cluster,
        pause_kind="all" if is_override else scope.kind,  # type: ignore[arg-type]
        reason=why,
        stated_by=scope.pause.stated_by,
    )
    others: tuple[Command, ...] = ()
    if scope.kind == "all":
        known = known_pauses(scene.state, scope.cluster, scope.namespace, scope.name)
        others = tuple(
            _pause_command(scope._replace(kind=kind), pause)
            for kind, pause in known.items()
            if kind not in ("all", OVERRIDE) and is_in_force(pause.until_ms, scene.now_ms)
        )
    return PlannedRecord(_named(scope, "ended"), body, scope.cluster, scope.namespace, also=others)


def _pauses(scene: Scene, item: HubObject, scopes: Sequence[StatedPause]) -> ObjectVerdict:
    """Put the pauses of an object in force, and end those that it does not state any more."""
    author, writes, problems = scene.author(item), [], []
    for scope in scopes:
        wanted = structs.replace(scope.pause, author=author.name, stated_by=item.key)
        known = known_pauses(scene.state, scope.cluster, scope.namespace, scope.name).get(scope.kind)
        if known is not None and is_in_force(known.until_ms, scene.now_ms) and known.stated_by != item.key:
            by = known.stated_by or f"a command of {known.author or 'somebody'}"
            if not known.stated_by or scene.is_there(known.stated_by):
                problems.append(f"The {_named(scope, 'is')} stated by {by}, and stays until that ends.")
                continue
        is_there = known is not None and structs.replace(known, since_ms=0) == structs.replace(wanted, since_ms=0)
        if not is_there and is_in_force(wanted.until_ms, scene.now_ms):
            writes.append(_pause_record(scope, wanted, proven=author.proven))
    meant = {scope[:4] for scope in scopes}
    why = f"{_because(item)} does not state it any more"
    writes += [_end_of_pause(scene, each, why) for each in scene.pauses.get(item.key, ()) if each[:4] not in meant]
    reason = "Conflict" if problems else "Accepted"
    hpas = tuple(HpaId(*scope[:3]) for scope in scopes if scope.name)
    return ObjectVerdict(reason, " ".join(problems), tuple(writes), hpas)


def _pause(scene: Scene, item: HubObject) -> ObjectVerdict:
    spec: PauseSpec = item.spec
    pause = Pause(until_ms(spec.until), "", spec.reason)
    return _pauses(scene, item, _in_members(scene, item, spec.clusters, spec.hpa, _KINDS[spec.direction], pause))


def _override(scene: Scene, item: HubObject) -> ObjectVerdict:
    spec: OverrideSpec = item.spec
    pause = Pause(until_ms(spec.until), "", spec.reason, replicas=spec.replicas)
    return _pauses(scene, item, _in_members(scene, item, spec.clusters, spec.hpa, OVERRIDE, pause))


def _in_members(
    scene: Scene, item: HubObject, globs: Sequence[str], name: str, kind: str, pause: Pause
) -> list[StatedPause]:
    """The scopes that a namespaced object means.

    Raises ObjectRefusedError: as `_clusters`, or there is no such HPA or namespace.
    """
    namespace = item.spec.namespace or item.namespace
    clusters = _clusters(scene, item, globs, namespace)
    if name:
        found = [cluster for cluster in clusters if HpaId(cluster, namespace, name) in scene.state.hpas]
    else:
        found = [cluster for cluster in clusters if (cluster, namespace) in scene.state.namespaces]
    if not found:
        what = f"HPA {namespace}/{name}" if name else f"namespace {namespace} with HPAs"
        raise ObjectRefusedError("NotFound", f"There is no {what} in {', '.join(clusters)}.")
    return [StatedPause(cluster, namespace, name, kind, pause) for cluster in found]


def _cluster_pause(scene: Scene, item: HubObject) -> ObjectVerdict:
    spec: ClusterPauseSpec = item.spec
    pause = Pause(until_ms(spec.until), "", spec.reason)
    if spec.clusters == ["*"]:
        names = [EVERY_CLUSTER]
    else:
        known = [name for name in scene.state.clusters if name not in RESERVED]
        names = [name for name in known if any(fnmatchcase(name, glob) for glob in spec.clusters)]
        if not names:
            raise ObjectRefusedError("NoCluster", f"No cluster that is known matches {', '.join(spec.clusters)}.")
    kind = _KINDS[spec.direction]
    return _pauses(scene, item, [StatedPause(name, "", "", kind, pause) for name in names])


def _end_of_pauses(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    for each in scene.pauses.get(item.key, ()):
        if not item.kind.namespaced or scene.access.allows(item.namespace, each.cluster, each.namespace):
            yield _end_of_pause(scene, each, f"{item.key} was deleted")
        else:
            yield _pause_record(each, structs.replace(each.pause, stated_by=""))


# --- schedules --------------------------------------------------------------------------------------------------------


def _targets(scene: Scene, item: HubObject) -> list[HpaView]:
    return scene.made.get(f"CentralHPA/{item.namespace}/{item.spec.target.name}", [])


def _schedules_like(scene: Scene, item: HubObject) -> list[HubObject]:
    """The Schedules that are there for the target of one, the oldest first."""
    there = (each for each in scene.of_kind("Schedule") if each.spec is not None and not each.is_ending)
    place = (item.namespace, item.spec.target.name)
    return [each for each in there if (each.namespace, each.spec.target.name) == place]


def _schedule(scene: Scene, item: HubObject) -> ObjectVerdict:
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
        record = central_record(view.id, "has a schedule", body, author.name, _because(item), over=view)
        writes.append(_marked(record, item, author))
    return ObjectVerdict(writes=tuple(writes), hpas=tuple(view.id for view in views))


def _end_of_schedule(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    if item.spec is None:
        return
    for view in () if _schedules_like(scene, item) else _targets(scene, item):
        if schedule_of(view.hpa) is None or not scene.access.allows(item.namespace, view.id.cluster, view.id.namespace):
            continue
        body = with_schedule(view.hpa, None, plain_spec(view))
        yield central_record(view.id, "has no schedule any more", body, "", f"{item.key} was deleted", over=view)


def _nothing(scene: Scene, item: HubObject) -> ObjectVerdict:
    return ObjectVerdict()


def _no_end(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    yield from ()


_STATED: Final[Mapping[str, Callable[[Scene, HubObject], ObjectVerdict]]] = {
    "FleetAccess": _nothing,
    "ClusterConfig": _settings,
    "ClusterPause": _cluster_pause,
    "CentralHPA": _central,
    "FleetHPA": _fleet,
    "CapacityGroup": _group,
    "Pause": _pause,
    "Override": _override,
    "Schedule": _schedule,
}
_ENDED: Final[Mapping[str, Callable[[Scene, HubObject], Iterator[PlannedRecord]]]] = {
    "FleetAccess": _no_end,
    "ClusterConfig": _end_of_settings,
    "ClusterPause": _end_of_pauses,
    "CentralHPA": _end_of_hpas,
    "FleetHPA": _end_of_fleet,
    "CapacityGroup": _end_of_group,
    "Pause": _end_of_pauses,
    "Override": _end_of_pauses,
    "Schedule": _end_of_schedule,
}

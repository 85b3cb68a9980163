"""The write verbs with `--hub`: each a function from its arguments to the objects to be applied or deleted.

What a verb means is looked for among the objects of the hub; nothing is read from Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from fleethpa.changes.autoscaling import AskedAutoscaler, autoscaled
from fleethpa.changes.capacitygroups import capacity_groups
from fleethpa.changes.fleetmanifests import fleet_manifest
from fleethpa.changes.issuing import override_command, pause_command
from fleethpa.changes.manifests import FileManifest, Input, checked_hpa, no_hpas, read_hpas, read_input
from fleethpa.changes.schedules import parsed_rules
from fleethpa.changes.settings import UNSET, Scope, parse_changes, remarks, settings_in
from fleethpa.changes.writing import Concern
from fleethpa.fleet.capacity import CAPACITY_KIND
from fleethpa.fleet.finding import DEFAULT_NAMESPACE, Ref, Selection, cluster_globs, parse_ref
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.hub.exporting import object_of, pause_object
from fleethpa.hub.hubsession import (
    HubChange,
    HubSession,
    asked_clusters,
    changed,
    hpa_of,
    is_within,
    kubectl,
    makers,
    overlaps,
    own_fields,
    parts,
    refs_of,
    stated_clusters,
    to_apply,
    to_delete,
)
from fleethpa.hub.kinds import BY_NAME, HubObject, ScheduleSpec
from fleethpa.hub.scene import StatedPause
from schemas.keys import EVERY_CLUSTER, FLEET
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_KIND, Command, Mode
from schemas.pauses import OVERRIDE
from streams.state.rows import Pause

_WITHOUT_REASON: Final = "the reason is written nowhere: {kinds} has no field for it"
HubVerb = Callable[..., Awaitable[list[HubChange]]]


# --- pauses and overrides ---------------------------------------------------------------------------------------------


def _scopes(hub: HubSession, scope: Scope) -> list[tuple[StatedPause, list[str]]]:
    """Return what a scope means, as pauses of nothing yet, and their clusters."""
    namespace = scope.namespace or ""
    nothing = Pause(0, "", "")
    if not scope.names:
        clusters = [EVERY_CLUSTER] if scope.everything else list(scope.clusters) or [EVERY_CLUSTER]
        return [(StatedPause("", namespace, "", "all", nothing), clusters)]
    refs = [parse_ref(name) for name in scope.names]
    return [
        (
            StatedPause("", ref.namespace or namespace or DEFAULT_NAMESPACE, ref.name, "all", nothing),
            asked_clusters(ref.cluster, scope.clusters, str(ref)),
        )
        for ref in refs
    ]


def _stated(hub: HubSession, scope: Scope, command: Command) -> list[HubChange]:
    kind = OVERRIDE if command.command == "override" else command.pause_kind
    pause = Pause(command.until, "", command.reason, replicas=command.replicas or 0)
    pauses = [(each._replace(kind=kind, pause=pause), clusters) for each, clusters in _scopes(hub, scope)]
    return [
        to_apply(pause_object(each, clusters), each.namespace and hub.home(each.namespace)) for each, clusters in pauses
    ]


async def _pause(
    hub: HubSession, *, scope: Scope, lasting: str | None, scale_in: bool, scale_out: bool
) -> list[HubChange]:
    scope.check("pause")
    command, _ = pause_command(hub.session, lasting, scale_in, scale_out, hub.options.reason)
    if scope.everything and not command.reason.strip():
        hub.concerns.append(Concern("every cluster would be paused, and no --reason says why", harmful=True))
    return _stated(hub, scope, command)


async def _override(
    hub: HubSession, *, scope: Scope, replicas: int | None, lasting: str | None, end: bool
) -> list[HubChange]:
    command, _ = override_command(hub.session, scope, replicas, lasting, end, hub.options.reason)
    if command.replicas is None:
        return await _ended(hub, scope, "Override")
    return _stated(hub, scope, command)


async def _resume(hub: HubSession, *, scope: Scope) -> list[HubChange]:
    scope.check("resume")
    return await _ended(hub, scope, "Pause")


async def _ended(hub: HubSession, scope: Scope, kind: str) -> list[HubChange]:
    """The deletions of what is stated for a scope. Raises CommandError: nothing is (exit 4)."""
    changes = []
    for each, clusters in _scopes(hub, scope):
        home = hub.home(each.namespace) if each.namespace else ""
        name = kind if each.namespace else "ClusterPause"
        known = await hub.listed(name, home)
        same = [item for item in known if not each.namespace or hpa_of(item) == (each.namespace, each.name)]
        if scope.everything:  # the pause of all clusters, and not those of each
            same = [item for item in same if stated_clusters(item) == [EVERY_CLUSTER]]
        before = len(hub.problems)
        objects = parts(hub, same, clusters)
        if not objects and len(hub.problems) == before:
            what = "/".join(filter(None, (",".join(clusters), each.namespace, each.name)))
            raise not_found(
                f"no {name} of the hub is about {what}",
                cause="What a command has written to the log is ended there.",
                next_step=f"kubectl --context {hub.session.config.hub} get {BY_NAME[name].plural}.fleethpa.io"
                + (f" -n {home}" if home else ""),
            )
        changes += [to_delete(item) for item in objects]
    return changes


# --- HPAs -------------------------------------------------------------------------------------------------------------


async def _mode(hub: HubSession, *, wanted: Mode, scope: Scope) -> list[HubChange]:
    scope.check("mode")
    if scope.everything:
        raise usage(
            "the mode of all clusters has no object",
            cause="A ClusterConfig is of one cluster.",
            next_step=f"fleethpa mode {wanted} -C CLUSTER --hub {hub.session.config.hub}",
        )
    if not scope.names and scope.namespace:
        setting = f"namespace.{scope.namespace}={wanted}"
        raise usage(
            "the mode of a namespace is a setting of its cluster",
            next_step=f"fleethpa settings CLUSTER {setting} --hub {hub.session.config.hub}",
        )
    if not scope.names:
        if wanted == "enforce":
            hub.concerns.append(Concern(f"fleethpa would write the replicas of HPAs in {', '.join(scope.clusters)}"))
        return [each for name in scope.clusters for each in await _set(hub, name, (f"default-mode={wanted}",))]
    _without_reason(hub, "a CentralHPA")
    objects = []
    for ref in map(parse_ref, scope.names):
        objects += await makers(hub, ref, scope.namespace or DEFAULT_NAMESPACE, scope.clusters, ["CentralHPA"])
    if wanted == "enforce":
        hub.concerns += [Concern(f"fleethpa would write the replicas of what {item.key} scales") for item in objects]
    return [changed(item, {"mode": wanted}) for item in objects]


def _without_reason(hub: HubSession, kinds: str) -> None:
    if hub.options.reason:
        hub.session.warn(_WITHOUT_REASON.format(kinds=kinds))


async def _apply(
    hub: HubSession,
    *,
    filenames: tuple[str, ...],
    clusters: str | None,
    namespace: str | None,
    validate: Any,
    mode: Mode | None,
) -> list[HubChange]:
    read = read_hpas(hub.session, filenames, validate, also=(FLEET_KIND, CAPACITY_KIND))
    _without_reason(hub, "an object that makes HPAs")
    changes = await _centrals(hub, read, clusters, namespace, mode)
    return [*changes, *_fleet_hpas(hub, read, namespace, mode), *_groups(hub, read, namespace)]


def _fleet_hpas(hub: HubSession, read: Input, namespace: str | None, mode: Mode | None) -> list[HubChange]:
    changes = []
    for each in read.of_kind(FLEET_KIND):
        manifest = fleet_manifest(each, namespace or DEFAULT_NAMESPACE)
        if mode is not None:
            raise usage(f"--mode has no meaning for FleetHPA {manifest.name}", cause="Its object has no mode.")
        place = manifest.body["metadata"]["namespace"]
        if hub.home(place) != place:
            raise usage(
                f"FleetHPA {manifest.name} cannot be in namespace {hub.home(place)} of the hub",
                cause="Its namespace in the hub is that of its HPAs.",
                next_step="leave --hub-namespace out",
            )
        changes.append(to_apply(_manifest(each, place)))
    return changes


def _groups(hub: HubSession, read: Input, namespace: str | None) -> list[HubChange]:
    checked = {group.name for group in capacity_groups(read)}
    manifests = [each for each in read.of_kind(CAPACITY_KIND) if each.name in checked]
    return [to_apply(_manifest(each, hub.home(each.namespace or namespace or DEFAULT_NAMESPACE))) for each in manifests]


def _manifest(each: FileManifest, home: str) -> Json:
    head = each.body.get("metadata") or {}
    kept = {name: head.get(name) or {} for name in ("labels", "annotations")}
    return object_of(str(each.body["kind"]), each.name, each.body["spec"], home, **kept)


async def _autoscale(
    hub: HubSession, *, asked: AskedAutoscaler, clusters: str | None, namespace: str | None, mode: Mode | None
) -> list[HubChange]:
    _without_reason(hub, "a CentralHPA")
    return await _centrals(hub, Input(hpas=autoscaled(asked)), clusters, namespace, mode, creates=True)


async def _centrals(
    hub: HubSession,
    read: Input,
    clusters: str | None,
    namespace: str | None,
    mode: Mode | None,
    *,
    creates: bool = False,
) -> list[HubChange]:
    """The CentralHPAs that state what was read. `creates`: none may be there."""
    globs, by_content = cluster_globs(clusters), dict[bytes, tuple[Json, Mode | None, list[str]]]()
    for each in read.hpas:
        if each.origin == "cluster":
            hub.session.note(f"{each.source}: left out, as it lives in its cluster")
            continue
        body = checked_hpa(each, namespace)
        alike = orjson.dumps([body, mode or each.mode], option=orjson.OPT_SORT_KEYS)
        _, _, targets = by_content.setdefault(alike, (body, mode or each.mode, []))
        targets += [each.cluster] if each.cluster else globs
    changes = dict[str, HubChange]()
    for body, wanted, targets in by_content.values():
        home = hub.home(body["metadata"]["namespace"])
        known = await hub.listed("CentralHPA", home)
        change = _central(hub, body, list(dict.fromkeys(targets)), known, home, wanted, creates)
        if change.key in changes:
            raise usage(
                f"{change.key} is stated twice",
                cause="HPAs of one name that are not alike in all clusters need objects of different names.",
                next_step="apply each of them on its own, with -C CLUSTER",
            )
        changes[change.key] = change
    return list(changes.values())


def _central(
    hub: HubSession,
    body: Json,
    asked: list[str],
    known: Sequence[HubObject],
    home: str,
    mode: Mode | None,
    creates: bool,
) -> HubChange:
    """One CentralHPA: the one that makes this HPA in these clusters, else a new one.

    Raises CommandError: no cluster is named, or the clusters are not those of one object (exit 2).
    """
    namespace, name = (str(body["metadata"][part]) for part in ("namespace", "name"))
    same = [item for item in known if hpa_of(item) == (namespace, name)]
    if not asked and not same:
        raise usage(f"apply {namespace}/{name} to which clusters?", next_step="add -C CLUSTER, or -C '*'")
    objects = [item for item in same if not asked or overlaps(item, asked)]
    if objects and creates:
        step = f"{kubectl(hub, 'edit', objects[0].key)}, or fleethpa apply -f FILE --hub {hub.session.config.hub}"
        raise CommandError(f"{objects[0].key} makes {namespace}/{name} already", next_step=step)
    if len(objects) > 1 or (objects and asked and not is_within(objects[0], asked)):
        raise usage(
            f"{namespace}/{name} in {', '.join(asked) or 'all clusters'} is not what one object makes",
            cause="; ".join(f"{item.key} makes it in {', '.join(stated_clusters(item))}." for item in objects),
            next_step="apply it with -C for exactly the clusters of one of them",
        )
    spec: Json = {"template": body["spec"]} | ({"clusters": asked} if asked else {}) | ({"mode": mode} if mode else {})
    head = {part: body["metadata"].get(part) or {} for part in ("labels", "annotations")}
    if objects:
        change = changed(objects[0], spec)
        assert change.body is not None
        return change._replace(body=change.body | {"metadata": change.body["metadata"] | head})
    called = _free_name(known, name, asked)
    spec |= ({"name": name} if called != name else {}) | ({"namespace": namespace} if home != namespace else {})
    return to_apply(object_of("CentralHPA", called, spec, home, **head))


def _free_name(known: Collection[HubObject], name: str, asked: Sequence[str]) -> str:
    """A name for a new CentralHPA: that of its HPA where no object has it."""
    taken = {item.name for item in known}
    plain = [each for each in asked if not set(each) & set("*?[")]
    for called in (name, *(f"{name}-{each}".lower() for each in plain[:1])):
        if called not in taken:
            return called
    raise usage(
        f"CentralHPA {name} is there, and makes another HPA",
        cause="A second one needs a name of its own.",
        next_step="write it as a manifest of kind CentralHPA, and kubectl apply --server-side -f FILE",
    )


async def _delete(
    hub: HubSession, *, selection: Selection, filenames: tuple[str, ...], ignore_not_found: bool
) -> list[HubChange]:
    read = read_input(filenames)
    namespace = selection.namespace or DEFAULT_NAMESPACE
    named = [Ref(each.name, each.namespace or namespace, each.cluster or None) for each in read.hpas]
    named += [Ref(each.name, each.namespace or namespace, FLEET) for each in read.of_kind(FLEET_KIND)]
    groups = [(each.namespace or namespace, each.name) for each in read.of_kind(CAPACITY_KIND)]
    refs = [*refs_of(selection), *named]
    if filenames and not refs and not groups:
        raise no_hpas(filenames, read)
    if not refs and not groups:
        raise usage("delete what?", cause="Name the HPAs, or give -f.", next_step="fleethpa delete east/shop/checkout")
    _without_reason(hub, "a deletion")
    changes = []
    for ref in refs:
        try:
            objects = await makers(hub, ref, namespace, selection.clusters, ["CentralHPA", FLEET_KIND])
        except CommandError as error:
            if ignore_not_found and error.code == not_found("").code:
                continue
            raise
        changes += [to_delete(item) for item in objects]
    for place, name in groups:
        changes += await _groups_named(hub, hub.home(place), [name], ignore_not_found)
    hpas = [each.key for each in changes if each.kind.scales]
    hub.concerns += [Concern(f"what {key} makes is deleted: its workloads keep their replicas") for key in hpas]
    return changes


async def _delete_groups(hub: HubSession, *, names: tuple[str, ...]) -> list[HubChange]:
    home = hub.session.config.hub_namespace
    if not home:
        step = f"fleethpa capacity delete {' '.join(names)} --hub-namespace NAMESPACE"
        raise usage("in which namespace of the hub?", cause="The object of a CapacityGroup is in one.", next_step=step)
    _without_reason(hub, "a deletion")
    return await _groups_named(hub, home, names, False)


async def _groups_named(hub: HubSession, home: str, names: Sequence[str], ignore: bool) -> list[HubChange]:
    known = {item.name: item for item in await hub.listed(CAPACITY_KIND, home)}
    missing = [name for name in names if name not in known]
    if missing and not ignore:
        step = f"kubectl --context {hub.session.config.hub} get capacitygroups -n {home}"
        raise not_found(f"no CapacityGroup {missing[0]} in namespace {home} of the hub", next_step=step)
    hub.concerns += [Concern(f"CapacityGroup {name} would bound nothing any more") for name in names if name in known]
    return [to_delete(known[name]) for name in names if name in known]


# --- schedules --------------------------------------------------------------------------------------------------------


async def _scheduled(hub: HubSession, selection: Selection) -> list[tuple[HubObject, HubObject | None]]:
    """The CentralHPAs that are named, each with its Schedule. Raises CommandError: none is named (exit 2)."""
    refs = refs_of(selection)
    if not refs:
        raise usage(
            "a schedule of what?", cause="Name the HPAs.", next_step="fleethpa schedule create NAME --rule RULE"
        )
    pairs = []
    for ref in refs:
        for item in await makers(hub, ref, selection.namespace or "", selection.clusters, ["CentralHPA"]):
            known = await hub.listed("Schedule", item.namespace)
            mine = [
                each for each in known if isinstance(each.spec, ScheduleSpec) and each.spec.target.name == item.name
            ]
            pairs.append((item, min(mine, key=lambda each: each.created, default=None)))
    return pairs


async def _schedule(
    hub: HubSession, *, selection: Selection, rules: tuple[str, ...], time_zone: str
) -> list[HubChange]:
    parsed_rules(rules, time_zone)
    _without_reason(hub, "a Schedule")
    changes = []
    for item, held in await _scheduled(hub, selection):
        spec = {"target": {"kind": "CentralHPA", "name": item.name}, "timeZone": time_zone, "rules": list(rules)}
        name = item.name if held is None else held.name
        changes.append(to_apply(object_of("Schedule", name, spec, item.namespace)))
    return changes


async def _unschedule(hub: HubSession, *, selection: Selection) -> list[HubChange]:
    _without_reason(hub, "a deletion")
    pairs = await _scheduled(hub, selection)
    for item, held in pairs:
        if held is None:
            hub.session.out(f"{item.key} unchanged (no Schedule is about it)")
    return [to_delete(held) for _, held in pairs if held is not None]


# --- settings ---------------------------------------------------------------------------------------------------------


async def _settings(
    hub: HubSession, *, cluster: str, changes: tuple[str, ...], file: Path | None, remove: bool, output: str
) -> list[HubChange]:
    changes = (*(settings_in(file) if file is not None else ()), *changes)
    if remove and changes:
        raise usage("--remove excludes changes", cause="--remove removes all settings.")
    if not (remove or changes):
        step = kubectl(hub, "get", f"ClusterConfig/{cluster}") + " -o yaml"
        raise usage("--hub is for a change of settings", cause="Settings are shown from the log.", next_step=step)
    if not remove:
        for remark in remarks(parse_changes(changes)):
            hub.session.warn(remark)
        return await _set(hub, cluster, changes)
    item = await hub.cluster_wide("ClusterConfig", cluster)
    if item is None:
        raise not_found(f"the hub has no ClusterConfig {cluster}")
    hub.concerns.append(Concern(f"every setting of {cluster} that ClusterConfig/{cluster} states would be taken away"))
    return [to_delete(item)]


async def _set(hub: HubSession, cluster: str, changes: Sequence[str]) -> list[HubChange]:
    """Change settings in the ClusterConfig of a cluster.

    Raises CommandError: the cluster has no ClusterConfig that could be meant, or another manager has the setting.
    """
    if set(cluster) & set("*?["):
        cause = "A ClusterConfig is of one cluster, and the settings of all of them stay in the log."
        raise usage(f"settings of {cluster} have no object", cause=cause, next_step="name one cluster")
    _without_reason(hub, "a ClusterConfig")
    item = await hub.cluster_wide("ClusterConfig", cluster)
    pairs = [text.partition("=")[::2] for text in changes]
    wanted = {name: value for name, value in pairs if value not in UNSET}
    unset = [name for name, value in pairs if value in UNSET]
    if item is None:
        if not wanted:
            raise not_found(f"the hub has no ClusterConfig {cluster}")
        text = f"ClusterConfig/{cluster} is not there: a new one takes away every setting of {cluster} that it lacks"
        hub.concerns.append(Concern(text, harmful=True))
        return [to_apply(object_of("ClusterConfig", cluster, {"settings": wanted}))]
    ours: Json = (own_fields(item).get("spec") or {}).get("settings") or {}
    stated: Json = (item.body.get("spec") or {}).get("settings") or {}
    if theirs := [name for name in unset if name in stated and name not in ours]:
        raise usage(
            f"{theirs[0]} of ClusterConfig/{cluster} was set by somebody else",
            cause="Server-side apply takes away only what was set by the same field manager.",
            next_step=kubectl(hub, "edit", item.key),
        )
    kept = {name: value for name, value in ours.items() if name not in unset}
    return [changed(item, {"settings": kept | wanted})]


VERBS: Final[Mapping[tuple[str, ...], HubVerb]] = {
    ("apply",): _apply,
    ("autoscale",): _autoscale,
    ("delete",): _delete,
    ("mode",): _mode,
    ("pause",): _pause,
    ("resume",): _resume,
    ("override",): _override,
    ("schedule", "create"): _schedule,
    ("schedule", "delete"): _unschedule,
    ("capacity", "delete"): _delete_groups,
    ("settings",): _settings,
}
"""The verbs that objects of some kind say."""

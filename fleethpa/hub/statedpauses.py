"""The pauses of the log that Pauses, Overrides and ClusterPauses ask for, each with its scope. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import structs

from fleethpa.changes.owners import known_pauses
from fleethpa.changes.records import PlannedRecord
from fleethpa.hub.kinds import RESERVED, ClusterPauseSpec, HubObject, OverrideSpec, PauseSpec, until_ms
from fleethpa.hub.scene import ObjectRefusedError, ObjectVerdict, Scene, StatedPause
from fleethpa.hub.statement import because, clusters_meant
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.observed import Command
from schemas.pauses import OVERRIDE, is_in_force
from streams.state.rows import Pause

_KINDS: Final = {"All": "all", "ScaleUp": "scaleUp", "ScaleDown": "scaleDown"}


def pause_record(scope: StatedPause, pause: Pause, *, proven: bool = False) -> PlannedRecord:
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
            writes.append(pause_record(scope, wanted, proven=author.proven))
    meant = {scope[:4] for scope in scopes}
    why = f"{because(item)} does not state it any more"
    writes += [_end_of_pause(scene, each, why) for each in scene.pauses.get(item.key, ()) if each[:4] not in meant]
    reason = "Conflict" if problems else "Accepted"
    hpas = tuple(HpaId(*scope[:3]) for scope in scopes if scope.name)
    return ObjectVerdict(reason, " ".join(problems), tuple(writes), hpas)


def pause_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a Pause."""
    spec: PauseSpec = item.spec
    pause = Pause(until_ms(spec.until), "", spec.reason)
    return _pauses(scene, item, _in_members(scene, item, spec.clusters, spec.hpa, _KINDS[spec.direction], pause))


def override_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about an Override."""
    spec: OverrideSpec = item.spec
    pause = Pause(until_ms(spec.until), "", spec.reason, replicas=spec.replicas)
    return _pauses(scene, item, _in_members(scene, item, spec.clusters, spec.hpa, OVERRIDE, pause))


def _in_members(
    scene: Scene, item: HubObject, globs: Sequence[str], name: str, kind: str, pause: Pause
) -> list[StatedPause]:
    """The scopes that a namespaced object means.

    Raises ObjectRefusedError: as `clusters_meant`, or there is no such HPA or namespace.
    """
    namespace = item.spec.namespace or item.namespace
    clusters = clusters_meant(scene, item, globs, namespace)
    if name:
        holders = [cluster for cluster in clusters if HpaId(cluster, namespace, name) in scene.state.hpas]
    else:
        holders = [cluster for cluster in clusters if (cluster, namespace) in scene.state.namespaces]
    if not holders:
        what = f"HPA {namespace}/{name}" if name else f"namespace {namespace} with HPAs"
        raise ObjectRefusedError("NotFound", f"There is no {what} in {', '.join(clusters)}.")
    return [StatedPause(cluster, namespace, name, kind, pause) for cluster in holders]


def cluster_pause_stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about a ClusterPause."""
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


def pauses_ended(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    """The end of a pause or an override; where nothing may be done any more it is given back."""
    for each in scene.pauses.get(item.key, ()):
        if not item.kind.namespaced or scene.access.allows(item.namespace, each.cluster, each.namespace):
            yield _end_of_pause(scene, each, f"{item.key} was deleted")
        else:
            yield pause_record(each, structs.replace(each.pause, stated_by=""))

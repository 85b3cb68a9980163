"""Objects of the hub's API made of what the log has or would have: HPAs, groups, settings and pauses. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from fleethpa.changes.owners import object_owning
from fleethpa.changes.schedules import schedule_of
from fleethpa.changes.settings import written_settings
from fleethpa.fleet.capacity import manifest_spec
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.hub.kinds import API_VERSION
from fleethpa.hub.scene import StatedPause, all_pauses, plain_spec
from schemas.keys import EVERY_CLUSTER, FLEET
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json
from schemas.pauses import OVERRIDE, is_in_force
from streams.state.hpastate import OBJECT_ANNOTATION, SCHEDULE_ANNOTATION

_DIRECTIONS: Final = {"all": "All", "scaleUp": "ScaleUp", "scaleDown": "ScaleDown"}
_NOT_STATED: Final = ("native-controller",)
"""Observers prove it, and set it themselves."""
_GROUPS: Final = "default"
_LONGEST: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DIGITS: Final = 8


def objects_of(state: FleetState, now_ms: int) -> Iterator[Json]:
    """Objects that state what belongs to the log; what an object states already is left out.

    HPAs of one namespace, name, spec, mode and labels in several clusters become one CentralHPA.
    """
    yield from _settings(state)
    yield from _hpas(state)
    for name, row in sorted(state.capacity_groups.items()):
        if not row.stated_by:
            yield object_of("CapacityGroup", name, manifest_spec(row.spec), _GROUPS)
    yield from _pauses(state, now_ms)


def unexported(state: FleetState) -> list[str]:
    """In words: parts of the log that no object states, and objects whose namespace is a guess."""
    texts = []
    if EVERY_CLUSTER in state.settings:
        texts.append("the settings of all clusters stay in the log: fleethpa settings '*'")
    if any(not row.stated_by for row in state.capacity_groups.values()):
        texts.append(f"CapacityGroups are written into the namespace {_GROUPS}: they have none in the log")
    return texts


def object_of(kind: str, name: str, spec: Json, namespace: str = "", **metadata: Json) -> Json:
    """An object of a kind of the hub's API; metadata that is empty is left out."""
    head: Json = {"name": name} | ({"namespace": namespace} if namespace else {})
    head |= {field: value for field, value in metadata.items() if value}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": head, "spec": spec}


def _hpas(state: FleetState) -> Iterator[Json]:
    alike: dict[bytes, list[HpaView]] = {}
    for _, view in sorted(state.hpas.items()):
        if view.origin == "central" and object_owning(view) is None and view.fleet_hpa is None:
            alike.setdefault(_likeness(view), []).append(view)
    used: set[tuple[str, str]] = set()
    for views in alike.values():
        first, place = views[0], views[0].id[1:]
        metadata = {"labels": first.labels, "annotations": _annotations(first)}
        if first.fleet is not None:
            yield object_of(
                "FleetHPA", first.id.name, first.spec | first.fleet.fields(), first.id.namespace, **metadata
            )
            continue
        name = first.id.name if place not in used else f"{first.id.name}-{first.id.cluster}"[:_LONGEST]
        used.add(place)
        spec: Json = {"clusters": [view.id.cluster for view in views], "mode": first.mode}
        spec |= {} if name == first.id.name else {"name": first.id.name}
        yield object_of("CentralHPA", name, spec | {"template": plain_spec(first)}, first.id.namespace, **metadata)
        if (schedule := schedule_of(first.hpa)) is not None:
            target = {"kind": "CentralHPA", "name": name}
            rules = {"target": target, "timeZone": schedule.time_zone, "rules": schedule.rules}
            yield object_of("Schedule", name, rules, first.id.namespace)


def _likeness(view: HpaView) -> bytes:
    """A key that is the same for HPAs of several clusters which can be one object."""
    whole = view.fleet is not None
    parts = [whole, *view.id[1:], view.mode, plain_spec(view), view.labels, view.annotations]
    return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)


def _annotations(view: HpaView) -> dict[str, str]:
    left_out = (OBJECT_ANNOTATION, SCHEDULE_ANNOTATION)
    return {name: text for name, text in view.annotations.items() if name not in left_out}


def _settings(state: FleetState) -> Iterator[Json]:
    for cluster, settings in sorted(state.settings.items()):
        if cluster in (EVERY_CLUSTER, FLEET) or settings.managed_by:
            continue
        written = {name: text for name, text in written_settings(settings) if name not in _NOT_STATED}
        if written:
            yield object_of("ClusterConfig", cluster, {"settings": written})


def _pauses(state: FleetState, now_ms: int) -> Iterator[Json]:
    for each in all_pauses(state):
        pause = each.pause
        if pause.stated_by or pause.by_budget or not is_in_force(pause.until_ms, now_ms):
            continue
        yield pause_object(each, [each.cluster])


def pause_object(scope: StatedPause, clusters: Sequence[str]) -> Json:
    """The object that states a pause or an override in some clusters: names, globs, or (`*`) all of them."""
    pause = scope.pause
    spec: Json = {"clusters": list(clusters), "reason": pause.reason}
    spec |= {"until": rfc3339_seconds(pause.until_ms)} if pause.until_ms else {}
    name = _pause_name(scope, clusters)
    if scope.kind == OVERRIDE:
        return object_of("Override", name, spec | {"hpa": scope.name, "replicas": pause.replicas}, scope.namespace)
    spec["direction"] = _DIRECTIONS[scope.kind]
    kind = "Pause" if scope.namespace else "ClusterPause"
    return object_of(kind, name, spec | ({"hpa": scope.name} if scope.name else {}), scope.namespace)


def _pause_name(scope: StatedPause, clusters: Sequence[str]) -> str:
    """A name that only pauses of this scope and kind have, so that the same pause again is the same object.

    `east.checkout.all`. Where the parts could be those of another scope, a digest of them makes the difference.
    """
    parts = ["all" if each == EVERY_CLUSTER else each for each in clusters] + [scope.name] * bool(scope.name)
    is_plain = len(clusters) == 1 and clusters != ["all"] and all(map(_LABEL.fullmatch, parts))
    kind = scope.kind.lower()
    name = ".".join([*parts, kind])
    if is_plain and len(name) <= _LONGEST:
        return name
    whole = orjson.dumps([list(clusters), scope.name])
    digest = hashlib.sha256(whole).hexdigest()[:_DIGITS]
    words = "-".join(re.findall(r"[a-z0-9]+", " ".join(parts).lower()))[:100].strip("-")
    return ".".join(filter(None, (words, digest, kind)))

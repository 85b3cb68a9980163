"""From an object to the records that put it into the log, and from its deletion to those that take it out. Pure.

A verdict says what is to be written for the log to say what the object says; nothing, where it does already. It is
asked at each look, so that a record that was lost is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import structs

from fleethpa.changes.records import PlannedRecord
from fleethpa.frame.errors import CommandError
from fleethpa.hub.kinds import HubObject
from fleethpa.hub.scene import ObjectRefusedError, ObjectVerdict, Scene
from fleethpa.hub.statedhpas import (
    central_stated,
    fleet_ended,
    fleet_stated,
    hpas_ended,
    schedule_ended,
    schedule_stated,
    unmarked,
)
from fleethpa.hub.statedpauses import cluster_pause_stated, override_stated, pause_record, pause_stated, pauses_ended
from fleethpa.hub.statedsettings import (
    group_ended,
    group_stated,
    groups_given_back,
    settings_ended,
    settings_given_back,
    settings_stated,
)
from fleethpa.hub.statement import sentence_of


def stated(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The verdict about an object that nobody has deleted."""
    try:
        if item.spec is None:
            raise ObjectRefusedError("Invalid", item.problem)
        return _STATED[item.kind.name](scene, item)
    except ObjectRefusedError as refused:
        return ObjectVerdict(refused.reason, refused.message)
    except CommandError as error:
        return ObjectVerdict("Invalid", sentence_of(error))


def ended(scene: Scene, item: HubObject) -> ObjectVerdict:
    """The records to be written before a deleted object may go; none, once the log has its end."""
    return ObjectVerdict(writes=tuple(_ENDED[item.kind.name](scene, item)))


def given_back(scene: Scene, key: str) -> list[PlannedRecord]:
    """The records that leave everything as an object states it, and give it to the log."""
    writes = [unmarked(view) for view in scene.made.get(key, ())]
    writes += [pause_record(each, structs.replace(each.pause, stated_by="")) for each in scene.pauses.get(key, ())]
    return [*writes, *groups_given_back(scene, key), *settings_given_back(scene, key)]


def _nothing(scene: Scene, item: HubObject) -> ObjectVerdict:
    return ObjectVerdict()


def _no_end(scene: Scene, item: HubObject) -> Iterator[PlannedRecord]:
    yield from ()


_STATED: Final[Mapping[str, Callable[[Scene, HubObject], ObjectVerdict]]] = {
    "FleetAccess": _nothing,
    "ClusterConfig": settings_stated,
    "ClusterPause": cluster_pause_stated,
    "CentralHPA": central_stated,
    "FleetHPA": fleet_stated,
    "CapacityGroup": group_stated,
    "Pause": pause_stated,
    "Override": override_stated,
    "Schedule": schedule_stated,
}
STATING: Final = tuple(name for name, statement in _STATED.items() if statement is not _nothing)
"""The kinds whose objects state something that the log then has."""
_ENDED: Final[Mapping[str, Callable[[Scene, HubObject], Iterator[PlannedRecord]]]] = {
    "FleetAccess": _no_end,
    "ClusterConfig": settings_ended,
    "ClusterPause": pauses_ended,
    "CentralHPA": hpas_ended,
    "FleetHPA": fleet_ended,
    "CapacityGroup": group_ended,
    "Pause": pauses_ended,
    "Override": pauses_ended,
    "Schedule": schedule_ended,
}

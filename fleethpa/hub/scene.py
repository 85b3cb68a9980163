"""The inputs of one look of the hub: the objects of its API, and the state of the log. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from fleethpa.changes.foresight import Present
from fleethpa.changes.owners import object_owning
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.schedules import schedule_of, spec_at
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.hub.access import FleetAccesses
from fleethpa.hub.kinds import Author, HubObject
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from streams.state.rows import Pause


class StatedPause(NamedTuple):
    """A pause or override in the log, with its scope as of `known_pauses`."""

    cluster: str
    namespace: str
    name: str
    kind: str
    pause: Pause


class ObjectRefusedError(Exception):
    """Why an object is not accepted. `reason`: of its condition, in one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class ObjectVerdict(NamedTuple):
    """The answer to an object: the reason and message of its condition `Accepted`, the records to be written, and which
    HPAs it is about.
    """

    reason: str = "Accepted"
    message: str = ""
    writes: tuple[PlannedRecord, ...] = ()
    hpas: tuple[HpaId, ...] = ()

    @property
    def is_accepted(self) -> bool:
        """Whether all of it counts."""
        return self.reason == "Accepted"


@dataclass
class Scene:
    """Everything that a verdict follows from. `stamped_since_ms`: as of `author_of`."""

    state: FleetState
    present: Present
    objects: Mapping[str, HubObject]
    now_ms: int
    author: Callable[[HubObject], Author]
    access: FleetAccesses = field(init=False)
    made: dict[str, list[HpaView]] = field(init=False)
    """Object → the HPAs that the log says it makes."""
    pauses: dict[str, list[StatedPause]] = field(init=False)
    """Object → the pauses and overrides that the log says it states."""
    reach: tuple[object, ...] = field(init=False)
    """Grants, labels of clusters and names of clusters: where an object may and does act follows from them."""

    def __post_init__(self) -> None:
        grants, configs = self.of_kind("FleetAccess"), self.of_kind("ClusterConfig")
        self.access = FleetAccesses(grants)
        self.reach = (
            tuple((each.uid, each.generation, each.is_ending) for each in grants),
            tuple((each.name, str(each.metadata.get("labels"))) for each in configs),
            tuple(sorted(self.state.clusters)),
        )
        self.made = {}
        for view in self.state.hpas.values():
            if (owner := object_owning(view)) is not None:
                self.made.setdefault(owner.object, []).append(view)
        self.pauses = {}
        for each in all_pauses(self.state):
            if each.pause.stated_by:
                self.pauses.setdefault(each.pause.stated_by, []).append(each)

    def of_kind(self, kind: str) -> list[HubObject]:
        """The objects of a kind, the oldest first."""
        objects = [item for item in self.objects.values() if item.kind.name == kind]
        return sorted(objects, key=lambda item: item.created)

    def is_there(self, key: str) -> bool:
        """Whether an object is in the API, and nobody has deleted it."""
        return key in self.objects and not self.objects[key].is_ending

    def missing(self) -> list[str]:
        """The objects that the log has something of, and that are not in the API."""
        stated = {*self.made, *self.pauses}
        stated |= {each.managed_by for each in self.state.settings.values() if each.managed_by}
        stated |= {each.stated_by for each in self.state.capacity_groups.values() if each.stated_by}
        return sorted(stated - self.objects.keys())


def plain_spec(view: HpaView) -> Json:
    """The spec that an HPA has when no rule of its schedule holds."""
    held = schedule_of(view.hpa)
    return view.spec if held is None else spec_at(view.hpa, structs.replace(held, rules=[]), 0)


def all_pauses(state: FleetState) -> Iterable[StatedPause]:
    """All pauses and overrides in the log, those that have ended by themselves included."""
    seen: set[tuple[str, str]] = set()
    for row in state.folded.values():
        for cluster, known in row.pauses.items():
            for kind, pause in known.items():
                if (cluster, kind) not in seen:
                    seen.add((cluster, kind))
                    yield StatedPause(cluster, "", "", kind, pause)
    for (cluster, namespace), held in state.namespaces.items():
        for name, (_, known) in held.commands.items():
            for kind, pause in known.items():
                yield StatedPause(cluster, namespace, name, kind, pause)

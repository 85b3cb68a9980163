"""Ownership by objects of the hub's API: commands leave alone what such an object states, and name the object.

The object is in the log: as an annotation of the HPA, as `statedBy` of a pause or group, as `managedBy` of settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from fleethpa.changes.records import PlannedRecord
from fleethpa.fleet.views import FleetState, HpaView, object_command
from fleethpa.frame.errors import CommandError
from schemas.capacity import CapacityGroupSet
from schemas.keys import HpaId
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, Mode
from schemas.pauses import OVERRIDE
from schemas.settings import SettingsSet
from streams.state.hpastate import OBJECT_ANNOTATION
from streams.state.rows import Pause


class Owner(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object that an HPA is made by. `object`: kind, namespace and name, as `CentralHPA/shop/web`. `mode`: the mode
    that it states; None: it states none.
    """

    object: str
    uid: str
    generation: int
    mode: Mode | None = None


def object_owning(view: HpaView) -> Owner | None:
    """The object that a central HPA is made by; None: it belongs to the log."""
    text = view.annotations.get(OBJECT_ANNOTATION)
    if view.origin != "central" or text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Owner)
    except msgspec.MsgspecError:  # somebody wrote it by hand: then no object is known
        return None


def known_pauses(state: FleetState, cluster: str, namespace: str = "", name: str = "") -> Mapping[str, Pause]:
    """The pauses and the override of a scope by kind, those that have ended by themselves included: of an HPA, a
    namespace (no `name`), a cluster (no `namespace`), or all clusters (`*`).
    """
    if namespace:
        known = state.namespaces.get((cluster, namespace))
        return {} if known is None else known.commands.get(name, (None, {}))[1]
    return next((row.pauses[cluster] for row in state.folded.values() if cluster in row.pauses), {})


def without_owned(state: FleetState, writes: Sequence[PlannedRecord]) -> tuple[list[PlannedRecord], list[CommandError]]:
    """The records that a command may write, and an error for each that would change what an object of the hub's API
    states.
    """
    left: list[PlannedRecord] = []
    problems: dict[str, CommandError] = {}
    for write in writes:
        if stated := owning(state, write):
            problems[write.subject] = _refusal(write.subject, stated)
        else:
            left.append(write)
    return left, list(problems.values())


def owned_hpa(view: HpaView) -> CommandError | None:
    """The error for a change of an HPA that an object of the hub's API makes; None: it belongs to the log."""
    owner = object_owning(view)
    return None if owner is None else _refusal(f"hpa {view.id}", owner.object)


def owning(state: FleetState, write: PlannedRecord) -> str:
    """The object of the hub's API whose statement a record would change; empty: none."""
    body = write.body
    match body:
        case AutoscalerSet():
            return _of_hpa(state, HpaId(write.cluster, write.namespace, body.hpa["metadata"]["name"]))
        case AutoscalerDeleted():
            return _of_hpa(state, HpaId(write.cluster, write.namespace, body.name))
        case Command(command="mode"):
            view = state.hpas.get(HpaId(write.cluster, write.namespace, body.name))
            owner = None if view is None else object_owning(view)
            return owner.object if owner is not None and owner.mode is not None else ""
        case Command():
            return _of_pauses(known_pauses(state, write.cluster, write.namespace, body.name), body)
        case SettingsSet():
            known = state.settings.get(body.cluster)
            return (known.managed_by or "") if known is not None else ""
        case CapacityGroupSet():
            group = state.capacity_groups.get(body.name)
            return group.stated_by if group is not None else ""
    return ""


def _of_hpa(state: FleetState, hpa: HpaId) -> str:
    view = state.hpas.get(hpa)
    owner = None if view is None else object_owning(view)
    return owner.object if owner is not None else ""


def _of_pauses(known: Mapping[str, Pause], command: Command) -> str:
    """The object whose pause a command would replace or end."""
    return next((known[kind].stated_by for kind in _touched(known, command) if known[kind].stated_by), "")


def _touched(known: Iterable[str], command: Command) -> list[str]:
    """The kinds of pauses that a command replaces or ends."""
    if command.command == "override":
        return [kind for kind in known if kind == OVERRIDE]
    if command.command == "pause":
        return [kind for kind in known if kind == command.pause_kind]
    return [kind for kind in known if kind != OVERRIDE and command.pause_kind in ("all", kind)]


def _refusal(subject: str, key: str) -> CommandError:
    kind = key.partition("/")[0]
    verb = "delete" if kind in ("Pause", "ClusterPause", "Override") else "edit"
    return CommandError(
        f"{subject}: not written, as {key} of the hub's API states it",
        cause="What an object states is changed in the hub's cluster, or it would be written again.",
        next_step=f"{object_command(verb, key)}, in the hub's cluster; "
        f"if it is not there any more: fleethpa hub release {key}",
    )

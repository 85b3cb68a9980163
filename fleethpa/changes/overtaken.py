"""Records of central HPAs that the fold has refused, since somebody else changed the HPA after their writer read it.

The fold decides, because only the log has one order of two writers. A refused record is nevertheless the newest one of
its key on `fleethpa.specs`, where observers and routers read, and which keeps only the newest. So who was refused
publishes what is in force once more, until that is what came last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import PARTIAL, CommandError
from schemas.keys import HpaId
from schemas.kubernetes.hpa import hpa_from_manifest, manifest_of
from schemas.observed import ABSENT, AutoscalerDeleted, AutoscalerSet
from streams.annotations import own_annotations

if TYPE_CHECKING:
    from fleethpa.changes.records import PlannedRecord
    from fleethpa.fleet.views import FleetState, HpaView
    from fleethpa.frame.writer import Writer
    from schemas.kubernetes.shape import Json
    from streams.history.past import Past

_MOST_TRIES: Final = 5
_REFUSED_UID: Final = "refused"
"""No central HPA has it: the fold deletes nothing, while readers of `fleethpa.specs` forget what was refused."""


async def overtaken(
    writes: Sequence[PlannedRecord],
    writer: Writer,
    past: Callable[[], AbstractAsyncContextManager[Past]],
    limit_s: float,
    places: Sequence[tuple[int, int] | None] = (),
) -> list[CommandError]:
    """Return the errors of those records that name a version which another one had replaced. What replaced it is
    published once more. Of those that no decider has folded yet that is not known, which is an error, too.

    Args:
        writes: as they were written; those that are not in the log yet count as not refused.
        past: opens the log anew for each look at it.
        limit_s: how long to wait until what is published once more is in the log.
        places: log partition and offset of each of `writes`; None, or none at all: not known.
    """
    named = [
        (each, place)
        for each, place in zip_longest(writes, places)
        if isinstance(each.body, AutoscalerSet) and each.body.changes
    ]
    if not named:
        return []
    state = await _state(past)
    waiting = [_waiting(each) for each, place in named if place is not None and not _is_folded(state, *place)]
    refused = [each for each, _ in named if _is_overtaken(each, state)]
    problems = [_problem(each, _view(each, state)) for each in refused]
    for _ in range(_MOST_TRIES):
        if not refused:
            return waiting + problems
        again = [_in_force(each, state) for each in refused]
        sent = [await writer.send(each.subject, each.cluster, each.namespace, each.bodies) for each in again]
        await writer.fates(sent, limit_s)
        state = await _state(past)
        refused = [each for each in again if _is_overtaken(each, state)]
    return waiting + problems + [_unsettled(each) for each in refused]


def _is_folded(state: FleetState, partition: int, offset: int) -> bool:
    """Whether the state has what stands there in the log: nothing follows from what no decider works on."""
    row = state.folded.get(partition)
    return row is not None and row.offset >= offset


async def _state(past: Callable[[], AbstractAsyncContextManager[Past]]) -> FleetState:
    async with past() as opened:
        return await read_state(opened)


def _id(write: PlannedRecord) -> HpaId:
    body = write.body
    name = body.hpa["metadata"]["name"] if isinstance(body, AutoscalerSet) else getattr(body, "name", "")
    return HpaId(write.cluster, write.namespace, name)


def _view(write: PlannedRecord, state: FleetState) -> HpaView | None:
    """The central HPA that a record is about, as it is now; None: there is none."""
    view = state.hpas.get(_id(write))
    return view if view is not None and view.origin == "central" else None


def _is_overtaken(write: PlannedRecord, state: FleetState) -> bool:
    """Whether the HPA is now neither what the record made it nor what it was before."""
    view, body = _view(write, state), write.body
    if not isinstance(body, AutoscalerSet):
        return view is not None
    if view is None:
        return body.changes != ABSENT
    if body.changes == view.version:
        return False
    if body.revision or view.revision:
        return body.revision != view.revision
    return _kept(view.hpa) != _kept(hpa_from_manifest(body.hpa, namespace_default=write.namespace))


def _kept(hpa: Json) -> tuple[Json, Json, Json]:
    """Return what the log keeps of an object."""
    metadata = hpa["metadata"]
    return hpa["spec"], metadata.get("labels") or {}, own_annotations(metadata)


def _in_force(write: PlannedRecord, state: FleetState) -> PlannedRecord:
    """The record that makes what is in force the newest one of its key; for the fold it changes nothing."""
    view = _view(write, state)
    if view is None:
        gone = AutoscalerDeleted(name=_id(write).name, uid=_REFUSED_UID, origin="central")
        return replace(write, body=gone, also=())
    manifest = manifest_of(view.hpa["metadata"], view.spec)
    same = AutoscalerSet(
        hpa=manifest,
        origin="central",
        author=view.author,
        reason=view.reason,
        fleet=view.fleet,
        revision=view.revision,
        changes=view.version,
    )
    return replace(write, body=same, also=())


def _problem(write: PlannedRecord, view: HpaView | None) -> CommandError:
    hpa = _id(write)
    if view is None:
        return CommandError(
            f"hpa {hpa}: refused, as it was deleted since it was read",
            cause="Nothing was changed.",
            next_step="to have it again, run the command once more",
        )
    why = f" ({view.reason})" if view.reason else ""
    return CommandError(
        f"hpa {hpa}: refused, as it was changed since it was read",
        cause=f"{view.author or 'Somebody'} changed it{why}; that is in force.",
        next_step=f"fleethpa history {hpa}, then run the command once more",
    )


def _waiting(write: PlannedRecord) -> CommandError:
    return CommandError(
        f"hpa {_id(write)}: this is recorded, and no decider has taken it up yet",
        cause="It counts as soon as one does, unless somebody else has changed the HPA before it.",
        next_step="fleethpa doctor --only log",
        code=PARTIAL,
    )


def _unsettled(write: PlannedRecord) -> CommandError:
    return CommandError(
        f"hpa {_id(write)}: others keep changing it",
        cause="What is in force may not be the newest record of fleethpa.specs, from which observers learn of it.",
        next_step="apply its manifest once more when nobody else does",
    )

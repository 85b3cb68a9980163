"""The revisions of one HPA's spec, read off the log: all of them, one by its number, and one as a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from fleethpa.cli.common.failures import CommandError, not_found, usage
from fleethpa.cli.common.finding import names_known, no_such_hpa, places_read, sole_id
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session
from fleethpa.cli.output.times import rfc3339
from schemas.keys import partition_for
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.jsontypes import Json
from streams.analysis.revisions import RevisionReader

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState
    from schemas.keys import HpaId
    from streams.analysis.revisions import Revision
    from streams.history.past import Past


async def read_revisions(
    session: Session, selection: Selection, since_ms: int | None = None
) -> tuple[FleetState, HpaId, list[Revision]]:
    """Read the state of the HPA's partition (of the fleet, if its name leaves that open), which HPA is meant, and its
    changes, oldest first.

    Raises:
        CommandError: no such HPA (exit 4), several, or a source that cannot be read.
    """
    if len(selection.refs) > 1:
        named = ", ".join(map(str, selection.refs))
        raise usage(f"one HPA at a time, not {len(selection.refs)}", cause=f"The names are {named}.")
    async with session.past() as past:
        state = await read_state(past, await places_read(past, selection))
        hpa = _meant(state, selection)
        if hpa is None and not selection.refs:
            raise not_found(f"no HPA of {selection}", next_step="fleethpa get hpa -A")
        if hpa is None:
            raise no_such_hpa(selection.refs[0], await names_known(past), selection.namespace)
        found, begins_ms = await revisions_in(past, hpa, since_ms)
        if begins_ms is not None:
            session.note(f"note: {past.name} goes back only to {rfc3339(begins_ms)}")
    return state, hpa, found


async def revisions_in(past: Past, hpa: HpaId, since_ms: int | None = None) -> tuple[list[Revision], int | None]:
    """Read one HPA's changes, oldest first, and where the log begins, if it has lost its beginning and all was asked.

    Raises:
        ArchiveError, CoreError: the source cannot be read.
    """
    found: list[Revision] = []
    number = partition_for(hpa.namespace_key, await past.partitions())
    partition = await past.restored(number, before_ms=since_ms)
    lost = since_ms is None and partition.applied_offset >= 0
    begins_ms = partition.clock_ms if lost else None
    reader = RevisionReader(partition, hpa)
    until_ms = None if past.at_ms is None else past.at_ms + 1
    async with aclosing(past.following(partition, until_ms=until_ms)) as records:
        async for record in records:
            found += reader.take(record.plain)
    return [each for each in found if since_ms is None or each.time >= since_ms], begins_ms


def _meant(state: FleetState, selection: Selection) -> HpaId | None:
    """The only HPA that matches: among those that exist, else among those that were deleted. None if no HPA matches."""
    for known in (state.hpas, sorted(state.forgotten)):
        if found := [hpa for hpa in known if selection.matches(hpa)]:
            return sole_id(found, str(selection))
    return None


def revision_of(found: Sequence[Revision], number: int, hpa: HpaId) -> tuple[Revision, Json]:
    """The newest revision of a number, and its spec: an HPA that was created again counts from 1 again.

    Raises:
        CommandError: no such revision (exit 4).
    """
    for each in reversed(found):
        if each.generation == number and each.spec is not None:
            return each, each.spec
    raise _no_revision(found, f"no revision {number}", hpa)


def revision_before(found: Sequence[Revision], current: Json, hpa: HpaId) -> tuple[Revision, Json]:
    """The newest revision whose spec is not the current one, and its spec.

    Raises:
        CommandError: no such revision (exit 4).
    """
    for each in reversed(found):
        if each.spec is not None and not semantically_equal_spec(each.spec, current):
            return each, each.spec
    raise _no_revision(found, "no revision with another spec", hpa)


def _no_revision(found: Sequence[Revision], what: str, hpa: HpaId) -> CommandError:
    known = ", ".join(dict.fromkeys(str(each.generation) for each in found if each.spec is not None))
    cause = f"The log knows {known}." if known else "The log knows none."
    return not_found(f"{hpa} has {what}", cause=cause, next_step=f"fleethpa history {hpa}")


def manifest_of(hpa: HpaId, spec: Json) -> Json:
    """A spec as a manifest that `apply` and kubectl take."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": hpa.name, "namespace": hpa.namespace},
        "spec": spec,
    }


def change_text(revision: Revision) -> str:
    """What a change was, in words."""
    texts = [revision.what] if revision.what in ("adopted", "released") else []
    return "; ".join([*texts, *revision.changes]) or revision.what


def revision_document(hpa: HpaId, each: Revision) -> Json:
    """A change as machine formats show it."""
    made: Json = msgspec.to_builtins(each)
    head = {"cluster": hpa.cluster, "namespace": hpa.namespace, "name": hpa.name}
    return head | made | {"time": rfc3339(each.time)}

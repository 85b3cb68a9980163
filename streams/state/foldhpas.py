"""Fold what concerns HPAs: their objects, full lists of them, and commands.

A central HPA hides the cluster's HPA of the same name. There is one row per name: it passes to the central HPA with
mode and windows, and back to the cluster's when the central one is deleted.
"""

import orjson
from msgspec import structs

from schemas import limits
from schemas.autoscalers import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command, Mode, Origin
from schemas.keys import HpaId
from schemas.limits import TEXT, shortened
from streams.state.foldcontext import Folding
from streams.state.guards import standing
from streams.state.hpastate import Hpa, made_uid
from streams.state.namespace import Namespace, advance
from streams.state.rows import DirectoryEntry, DirectoryKey, ListProgress, Pause, TargetName
from streams.state.shadow import take_native_status


def autoscaler_set(fold: Folding, body: AutoscalerSet) -> None:
    """An HPA was created or changed."""
    if body.renewed:
        return
    if body.origin == "central" or fold.follows("autoscalers", body.session):
        _take_hpa(fold, body, fold.namespace.hpa_list.mark)


def _take_hpa(fold: Folding, body: AutoscalerSet, mark: str) -> None:
    namespace, name = fold.namespace, body.hpa["metadata"]["name"]
    key, uid, replaced = DirectoryKey(name, body.origin), _cluster_uid(body), _replaced(namespace, name)
    if uid and uid == replaced:
        return
    kept = replaced if body.origin == "central" else ""
    entry = DirectoryEntry(_target(body), body.origin, mark, uid, kept, len(orjson.dumps(body.hpa)))
    if not namespace.takes_hpa(key, entry):
        return
    hpa = fold.state.hpa(HpaId(namespace.cluster, namespace.name, name))
    if not fold.state.holds(hpa, namespace):
        if namespace.is_hidden(key):
            hpa.row.hidden, hpa.dirty = orjson.dumps(body.hpa), True
        else:
            _take_row(fold, hpa, body)
    else:
        # After a crash the row may be ahead of its namespace: its scale is known from this record on, not before.
        fold.state.refresh(hpa)
    namespace.enter_hpa(key, entry)
    if body.mode is not None:
        _set_command(fold, name, body.mode, None)


def _cluster_uid(body: AutoscalerSet) -> str:
    return str(body.hpa["metadata"].get("uid") or "") if body.origin == "cluster" else ""


def _replaced(namespace: Namespace, name: str) -> str:
    """Give the uid of the cluster's object that the central HPA of this name was adopted from; empty: none."""
    central = namespace.directory.get(DirectoryKey(name, "central"))
    return central.replaced if central is not None else ""


def _take_row(fold: Folding, hpa: Hpa, body: AutoscalerSet) -> None:
    hidden = hpa.row.hidden
    if body.origin == "central" and hpa.row.origin == "cluster" and not (hpa.row.gone or hpa.row.deleted):
        hidden = orjson.dumps(hpa.row.hpa_object() | {"status": hpa.row.native_status})
    try:
        _change_hpa(fold, hpa, body)
    except (ValueError, KeyError, TypeError) as error:
        # Ingest lets only valid specs pass; one that is not must not stop the partition.
        if fold.namespace.open():
            text = shortened(str(error), TEXT)
            fold.namespace.held.refuse(limits.UNUSABLE_HPA, 0, f"{hpa.id.name}: {text}", fold.now_ms)
    else:
        hpa.row.hidden = hidden


def _change_hpa(fold: Folding, hpa: Hpa, body: AutoscalerSet) -> None:
    state, old_uid, was_live = fold.state, hpa.row.uid, not hpa.row.gone and not hpa.row.deleted
    if hpa.row.gone:
        hpa.row.restart_seen = state.row.restart_offset
    uid = made_uid(f"{state.row.number}/{state.offset}/{fold.index}/{hpa.id}")
    changed = hpa.take_object(body, fold.now_ms, uid)
    hpa.take_annotations(body.hpa["metadata"], state.offset)
    reborn = hpa.row.uid != old_uid or not was_live
    if reborn:
        _register_nothing(fold, hpa)
    elif body.origin == "cluster":
        follows = standing(fold.namespace, hpa, state.settings(hpa.id.cluster)).mode != "enforce"
        take_native_status(hpa, body.hpa.get("status") or {}, fold.now_ms, follows)
    hpa.dirty = True
    if changed:
        state.refresh(hpa)
        state.schedule.plan(hpa)
        state.unpark(hpa)


def _register_nothing(fold: Folding, hpa: Hpa) -> None:
    """Register no selector: a new or deleted HPA takes no part in the overlap check until it reads its scale."""
    hpa.register(2 * fold.state.offset, "")


def autoscaler_deleted(fold: Folding, body: AutoscalerDeleted) -> None:
    """An HPA was deleted: it is removed when its next evaluation is due."""
    if body.origin == "cluster" and not fold.follows("autoscalers", body.session):
        return
    _delete_hpa(fold, body.name, body.origin, body.uid)
    if body.origin == "cluster" and body.uid and not body.session:
        _note_adoption(fold.namespace, body)


def _note_adoption(namespace: Namespace, body: AutoscalerDeleted) -> None:
    """Note that `adopt` deleted this object, so that older observations of it, which arrive later, are ignored."""
    key = DirectoryKey(body.name, "central")
    central = namespace.directory.get(key)
    if central is not None:
        namespace.enter_hpa(key, structs.replace(central, replaced=body.uid))


def _delete_hpa(fold: Folding, name: str, origin: Origin, uid: str = "") -> None:
    namespace, key = fold.namespace, DirectoryKey(name, origin)
    known = namespace.directory.get(key)
    if known is None:
        return
    hpa = fold.state.hpa(HpaId(namespace.cluster, namespace.name, name))
    if uid and uid != _known_uid(known, hpa):
        return
    if not fold.state.holds(hpa, namespace) and not hpa.row.gone:
        if namespace.is_hidden(key):
            hpa.row.hidden, hpa.dirty = b"", True
        elif hpa.row.hidden:
            _give_back(fold, hpa)
        else:
            hpa.row.deleted = hpa.dirty = True
            _register_nothing(fold, hpa)
            fold.state.unpark(hpa)
            fold.state.schedule.plan(hpa)
    namespace.leave_hpa(key)
    if origin == "central" and namespace.shown(name) is None and name in namespace.commands:
        namespace.put_command(name, (None, {}))


def forget_hpa(fold: Folding, name: str) -> None:
    """Delete an HPA of a cluster that nobody has reported for long."""
    _delete_hpa(fold, name, "cluster")


def _known_uid(known: DirectoryEntry, hpa: Hpa) -> str:
    """Give the uid of the object that is known; rows of older versions have it in the HPA's row only."""
    return known.uid or hpa.row.uid


def _give_back(fold: Folding, hpa: Hpa) -> None:
    """The central HPA was deleted: the cluster's of the same name is evaluated again, with its mode and windows."""
    row = hpa.row
    back = orjson.loads(row.hidden)
    row.hidden, row.native_status = b"", back.get("status") or {}
    _change_hpa(fold, hpa, AutoscalerSet(hpa=back))


def autoscaler_list(fold: Folding, body: AutoscalerList) -> None:
    """A chunk of a full list of the cluster's HPAs and of what else drives targets."""
    if not fold.follows("autoscalers", body.session, starts_list=body.chunk == 0, in_list=True):
        return
    namespace = fold.namespace
    progress = advance(namespace.hpa_list, body.list_id, body.chunk, fold.place())
    for hpa in body.hpas:
        _take_hpa(fold, AutoscalerSet(hpa=hpa, session=body.session), progress.mark)
    if not namespace.open():
        return
    namespace.hpa_list = progress
    namespace.add_rivals(body.rivals, is_first=body.chunk == 0)
    if body.chunk == body.chunks - 1:
        is_whole = progress.next_chunk == body.chunks
        if is_whole:
            _remove_unlisted(fold, progress.mark)
        namespace.end_rivals(is_whole)
        namespace.hpa_list = ListProgress()


def _remove_unlisted(fold: Folding, mark: str) -> None:
    directory = fold.namespace.directory
    stale = [key.name for key, known in directory.items() if key.origin == "cluster" and known.mark != mark]
    for name in sorted(stale):
        _delete_hpa(fold, name, "cluster")


def command(fold: Folding, body: Command) -> None:
    """Mode, pause or resume of an HPA or (no name) of the namespace."""
    if body.command == "mode":
        _set_command(fold, body.name, body.mode, None)
    else:
        _, pauses = fold.namespace.commands.get(body.name, (None, {}))
        _set_command(fold, body.name, None, paused_by(pauses, body, fold.now_ms))


def _set_command(fold: Folding, name: str, mode: Mode | None, pauses: dict[str, Pause] | None) -> None:
    namespace = fold.namespace
    if not namespace.open():
        return
    old_mode, old_pauses = namespace.commands.get(name, (None, {}))
    kept = (mode, old_pauses) if pauses is None else (old_mode, pauses)
    namespace.put_command(name, kept)
    fold.state.wake_parked(namespace.key)


def paused_by(pauses: dict[str, Pause], body: Command, now_ms: int) -> dict[str, Pause]:
    """Give the pauses of a scope after a pause or resume."""
    if body.command == "pause":
        return {**pauses, body.pause_kind: Pause(body.until, body.author, body.reason, now_ms)}
    if body.pause_kind == "all":
        return {}
    return {kind: pause for kind, pause in pauses.items() if kind != body.pause_kind}


def _target(body: AutoscalerSet) -> TargetName:
    reference = body.hpa["spec"]["scaleTargetRef"]
    version = reference.get("apiVersion", "")
    group = version.split("/")[0] if version.count("/") == 1 else ""
    return group, str(reference["kind"]), str(reference["name"])

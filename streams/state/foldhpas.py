"""Fold what concerns HPAs: their objects, full lists and commands.

A central HPA hides the cluster's HPA of the same name. There is one row per name: it passes to the central HPA with
mode and windows, and back to the cluster's when the central one is deleted.
"""

from collections.abc import Iterable
from sys import intern

import orjson
from msgspec import structs

from schemas import limits
from schemas.entries import LeftNative
from schemas.keys import HpaId
from schemas.limits import TEXT, shortened
from schemas.observed import (
    ABSENT,
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    ConflictingAutoscaler,
    Mode,
    Origin,
)
from schemas.pauses import OVERRIDE, pauses_after
from schemas.syncperiods import PERIOD_ANNOTATION
from streams.state.folding import Folding
from streams.state.guards import effective_mode
from streams.state.hpastate import Hpa, kept_annotations, made_uid, version_of
from streams.state.moves import take_native_status
from streams.state.namespace import Namespace
from streams.state.namespacerows import encoded_size
from streams.state.ownperiod import due_soon
from streams.state.partitionrow import status_after
from streams.state.rows import DirectoryEntry, DirectoryKey, ListProgress, Pause, TargetName
from streams.state.subject import accounts_of


def autoscaler_set(fold: Folding, body: AutoscalerSet) -> None:
    if body.origin == "central" or fold.follows("autoscalers", body.session):
        _take_hpa(fold, body, fold.namespace.hpa_list.mark)


def _take_hpa(fold: Folding, body: AutoscalerSet, mark: str) -> None:
    namespace, name = fold.namespace, body.hpa["metadata"]["name"]
    key, uid, replaced = DirectoryKey(name, body.origin), _cluster_uid(body), _replaced(namespace, name)
    if (uid and uid == replaced) or _is_overtaken(fold, key, body):
        return
    kept = replaced if body.origin == "central" else ""
    entry = DirectoryEntry(_target(body), body.origin, mark, uid, kept, len(orjson.dumps(body.hpa)))
    if not namespace.takes_hpa(key, entry, fold.state.most_hpas(namespace.cluster)):
        return
    hpa = fold.state.hpa(HpaId(namespace.cluster, namespace.name, name))
    if namespace.is_hidden(key):
        hpa.row.hidden, hpa.dirty = orjson.dumps(body.hpa), True
    else:
        _take_row(fold, hpa, body)
    namespace.enter_hpa(key, entry)
    if body.mode is not None:
        _set_command(fold, name, body.mode, None)


def _is_overtaken(fold: Folding, key: DirectoryKey, body: AutoscalerSet) -> bool:
    """Note, and return, whether the central HPA that an entry changes is another one than its writer read."""
    if body.origin == "cluster" or not body.changes:
        return False
    namespace = fold.namespace
    hpa = fold.state.hpas.get(HpaId(namespace.cluster, namespace.name, key.name))
    version = version_of(hpa.row) if hpa is not None and key in namespace.directory else ABSENT
    if body.changes == version:
        return False
    namespace.touch()
    by = f"{key.name}: what {body.author or 'somebody'} applied changes another version"
    text = shortened(f"{by} than that of {(hpa and hpa.row.author) or 'somebody'}, which stays", TEXT)
    namespace.refuse(limits.CHANGED_MEANWHILE, text)
    return True


def _cluster_uid(body: AutoscalerSet) -> str:
    return str(body.hpa["metadata"].get("uid") or "") if body.origin == "cluster" else ""


def _replaced(namespace: Namespace, name: str) -> str:
    """Return the uid of the cluster's object that the central HPA of this name was adopted from; empty: none."""
    central = namespace.directory.get(DirectoryKey(name, "central"))
    return central.replaced if central is not None else ""


def _take_row(fold: Folding, hpa: Hpa, body: AutoscalerSet) -> None:
    hidden = hpa.row.hidden
    if body.origin == "central" and hpa.row.origin == "cluster" and hpa.row.is_live:
        hidden = orjson.dumps(hpa.row.hpa_object() | {"status": hpa.row.native_status})
    try:
        _change_hpa(fold, hpa, body)
    except (ValueError, KeyError, TypeError) as error:
        # Ingest lets only valid specs pass; one that is not must not stop the partition.
        fold.namespace.touch()
        text = shortened(str(error), TEXT)
        fold.namespace.refuse(limits.UNUSABLE_HPA, f"{hpa.id.name}: {text}")
    else:
        hpa.row.hidden = hidden


def _change_hpa(fold: Folding, hpa: Hpa, body: AutoscalerSet) -> None:
    state, old_uid, was_live = fold.state, hpa.row.uid, hpa.row.is_live
    if was_live and hpa.row.revision and body.origin == "central" and not body.revision:
        return  # it belongs to a FleetHPA, and changes with that
    if hpa.row.gone:
        hpa.row.restart_seen = state.row.restart_offset
    uid = made_uid(f"{state.row.number}/{state.offset}/{fold.index}/{hpa.id}")
    changed = hpa.take_object(body, fold.now_ms, uid)
    own, period = kept_annotations(body.hpa["metadata"], state.attached.annotations), hpa.annotation(PERIOD_ANNOTATION)
    hpa.take_annotations(own)
    for account in accounts_of(state):
        account.takes(hpa, body, fold.now_ms)
    reborn = hpa.row.uid != old_uid or not was_live
    if reborn:
        _register_nothing(fold, hpa)
    elif body.origin == "cluster":
        follows = effective_mode(fold.namespace, hpa, state.settings(hpa.id.cluster)).mode != "enforce"
        take_native_status(hpa, body.hpa.get("status") or {}, fold.now_ms, follows)
    hpa.dirty = True
    if changed:
        state.refresh(hpa)
        state.schedule.plan(hpa)
    elif hpa.annotation(PERIOD_ANNOTATION) != period:
        state.refresh_period(fold.namespace, hpa)
        due_soon(state, hpa)


def _register_nothing(fold: Folding, hpa: Hpa) -> None:
    """Register no selector: a new or deleted HPA takes no part in the overlap check until it reads its scale."""
    fold.namespace.register(hpa.id.name, hpa.row.registered[1], "")
    hpa.register(fold.state.offset, "")


def autoscaler_deleted(fold: Folding, body: AutoscalerDeleted) -> None:
    """An HPA was deleted: it is removed when its next evaluation is due."""
    if body.origin == "cluster" and not fold.follows("autoscalers", body.session):
        return
    delete_hpa(fold, body.name, body.origin, body.uid)
    if body.origin == "cluster" and body.uid and not body.session:
        _note_adoption(fold.namespace, body)


def _note_adoption(namespace: Namespace, body: AutoscalerDeleted) -> None:
    """Note that `adopt` deleted this object, so that older observations of it, which arrive later, are ignored."""
    key = DirectoryKey(body.name, "central")
    central = namespace.directory.get(key)
    if central is not None:
        namespace.enter_hpa(key, structs.replace(central, replaced=body.uid))


def delete_hpa(fold: Folding, name: str, origin: Origin, uid: str = "") -> None:
    """Take an HPA out of its namespace, if it is the one of this uid (empty: whichever it is)."""
    namespace, key = fold.namespace, DirectoryKey(name, origin)
    known = namespace.directory.get(key)
    if known is None:
        return
    hpa = fold.state.hpa(HpaId(namespace.cluster, namespace.name, name))
    if uid and uid != known.uid:
        return
    if not hpa.row.gone:
        if namespace.is_hidden(key):
            hpa.row.hidden, hpa.dirty = b"", True
        elif hpa.row.hidden:
            _give_back(fold, hpa)
        else:
            hpa.row.deleted = hpa.dirty = True
            _register_nothing(fold, hpa)
            fold.state.schedule.plan(hpa)
    namespace.leave_hpa(key)
    if origin == "central" and namespace.shown(name) is None and name in namespace.commands:
        namespace.put_command(name, (None, {}))


def _give_back(fold: Folding, hpa: Hpa) -> None:
    """The central HPA was deleted: the cluster's of the same name is evaluated again, with its mode and windows."""
    row = hpa.row
    back = orjson.loads(row.hidden)
    row.hidden = b""
    row.see_native(back.get("status") or {})
    _change_hpa(fold, hpa, AutoscalerSet(hpa=back))


def autoscaler_list(fold: Folding, body: AutoscalerList) -> None:
    """A chunk of a full list of the cluster's HPAs and of what else drives targets."""
    if not fold.follows("autoscalers", body.session, starts_list=body.chunk == 0, in_list=True):
        return
    namespace = fold.namespace
    progress = namespace.hpa_list.after(body.list_id, body.chunk, fold.place())
    for hpa in body.hpas:
        _take_hpa(fold, AutoscalerSet(hpa=hpa, session=body.session), progress.mark)
    namespace.touch()
    namespace.hpa_list = progress
    _add_conflicting(namespace, body.conflicting, is_first=body.chunk == 0)
    if body.chunk == body.chunks - 1:
        is_whole = progress.next_chunk == body.chunks
        if is_whole:
            _remove_unlisted(fold, progress.mark)
        _end_conflicting(namespace, is_whole)
        namespace.hpa_list = ListProgress()


def _add_conflicting(namespace: Namespace, conflicting: Iterable[ConflictingAutoscaler], *, is_first: bool) -> None:
    """Take the conflicting of a chunk of a full list, of which this may be the first."""
    if is_first:
        _release_conflicting(namespace, namespace.conflicting_coming)
        namespace.conflicting_coming = []
    for other in conflicting:
        if namespace.takes(limits.NAMESPACE_CONFLICTING, f"{other.kind} {other.name}", encoded_size(other)):
            namespace.conflicting_coming = [*namespace.conflicting_coming, other]


def _end_conflicting(namespace: Namespace, is_whole: bool) -> None:
    """A full list has ended: if it came whole, its conflicting replace those before."""
    gone = namespace.conflicting if is_whole else namespace.conflicting_coming
    if is_whole:
        namespace.conflicting = namespace.conflicting_coming
    namespace.conflicting_coming = []
    _release_conflicting(namespace, gone)


def _release_conflicting(namespace: Namespace, conflicting: Iterable[ConflictingAutoscaler]) -> None:
    less = sum([encoded_size(other) for other in conflicting])
    namespace.gives_back(limits.NAMESPACE_CONFLICTING, less)


def _remove_unlisted(fold: Folding, mark: str) -> None:
    directory = fold.namespace.directory
    stale = [key.name for key, known in directory.items() if key.origin == "cluster" and known.mark != mark]
    for name in sorted(stale):
        delete_hpa(fold, name, "cluster")


def command(fold: Folding, body: Command) -> None:
    """Mode, pause, resume or override of an HPA or (no name) of the namespace."""
    if body.command == "mode":
        _set_command(fold, body.name, body.mode, None)
    else:
        _, pauses = fold.namespace.commands.get(body.name, (None, {}))
        _set_command(fold, body.name, None, paused_by(pauses, body, fold.now_ms))


def _set_command(fold: Folding, name: str, mode: Mode | None, pauses: dict[str, Pause] | None) -> None:
    namespace = fold.namespace
    old_mode, old_pauses = namespace.commands.get(name, (None, {}))
    if pauses is None and mode != "enforce":  # an override ends with the mode in which it has its effect
        old_pauses = {kind: each for kind, each in old_pauses.items() if kind != OVERRIDE}
    kept = (mode, old_pauses) if pauses is None else (old_mode, pauses)
    namespace.put_command(name, kept)
    # One that was off may be evaluated now. A visit of the others changes nothing.
    names = (name,) if name else (key.name for key in namespace.directory)
    concerned = {HpaId(namespace.cluster, namespace.name, each) for each in names}
    fold.state.ready_or_due |= concerned & fold.state.hpas.keys()


def take_over_status(fold: Folding, cluster: str, native: LeftNative) -> None:
    """A central HPA continues from the status that the native one had when it was left."""
    namespace = fold.state.namespaces.get(f"{cluster}/{native.namespace}")
    hpa = fold.state.hpas.get(HpaId(cluster, native.namespace, native.name))
    if namespace is None or hpa is None or not hpa.row.is_live or hpa.row.origin != "central":
        return
    if (known := hpa.row.own_status) is not None:
        hpa.row.keep_status(status_after(known, native))
        hpa.dirty = True


def paused_by(pauses: dict[str, Pause], body: Command, now_ms: int) -> dict[str, Pause]:
    """Return the pauses of a scope after a pause or resume."""
    pause = Pause(body.until, body.author, body.reason, now_ms, body.replicas or 0, stated_by=body.stated_by)
    return pauses_after(pauses, body, pause)


def _target(body: AutoscalerSet) -> TargetName:
    reference = body.hpa["spec"]["scaleTargetRef"]
    version = reference.get("apiVersion", "")
    group = version.split("/")[0] if version.count("/") == 1 else ""
    return intern(group), intern(str(reference["kind"])), str(reference["name"])

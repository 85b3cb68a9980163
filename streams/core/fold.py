"""Fold one entry of the log into the state. Nothing is decided here; who is to be looked at is noted.

Each entry changes rows in three layers: HPA rows read namespace rows, these read the partition row. Rows are written in
that order, so a layer that is read is never behind the one that reads it (docs/decisions/).
"""

from collections.abc import Callable
from typing import Any

from schemas import entries as wire
from schemas.decisions import ENGINE
from schemas.entries import Entry, Source
from schemas.keys import HpaId, split_namespace_key
from streams.core import rates
from streams.core.errors import UnknownEngineError
from streams.core.guards import HIDDEN, standing
from streams.core.hpa import Hpa, made_uid
from streams.core.namespace import Namespace, advance, query_key, target_key
from streams.core.rows import AnswerRow, DirectoryEntry, ListProgress, Pause, ScaleRow, Session, TargetKey, WatchRow
from streams.core.settings import EVERY_CLUSTER, merge
from streams.core.shadow import take_native_status
from streams.core.state import State

SILENCE_MS = 30_000
"""After this much silence of the observer session that is followed, another one takes over."""
_BEGINS_WITH_LIST = ("pods", "autoscalers")


class EntryFold:
    """Folds the entries of one record."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now_ms = state.now_ms
        self.index = 0
        self.source: Source | None = None
        self.namespace = Namespace("", "")
        """Namespace of the entry at hand."""

    def apply(self, index: int, entry: Entry) -> None:
        """Fold one entry, unless its watermark says that it was folded before."""
        self.index, self.source = index, entry.source
        if entry.source is not None and not self._is_new(entry.source):
            self.state.row.duplicates += 1
            return
        body = entry.body
        whole = _WHOLE_PARTITION.get(type(body))
        if whole is not None:
            whole(self, body)
        elif entry.key == wire.WHOLE_PARTITION_KEY:
            if isinstance(body, wire.Command):
                self._cluster_command(body)
        else:
            self.namespace = self.state.namespace(*split_namespace_key(entry.key))
            _IN_NAMESPACE[type(body)](self, body)

    def _is_new(self, source: Source) -> bool:
        known, key = self.state.row.watermarks, f"{source.topic}-{source.partition}"
        place = (source.offset, source.index)
        if place <= known.get(key, (-1, -1)):
            return False
        known[key] = place
        return True

    def _position(self) -> str:
        source = self.source
        return "" if source is None else f"{source.topic}-{source.partition}@{source.offset}"

    def _place(self) -> str:
        return f"{self.state.offset}.{self.index}"

    # --- observer sessions ------------------------------------------------------------------------------------------

    def _follows(self, watch: str, session: str, starts_list: bool = False, in_list: bool = False) -> bool:
        """Tell whether an entry of this session counts; an entry without a session always does."""
        if not session:
            return True
        namespace, sessions = self.namespace, self.state.row.sessions
        key = f"{namespace.cluster}/{watch}"
        known = sessions.get(key)
        if known is not None and known.session != session:
            silent = self.now_ms - known.heard_ms > SILENCE_MS
            if not silent or (watch in _BEGINS_WITH_LIST and not starts_list):
                sessions[key] = Session(known.session, known.heard_ms, known.ignored + 1)
                return False
        ignored = known.ignored if known is not None else 0
        sessions[key] = Session(session, self.now_ms, ignored)
        return watch not in _BEGINS_WITH_LIST or self._has_list(watch, session, starts_list, in_list)

    def _has_list(self, watch: str, session: str, starts_list: bool, in_list: bool) -> bool:
        """A session's changes count in a namespace once it began a full list there, or was the first to be heard."""
        namespace = self.namespace
        held = namespace.listed.get(watch, "")
        if held == session:
            return True
        if starts_list or (not held and not in_list):
            if namespace.open():
                namespace.listed[watch] = session
            return True
        namespace.count_ignored(f"{watch} of a session that has not begun with a full list")
        return False

    def heartbeat(self, body: wire.Heartbeat) -> None:
        """Note what the followed session still watches; one that watches nothing any more hands over at once."""
        sessions, namespace = self.state.row.sessions, self.namespace
        for watch in sorted({*body.watches, *body.problems}):
            known = sessions.get(f"{namespace.cluster}/{watch}")
            if known is None or known.session != body.session:
                continue
            problem = body.problems.get(watch, "")
            sessions[f"{namespace.cluster}/{watch}"] = Session(body.session, self.now_ms, known.ignored)
            before = namespace.watches.get(watch, WatchRow(body.session))
            heard_ms = before.heard_ms if problem and before.session == body.session else self.now_ms
            if namespace.open():
                namespace.watches[watch] = WatchRow(body.session, heard_ms, problem)
        if not body.watches and not body.problems:
            self._release(body.session)

    def _release(self, session: str) -> None:
        sessions, prefix = self.state.row.sessions, f"{self.namespace.cluster}/"
        for key, known in sessions.items():
            if key.startswith(prefix) and known.session == session:
                sessions[key] = Session(session, self.now_ms - SILENCE_MS - 1, known.ignored)

    # --- answers and samples ----------------------------------------------------------------------------------------

    def answers(self, body: wire.Answers) -> None:
        """Replace answers; HPAs that wait for one of them are looked at."""
        if not self._follows("metrics", body.session):
            return
        namespace, position = self.namespace, self._position()
        time_ms = self.now_ms if self.source is None else min(self.source.time, self.now_ms)
        for answer in body.items:
            row = AnswerRow(answer, time_ms, position)
            query = query_key(row)
            namespace.put_answer(query, row)
            self.state.notify(namespace, query)

    def samples(self, body: wire.Samples) -> None:
        """Take pushed samples; counters become rates."""
        namespace, position = self.namespace, self._position()
        for point in body.points:
            key, name = rates.series_key(point), rates.series_name(point)
            row = rates.fold_point(namespace.samples(key).get(name), point, position, self.now_ms)
            if row is None:
                namespace.count_ignored("sample not newer than the one before, or older than an hour")
            else:
                namespace.put_sample(key, name, row)
                self.state.notify(namespace, key)

    # --- pods -------------------------------------------------------------------------------------------------------

    def pod_set(self, body: wire.PodSet) -> None:
        """A pod was created or changed."""
        if self._follows("pods", body.session):
            self.namespace.put_pod(body.pod)

    def pod_deleted(self, body: wire.PodDeleted) -> None:
        """A pod is gone."""
        if self._follows("pods", body.session):
            self.namespace.drop_pod(body.name)

    def pod_list(self, body: wire.PodList) -> None:
        """A chunk of a full list of pods."""
        if self._follows("pods", body.session, starts_list=body.chunk == 0, in_list=True):
            self.namespace.list_pods(body, self._place())

    # --- autoscalers ------------------------------------------------------------------------------------------------

    def autoscaler_set(self, body: wire.AutoscalerSet) -> None:
        """An HPA was created or changed."""
        if body.origin == "central" or self._follows("autoscalers", body.session):
            self._take_hpa(body, self.namespace.hpa_list.mark)

    def _take_hpa(self, body: wire.AutoscalerSet, mark: str) -> None:
        namespace, name = self.namespace, body.hpa["metadata"]["name"]
        known = namespace.directory.get(name)
        if body.origin == "cluster" and known is not None and known.origin == "central":
            # The central one keeps the name; the cluster's is only known as a rival.
            namespace.enter_hpa(name + HIDDEN, DirectoryEntry(_target(body), "cluster", mark))
            return
        if body.origin == "central" and known is not None and known.origin == "cluster":
            namespace.enter_hpa(name + HIDDEN, DirectoryEntry(known.target, "cluster", known.mark))
        hpa = self.state.hpa(HpaId(namespace.cluster, namespace.name, name))
        if not self.state.holds(hpa, namespace):
            try:
                self._change_hpa(hpa, body)
            except (ValueError, KeyError, TypeError) as error:
                # Ingest lets only valid specs pass; one that is not must not stop the partition.
                namespace.count_ignored(f"HPA {name}: {error}")
        namespace.enter_hpa(name, DirectoryEntry(_target(body), body.origin, mark))
        if body.mode is not None:
            self._set_command(name, body.mode, None)

    def _change_hpa(self, hpa: Hpa, body: wire.AutoscalerSet) -> None:
        state, old_uid, was_live = self.state, hpa.row.uid, not hpa.row.gone and not hpa.row.deleted
        if hpa.row.gone:
            hpa.row.restart_seen = state.row.restart_offset
        uid = made_uid(f"{state.row.number}/{state.offset}/{self.index}/{hpa.id}")
        changed = hpa.take_object(body, self.now_ms, uid)
        reborn = hpa.row.uid != old_uid or not was_live
        if reborn:
            self._register_nothing(hpa)
        elif body.origin == "cluster":
            follows = standing(self.namespace, hpa, state.settings(hpa.id.cluster)).mode != "enforce"
            take_native_status(hpa, body.hpa.get("status") or {}, self.now_ms, follows)
        hpa.dirty = True
        if changed:
            state.refresh(hpa)
            state.schedule.plan(hpa)
            hpa.parked = False

    def _register_nothing(self, hpa: Hpa) -> None:
        """A new or deleted HPA matches nothing for the overlap check until it reads its scale."""
        hpa.register(2 * self.state.offset, "")

    def autoscaler_deleted(self, body: wire.AutoscalerDeleted) -> None:
        """An HPA was deleted: its next due evaluation forgets it."""
        if body.origin == "cluster" and not self._follows("autoscalers", body.session):
            return
        self._delete_hpa(body.name, body.origin, body.uid)

    def _delete_hpa(self, name: str, origin: wire.Origin, uid: str = "") -> None:
        namespace = self.namespace
        known = namespace.directory.get(name)
        if known is None or known.origin != origin:
            namespace.leave_hpa(name + HIDDEN)
            return
        hpa = self.state.hpa(HpaId(namespace.cluster, namespace.name, name))
        if uid and hpa.row.uid != uid and not self.state.holds(hpa, namespace):
            return
        if not self.state.holds(hpa, namespace) and not hpa.row.gone:
            hpa.row.deleted = hpa.dirty = True
            self._register_nothing(hpa)
            hpa.parked = False
            self.state.schedule.plan(hpa)
        namespace.leave_hpa(name)
        if origin == "central" and name in namespace.commands and namespace.open():
            del namespace.commands[name]

    def autoscaler_list(self, body: wire.AutoscalerList) -> None:
        """A chunk of a full list of the cluster's HPAs and of what else drives targets."""
        if not self._follows("autoscalers", body.session, starts_list=body.chunk == 0, in_list=True):
            return
        namespace = self.namespace
        progress = advance(namespace.hpa_list, body.list_id, body.chunk, self._place())
        rivals = [*(namespace.rivals_coming if body.chunk else ()), *body.rivals]
        for hpa in body.hpas:
            self._take_hpa(wire.AutoscalerSet(hpa=hpa, session=body.session), progress.mark)
        if not namespace.open():
            return
        namespace.hpa_list, namespace.rivals_coming = progress, rivals
        if body.chunk == body.chunks - 1:
            if progress.next_chunk == body.chunks:
                self._remove_unlisted(progress.mark)
                namespace.rivals = rivals
            namespace.hpa_list, namespace.rivals_coming = ListProgress(), []

    def _remove_unlisted(self, mark: str) -> None:
        directory = self.namespace.directory
        stale = [name for name, known in directory.items() if known.origin == "cluster" and known.mark != mark]
        for name in sorted(stale):
            if name.endswith(HIDDEN):
                self.namespace.leave_hpa(name)
            else:
                self._delete_hpa(name, "cluster")

    # --- commands ---------------------------------------------------------------------------------------------------

    def command(self, body: wire.Command) -> None:
        """Mode, pause or resume of an HPA or (no name) of the namespace."""
        if body.command == "mode":
            self._set_command(body.name, body.mode, None)
        else:
            _, pauses = self.namespace.commands.get(body.name, (None, {}))
            self._set_command(body.name, None, self._paused(pauses, body))

    def _set_command(self, name: str, mode: wire.Mode | None, pauses: dict[str, Pause] | None) -> None:
        namespace = self.namespace
        if not namespace.open():
            return
        old_mode, old_pauses = namespace.commands.get(name, (None, {}))
        kept = (mode, old_pauses) if pauses is None else (old_mode, pauses)
        if kept == (None, {}):
            namespace.commands.pop(name, None)
        else:
            namespace.commands[name] = kept
        self.state.wake_parked()

    def _paused(self, pauses: dict[str, Pause], body: wire.Command) -> dict[str, Pause]:
        if body.command == "pause":
            return {**pauses, body.pause_kind: Pause(body.until, body.author, body.reason, self.now_ms)}
        if body.pause_kind == "all":
            return {}
        return {kind: pause for kind, pause in pauses.items() if kind != body.pause_kind}

    def _cluster_command(self, body: wire.Command) -> None:
        row, cluster = self.state.row, body.cluster or EVERY_CLUSTER
        if body.command == "mode":
            if body.mode is not None:
                self.settings(wire.SettingsSet(cluster=cluster, settings=wire.ClusterSettings(default_mode=body.mode)))
            return
        pauses = self._paused(row.pauses.get(cluster, {}), body)
        if pauses:
            row.pauses[cluster] = pauses
        else:
            row.pauses.pop(cluster, None)

    # --- scales and outcomes ----------------------------------------------------------------------------------------

    def scale_set(self, body: wire.ScaleSet) -> None:
        """A scale was read."""
        if not self._follows("scales", body.session):
            return
        row = ScaleRow(
            body.spec_replicas,
            body.status_replicas,
            body.selector,
            body.resource_version,
            body.error,
            body.session,
            self.now_ms,
            body.manager,
            body.manager_time,
            "",
            body.uid,
        )
        self._put_scale(target_key(body.target), row)

    def _put_scale(self, target: TargetKey, row: ScaleRow) -> None:
        namespace, state = self.namespace, self.state
        old = namespace.scales.get(target)
        namespace.put_scale(target, row)
        if (old.selector if old is not None else "") != row.selector:
            for name in sorted(namespace.by_target.get(target, ())):
                hpa = state.hpas.get(HpaId(namespace.cluster, namespace.name, name))
                if hpa is not None:
                    state.refresh(hpa)

    def outcome(self, body: wire.Outcome) -> None:
        """What became of a wanted write: the first one per decision counts; its scale is the newest observation."""
        namespace, state = self.namespace, self.state
        hpa = state.hpas.get(HpaId(namespace.cluster, namespace.name, body.name))
        if hpa is not None and not state.holds(hpa, namespace):
            pending = hpa.row.pending
            if (
                pending is not None
                and hpa.outcome is None
                and (pending.decision, pending.uid) == (body.decision, body.uid)
            ):
                hpa.outcome = body
                state.ready_or_due.add(hpa.id)
        known = namespace.directory.get(body.name)
        if known is not None and body.spec_replicas is not None:
            self._observe_outcome(known.target, body, body.spec_replicas)

    def _observe_outcome(self, target: TargetKey, body: wire.Outcome, spec_replicas: int) -> None:
        old = self.namespace.scales.get(target, ScaleRow())
        if old.outcome_of == body.decision:
            return
        row = ScaleRow(
            spec_replicas,
            old.status_replicas if body.status_replicas is None else body.status_replicas,
            old.selector if body.selector is None else body.selector,
            body.resource_version or old.resource_version,
            None,
            old.session,
            self.now_ms,
            old.manager,
            old.manager_ms,
            body.decision,
            old.uid,
        )
        self._put_scale(target, row)

    # --- whole partition --------------------------------------------------------------------------------------------

    def settings(self, body: wire.SettingsSet) -> None:
        """Settings of a cluster were changed."""
        known = self.state.row.settings
        known[body.cluster] = merge(known.get(body.cluster, wire.ClusterSettings()), body.settings)
        self.state.settings_changed()

    def engine(self, body: wire.EngineSet) -> None:
        """From here on another engine decides."""
        if not 1 <= body.engine <= ENGINE:
            raise UnknownEngineError(body.engine, ENGINE)
        self.state.row.engine = body.engine
        self.state.row.partitions = body.partitions or self.state.row.partitions

    def watermark_reset(self, body: wire.WatermarkReset) -> None:
        """A source topic was made again."""
        self.state.row.watermarks.pop(f"{body.topic}-{body.source_partition}", None)

    def restart(self, body: wire.Restart) -> None:
        """Memory of windows and scale events was lost."""
        self.state.row.restart_offset = self.state.offset
        self.state.row.restart_reason = f"restart: {body.reason}"


def _target(body: wire.AutoscalerSet) -> TargetKey:
    reference = body.hpa["spec"]["scaleTargetRef"]
    version = reference.get("apiVersion", "")
    group = version.split("/")[0] if version.count("/") == 1 else ""
    return group, str(reference["kind"]), str(reference["name"])


_Apply = Callable[[EntryFold, Any], None]
_WHOLE_PARTITION: dict[type, _Apply] = {
    wire.SettingsSet: EntryFold.settings,
    wire.EngineSet: EntryFold.engine,
    wire.WatermarkReset: EntryFold.watermark_reset,
    wire.Restart: EntryFold.restart,
}
_IN_NAMESPACE: dict[type, _Apply] = {
    wire.Answers: EntryFold.answers,
    wire.Samples: EntryFold.samples,
    wire.PodSet: EntryFold.pod_set,
    wire.PodDeleted: EntryFold.pod_deleted,
    wire.PodList: EntryFold.pod_list,
    wire.AutoscalerSet: EntryFold.autoscaler_set,
    wire.AutoscalerDeleted: EntryFold.autoscaler_deleted,
    wire.AutoscalerList: EntryFold.autoscaler_list,
    wire.Command: EntryFold.command,
    wire.ScaleSet: EntryFold.scale_set,
    wire.Heartbeat: EntryFold.heartbeat,
    wire.Outcome: EntryFold.outcome,
}

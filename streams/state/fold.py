"""Fold one entry of the log into the state. Nothing is decided here; which HPAs are to be processed is recorded.

Each entry changes rows in three layers: HPA rows read namespace rows, these read the partition row.
"""

from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any

from msgspec import structs

from schemas import limits
from schemas.agents import AgentSet, agent_of_reports
from schemas.answers import Answers
from schemas.decisions import ENGINE, log_offset_of
from schemas.entries import NOTHING, WHOLE_PARTITION_KEY, ControlTransferred, EntryKind, Outcome, Source
from schemas.keys import EVERY_CLUSTER, HpaId, split_namespace_key
from schemas.observed import ClusterReport, Command, Heartbeat, PodDeleted, PodList, PodSet, Samples, ScaleSet, Serving
from schemas.settings import (
    ClusterSettings,
    EngineSet,
    LogTimeSet,
    Restart,
    SettingsSet,
    WatermarkReset,
    apply_settings,
)
from schemas.syncperiods import PERIOD_ANNOTATION
from streams.state import foldhpas
from streams.state.answers import FoldedAnswers, FoldedEntry, fold_point, read_question, series_key, series_name
from streams.state.foldhpas import paused_by, take_over_status
from streams.state.folding import Folding
from streams.state.forgetting import forget_reports, forget_watermarks
from streams.state.hpastate import Hpa
from streams.state.ledger import UnknownEngineError
from streams.state.namespacerows import target_key
from streams.state.ownperiod import begin_shorter, due_soon, stated_periods
from streams.state.partitionrow import AgentRow, ControlRow, ReportRow, ServedRow, control_after
from streams.state.rows import AnswerRow, ScaleRow, TargetName
from streams.state.subject import accounts_of

_PROBLEM_LENGTHS = (1_000, 60, 0)
"""To how many characters the problem of a reconciler is shortened, where the row has no room for more."""
SHORT_CHANGES = 2
_LOG_TIME_REASON = 400


class EntryFold(Folding):
    """Folds the entries of one record."""

    def apply(self, index: int, entry: FoldedEntry) -> None:
        """Fold one entry, unless its watermark says that it was folded before."""
        self.index, self.source, source = index, entry.source, entry.source
        if source is not None and (self._is_of_former_agent(source.topic) or not self._is_new(source)):
            self.state.row.duplicates += 1
            return
        body: Any = entry.body
        whole = self.state.attached.of_partition.get(type(body))
        if whole is not None:
            whole(self, body)
        elif entry.key == WHOLE_PARTITION_KEY:
            if isinstance(body, Command):
                self._cluster_command(body)
        else:
            self._fold_in_namespace(entry.key, body)

    def _fold_in_namespace(self, key: str, body: Any) -> None:
        cluster, name = split_namespace_key(key)
        self._fold_body(cluster, name, body)
        if type(body) is Heartbeat:
            for further in body.namespaces:
                self._fold_body(cluster, further, body)

    def _fold_body(self, cluster: str, name: str, body: Any) -> None:
        is_sample = isinstance(body, Samples)
        if not self.state.admits(cluster, name, is_sample):
            return
        self.namespace = namespace = self.state.namespace(cluster, name)
        if namespace.idle_ms and not is_sample:
            namespace.touch()
            namespace.idle_ms = 0
        self.state.attached.in_namespace[type(body)](self, body)

    def _is_new(self, source: Source) -> bool:
        known, key = self.state.row.watermarks, f"{source.topic}-{source.partition}"
        place = (source.offset, source.index)
        if place <= known.get(key, (-1, -1)):
            return False
        known[key] = place
        return True

    def _is_of_former_agent(self, topic: str) -> bool:
        """Whether an agent that has left, or an earlier incarnation of one, reported it."""
        agents = self.state.row.agents
        agent = agent_of_reports(topic) if agents else None
        known = agents.get(agent.cluster) if agent is not None else None
        if agent is None or known is None:
            return False
        return agent.incarnation < known.incarnation or (known.left and agent.incarnation == known.incarnation)

    autoscaler_set = foldhpas.autoscaler_set
    autoscaler_deleted = foldhpas.autoscaler_deleted
    autoscaler_list = foldhpas.autoscaler_list
    command = foldhpas.command

    # --- answers and samples ----------------------------------------------------------------------------------------

    def answers(self, body: FoldedAnswers) -> None:
        """Replace answers; HPAs that wait for one of them are visited."""
        if not self.follows("metrics", body.session):
            return
        self.state.seen.add(self.namespace.key)
        namespace, position = self.namespace, self.position()
        settings = self.state.settings(namespace.cluster)
        time_ms = self.now_ms if self.source is None else min(self.source.time, self.now_ms)
        for item in body.items:
            query = read_question(item, f"partition {self.state.row.number} entry {self.place()}")
            namespace.put_answer(query, AnswerRow(time_ms, position, bytes(item)))
            self.state.notify(namespace, query, settings)

    def samples(self, body: Samples) -> None:
        """Store pushed samples; counters become rates."""
        self.state.seen.add(self.namespace.key)
        namespace, position, settings = self.namespace, self.position(), self.state.settings(self.namespace.cluster)
        for point in body.points:
            key, name = series_key(point), series_name(point)
            row = fold_point(namespace.samples(key).get(name), point, position, self.now_ms)
            if row is None:
                namespace.count_ignored("sample not newer than the one before, or older than an hour")
            elif namespace.put_sample(key, name, row):
                self.state.notify(namespace, key, settings)
                self.state.record_sample(namespace, key, name)

    # --- pods -------------------------------------------------------------------------------------------------------

    def pod_set(self, body: PodSet) -> None:
        if self.follows("pods", body.session):
            self.namespace.put_pod(body.pod)
            self.state.seen.add(self.namespace.key)

    def pod_deleted(self, body: PodDeleted) -> None:
        if self.follows("pods", body.session):
            self.namespace.drop_pod(body.name)
            self.state.seen.add(self.namespace.key)

    def pod_list(self, body: PodList) -> None:
        """A chunk of a full list of pods."""
        if self.follows("pods", body.session, starts_list=body.chunk == 0, in_list=True):
            self.namespace.list_pods(body, self.place())
            self.state.seen.add(self.namespace.key)

    def _cluster_command(self, body: Command) -> None:
        row, cluster = self.state.row, body.cluster or EVERY_CLUSTER
        if body.command == "mode":
            if body.mode is not None:
                self.settings(SettingsSet(cluster=cluster, settings=ClusterSettings(default_mode=body.mode)))
            return
        pauses = paused_by(row.pauses.get(cluster, {}), body, self.now_ms)
        self.state.put_pauses(cluster, pauses)

    def _stated_ms(self) -> int:
        """When this was made, by the sender's clock; 0: not known."""
        return 0 if self.source is None else self.source.time

    def cluster_report(self, body: ClusterReport) -> None:
        """Store an observer's newest report on a cluster, and remove observers that have been silent for long."""
        cluster = body.cluster
        forget_reports(self.state, cluster)
        row = ReportRow(
            cluster,
            body.instance,
            body.session,
            self.now_ms,
            body.started,
            body.troubles,
            body.stopped,
            self._stated_ms(),
        )
        key = f"{cluster}/{body.instance}"
        self.state.put_bounded(limits.ALL_REPORTS, self.state.row.reports, key, row.forms)

    # --- scales and outcomes ----------------------------------------------------------------------------------------

    def scale_set(self, body: ScaleSet) -> None:
        if not self.follows("scales", body.session):
            return
        target = target_key(body.target)
        old = self.namespace.scales.get(target, ScaleRow())
        stated_ms = self._stated_ms() if body.session else 0
        if old.session == body.session and stated_ms < old.stated_ms:
            self.namespace.count_ignored("scale older than what the session reported before")
            return
        row = ScaleRow(
            spec_replicas=body.spec_replicas,
            status_replicas=body.status_replicas,
            selector=old.selector if old.selector == body.selector else body.selector,
            resource_version=body.resource_version,
            error=body.error,
            session=intern(body.session),
            seen_ms=self.now_ms,
            manager=body.manager,
            manager_ms=body.manager_time,
            outcome_offset=old.outcome_offset,
            uid=body.uid,
            stated_ms=stated_ms,
        )
        self._put_scale(target, row)

    def _put_scale(self, target: TargetName, row: ScaleRow) -> None:
        namespace, state = self.namespace, self.state
        old = namespace.scales.get(target)
        namespace.put_scale(target, row)
        if (old.selector if old is not None else "") != row.selector:
            for key in sorted(namespace.by_target.get(target, ())):
                if (hpa := self._hpa(key.name)) is not None:
                    state.refresh(hpa)

    def outcome(self, body: Outcome) -> None:
        """A wanted write ended: only the first outcome per decision counts; its scale is the newest observation."""
        namespace, state = self.namespace, self.state
        hpa = self._hpa(body.name)
        if hpa is not None:
            pending = hpa.row.pending
            wanted = None if pending is None else (pending.decision, pending.uid)
            if hpa.outcome is None and wanted == (body.decision, body.uid):
                hpa.outcome = body
                state.ready_or_due.add(hpa.id)
        known = namespace.shown(body.name)
        if known is not None and body.spec_replicas is not None:
            self._observe_outcome(namespace.directory[known].target, body, body.spec_replicas)

    def _observe_outcome(self, target: TargetName, body: Outcome, spec_replicas: int) -> None:
        old = self.namespace.scales.get(target, ScaleRow())
        try:
            offset = log_offset_of(body.decision)
        except ValueError:
            return  # the outcome of no decision
        if not old.outcome_offset < offset < self.state.offset:
            return  # a repeat, or late: a newer write has been reported; or of a decision that was never made
        row = structs.replace(
            old,
            spec_replicas=spec_replicas,
            status_replicas=old.status_replicas if body.status_replicas is None else body.status_replicas,
            selector=old.selector if body.selector is None else body.selector,
            resource_version=body.resource_version or old.resource_version,
            error=None,
            seen_ms=self.now_ms,
            outcome_offset=offset,
        )
        self._put_scale(target, row)

    def live(self, name: str) -> Hpa | None:
        """Return an HPA of the namespace that has not been forgotten; None: there is none."""
        hpa = self._hpa(name)
        return None if hpa is None or hpa.row.gone else hpa

    def _hpa(self, name: str) -> Hpa | None:
        return self.state.hpas.get(HpaId(self.namespace.cluster, self.namespace.name, name))

    # --- whole partition --------------------------------------------------------------------------------------------

    def settings(self, body: SettingsSet) -> None:
        row, cluster = self.state.row, body.cluster
        after, periods = dict(row.settings), stated_periods(self.state)
        apply_settings(after, body)
        if cluster not in after:
            self.state.drop_bounded(limits.ALL_SETTINGS, row.settings, cluster)
        elif not self.state.put_or_refuse(limits.ALL_SETTINGS, row.settings, cluster, after[cluster]):
            return
        self.state.settings_changed(cluster)
        begin_shorter(self.state, periods)

    def serving(self, body: Serving) -> None:
        """A reconciler reports which clusters it serves."""
        stated_ms = self._stated_ms()
        for cluster in body.clusters:
            problem = body.problems.get(cluster)
            row = ServedRow(self.now_ms, session=body.session, stated_ms=stated_ms)
            if problem is not None:
                row = structs.replace(row, problem=problem.error, reason=problem.reason)
            forms = [structs.replace(row, problem=row.problem[:length]) for length in _PROBLEM_LENGTHS]
            self.state.put_bounded(limits.ALL_PROBLEMS, self.state.row.served, cluster, forms)

    def agent(self, body: AgentSet) -> None:
        """A cluster has an agent from here on, or has one no longer: earlier reporters on it count no more.

        A repeat of the same report, or an older one, changes nothing.
        """
        row, cluster = self.state.row, body.cluster
        known = row.agents.get(cluster, AgentRow(0, left=True))
        if (body.incarnation, body.left) < (known.incarnation, known.left):
            return
        is_repeat = (body.incarnation, body.left) == (known.incarnation, known.left)
        left_ms = (known.left_ms if is_repeat else self.now_ms) if body.left else 0
        row.agents[cluster] = AgentRow(body.incarnation, body.left, body.max_namespaces, body.max_hpas, left_ms)
        if is_repeat:
            return
        for hpa in self.state.hpas.values() if not body.left else ():
            if hpa.id.cluster == cluster and hpa.row.is_live and hpa.annotation(PERIOD_ANNOTATION):
                due_soon(self.state, hpa)  # a stand-in waits for its decisions from here on
        forget_watermarks(self.state, cluster)
        for key in [key for key in row.sessions if key.startswith(f"{cluster}/")]:
            del row.sessions[key]
        for key in [key for key, report in row.reports.items() if report.cluster == cluster]:
            self.state.drop_bounded(limits.ALL_REPORTS, row.reports, key)
        self.state.drop_bounded(limits.ALL_PROBLEMS, row.served, cluster)
        row.refused.pop(cluster, None)

    def engine(self, body: EngineSet) -> None:
        """From here on another engine decides."""
        if not 1 <= body.engine <= ENGINE:
            raise UnknownEngineError(body.engine, ENGINE)
        self.state.row.engine = body.engine
        self.state.row.partitions = body.partitions or self.state.row.partitions

    def watermark_reset(self, body: WatermarkReset) -> None:
        """A source topic was deleted and created again."""
        self.state.row.watermarks.pop(f"{body.topic}-{body.source_partition}", None)

    def control_transferred(self, body: ControlTransferred) -> None:
        """The holder of a cluster changed; the report may be late."""
        transfers = self.state.row.transfers
        after = control_after(transfers.get(body.cluster), body, self.state.offset)
        short = ControlRow(after.changes[-SHORT_CHANGES:], after.restart_offset)
        self.state.put_bounded(limits.ALL_TRANSFERS, transfers, body.cluster, (after, short))
        for native in body.natives:
            take_over_status(self, body.cluster, native)

    def log_time(self, body: LogTimeSet) -> None:
        """A person says what log time is; it is so from the next record on."""
        row = self.state.row
        by = f"{body.author} ({body.reason})" if body.reason else body.author
        row.log_time = structs.replace(row.log_time, set_ms=body.time, set_by=by[:_LOG_TIME_REASON])

    def restart(self, body: Restart) -> None:
        """Memory of windows, scale events and allotments was lost."""
        self.state.row.restart_offset = self.state.offset
        self.state.row.restart_reason = f"restart: {body.reason}"
        for account in accounts_of(self.state):
            account.lost(self.state)


Handler = Callable[[EntryFold, Any], None]


def _nothing(fold: EntryFold, body: Any) -> None:
    """Fold an entry from which nothing follows."""


def handlers(kinds: Iterable[EntryKind], further: Mapping[str, Handler], *, in_namespace: bool) -> dict[type, Handler]:
    """Return what folds each body of a namespace, or each of none: a method of the fold, one of `further`, or what does
    nothing.

    Raises AttributeError: there is none of this name.
    """
    further = {**further, NOTHING: _nothing}
    chosen = [each for each in kinds if (each.scope == "namespace") == in_namespace]
    by_body = {each.body: further.get(each.handler) or getattr(EntryFold, each.handler) for each in chosen}
    return {FoldedAnswers if body is Answers else body: handler for body, handler in by_body.items()}

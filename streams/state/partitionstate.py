"""The state of one log partition while it is assigned: its row, namespaces and HPAs."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from schemas import limits
from schemas.decisions import InputPosition
from schemas.entries import Body
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.syncperiods import PERIOD_ANNOTATION, StatedPeriod, asked_sooner_ms, own_period_ms
from streams.state.attached import Attached
from streams.state.clustersettings import Effective, effective
from streams.state.gather import plan
from streams.state.hpastate import Hpa, Schedule
from streams.state.inputs import Probe
from streams.state.namespace import Namespace
from streams.state.namespacerows import Usage, encoded_size, refused_again
from streams.state.partitionrow import AgentRow, PartitionRow, RowIndex
from streams.state.rows import NOTHING_APPLIED, SIDES, HpaRow, MetricKey, Pause, SeriesKey, is_series
from streams.state.timing import note_arrival

_NOBODY: tuple[HpaId, ...] = ()


class Message(Struct, frozen=True, gc=False):
    """A message to another partition: a body for `fleethpa.reports`, at this log time (Unix milliseconds)."""

    cluster: str
    namespace: str
    time_ms: int
    body: Body


class State:
    """State of one partition. `offset` and `now_ms` are those of the record that is being applied."""

    def __init__(self, row: PartitionRow, attached: Attached) -> None:
        self.row = row
        self.attached = attached
        """What decides beside upstream's rules."""
        self.offset = row.offset
        self.now_ms = row.clock_ms
        self.hpas: dict[HpaId, Hpa] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.schedule = Schedule()
        self.ready_or_due: set[HpaId] = set()
        """HPAs to look at in this record: it brings an answer or outcome for them, or their time has come."""
        self.probe: Probe | None = None
        """Called with the inputs of each evaluation of this record, or None."""
        self.seen: set[str] = set()
        """Namespaces of which this record changes what is seen: pods, answers or samples."""
        self.sampled: dict[tuple[str, SeriesKey], set[str]] = {}
        """(namespace, metric) -> pods or label sets of which this record brings a sample, where one may bring an
        evaluation.
        """
        self.index = RowIndex()
        self.messages: list[Message] = []
        """What the newest record says to other partitions (`PartitionKernel.pop_messages`)."""
        self.derived: dict[type, Any] = {}
        """What attached accounts derive from the rows, by its class: it is kept beside them, and never stored."""
        self._settings: dict[str, Effective] = {}
        self.joint_settings: dict[tuple[str, ...], Effective] = {}
        """By clusters: what decides an HPA of all of them. What kinds of HPAs keep here is dropped with any change."""
        self._position: InputPosition | None = None
        self.usage: dict[str, Usage] = {}
        """By cluster: those of which a namespace has been named."""
        self._clusters = 0
        """How many of these have a namespace that was taken."""
        self._row_bytes: dict[str, int] = {}
        """Limit -> bytes in the partition's row."""

    def input_position(self, sources: list[str]) -> InputPosition:
        """Return which prefix of the log a decision of this record follows from.

        `sources`: per metric the newest source position; empty for a record that does not name them.
        """
        row, known = self.row, self._position
        if known is None or known.offset != self.offset:
            position = InputPosition(partition=row.number, offset=self.offset, hash=row.log_hash.hex())
            known = self._position = position
        if not sources:
            return known
        return InputPosition(partition=known.partition, offset=known.offset, hash=known.hash, sources=sources)

    def version_of(self, cluster: str) -> str:
        """Version of a cluster as an observer reported it; empty: none was reported."""
        known = self.row.kubernetes.get(cluster)
        return "" if known is None else known.version

    def settings(self, cluster: str) -> Effective:
        """Settings of a cluster as of this record."""
        known = self._settings.get(cluster)
        if known is None:
            known = self._settings[cluster] = effective(self.row.settings, cluster, self.version_of(cluster))
        return known

    def settings_of(self, hpa: Hpa) -> Effective:
        """Settings by which an HPA is decided as of this record, as its kind says."""
        settings: Effective = self.attached.kind_of(hpa.row).settings(self, hpa.row)
        return settings

    def namespace(self, cluster: str, name: str) -> Namespace:
        """Return a namespace, made on first use."""
        key = f"{cluster}/{name}"
        known = self.namespaces.get(key)
        if known is None:
            known = self.namespaces[key] = Namespace(cluster, name)
            known.held.cluster = self.usage.setdefault(cluster, known.held.cluster)
        if known.offset != self.offset:
            known.begin(self.offset, self.now_ms)
        return known

    def namespace_of(self, hpa: Hpa) -> Namespace:
        """Return the namespace of an HPA."""
        known = self.namespaces.get(hpa.namespace)
        if known is None or known.offset != self.offset:
            return self.namespace(hpa.id.cluster, hpa.id.namespace)
        return known

    # --- limits of a cluster ------------------------------------------------------------------------------------------

    def _agent(self, cluster: str) -> AgentRow | None:
        """The agent of a cluster, which was registered with limits of its own; None: it has none now."""
        agent = self.row.agents.get(cluster)
        return None if agent is None or agent.left else agent

    def admits(self, cluster: str, name: str, is_sample: bool) -> bool:
        """Whether an entry of a namespace is taken: it is known, or one more is within the limits of the cluster.

        Pushed samples make no namespace known: anybody can send one for any name. What is refused is noted.
        """
        known = self.namespaces.get(f"{cluster}/{name}")
        if known is not None and known.born != NOTHING_APPLIED:
            return True
        if is_sample:
            self.refuse(cluster, limits.UNKNOWN_NAMESPACES, name)
        elif not self._namespaces(cluster) and self._clusters >= limits.CLUSTERS.most:
            self.refuse(EVERY_CLUSTER, limits.CLUSTERS, cluster)
        elif self._namespaces(cluster) >= self._most_namespaces(cluster):
            self.refuse(cluster, limits.CLUSTER_NAMESPACES, name)
        else:
            namespace = self.namespace(cluster, name)
            namespace.dirty = set(SIDES)
            namespace.born = self.offset
            self.count_namespaces(namespace, 1)
            return True
        return False

    def _namespaces(self, cluster: str) -> int:
        """How many namespaces of a cluster were taken."""
        used = self.usage.get(cluster)
        return 0 if used is None else used.namespaces

    def _most_namespaces(self, cluster: str) -> int:
        agent = self._agent(cluster)
        return limits.CLUSTER_NAMESPACES.most if agent is None else agent.max_namespaces

    def most_hpas(self, cluster: str) -> int:
        """How many HPAs a cluster may have in this partition."""
        agent = self._agent(cluster)
        return limits.CLUSTER_HPAS.most if agent is None else agent.max_hpas

    def refuse(self, cluster: str, limit: limits.Limit, name: str) -> None:
        """Note in the partition's row what a cluster has too much of; of unknown clusters together."""
        whose = cluster if self._namespaces(cluster) else EVERY_CLUSTER
        refused = self.row.refused.setdefault(whose, {})
        refused[limit.what] = refused_again(refused.get(limit.what), name, self.now_ms)

    def put_bounded(self, limit: limits.Limit, rows: dict[str, Any], key: str, forms: Sequence[Any]) -> None:
        """Store something in the partition's row: the first of its forms that fits, the last one in any case.

        Of more clusters than there may be, nothing is stored.
        """
        if key not in rows and len(rows) >= limits.CLUSTERS.most:
            self.refuse(EVERY_CLUSTER, limits.CLUSTERS, key)
            return
        held = self._held_in(limit, rows) - (encoded_size(rows[key]) if key in rows else 0)
        for form in forms:
            size = encoded_size(form)
            if held + size <= limit.most:
                break
        rows[key] = form
        self._row_bytes[limit.what] = held + size

    def put_pauses(self, cluster: str, pauses: dict[str, Pause]) -> None:
        """Replace the pauses of a cluster, or of all (`*`): where there is no room, without reasons and authors."""
        if not pauses:
            self.drop_bounded(limits.ALL_PAUSES, self.row.pauses, cluster)
            return
        brief = {kind: structs.replace(pause, reason="") for kind, pause in pauses.items()}
        least = {kind: structs.replace(pause, author="", reason="") for kind, pause in pauses.items()}
        self.put_bounded(limits.ALL_PAUSES, self.row.pauses, cluster, (pauses, brief, least))

    def put_or_refuse(self, limit: limits.Limit, rows: dict[str, Any], key: str, row: Any) -> bool:
        """Store something in the partition's row; if it grows and has no room it is noted, and the one before stays."""
        before = encoded_size(rows[key]) if key in rows else 0
        size = encoded_size(row)
        if size > before and self._held_in(limit, rows) - before + size > limit.most:
            self.refuse(key, limit, key)
            return False
        self.put_bounded(limit, rows, key, (row,))
        return True

    def recount(self) -> None:
        """Count anew what the partition's row has, as it was changed in another way."""
        self._row_bytes.clear()

    def drop_bounded(self, limit: limits.Limit, rows: dict[str, Any], key: str) -> None:
        """Remove something from the partition's row."""
        if key in rows:
            self._row_bytes[limit.what] = self._held_in(limit, rows) - encoded_size(rows[key])
            del rows[key]

    def _held_in(self, limit: limits.Limit, rows: dict[str, Any]) -> int:
        known = self._row_bytes.get(limit.what)
        return sum([encoded_size(row) for row in rows.values()]) if known is None else known

    def drop_namespace(self, namespace: Namespace) -> None:
        """Remove a namespace, and what it holds from the sums of its cluster."""
        held = namespace.held
        held.cluster.bytes -= held.bytes
        held.cluster.hpas -= held.hpas
        self.count_namespaces(namespace, -1)
        del self.namespaces[namespace.key]

    def count_namespaces(self, namespace: Namespace, more: int) -> None:
        """Count so many namespaces more in the cluster of this one."""
        cluster = namespace.held.cluster
        self._clusters += bool(cluster.namespaces + more) - bool(cluster.namespaces)
        cluster.namespaces += more

    def hpa(self, name: HpaId) -> Hpa:
        """Return an HPA, made as a tombstone on first use."""
        known = self.hpas.get(name)
        if known is None:
            row = HpaRow(cluster=name.cluster, namespace=name.namespace, name=name.name, gone=True)
            known = Hpa(row)
            self.hpas[known.id] = known
        return known

    def settings_changed(self, cluster: str = EVERY_CLUSTER) -> None:
        """Drop values derived from the settings of a cluster, and look at its HPAs."""
        self.joint_settings.clear()
        if cluster == EVERY_CLUSTER:
            self._settings.clear()
            concerned = list(self.hpas.values())
        else:
            self._settings.pop(cluster, None)
            kind_of = self.attached.kind_of
            concerned = [hpa for hpa in self.hpas.values() if kind_of(hpa.row).obeys(hpa.row, cluster)]
        for hpa in concerned:
            self.refresh(hpa)
            self.ready_or_due.add(hpa.id)

    def refresh(self, hpa: Hpa) -> None:
        """Compute again which answers an HPA waits for: its spec, its scale's selector or the settings changed."""
        namespace = self.namespace(hpa.id.cluster, hpa.id.namespace)
        if hpa.autoscaler is None:
            hpa.queries = ()
            watched: tuple[MetricKey, ...] = ()
        else:
            scale = namespace.scales.get(hpa.target)
            selector = scale.selector if scale is not None else ""
            spec = hpa.spec if hpa.fresh_spec is None else hpa.fresh_spec
            hpa.fresh_spec = None
            hpa.queries = plan(hpa.autoscaler, spec, selector, self.settings(hpa.id.cluster).sources)
            watched = tuple(sorted({query.key for query in hpa.queries if query.key is not None}))
        questions = tuple([key for key in watched if not is_series(key)])
        hpa.polled = bool(questions)
        awaits = questions if 0 < len(questions) < len(watched) else watched
        if awaits != hpa.awaits:
            hpa.awaits = awaits
            self.ready_or_due.add(hpa.id)
        if watched != hpa.watched:
            namespace.watch(hpa.id, hpa.watched, watched)
            hpa.watched = watched
        self.refresh_period(namespace, hpa)

    def refresh_period(self, namespace: Namespace, hpa: Hpa) -> None:
        """Note anew how often metrics are asked for because of an HPA: its annotation or the settings changed."""
        row, period_ms = hpa.row, None
        stated_ms = own_period_ms(hpa.annotation(PERIOD_ANNOTATION)) if row.annotations and not row.revision else None
        if stated_ms is not None:
            settings = self.settings(hpa.id.cluster)
            stated = StatedPeriod(stated_ms, row.origin)
            period_ms = asked_sooner_ms(stated, settings.stated, settings.sync_period_ms)
        namespace.put_period(hpa.id.name, period_ms)

    def notify(self, namespace: Namespace, key: MetricKey, settings: Effective) -> None:
        """An answer or sample arrived: visit the HPAs that wait for it."""
        known = namespace.arrivals.get(key)
        arrival = note_arrival(known, self.now_ms, namespace.shortest_ms or settings.sync_period_ms)
        if arrival is not known:
            namespace.put_arrival(key, arrival)
            self.ready_or_due.update(namespace.watchers.get(key, _NOBODY))

    def record_sample(self, namespace: Namespace, key: SeriesKey, name: str) -> None:
        """Note that a pushed sample arrived, where settings let one bring an evaluation."""
        names = self.sampled.get((namespace.key, key))
        if names is not None:
            names.add(name)
        elif key in namespace.watchers and self.settings(namespace.cluster).sample_floor_ms is not None:
            self.sampled[namespace.key, key] = {name}

    def add(self, hpa: Hpa) -> None:
        """Add a restored HPA."""
        name = hpa.id
        self.hpas[name] = hpa
        namespace = self.namespace(name.cluster, name.namespace)
        if selector := hpa.row.registered[1]:
            namespace.membership.track(selector)
            namespace.register(name.name, "", selector)
        self.refresh(hpa)

"""The state of one namespace while its partition is assigned. How its rows are made and read: `rowcodec`.

Every change goes to a part of the namespace, which is stored with the next checkpoint.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from msgspec import structs

from schemas import limits
from schemas.keys import HpaId
from schemas.observed import ConflictingAutoscaler, Mode, Pod, PodList
from streams.state.membership import Membership, TrackedPod
from streams.state.namespacerows import (
    Held,
    Names,
    answer_size,
    encoded_size,
    hpa_size,
    limit_of_arrival,
    pod_size,
    sample_size,
    scale_size,
    side_of,
    with_name,
    without_name,
)
from streams.state.rows import (
    NOTHING_APPLIED,
    AnswerRow,
    Arrival,
    DirectoryEntry,
    DirectoryKey,
    ListProgress,
    MetricKey,
    Pause,
    QueryKey,
    SampleRow,
    ScaleRow,
    SeriesKey,
    TargetName,
    ViewRow,
    WatchRow,
)

EXPIRY_SLOTS = 60
"""What is too old in a namespace is dropped once a minute of log time, in one of so many seconds."""
_EMPTY_MAP: Mapping[str, SampleRow] = {}


class Namespace:
    __slots__ = (
        "answers",
        "arrivals",
        "born",
        "by_target",
        "cluster",
        "commands",
        "conflicting",
        "conflicting_coming",
        "directory",
        "dirty",
        "expiry_slot",
        "held",
        "hpa_list",
        "idle_ms",
        "ignored",
        "is_stored",
        "key",
        "listed",
        "membership",
        "name",
        "now_ms",
        "offset",
        "periods",
        "pod_list",
        "registered",
        "scales",
        "series",
        "shortest_ms",
        "targets",
        "unused",
        "view",
        "watchers",
        "watches",
    )

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.key = f"{cluster}/{name}"
        self.dirty: set[int] = set()
        """Of which kinds of rows (`SIDES`) something has changed since the last checkpoint."""
        self.is_stored = False
        self.offset = NOTHING_APPLIED
        self.now_ms = 0
        self.born = NOTHING_APPLIED
        """Log offset of the record that first named it."""
        self.expiry_slot = crc32(self.key.encode()) % EXPIRY_SLOTS
        self.held = Held()
        self.membership = Membership()
        self.answers: dict[QueryKey, AnswerRow] = {}
        self.series: dict[SeriesKey, dict[str, SampleRow]] = {}
        self.arrivals: dict[MetricKey, Arrival] = {}
        self.pod_list = ListProgress()
        self.directory: dict[DirectoryKey, DirectoryEntry] = {}
        self.hpa_list = ListProgress()
        self.conflicting: list[ConflictingAutoscaler] = []
        self.conflicting_coming: list[ConflictingAutoscaler] = []
        self.scales: dict[TargetName, ScaleRow] = {}
        self.watches: dict[str, WatchRow] = {}
        self.listed: dict[str, str] = {}
        self.commands: dict[str, tuple[Mode | None, dict[str, Pause]]] = {}
        self.ignored: dict[str, int] = {}
        self.view = ViewRow()
        self.idle_ms = 0
        self.unused: dict[str, int] = {}
        self.targets = object()
        """Another object as soon as a scale changes, or an HPA registers another selector for the overlap check."""
        # Made from the rest:
        self.by_target: dict[TargetName, Names[DirectoryKey]] = {}
        self.watchers: dict[Any, Names[HpaId]] = {}
        """Query or series -> HPAs one of whose metrics it is."""
        self.registered: dict[str, Names[str]] = {}
        """Selector -> HPAs for which the overlap check knows it."""
        self.periods: dict[str, int] = {}
        """HPA -> in which period metrics are asked for because of it, where that is shorter than the cluster's."""
        self.shortest_ms: int | None = None
        """The shortest of these; None: metrics are asked for in the sync period of the cluster."""

    # --- its parts ----------------------------------------------------------------------------------------------------

    def begin(self, offset: int, now_ms: int = 0) -> None:
        """Start applying a record."""
        self.offset, self.now_ms = offset, now_ms

    @property
    def is_known(self) -> bool:
        """Something of it is or will be stored: it was reported, or given an HPA or a command."""
        return bool(self.dirty) or self.is_stored

    def touch(self) -> None:
        """Mark the first kind of rows as changed."""
        self.dirty.add(0)

    def count_ignored(self, why: str) -> None:
        """Count an entry that was not applied."""
        self.touch()
        self.ignored[why] = self.ignored.get(why, 0) + 1

    def takes(self, limit: limits.Limit, name: str, more: int) -> bool:
        """Count what is to be stored; False: it is over a limit, which is noted."""
        self.dirty.add(side_of(limit))
        if self.held.has_room(limit, more):
            self.held.add(limit, more)
            return True
        self.refuse(limits.CLUSTER_BYTES if self.held.is_full else limit, name)
        return False

    def refuse(self, limit: limits.Limit, name: str) -> None:
        """Note what is not stored."""
        self.touch()
        self.held.refuse(limit, name, self.now_ms)

    def gives_back(self, limit: limits.Limit, size: int) -> None:
        """Count what is removed."""
        self.dirty.add(side_of(limit))
        self.held.add(limit, -size)

    @property
    def pods(self) -> Mapping[str, TrackedPod]:
        return self.membership.pods

    # --- pods -------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        """Add a pod or take over its change."""
        old, mark = self.pods.get(pod.name), self.pod_list.mark
        before = None if old is None else old.pod
        if old is not None and old.mark == mark and before == pod:
            return
        self.dirty.add(side_of(limits.NAMESPACE_PODS))
        if old is not None:
            self.membership.note(pod.name, mark)
        if before != pod:
            more = pod_size(pod) - (0 if before is None else pod_size(before))
            if self.takes(limits.NAMESPACE_PODS, pod.name, more):
                self.membership.put(pod, mark)

    def drop_pod(self, name: str) -> None:
        """Remove a pod and its pushed samples."""
        if name not in self.pods:
            return
        self.gives_back(limits.NAMESPACE_PODS, pod_size(self.pods[name].pod))
        self.membership.drop(name)
        for key in [key for key, samples in self.series.items() if name in samples]:
            if key[0] not in ("Object", "External"):
                self.drop_sample(key, name)

    def drop_sample(self, key: SeriesKey, name: str) -> None:
        """Remove a pushed sample."""
        row = self.series[key].pop(name)
        if not self.series[key]:
            del self.series[key]
        self.gives_back(limits.NAMESPACE_SAMPLES, sample_size(key, name, row))

    def list_pods(self, chunk: PodList, place: str) -> None:
        """Apply a chunk of a full list at a place in the log; the last one removes the pods that no chunk named."""
        progress = self.pod_list = self.pod_list.after(chunk.list_id, chunk.chunk, place)
        self.touch()
        for pod in chunk.pods:
            self.put_pod(pod)
        if chunk.chunk == chunk.chunks - 1 and progress.next_chunk == chunk.chunks:
            for name in sorted(name for name, entry in self.pods.items() if entry.mark != progress.mark):
                self.drop_pod(name)
            self.pod_list = ListProgress()

    # --- answers and samples ----------------------------------------------------------------------------------------

    def put_answer(self, query: QueryKey, row: AnswerRow) -> None:
        """Take the newest answer to a query."""
        old = self.answers.get(query)
        more = answer_size(row) - (0 if old is None else answer_size(old))
        if self.takes(limits.NAMESPACE_ANSWERS, query[2] or query[0], more):
            self.answers[query] = row

    def samples(self, key: SeriesKey) -> Mapping[str, SampleRow]:
        """Return the pushed samples of a metric by pod, or by label set."""
        return self.series.get(key, _EMPTY_MAP)

    def put_sample(self, key: SeriesKey, name: str, row: SampleRow) -> bool:
        """Replace a pushed sample; False: it is over a limit."""
        old = self.series.get(key, _EMPTY_MAP).get(name)
        more = sample_size(key, name, row) - (0 if old is None else sample_size(key, name, old))
        if not self.takes(limits.NAMESPACE_SAMPLES, name, more):
            return False
        self.series.setdefault(key, {})[name] = row
        return True

    def put_arrival(self, key: MetricKey, arrival: Arrival) -> None:
        """Note when an answer or sample came."""
        more = 0 if key in self.arrivals else encoded_size(key)
        if self.takes(limit_of_arrival(key), "/".join(key), more):
            self.arrivals[key] = arrival

    # --- autoscalers and scales -------------------------------------------------------------------------------------

    def shown(self, name: str) -> DirectoryKey | None:
        """Return the HPA of this name that is evaluated: the central one hides the cluster's. None: there is no HPA."""
        for key in (DirectoryKey(name, "central"), DirectoryKey(name, "cluster")):
            if key in self.directory:
                return key
        return None

    def is_hidden(self, key: DirectoryKey) -> bool:
        """Return whether an HPA of the cluster is hidden by a central one of its name."""
        return key.origin == "cluster" and DirectoryKey(key.name, "central") in self.directory

    def takes_hpa(self, key: DirectoryKey, entry: DirectoryEntry, most_hpas: int) -> bool:
        """Whether an HPA is within the limits. One that is not is noted; what is known of it already stays.

        `most_hpas`: of the cluster.
        """
        self.touch()
        old = self.directory.get(key)
        more = hpa_size(key, entry) - (0 if old is None else hpa_size(key, old))
        grows = more > 0 or entry.own > (0 if old is None else old.own)
        if old is None and self.held.cluster.hpas >= most_hpas:
            over = limits.CLUSTER_HPAS
        elif grows and self.held.is_full:
            over = limits.CLUSTER_BYTES
        elif not self.held.has_room(limits.NAMESPACE_HPAS, more):
            over = limits.NAMESPACE_HPAS
        else:
            return True
        self.refuse(over, key.name)
        if old is not None:
            self.directory[key] = structs.replace(old, mark=entry.mark)
        return False

    def enter_hpa(self, key: DirectoryKey, entry: DirectoryEntry) -> None:
        self.touch()
        old = self.directory.get(key)
        if old is not None and old.target == entry.target:
            # The texts that are kept already: a full list brings all of them again.
            entry = structs.replace(entry, target=old.target, uid=old.uid if old.uid == entry.uid else entry.uid)
        else:
            self._leave_target(key)
            self.join_target(entry.target, key)
        self._uncount_hpa(key)
        self.directory[key] = entry
        self.held.add(limits.NAMESPACE_HPAS, hpa_size(key, entry), entry.own, 1)

    def _uncount_hpa(self, key: DirectoryKey) -> None:
        if (old := self.directory.get(key)) is not None:
            self.held.add(limits.NAMESPACE_HPAS, -hpa_size(key, old), -old.own, -1)

    def leave_hpa(self, key: DirectoryKey) -> None:
        if key in self.directory:
            self.touch()
            self._leave_target(key)
            self._uncount_hpa(key)
            del self.directory[key]

    def _leave_target(self, key: DirectoryKey) -> None:
        old = self.directory.get(key)
        if old is not None:
            keys = without_name(self.by_target[old.target], key)
            if keys:
                self.by_target[old.target] = keys
            else:
                del self.by_target[old.target]

    def join_target(self, target: TargetName, key: DirectoryKey) -> None:
        """Note that an HPA of the directory has this target."""
        self.by_target[target] = with_name(self.by_target.get(target, ()), key)

    def put_scale(self, target: TargetName, row: ScaleRow) -> None:
        old = self.scales.get(target)
        more = scale_size(target, row) - (0 if old is None else scale_size(target, old))
        if self.takes(limits.NAMESPACE_SCALES, "/".join(target), more):
            self.scales[target] = row
            self.targets = object()

    def drop_scale(self, target: TargetName) -> None:
        """Forget the observation of a scale."""
        self.gives_back(limits.NAMESPACE_SCALES, scale_size(target, self.scales.pop(target)))
        self.targets = object()

    def put_command(self, name: str, command: tuple[Mode | None, dict[str, Pause]]) -> None:
        """Replace mode and pauses of an HPA or of the namespace; nothing of both: they are forgotten."""
        old, is_empty = self.commands.get(name), command == (None, {})
        size = 0 if is_empty else encoded_size((name, command))
        more = size - (0 if old is None else encoded_size((name, old)))
        if self.takes(limits.NAMESPACE_COMMANDS, name, more):
            self.commands.pop(name, None)
            if not is_empty:
                self.commands[name] = command

    def watch(self, hpa: HpaId, before: Iterable[Any], after: Iterable[Any]) -> None:
        """Note which queries and series an HPA waits for."""
        for key in before:
            names = without_name(self.watchers.get(key, ()), hpa)
            if names:
                self.watchers[key] = names
            else:
                self.watchers.pop(key, None)
        for key in after:
            self.watchers[key] = with_name(self.watchers.get(key, ()), hpa)

    def register(self, hpa: str, before: str, after: str) -> None:
        """Note which selector of an HPA the overlap check knows from now on, and knew before (empty: none)."""
        if before == after:
            return
        self.targets = object()
        if before:
            names = without_name(self.registered.get(before, ()), hpa)
            self.registered[before] = names
            if not names:
                del self.registered[before]
        if after:
            self.registered[after] = with_name(self.registered.get(after, ()), hpa)

    def put_period(self, hpa: str, period_ms: int | None) -> None:
        """Note in which period metrics are asked for because of an HPA; None: in that of the cluster."""
        if self.periods.get(hpa) == period_ms:
            return
        self.periods.pop(hpa, None)
        if period_ms is not None:
            self.periods[hpa] = period_ms
        self.shortest_ms = min(self.periods.values(), default=None)

    def tidy(self) -> None:
        """Drop what was derived from the rest and is not used, at a checkpoint: it must not change a decision."""
        if self.membership.may_hold_unused(len(self.registered)):
            self.membership.forget_unused({*self.registered, *(scale.selector for scale in self.scales.values())})

"""The history of an HPA's spec, mode and commands: what changed, when, by whom and why, read off the log.

Nothing is evaluated, so that hours of the log cost little: samples, answers, pods, scales and outcomes are skipped, as
no spec, mode or observer session follows from them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, structs

from schemas.agents import AgentSet
from schemas.codec import decode
from schemas.decisions import Decision, log_offset_of
from schemas.entries import WHOLE_PARTITION_KEY, Body, ControlTransferred, Entry, LogRecord
from schemas.keys import EVERY_CLUSTER, HpaId
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.metricspecs import metric_name, metric_source
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command, Heartbeat, Mode
from schemas.settings import EngineSet, LogTimeSet, SettingsSet, WatermarkReset
from streams.analysis.candidate import metric_key
from streams.analysis.rulewords import rules_in_words
from streams.archive.layout import PlainRecord
from streams.hpa.rules import CURRENT_TEXT, UnknownRulesError, minor_of
from streams.partition import Partition
from streams.state.answers import FoldedEntry, read_record
from streams.state.fold import EntryFold
from streams.state.guards import asked_mode
from streams.state.logtime import advance

_FOLDED = (
    AutoscalerSet,
    AutoscalerDeleted,
    AutoscalerList,
    Command,
    Heartbeat,
    SettingsSet,
    EngineSet,
    AgentSet,
    WatermarkReset,
    LogTimeSet,
)


def fold_specs(partition: Partition, record: PlainRecord, entries: Iterable[FoldedEntry], cluster: str) -> None:
    """Fold what decides the specs and modes of a cluster's HPAs; what else the partition holds is not true after it.

    `entries`: those of the record. Raises UnknownEngineError: it asks for an engine that this version lacks.
    """
    offset, timestamp_ms, _ = record
    state = partition.state
    advance(state.row, timestamp_ms, offset)
    state.row.offset = state.offset = offset
    state.now_ms = state.row.clock_ms
    wanted = [
        (i, entry) for i, entry in enumerate(entries) if isinstance(entry.body, _FOLDED) and _is_of(entry, cluster)
    ]
    if not wanted:
        return
    fold = EntryFold(state)
    for index, entry in wanted:
        fold.apply(index, entry)
    state.ready_or_due.clear()
    state.seen.clear()


def _is_of(entry: FoldedEntry, cluster: str) -> bool:
    return entry.key == WHOLE_PARTITION_KEY or entry.key.startswith(f"{cluster}/")


What = Literal[
    "created", "spec", "deleted", "adopted", "released", "mode", "pause", "resume", "override", "hands", "rules"
]
"""What happened. `hands`: who is in charge of the cluster changed, at the time that its agent reports. `rules`: its
observer reported another version of Kubernetes, or its settings name other rules, by which its HPAs are decided.
`adopted`: a central HPA took over from the cluster's of its name; `released`: it gave back to it.
"""


class ChangeKind(NamedTuple):
    """How readers treat a kind of change.

    `is_of_spec`: the HPA itself came, changed or went; else somebody commanded it, or what is around it changed, which
    lists show dimmed and charts mark apart. `may_be_decided`: decisions can be made under it.
    """

    is_of_spec: bool
    may_be_decided: bool = True


CHANGE_KINDS: Final[Mapping[What, ChangeKind]] = {
    "created": ChangeKind(is_of_spec=True),
    "spec": ChangeKind(is_of_spec=True),
    "deleted": ChangeKind(is_of_spec=True, may_be_decided=False),
    "adopted": ChangeKind(is_of_spec=True),
    "released": ChangeKind(is_of_spec=True),
    "mode": ChangeKind(is_of_spec=False),
    "pause": ChangeKind(is_of_spec=False),
    "resume": ChangeKind(is_of_spec=False),
    "override": ChangeKind(is_of_spec=False),
    # In other hands others decide, at a time that is no log time.
    "hands": ChangeKind(is_of_spec=False, may_be_decided=False),
    "rules": ChangeKind(is_of_spec=False),
}


class Revision(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One change. `generation`: of the spec from then on. `changes`: what differs, in words.

    `author`: who changed it in fleethpa. `manager`: the field manager that wrote the spec in the cluster.
    `first_decision`: ID of the first recorded decision that was made under it; empty: there is none, or none was looked
    for (`under`).
    """

    what: What
    time: int
    offset: int
    generation: int = 0
    uid: str = ""
    origin: str = ""
    author: str = ""
    reason: str = ""
    changes: list[str] = []
    spec: dict[str, Any] | None = None
    manager: str = ""
    first_decision: str = ""

    @property
    def kind(self) -> ChangeKind:
        return CHANGE_KINDS[self.what]


def under(revisions: Sequence[Revision], index: int, decision: Decision | None) -> Revision:
    """A change with the first decision of the HPA after it, which counts only if it was made under this change.

    `decision`: None: there is none. It does not count if the spec was replaced, or the HPA deleted or created, before.
    """
    revision = revisions[index]
    if decision is None or not revision.kind.may_be_decided:
        return revision
    offset = log_offset_of(decision.id)
    ends = (each.offset for each in revisions[index + 1 :] if each.what in ("created", "deleted"))
    is_of_its_life = revision.offset <= offset < next(ends, offset + 1)
    is_of_its_spec = revision.spec is None or revision.generation == decision.generation
    return structs.replace(revision, first_decision=decision.id if is_of_its_life and is_of_its_spec else "")


class _Spec(Struct, frozen=True):
    uid: str
    generation: int
    spec: dict[str, Any]
    author: str
    reason: str
    origin: str
    asked: Mode
    """The mode asked for: its own, or that of its surroundings."""


class _Version(NamedTuple):
    """What decides by which rules: the version of the cluster as it was reported, and the rules."""

    kubernetes: str
    rules: str


class RevisionReader:
    """Folds what the log says of specs, record by record, and notes every change of one HPA.

    A spec that was there before is no change. Nothing is evaluated: of the partition, only specs, modes and its clock
    are true afterwards.
    """

    def __init__(self, partition: Partition, hpa: HpaId) -> None:
        self._partition, self._hpa = partition, hpa
        self._version = self._version_now()

    def read(self, record: PlainRecord) -> list[Revision]:
        """The changes that the next record brings. Raises LogError, UnknownEngineError: it cannot be folded."""
        partition, hpa = self._partition, self._hpa
        folded = read_record(partition.number, record[0], record[2]).entries
        # Most records bring samples, which change neither a spec nor a version.
        if not any(isinstance(entry.body, _READ) and _is_of(entry, hpa.cluster) for entry in folded):
            fold_specs(partition, record, (), hpa.cluster)
            return []
        before = self._version
        revisions = self._changes(record, folded)
        after = self._version = self._version_now()
        if after == before or _known(self._partition, self._hpa) is None:
            return revisions
        return [*revisions, *_upgrade(before, after, self._hpa.cluster, self._partition.clock_ms, record[0])]

    def _version_now(self) -> _Version:
        state, cluster = self._partition.state, self._hpa.cluster
        return _Version(state.version_of(cluster).partition(" ")[0], state.settings(cluster).rules)

    def _changes(self, record: PlainRecord, folded: list[FoldedEntry]) -> list[Revision]:
        partition, hpa = self._partition, self._hpa
        offset, _, value = record
        keys = _keys(hpa)
        if not any(isinstance(entry.body, _CHANGES) and entry.key in keys for entry in folded):
            fold_specs(partition, record, folded, hpa.cluster)
            return []
        before = _known(partition, hpa)
        fold_specs(partition, record, folded, hpa.cluster)
        revisions: list[Revision] = []
        now_ms = partition.clock_ms
        entries = _entries(value, hpa)
        revision = _change(before, _known(partition, hpa), now_ms, offset)
        if revision is not None:
            revisions.append(_attributed(revision, entries, hpa))
        return [*revisions, *_told(entries, now_ms, offset, hpa, before)]


def _change(before: "_Spec | None", after: "_Spec | None", now_ms: int, offset: int) -> Revision | None:
    if after is None:
        if before is None:
            return None
        return Revision(what="deleted", time=now_ms, offset=offset, uid=before.uid, origin=before.origin)
    if before is None or (before.uid != after.uid and before.origin == after.origin):
        return _revision("created", now_ms, offset, after, [])
    if after.origin != before.origin:
        what: What = "adopted" if after.origin == "central" else "released"
        moved = f"origin {before.origin}→{after.origin}"
        return _revision(what, now_ms, offset, after, [moved, *differences(before.spec, after.spec)])
    if after.spec != before.spec:
        return _revision("spec", now_ms, offset, after, differences(before.spec, after.spec))
    return None


def _upgrade(before: _Version, after: _Version, cluster: str, now_ms: int, offset: int) -> Iterator[Revision]:
    """Another version of the cluster, unless it is a patch of the same, or other rules."""
    changes = []
    if _minor(after.kubernetes) != _minor(before.kubernetes) and (before.kubernetes or after.rules != before.rules):
        was = f", before {before.kubernetes}" if before.kubernetes else ""
        changes.append(f"cluster {cluster} runs Kubernetes {after.kubernetes or 'of an unknown version'}{was}")
    if after.rules != before.rules:
        was, now = (rules_in_words(each or CURRENT_TEXT) for each in (before.rules, after.rules))
        changes.append(f"rules {was}→{now}")
    elif changes:
        changes.append(f"the rules stay those of {rules_in_words(after.rules or CURRENT_TEXT)}")
    if changes:
        yield Revision(what="rules", time=now_ms, offset=offset, changes=changes)


def _minor(version: str) -> int | None:
    try:
        return minor_of(version)
    except UnknownRulesError:
        return None


def _keys(hpa: HpaId) -> tuple[str, str]:
    """Of the entries about the HPA's namespace, and about everything."""
    return hpa.namespace_key, WHOLE_PARTITION_KEY


def _entries(value: bytes, hpa: HpaId) -> list[Entry]:
    """Return what a record says about the HPA's namespace, and about everything."""
    keys = _keys(hpa)
    return [entry for entry in decode(value, LogRecord).entries if entry.key in keys]


def _attributed(revision: Revision, entries: list[Entry], hpa: HpaId) -> Revision:
    """With who made the change, as the record says that brought it."""
    for entry in entries:
        body = entry.body
        if revision.what in ("deleted", "released"):
            gone = "central" if revision.what == "released" else revision.origin
            if isinstance(body, AutoscalerDeleted) and (body.name, body.origin) == (hpa.name, gone):
                return structs.replace(revision, author=body.author, reason=body.reason)
        elif revision.origin == "cluster":
            revision = structs.replace(revision, manager=_manager(body, hpa.name) or revision.manager)
    return revision


def _manager(body: Body, name: str) -> str:
    if isinstance(body, AutoscalerSet) and body.origin == "cluster" and body.hpa["metadata"]["name"] == name:
        return body.manager
    return body.managers.get(name, ("", 0))[0] if isinstance(body, AutoscalerList) else ""


def _known(partition: Partition, hpa: HpaId) -> _Spec | None:
    known = partition.state.hpas.get(hpa)
    if known is None or not known.row.is_live:
        return None
    row, state = known.row, partition.state
    mode = asked_mode(state.namespace(hpa.cluster, hpa.namespace), hpa.name, state.settings(hpa.cluster))
    spec = known.spec if row.fleet is None else known.spec | row.fleet.spec.fields()
    return _Spec(row.uid, row.generation, spec, row.author, row.change_reason, row.origin, mode)


def spec_of(partition: Partition, hpa: HpaId) -> dict[str, Any] | None:
    """The spec of an HPA (of a FleetHPA: of the whole) in the state of its log partition; None: there is no such HPA,
    or it was deleted.
    """
    return None if _known(partition, hpa) is None else partition.state.hpas[hpa].spec


def _revision(what: What, time_ms: int, offset: int, after: _Spec, changes: list[str]) -> Revision:
    return Revision(
        what=what,
        time=time_ms,
        offset=offset,
        generation=after.generation,
        uid=after.uid,
        origin=after.origin,
        author=after.author,
        reason=after.reason,
        changes=changes,
        spec=after.spec,
    )


class _Place(NamedTuple):
    """Where an entry stands: its key, the log time and offset of its record, the HPA, and what was known of it before
    that record (None: nothing).
    """

    key: str
    now_ms: int
    offset: int
    hpa: HpaId
    before: "_Spec | None"

    def revision(self, what: What, body: AutoscalerSet | Command, change: str) -> Revision:
        return Revision(
            what=what, time=self.now_ms, offset=self.offset, author=body.author, reason=body.reason, changes=[change]
        )


def _told(entries: list[Entry], now_ms: int, offset: int, hpa: HpaId, before: "_Spec | None") -> Iterator[Revision]:
    """Yield what entries say beside what they make of the spec."""
    for entry in entries:
        if (tell := _TOLD_BY.get(type(entry.body))) is not None:
            yield from tell(entry.body, _Place(entry.key, now_ms, offset, hpa, before))


def _mode_of_spec(body: AutoscalerSet, place: _Place) -> Iterator[Revision]:
    if body.mode is None or body.hpa["metadata"]["name"] != place.hpa.name:
        return
    asked = place.before.asked if place.before is not None else None
    if body.mode != asked:
        yield place.revision("mode", body, f"mode {asked}→{body.mode}" if asked else f"mode → {body.mode}")


def _hands(body: ControlTransferred, place: _Place) -> Iterator[Revision]:
    if body.cluster == place.hpa.cluster and place.before is not None:
        was = f"{body.before} → " if body.before else ""
        why = f": {body.reason}" if body.reason else ""
        change = f"cluster {body.cluster} in the hands of {was}{body.holder} (generation {body.generation}){why}"
        yield Revision(what="hands", time=body.time, offset=place.offset, changes=[change])


def _command(body: Command, place: _Place) -> Iterator[Revision]:
    if _concerns(place.key, body, place.hpa):
        yield place.revision(body.command, body, _stated(body, place.hpa))


_TOLD_BY: Final[Mapping[type, Callable[[Any, _Place], Iterator[Revision]]]] = {
    AutoscalerSet: _mode_of_spec,
    ControlTransferred: _hands,
    Command: _command,
}
"""Kind of entry that `history` shows by itself → what it shows of it."""
_CHANGES = (AutoscalerDeleted, AutoscalerList, *_TOLD_BY)
"""What may change an HPA, so that it is to be compared with what it was before."""
_READ = (*_FOLDED, *_CHANGES)


def _shown_cluster(cluster: str) -> str:
    return "all clusters" if cluster == EVERY_CLUSTER else f"cluster {cluster}"


def _concerns(key: str, body: Command, hpa: HpaId) -> bool:
    if key == WHOLE_PARTITION_KEY:
        return body.cluster in ("", EVERY_CLUSTER, hpa.cluster)
    return key == hpa.namespace_key and body.name in ("", hpa.name)


def _stated(body: Command, hpa: HpaId) -> str:
    where = _shown_cluster(body.cluster) if body.cluster else f"namespace {hpa.namespace}"
    scope = "" if body.name else f" of {where}"
    if body.command == "mode":
        return f"mode{scope} → {body.mode or 'as set for its namespace or cluster'}"
    if body.command == "override":
        if body.replicas is None:
            return "override ended"
        return f"override to {body.replicas} replicas until {rfc3339_seconds(body.until)}"
    kind = "" if body.pause_kind == "all" else f" {body.pause_kind}"
    return f"{body.command}{kind}{scope}"


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs between two specs; the order of metrics does not count."""
    one, other = flat(before), flat(after)
    return [
        f"{name} {_shown(one.get(name))}→{_shown(other.get(name))}"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]


def flat(spec: dict[str, Any]) -> dict[str, Any]:
    """Every leaf of a spec by a dotted path; metrics by what they ask for."""
    fields: dict[str, Any] = {}
    for name, value in spec.items():
        if name == "metrics":
            for metric in value or ():
                fields[_metric_name(metric)] = _target(metric)
        elif name == "clusters" and value and isinstance(value[0], dict):  # of a FleetHPA
            for cluster in value:
                _flatten(f"clusters.{cluster['name']}", cluster, fields)
        else:
            _flatten(name, value, fields)
    return fields


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            _flatten(f"{name}.{key}".removeprefix("behavior."), each, into)
    else:
        into[name] = value


def _metric_name(metric: dict[str, Any]) -> str:
    source = metric_source(metric)
    container = f" of container {source['container']}" if source.get("container") else ""
    described = source.get("describedObject")
    where = f" of {described['kind']}/{described['name']}" if described else ""
    selector = (source.get("metric") or {}).get("selector")
    return f"{metric_name(metric)}{container}{where}" + (f" {metric_key(metric).decode()}" if selector else "")


def _target(metric: dict[str, Any]) -> str:
    target = metric_source(metric)["target"]
    if "averageUtilization" in target:
        return f"{target['averageUtilization']}%"
    if "averageValue" in target:
        return f"{target['averageValue']} per pod"
    return str(target.get("value"))


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, list):
        return "[" + ", ".join(_policy(each) for each in value) + "]"
    return str(value)


def _policy(each: Any) -> str:
    if isinstance(each, dict) and {"type", "value", "periodSeconds"} <= each.keys():
        return f"{each['value']}{'%' if each['type'] == 'Percent' else ' pods'} per {each['periodSeconds']}s"
    return str(each)

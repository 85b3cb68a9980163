"""One HPA while its partition is assigned: its row, what is compiled from it, and the heap of times of visits."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from heapq import heappop, heappush
from sys import intern
from typing import Any

import msgspec
import orjson
from msgspec import Struct, structs

from schemas.decisions import source_header
from schemas.entries import Outcome
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.observed import IGNORED, AutoscalerSet
from streams.hpa.autoscaler import Autoscaler, compile_autoscaler
from streams.hpa.rules import CURRENT, Rules
from streams.state.gather import MetricQuery
from streams.state.ledger import StateError
from streams.state.rows import NO_STATUS, NOTHING, NOTHING_APPLIED, NOTHING_SHOWN, HpaRow, MetricKey, TargetName

_NO_TARGET: TargetName = ("", "", "")
SCHEDULE_ANNOTATION = "fleethpa.io/schedule"
OBJECT_ANNOTATION = "fleethpa.io/object"  # by which object of the hub's API an HPA is made
_METADATA = ("name", "namespace", "uid", "generation", "labels", "annotations")


class _Spec(Struct, rename="camel", gc=False):
    scale_target_ref: dict[str, Any]


class _Referring(Struct, gc=False):
    """An HPA of which only what it scales is read."""

    spec: _Spec


_REFERRING = msgspec.json.Decoder(_Referring)


def version_of(row: HpaRow) -> str:
    """Return the name of what is stored of an object: another one after each change that is stored."""
    own = orjson.dumps(dict(row.annotations), option=orjson.OPT_SORT_KEYS)
    return sha256(row.hpa + own + (b"%d" % row.revision if row.revision else b"")).hexdigest()[:16]


class Hpa:
    """One HPA. A live one has an `autoscaler`; of a deleted one only the row is left."""

    __slots__ = (
        "_rules",
        "autoscaler",
        "awaits",
        "deadline",
        "dirty",
        "fresh_spec",
        "id",
        "ignored",
        "namespace",
        "outcome",
        "polled",
        "queries",
        "row",
        "subject",
        "target",
        "watched",
    )

    def __init__(self, row: HpaRow) -> None:
        self.row = row
        self.id = row.id
        self.namespace = intern(row.id.namespace_key)
        """Key of its namespace, which the HPAs there share."""
        cluster, namespace, name = row.id
        self.subject = f"/{cluster}/{namespace}/horizontalpodautoscaler/{name}".encode()
        """What its decisions are about, in their headers."""
        self.dirty = False
        self.deadline = 0
        self.outcome: Outcome | None = None
        self.queries: tuple[MetricQuery, ...] = ()
        self.watched: tuple[MetricKey, ...] = ()
        """The queries and series of its metrics, sorted."""
        self.awaits: tuple[MetricKey, ...] = ()
        """What an evaluation waits for: the queries to metrics APIs or, without any, the pushed series."""
        self.polled = False
        """`awaits` are questions."""
        self.autoscaler: Autoscaler | None = None
        self._rules = CURRENT
        """The rules that it is compiled for."""
        self.fresh_spec: dict[str, Any] | None = None
        """The spec as it was just decoded, until its questions are known: it is not kept decoded."""
        self.ignored = ""
        """Why the HPA is ignored, where all that is known of it is a stub (`schemas.fitting`); empty: it is not."""
        self.target: TargetName = _NO_TARGET
        """The scale that this HPA drives."""
        if not row.gone:
            self._compile(row.hpa_object())

    def _compile(self, hpa: dict[str, Any]) -> None:
        compiled = self._compiled(hpa)
        self.fresh_spec = hpa["spec"]
        self.ignored = str(hpa.get(IGNORED, ""))
        self.target = (compiled.target_group, compiled.target_kind, compiled.target_name)

    def _compiled(self, hpa: dict[str, Any]) -> Autoscaler:
        """Compile the object, with texts that are there already: those of each HPA would take 300 bytes."""
        compiled, (_, namespace, name) = compile_autoscaler(hpa, self._rules), self.id
        self.autoscaler = structs.replace(
            compiled,
            namespace=namespace if compiled.namespace == namespace else compiled.namespace,
            name=name,
            target_kind=intern(compiled.target_kind),
            target_group=intern(compiled.target_group),
            target_name=name if compiled.target_name == name else compiled.target_name,
        )
        return self.autoscaler

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Headers that all decisions of this HPA share."""
        return _source_header(self.id.cluster), ("ce_subject", self.subject)

    @property
    def reference(self) -> dict[str, str]:
        """`spec.scaleTargetRef`, decoded anew at each call; empty for a tombstone."""
        return {} if self.autoscaler is None else _REFERRING.decode(self.row.hpa).spec.scale_target_ref

    def compiled_for(self, rules: Rules) -> Autoscaler:
        """The compiled spec of a live HPA, for a controller with these rules."""
        if self._rules is not rules and self._rules != rules:
            self._rules = rules
            self._compiled(self.row.hpa_object())
        return self.compiled

    @property
    def compiled(self) -> Autoscaler:
        """The compiled spec of a live HPA. Raises StateError: it has been forgotten."""
        if self.autoscaler is None:
            raise StateError(f"HPA {self.id} has no spec: its row is a tombstone")
        return self.autoscaler

    @property
    def spec(self) -> dict[str, Any]:
        """The spec, decoded anew at each call; empty for a tombstone."""
        spec: dict[str, Any] = {} if self.autoscaler is None else self.row.hpa_object()["spec"]
        return spec

    def take_object(self, entry: AutoscalerSet, now_ms: int, uid: str) -> bool:
        """Store a created or changed object; say whether it is to be evaluated at once.

        `uid` is what a central object gets if it is new.

        Raises ValueError: the spec cannot be compiled; nothing has changed then.
        """
        row, hpa = self.row, entry.hpa
        born = not row.is_live or not row.uid
        new_uid = uid if entry.origin == "central" and born else row.uid
        if entry.origin == "cluster":
            new_uid = str(hpa["metadata"].get("uid") or row.uid or uid)
        generation = self._generation(entry, born or new_uid != row.uid)
        changed = (
            born
            or row.origin != entry.origin
            or new_uid != row.uid
            or generation != row.generation
            or hpa.get(IGNORED, "") != self.ignored
            or hpa["spec"] != self.spec
            or entry.revision != row.revision
        )
        if changed or _labels(hpa) != _labels(row.hpa_object()):
            self._take_spec(hpa, new_uid, generation, self._created(entry, born, now_ms))
        if born or new_uid != row.uid:
            self._be_born(new_uid, hpa)
        row.origin, row.generation = entry.origin, generation
        if changed:
            row.author, row.change_reason = entry.author, entry.reason
            row.next_due_ms, row.evaluated_ms, row.wants = now_ms, 0, None
            row.early_ms, row.ratios = 0, ()
            row.due_again = row.pending is not None
        return changed

    def _generation(self, entry: AutoscalerSet, born: bool) -> int:
        if entry.origin == "cluster":
            return int(entry.hpa["metadata"].get("generation") or 0)
        if born:
            return 1
        known = None if self.row.fleet is None else self.row.fleet.spec
        return self.row.generation + int(entry.hpa["spec"] != self.spec or (known is not None and entry.fleet != known))

    def _be_born(self, uid: str, hpa: dict[str, Any]) -> None:
        """Start a new object: it has its own status, but keeps the windows and scale events stored under its name."""
        row = self.row
        row.uid = uid
        row.deleted, row.gone, row.gone_ms = False, False, 0
        row.status, row.native_moves, row.written, row.shadow_status = NO_STATUS, (), None, NOTHING_SHOWN
        row.lost = ()
        row.see_native(hpa.get("status") or {})

    def _created(self, entry: AutoscalerSet, born: bool, now_ms: int) -> str:
        """Return the creation time: the cluster's, or of a central object the log's when it came."""
        if entry.origin == "cluster":
            return str(entry.hpa["metadata"].get("creationTimestamp") or "")
        before = "" if born else self.row.hpa_object()["metadata"].get("creationTimestamp")
        return before or rfc3339_seconds(now_ms)

    def _take_spec(self, hpa: dict[str, Any], uid: str, generation: int, created: str) -> None:
        row = self.row
        metadata = {name: hpa["metadata"][name] for name in _METADATA if name in hpa["metadata"]}
        metadata["uid"], metadata["generation"] = uid, generation
        if created:
            metadata["creationTimestamp"] = created
        kept = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": hpa["spec"],
        }
        if IGNORED in hpa:
            kept[IGNORED] = hpa[IGNORED]
        self._compile(kept)
        # orjson's own bytes hold a buffer of 4 KB.
        row.hpa = bytes(memoryview(orjson.dumps(kept)))
        row.spec_hash = spec_hash(hpa["spec"])

    def forget(self, now_ms: int) -> None:
        """Become a tombstone, which only records that the HPA existed until now (log time)."""
        old = self.row
        self.row = HpaRow(
            cluster=old.cluster,
            namespace=old.namespace,
            name=old.name,
            uid=old.uid,
            registered=old.registered,
            restart_seen=old.restart_seen,
            gone=True,
            last_offset=old.last_offset,
            budget=old.budget,
            gone_ms=now_ms,
        )
        self.autoscaler, self.queries, self.ignored = None, (), ""
        self.awaits, self.target = (), _NO_TARGET

    def take_annotations(self, own: dict[str, str]) -> None:
        """Remember fleethpa's own annotations of the object; a change of them alone is no change of the spec."""
        row = self.row
        if own or row.annotations:
            row.annotations = own or NOTHING

    def annotation(self, name: str) -> str:
        """One of fleethpa's own annotations of the object; empty if it has none of this name."""
        return self.row.annotations.get(name, "")

    def register(self, offset: int, selector: str, restart_offset: int = NOTHING_APPLIED) -> None:
        """Record from which offset on the overlap check knows which pod selector (empty: none)."""
        since, known = self.row.registered
        if known != selector or (selector and since < restart_offset):
            self.row.registered = offset, selector

    def registered_selector(self, restart_offset: int) -> str:
        """Return the pod selector that the overlap check knows of this HPA since the newest restart; empty: none."""
        since, selector = self.row.registered
        return selector if since >= restart_offset else ""


def kept_annotations(metadata: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return those annotations of an object that a row keeps, in the order of their names."""
    known = metadata.get("annotations") or {}
    return {name: str(known[name]) for name in names if name in known}


def _labels(hpa: dict[str, Any]) -> Any:
    return hpa.get("metadata", {}).get("labels") or {}


_source_header = lru_cache(maxsize=1024)(source_header)
"""Gives the same object for all HPAs of a cluster."""


def spec_hash(spec: dict[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON of a spec: keys sorted, no spaces."""
    return sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).hexdigest()


def made_uid(text: str) -> str:
    """Make the uid of a central HPA from where it was created in the log; shaped as Kubernetes' are."""
    digest = sha256(text.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


OUTCOME_WAIT_MS = 5_000
"""Log time after a write's time to live at which it counts as failed."""
WRITE_TTL_MS = 10_000
"""How long a wanted write may be made."""
NEVER = 2**62


class Schedule:
    """HPAs by the time of their next visit. The HPAs of a namespace mostly share theirs, so times are few."""

    __slots__ = ("_names", "_times")

    def __init__(self) -> None:
        self._names: dict[int, list[HpaId]] = {}
        self._times: list[int] = []
        """A heap of the times in `_names`."""

    def plan(self, hpa: Hpa) -> None:
        """Plan the visit of `hpa` at the time that its state gives."""
        row = hpa.row
        if row.gone:
            hpa.deadline = NEVER
        elif row.pending is not None:
            self.at(hpa, row.pending.expires_ms + OUTCOME_WAIT_MS)
        else:
            self.at(hpa, min(row.next_due_ms, row.early_ms) if row.early_ms else row.next_due_ms)

    def at(self, hpa: Hpa, time_ms: int) -> None:
        """Plan the visit of `hpa` at `time_ms`, not earlier."""
        if hpa.deadline != time_ms:
            hpa.deadline = time_ms
            names = self._names.get(time_ms)
            if names is None:
                self._names[time_ms] = [hpa.id]
                heappush(self._times, time_ms)
            else:
                names.append(hpa.id)

    def pop(self, now_ms: int, hpas: dict[HpaId, Hpa]) -> list[Hpa]:
        """Remove and give the HPAs that are due; the caller plans each again."""
        due, times = [], self._times
        while times and times[0] <= now_ms:
            time_ms = heappop(times)
            for name in self._names.pop(time_ms):
                hpa = hpas.get(name)
                # One that was planned anew since has another deadline.
                if hpa is not None and hpa.deadline == time_ms:
                    hpa.deadline = -1
                    due.append(hpa)
        return due

    def rebuild(self, hpas: dict[HpaId, Hpa]) -> None:
        """Plan all HPAs again, after a restore."""
        self._names.clear()
        self._times.clear()
        for hpa in hpas.values():
            hpa.deadline = -1
            self.plan(hpa)

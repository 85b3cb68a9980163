"""`fleethpa run hub`: puts what the objects of the hub's API state into the log, and shows on them what became of it.

It keeps nothing: each look compares the objects with what the log has. Two of them at a time do no harm.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import Counter, Gauge

from fleethpa.changes.foresight import Present, read_present
from fleethpa.changes.overtaken import overtaken
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import check_writes
from fleethpa.fleet.views import FleetState
from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import CommandError
from fleethpa.frame.sources import READING_S, open_past, unread_text, waited_out
from fleethpa.frame.writer import Writer, open_writer
from fleethpa.hub.admission import PATHS, stamped_since_ms
from fleethpa.hub.conditions import StatusEvent, is_worth_writing, status_events, status_of
from fleethpa.hub.kinds import FINALIZER, KINDS, RESTORED_ANNOTATION, HubKind, HubObject, author_of, hub_object
from fleethpa.hub.scene import ObjectVerdict, Scene
from fleethpa.hub.stating import ended, stated
from fleethpa.show.words import listed
from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.reflector import ForbiddenError, Listener, Reflector, Watching
from reconciler.observer.troubles import ReadProblem
from runtime.ending import set_within, task_group
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig, PartHealth
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json
from streams.history.past import Past

log = logging.getLogger(__name__)
EVERY_S: Final = 20.0
SOON_S: Final = 1.0
"""How long until the next look, while something is on its way into the log or not decided yet."""
RETRY_S: Final = 5.0
LOGGED_S: Final = 5.0
AT_ONCE: Final = 16
"""Requests to the hub's API server at a time."""
MOST_WRITES: Final = 500
"""Records of one look; what is left is written in the next."""
WORDS_MS: Final = 60_000
"""How often a status is written of which only the words of messages differ."""
POLICIES_MS: Final = 60_000
STATE_MS: Final = 15_000
"""How long a state of the log counts while nothing was written since: less than the time between two looks at rest."""


@dataclass(frozen=True, kw_only=True)
class HubConfig(PartConfig):
    """Settings of the process. `api`: how the hub's API server is reached. `clock`: Unix milliseconds."""

    config: Config
    api: ClusterConfig
    every_s: float = EVERY_S
    clock: Clock = wall_clock_ms


class HubMetrics(ObserverMetrics):
    """The metrics of the process, those of its watches included."""

    def __init__(self, registry: Any) -> None:
        super().__init__(registry)
        self.objects = Gauge("fleethpa_hub_objects", "Objects of the hub's API", ["kind"], registry=registry)
        self.refused = Gauge("fleethpa_hub_objects_refused", "Those that are not accepted", ["kind"], registry=registry)
        self.missing = Gauge(
            "fleethpa_hub_objects_missing", "Objects that the log names and that are not there", registry=registry
        )
        self.written = Counter("fleethpa_hub_records_total", "Records written for objects", registry=registry)
        self.failed = Counter("fleethpa_hub_failures_total", "Looks at the objects that failed", registry=registry)


class Hub:
    """Looks when an object changes, and every `every_s`. `health.became_ready` is set after the first look."""

    def __init__(self, config: HubConfig) -> None:
        self._config = config
        self.health = PartHealth("looked")
        self._metrics = HubMetrics(self.health.registry)
        self._client = ClusterClient(config.api)
        self.objects: dict[str, dict[str, HubObject]] = {kind.name: {} for kind in KINDS}
        self._unlisted = {kind.name for kind in KINDS}
        self._unwatched: set[str] = set()
        """Kinds whose watch is down."""
        self._changed = asyncio.Event()
        self._settled: dict[str, tuple[Any, ObjectVerdict]] = {}
        """Object → what it was compared with when nothing was left to write, and its verdict."""
        self._worded_ms: dict[str, int] = {}
        self._stamped: tuple[int, int | None] | None = None
        self._read: tuple[int, FleetState, Present] | None = None
        """The state of the log as it was read last, and when that was; None: something was written since."""
        self._requests = asyncio.Semaphore(AT_ONCE)

    async def run(self, stop: asyncio.Event) -> None:
        """Check until `stop` is set. Brokers and an API server that are away are waited for."""
        from runtime.groups import keep_signing

        watching = Watching(self._client, self._metrics, lists_anew=True)
        try:
            async with self.health.served(self._config), task_group() as group:
                group.create_task(keep_signing(self._config.config.kafka(), "hub", self._config.clock, stop))
                watches = [group.create_task(self._watch(watching, kind)) for kind in KINDS]
                while not stop.is_set():
                    await self._while_connected(stop)
                    await set_within(stop, RETRY_S)
                for each in watches:
                    each.cancel()
        finally:
            await self._client.close()

    # --- the objects --------------------------------------------------------------------------------------------------

    async def _watch(self, watching: Watching, kind: HubKind) -> None:
        listener = Listener(
            listed=lambda _, items: self._replace_objects(kind, items),
            changed=lambda event, item: self._apply_change(kind, event, item),
            problem=lambda _, problem: self._record_watch(kind, problem),
        )
        while True:
            try:
                await Reflector(watching, kind.path, listener).run()
            except ForbiddenError as error:
                self._record_watch(kind, error.problem)
                await asyncio.sleep(RETRY_S)

    async def _replace_objects(self, kind: HubKind, items: list[Json]) -> None:
        objects = [hub_object(kind, item) for item in items]
        self.objects[kind.name] = {item.key: item for item in objects}
        self._unlisted.discard(kind.name)
        self._changed.set()

    async def _apply_change(self, kind: HubKind, event: str, body: Json) -> None:
        item, known = hub_object(kind, body), self.objects[kind.name]
        before = known.get(item.key)
        if event == "DELETED":
            known.pop(item.key, None)
        else:
            known[item.key] = item
        if before is None or event == "DELETED" or _stating(before) != _stating(item):
            self._changed.set()

    def _record_watch(self, kind: HubKind, problem: ReadProblem | None) -> None:
        self.health.record(f"kind {kind.name}", None if problem is None else _watch_text(problem))
        if problem is not None:
            self._unwatched.add(kind.name)
        elif kind.name in self._unwatched:  # what it missed was listed anew, or comes now
            self._unwatched.discard(kind.name)
            self._changed.set()

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _while_connected(self, stop: asyncio.Event) -> None:
        """Check again and again over one connection, until something fails."""
        self._waits_for(f"Kafka at {self._config.config.kafka().bootstrap_servers} has not answered yet")
        try:
            async with open_past("kafka", self._config.config) as past, open_writer(self._config.config) as writer:
                while not stop.is_set():
                    self._changed.clear()
                    is_settled = await self.process_objects(past, writer)
                    self.health.record("brokers", None)
                    await self._rest(stop, self._config.every_s if is_settled else SOON_S)
        except waited_out() as error:
            self._metrics.failed.inc()
            text = unread_text(error)
            self.health.record("brokers", text)
            log.warning("the log cannot be read or written now: %s", text)

    def _waits_for(self, text: str) -> None:
        """Show what it waits for, until the objects have been checked once."""
        if not self.health.became_ready.is_set():
            self.health.unready("looked", text)

    async def _rest(self, stop: asyncio.Event, seconds: float) -> None:
        """Wait until an object changes, at most so long."""
        waits = [asyncio.ensure_future(each.wait()) for each in (self._changed, stop)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def process_objects(self, past: Past, writer: Writer) -> bool:
        """Put into the log what is missing there, and show what became of it; whether nothing is left to be done."""
        if unseen := self._unlisted | self._unwatched:
            text = f"nothing is written while {listed(sorted(unseen))} cannot be seen in the hub's API"
            self.health.unready("looked", text)
            return True
        try:
            stamped = await self._stamped_since()
        except ClusterError as error:
            self.health.unready("looked", f"the hub's API does not answer: {error}")
            return False
        self._waits_for("the log is being read")
        state, present = await self._present(past)
        objects = {key: item for known in self.objects.values() for key, item in known.items()}
        scene = Scene(state, present, objects, self._config.clock(), lambda item: author_of(item, stamped))
        self._record_missing(scene)
        verdicts = {item.key: self._verdict(scene, item) for item in _ordered(objects.values())}
        is_settled = await self._carry_out(scene, verdicts, past, writer)
        await self._show(scene, verdicts)
        self.health.ready("looked")
        return is_settled

    async def _present(self, past: Past) -> tuple[FleetState, Present]:
        """The state of the log. While nothing was written since it was read last, an object that changes does not wait
        for a large fleet to be read again: a record names the version of the HPA that it changes.
        """
        now_ms = self._config.clock()
        if self._read is not None and now_ms - self._read[0] < STATE_MS:
            return self._read[1], self._read[2]
        async with asyncio.timeout(READING_S):
            state, present = await read_present(past)
        self._read = now_ms, state, present
        return state, present

    def _verdict(self, scene: Scene, item: HubObject) -> ObjectVerdict:
        if item.is_ending:
            self._settled.pop(item.key, None)
            return ended(scene, item) if item.has_finalizer else ObjectVerdict()
        compared = _compared(scene, item)
        known = self._settled.get(item.key)
        if known is not None and known[0] == compared:
            return known[1]
        verdict = stated(scene, item)
        try:
            check_writes(verdict.writes)
        except CommandError as error:
            verdict = ObjectVerdict("Invalid", error.sentence())
        if verdict.writes or not verdict.is_accepted or not item.kind.scales:
            self._settled.pop(item.key, None)
        else:
            self._settled[item.key] = (compared, verdict)
        return verdict

    async def _carry_out(self, scene: Scene, verdicts: dict[str, ObjectVerdict], past: Past, writer: Writer) -> bool:
        """Write records and finalizers; whether nothing was left to write."""
        records: list[PlannedRecord] = []
        patches: list[Awaitable[None]] = []
        new: list[str] = []
        for key, verdict in verdicts.items():
            item = scene.objects[key]
            if item.is_ending:
                if item.has_finalizer and not verdict.writes:
                    patches.append(self._finalize(item, False))
                records += verdict.writes
            elif item.has_finalizer or item.kind.name == "FleetAccess":
                records += verdict.writes
            elif verdict.is_accepted or verdict.writes:
                new.append(key)
                patches.append(self._finalize(item, True))
            if item.annotations.get(RESTORED_ANNOTATION) == "accept" and verdict.is_accepted and not verdict.writes:
                patches.append(self._patch(item, {"metadata": {"annotations": {RESTORED_ANNOTATION: None}}}))
        await self._all(patches)
        # Only what cannot go unseen gets into the log.
        records += [each for key in new if self._has_finalizer(scene.objects[key]) for each in verdicts[key].writes]
        await self._write(records[:MOST_WRITES], past, writer)
        waiting = [key for key, verdict in verdicts.items() if _waits(scene, verdict)]
        if waiting:
            self._read = None
        return not (records or patches or waiting)

    def _has_finalizer(self, item: HubObject) -> bool:
        """Whether an object, as it was looked at, has its finalizer by now."""
        now = self.objects[item.kind.name].get(item.key)
        same = now is not None and (now.uid, now.generation) == (item.uid, item.generation)
        return same and now is not None and now.has_finalizer and not now.is_ending

    async def _write(self, records: list[PlannedRecord], past: Past, writer: Writer) -> None:
        if not records:
            return
        self._read = None
        sent = [await writer.send(each.subject, each.cluster, each.namespace, each.bodies) for each in records]
        for fate in await writer.fates(sent, LOGGED_S):
            if fate.state == "rejected":
                log.warning("%s: rejected: %s", fate.pending.subject, fate.reason)
            else:
                log.info("%s", fate.pending.subject)
                self._metrics.written.inc()
        async with asyncio.timeout(READING_S):
            refused = await overtaken(records, writer, lambda: nullcontext(past), LOGGED_S)
        for problem in refused:  # the next look is at what is there by now
            log.warning("%s: %s", problem.what, problem.cause)

    def _record_missing(self, scene: Scene) -> None:
        missing = scene.missing()
        self._metrics.missing.set(len(missing))
        text = (
            f"the log has what {listed(missing)} stated, and the hub's API does not have them: nothing is changed. "
            f"Next: create them again, or fleethpa hub release {missing[0]}"
            if missing
            else None
        )
        self.health.record("missing objects", text)

    # --- showing ------------------------------------------------------------------------------------------------------

    async def _show(self, scene: Scene, verdicts: dict[str, ObjectVerdict]) -> None:
        refused = dict.fromkeys((kind.name for kind in KINDS), 0)
        patches: list[Awaitable[None]] = []
        for key, verdict in verdicts.items():
            item = self.objects[scene.objects[key].kind.name].get(key)
            if item is None or item.is_ending:
                continue
            refused[item.kind.name] += not verdict.is_accepted
            is_written = not verdict.writes and (item.has_finalizer or item.kind.name == "FleetAccess")
            author = scene.author(item)
            status = status_of(item, verdict, scene.state, scene.now_ms, author, is_written=is_written)
            old: Json = item.body.get("status") or {}
            is_due = scene.now_ms - self._worded_ms.get(key, 0) >= WORDS_MS
            if is_worth_writing(old, status) or (is_due and old.get("conditions") != status["conditions"]):
                self._worded_ms[key] = scene.now_ms
                patches.append(self._show_one(item, old, status, scene.now_ms))
        for name, known in self.objects.items():
            self._metrics.objects.labels(name).set(len(known))
            self._metrics.refused.labels(name).set(refused[name])
        self._worded_ms = {key: at_ms for key, at_ms in self._worded_ms.items() if key in verdicts}
        await self._all(patches)

    async def _show_one(self, item: HubObject, old: Json, made: Json, now_ms: int) -> None:
        await self._patch(item, {"status": made}, "/status")
        for each in status_events(old, made):
            await self._tell(item, each, now_ms)

    async def _tell(self, item: HubObject, each: StatusEvent, now_ms: int) -> None:
        """Write an Event about an object; the same one again is another Event, as its state was another meanwhile."""
        namespace = item.namespace or "default"
        digest = hashlib.sha256(f"{item.uid}{each}{now_ms}".encode()).hexdigest()[:16]
        at = rfc3339_seconds(now_ms)
        involved = {"apiVersion": item.kind.api_version, "kind": item.kind.name, "name": item.name, "uid": item.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{item.name[:200]}.{digest}", "namespace": namespace},
            "involvedObject": involved | ({"namespace": item.namespace} if item.namespace else {}),
            "type": each.type,
            "reason": each.reason,
            "message": each.message[:1_000],
            "source": {"component": "fleethpa-hub"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        async with self._requests:
            await self._client.create_named(f"/api/v1/namespaces/{namespace}/events", body)

    # --- the hub's API ------------------------------------------------------------------------------------------------

    async def _all(self, requests: Iterable[Awaitable[None]]) -> None:
        """Make requests; one that fails is made again at the next look."""
        for done in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(done, ClusterError):
                self._metrics.failed.inc()
                log.warning("the hub's API did not take a change: %s", done)
            elif isinstance(done, BaseException):
                raise done

    async def _finalize(self, item: HubObject, is_held: bool) -> None:
        others = [each for each in item.metadata.get("finalizers") or () if each != FINALIZER]
        metadata = {
            "finalizers": [*others, FINALIZER] if is_held else others,
            "resourceVersion": item.metadata["resourceVersion"],
        }
        await self._patch(item, {"metadata": metadata})

    async def _patch(self, item: HubObject, body: Json, below: str = "") -> None:
        async with self._requests:
            try:
                answer = await self._client.merge_patch(f"{item.path}{below}", body)
            except ClusterError as error:
                if error.is_missing or error.status == 409:  # it has gone, or is another one by now: the watch says so
                    return
                raise
        known = self.objects[item.kind.name]
        if item.key in known and not item.is_ending:
            known[item.key] = hub_object(item.kind, answer)

    async def _stamped_since(self) -> int | None:
        """Since when authors are proven, as the admission policies were a minute ago."""
        now_ms = self._config.clock()
        if self._stamped is None or now_ms - self._stamped[0] >= POLICIES_MS:
            policies = {name: await self._object_or_none(path) for name, path in PATHS.items()}
            self._stamped = now_ms, stamped_since_ms(policies)
            text = None if self._stamped[1] is not None else "the admission policies are not there"
            self.health.record("authors are not proven", text)
        return self._stamped[1]

    async def _object_or_none(self, path: str) -> Json | None:
        try:
            return await self._client.get(path)
        except ClusterError as error:
            if error.is_missing or error.status == 403:
                return None
            raise


def _watch_text(problem: ReadProblem) -> str:
    if not problem.is_missing:
        return problem.text
    return "the cluster does not have it. Next: fleethpa hub manifests | kubectl apply --server-side -f -"


def _ordered(objects: Iterable[HubObject]) -> list[HubObject]:
    places = {kind.name: number for number, kind in enumerate(KINDS)}
    return sorted(objects, key=lambda item: (places[item.kind.name], item.created))


def _stating(item: HubObject) -> tuple[Any, ...]:
    """The parts of an object by which its statement changes: not its status, nor who wrote which field."""
    metadata = item.metadata
    names = ("uid", "generation", "deletionTimestamp", "labels", "annotations", "finalizers")
    return tuple(metadata.get(name) for name in names)


def _compared(scene: Scene, item: HubObject) -> tuple[Any, ...]:
    """The inputs of a verdict about an object that scales, while it is accepted: nothing is to be worked out again
    while that is the same.
    """
    hpas = [(view.id, view.version, view.mode, view.revision, view.incomplete) for view in scene.made.get(item.key, ())]
    return _stating(item), hpas, scene.reach


def _waits(scene: Scene, verdict: ObjectVerdict) -> bool:
    """Whether an HPA of an object has not been decided yet."""
    return any(hpa not in scene.state.hpas or not scene.state.hpas[hpa].last_decision for hpa in verdict.hpas)

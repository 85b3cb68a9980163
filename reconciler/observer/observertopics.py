"""What an observer reads from topics (central HPAs, heartbeats of its cluster's other observers), and what it writes.

The targets and metrics of central HPAs are observed like those of a cluster's own. When another observer of a cluster
falls silent, the fold turns to this one, which must begin with full lists: those that it sent while the other one was
followed were ignored, so it sends them again once the silence is longer than the fold waits.

Records are batched per topic and namespace, in order, within the size limit of a record. Full lists and large answers
are divided into parts that each fit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from msgspec import Raw, structs

from reconciler.observer.clusterview import ObserverMetrics
from runtime import kafkaclients
from runtime.log import Clock
from runtime.process import FreeMemory
from runtime.records import Publisher
from schemas.answers import MetricAnswer
from schemas.codec import WireError, decode, encode
from schemas.connection import KafkaSettings
from schemas.entries import Body, PublicRecord, central_name
from schemas.fitting import fitted, split
from schemas.keys import SessionName, parse_session
from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
from schemas.kubernetes.validation import validate_create
from schemas.limits import BEAT_NAMESPACES, CLUSTERS, NAME
from schemas.observed import AutoscalerList, AutoscalerSet, ConflictingAutoscaler, Heartbeat, Pod, PodList
from schemas.syncperiods import PERIOD_ANNOTATION
from schemas.topics import SCALES

# --- reading ----------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)


def central_hpa(entry: Body, namespace: str) -> tuple[str, dict[str, Any] | None] | None:
    """The name of the central HPA that an entry is about, and its defaulted v2 object (None: it is deleted); None: the
    entry is about no central HPA, or ingest rejects it, too.
    """
    if isinstance(entry, AutoscalerSet) and entry.origin == "central":
        manifest = _usable(entry.hpa, namespace)
        if manifest is None:
            return None
        return manifest["metadata"]["name"], _without_own_period(manifest) if entry.revision else manifest
    name = central_name(entry)
    return None if name is None else (name, None)


def _without_own_period(manifest: dict[str, Any]) -> dict[str, Any]:
    """An HPA that has a share of one total over several clusters, which is decided in their sync period."""
    own = manifest["metadata"].get("annotations") or {}
    if PERIOD_ANNOTATION not in own:
        return manifest
    kept = {name: text for name, text in own.items() if name != PERIOD_ANNOTATION}
    return manifest | {"metadata": manifest["metadata"] | {"annotations": kept}}


def _usable(manifest: dict[str, Any], namespace: str) -> dict[str, Any] | None:
    """The defaulted v2 object, as ingest puts it into the log; None where ingest rejects it, too."""
    metadata = manifest.get("metadata")
    try:
        if not isinstance(metadata, dict):
            raise ManifestError("HorizontalPodAutoscaler", ["metadata: Required value"])
        whole = manifest | {"metadata": {"namespace": namespace} | metadata}
        if errors := validate_create(whole):
            raise ManifestError(f"{namespace}/{metadata.get('name')}", [error.string for error in errors])
        return hpa_from_manifest(whole, namespace_default=namespace)
    except (ManifestError, RecursionError) as error:
        log.warning("a central HPA is passed over; ingest rejects it, too", extra={"error": str(error)})
        return None


# --- other observers --------------------------------------------------------------------------------------------------

SILENCE_MS = 33_000
"""A little more than the 30 s after which another session may be followed."""
LOOK_EVERY_S = 1.0
LOOK_BACK_MS = 60_000
"""A session whose last report is older is followed no more: there is nothing to wait for."""
MOST_SESSIONS = 1_000
"""How many other sessions are followed at a time. More can only come from a faulty or hostile producer."""
LOOK_BACK_RECORDS = 5_000
"""So many records are read back where the broker cannot look up a time, as the embedded broker cannot."""


class OtherSessions:
    """Sessions of other observers of these clusters, and when each reported last."""

    def __init__(self, own: SessionName, clusters: Collection[str]) -> None:
        self._own, self._clusters = own, clusters
        self._received: dict[tuple[str, str], int] = {}
        self._released: set[str] = set()
        self._superseded: set[str] = set()
        self._ever: set[str] = set()
        self.knows_the_past = False
        """Whether all reports from shortly before the start of this session were read."""

    def may_precede(self, cluster: str) -> bool:
        """Whether another session of this cluster may have been followed when this one began."""
        return cluster in self._ever or len(self._ever) >= CLUSTERS.most or not self.knows_the_past

    def receive_before(self, cluster: str, beat: Heartbeat) -> None:
        """A heartbeat that was written before this session began to listen."""
        if parse_session(beat.session) != self._own and len(self._ever) < CLUSTERS.most:
            self._ever.add(cluster)

    def receive(self, cluster: str, beat: Heartbeat, now_ms: int) -> None:
        """A heartbeat was read from the topic; one that watches nothing is the last of its session."""
        self.receive_before(cluster, beat)
        if cluster not in self._clusters:
            return  # an observer of other clusters may well have this one's name
        other = parse_session(beat.session)
        if other is not None and other.instance == self._own.instance:
            if other.epoch <= self._own.epoch:  # which this one has superseded
                return
            self._warn_of_namesake(cluster)
        if (cluster, beat.session) in self._received or len(self._received) < MOST_SESSIONS:
            self._received[cluster, beat.session] = now_ms
        if not beat.watches and not beat.problems:
            self._released.add(cluster)

    def _warn_of_namesake(self, cluster: str) -> None:
        """A later session of this instance supersedes this one, until it ends."""
        if cluster not in self._superseded:
            self._superseded.add(cluster)
            log.error(
                "another observer of this name began later and is followed instead: give each its own --instance",
                extra={"cluster": cluster, "instance": self._own.instance},
            )

    def fallen_silent(self, now_ms: int) -> set[str]:
        """Clusters of sessions that have been silent for long enough, each once; after a shutdown report at once.

        The shutdown report and the lists that answer it are on different topics, so the fold may meet the lists first
        and ignore them: those that are sent when the silence is over are surely taken.
        """
        silent = [key for key, received in self._received.items() if now_ms - received >= SILENCE_MS]
        for key in silent:
            del self._received[key]
        released, self._released = self._released, set()
        gone = released | {cluster for cluster, _ in silent}
        self._superseded -= gone
        return gone


async def follow_others(
    settings: KafkaSettings, others: OtherSessions, clock: Clock, silent: Callable[[str], Awaitable[None]]
) -> None:
    """Call `silent` with each cluster whose other observer has gone, for ever."""
    async with kafkaclients.topic_reader(settings, SCALES, begin="latest", patient=True, unhurried=True) as consumer:
        ends = await kafkaclients.ends_of(consumer)
        await _receive_the_past(settings, ends, others, clock)
        while True:
            for records in (await consumer.getmany(timeout_ms=int(LOOK_EVERY_S * 1000))).values():
                for record in records:
                    for cluster, beat in _beats(record.value):
                        others.receive(cluster, beat, clock())
            for cluster in others.fallen_silent(clock()):
                log.info("another observer has fallen silent: sending full lists", extra={"cluster": cluster})
                await silent(cluster)


async def _receive_the_past(
    settings: KafkaSettings, ends: Mapping[TopicPartition, int], others: OtherSessions, clock: Clock
) -> None:
    """Read who observed which cluster shortly before."""
    try:
        async with aclosing(
            kafkaclients.read_back(settings, ends, clock() - LOOK_BACK_MS, LOOK_BACK_RECORDS)
        ) as records:
            async for _, record in records:
                for cluster, beat in _beats(record.value):
                    others.receive_before(cluster, beat)
    except KafkaError as error:
        # Then full lists are sent once more, which is never wrong.
        log.warning("earlier heartbeats could not be read", extra={"error": repr(error)})
    else:
        others.knows_the_past = True


def _beats(value: bytes | None) -> Iterator[tuple[str, Heartbeat]]:
    """The heartbeats of a record, each with its cluster."""
    if not value or b'"heartbeat"' not in value:
        return
    try:
        record = decode(value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in record.entries:
        if isinstance(entry, Heartbeat) and max(len(record.cluster), len(entry.session)) <= NAME.most:
            yield record.cluster, entry


async def after_own_start(resend: Callable[[], Awaitable[None]], may_precede: Callable[[], bool]) -> None:
    """Send full lists once more when a session that was killed just before this one began is silent for long enough.

    Args:
        may_precede: whether there may have been one: the lists of a large cluster are half of what its start costs.
    """
    await asyncio.sleep(SILENCE_MS / 1000)
    if may_precede():
        await resend()


# --- writing ----------------------------------------------------------------------------------------------------------

LINGER_S = 0.02
AT_ONCE = 256
"""Records that the driver has at once: so many share a request while brokers are slow. Thousands, as at the start of a
large cluster, would only wait their turn there.
"""

WAITING_BYTES = 32 * 2**20
"""What may wait; beyond that the watches wait, too, until Kafka accepts records again."""

_BESIDE_HPAS_BYTES = 32 * 1024
"""Other autoscalers that share a chunk with HPAs; more of them have chunks of their own."""
ANSWER_BYTES = 32 * 1024
"""Of answers that share a record; a larger one has a record of its own."""

Destination = tuple[str, str, str]
"""Topic, cluster, namespace."""


def within_limits(bodies: Iterable[Body], namespace: str) -> list[Body]:
    """Cut what is reported on a namespace down to the limits of what fleethpa takes; log what was cut, once."""
    return [fitted(body, namespace, lambda error: _log_cut(str(error))) for body in bodies]


@lru_cache(maxsize=1_024)
def _log_cut(text: str) -> None:
    log.warning("more than fleethpa takes", extra={"error": text})


class ReportPublisher(Protocol):
    """Publishes what the observer of a cluster saw."""

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Accept bodies to publish; waits while WAITING_BYTES are waiting already."""

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None:
        """Accept a heartbeat that is about these namespaces, in as few records as there may be."""


class RecordPublisher:
    """Takes bodies and writes them soon after, those of one topic and namespace in order."""

    def __init__(
        self, publisher: Publisher, metrics: ObserverMetrics, clock: Clock, memory: FreeMemory | None = None
    ) -> None:
        """`memory`: gives back what lists and records have left free in the C heap; None: that of this process."""
        self._publisher, self._metrics, self._clock = publisher, metrics, clock
        self._memory = memory or FreeMemory()
        self._batches: dict[Destination, list[Raw]] = {}
        self._waiting_bytes = 0
        self._newest_ms = 0
        self._writing = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        """Accept bodies to publish; waits while WAITING_BYTES are waiting already."""
        bodies = within_limits(bodies, namespace)
        encoded = [encode(body) for body in bodies]  # once, and a list of HPAs takes a quarter of the objects' memory
        await self._drained.wait()
        self._batches.setdefault((topic, cluster, namespace), []).extend(map(Raw, encoded))
        self._waiting_bytes += sum(map(len, encoded))
        self._arrived.set()
        if self._waiting_bytes >= WAITING_BYTES:
            self._drained.clear()

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None:
        """Accept a heartbeat: a record for the namespaces of one partition, behind what was reported on them."""
        for group in await self._publisher.together(SCALES, cluster, namespaces):
            for namespace, beat in heartbeats(group, body):
                await self.put(SCALES, cluster, namespace, [beat])

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await asyncio.sleep(LINGER_S)  # batching, not synchronisation: what arrives meanwhile shares a record
            await self.flush()
            self._memory.give_back()

    async def flush(self) -> None:
        """Write all that waits, after what is being written already."""
        async with self._writing:
            batches, self._batches, self._waiting_bytes = self._batches, {}, 0
            waiting = iter(batches.items())
            await asyncio.gather(*(self._write_each(waiting) for _ in range(min(AT_ONCE, len(batches)))))
            if self._waiting_bytes < WAITING_BYTES:
                self._drained.set()

    async def _write_each(self, waiting: Iterator[tuple[Destination, list[Raw]]]) -> None:
        """Write what waits for one destination after the other, until others of this kind have taken the rest."""
        for (topic, cluster, namespace), bodies in waiting:
            for part in split(bodies):
                await self._publisher.send(topic, cluster, namespace, part, self._now_ms())
                self._metrics.records_of(topic).inc()

    def _now_ms(self) -> int:
        """The time, never earlier than before: readers would treat an older record as late."""
        self._newest_ms = max(self._newest_ms, self._clock())
        return self._newest_ms


def heartbeats(namespaces: Sequence[str], body: Heartbeat) -> Iterator[tuple[str, Heartbeat]]:
    """A heartbeat that is about all of these namespaces, each part with the namespace of its record."""
    for first in range(0, len(namespaces), 1 + BEAT_NAMESPACES.most):
        name, *further = namespaces[first : first + 1 + BEAT_NAMESPACES.most]
        yield name, structs.replace(body, namespaces=further)


# --- lists in chunks --------------------------------------------------------------------------------------------------


def answer_records(answers: Sequence[MetricAnswer]) -> list[list[MetricAnswer]]:
    """Answers in lists that each fit into a record."""
    if len(encode(answers)) <= ANSWER_BYTES:  # nearly always, and cheaper to see of all than of each
        return [list(answers)]
    return list(split(answers, ANSWER_BYTES))


def pod_lists(pods: Sequence[Pod], list_id: str, session: str) -> list[PodList]:
    """A full list of a namespace's pods; an empty namespace is one empty chunk."""
    parts = list(split(pods)) or [[]]
    return [
        PodList(list_id=list_id, pods=part, chunk=i, chunks=len(parts), session=session) for i, part in enumerate(parts)
    ]


def autoscaler_lists(
    hpas: Sequence[dict[str, Any]],
    conflicting: Sequence[ConflictingAutoscaler],
    list_id: str,
    session: str,
    managers: Mapping[str, tuple[str, int]] | None = None,
) -> list[AutoscalerList]:
    """Return a full list of a namespace's HPAs; the first chunks have the other autoscalers, each the managers
    of its HPAs.
    """
    others = [list(conflicting)] if len(encode(conflicting)) <= _BESIDE_HPAS_BYTES else [*split(conflicting), []]
    parts = [*([[]] * (len(others) - 1)), *(list(split(hpas)) or [[]])]
    known = managers or {}
    return [
        AutoscalerList(
            list_id=list_id,
            hpas=part,
            chunk=i,
            chunks=len(parts),
            conflicting=others[i] if i < len(others) else [],
            session=session,
            managers={name: known[name] for hpa in part if known.get(name := hpa["metadata"]["name"], ("", 0))[0]},
        )
        for i, part in enumerate(parts)
    ]

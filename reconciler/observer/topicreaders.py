"""What an observer reads from topics: the central HPAs of its clusters, and the heartbeats of their other observers.

The targets and metrics of central HPAs are observed like those of a cluster's own. When another observer of a cluster
falls silent, the fold turns to this one, which must begin with full lists: those that it sent while the other one was
followed were ignored, so it sends them again once the silence is longer than the fold waits.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from msgspec import structs

from runtime import kafkaclients
from runtime.log import Clock
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.keys import HpaId, SessionName, parse_session
from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
from schemas.kubernetes.validation import validate_create
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Heartbeat
from schemas.topics import AUTOSCALERS, OBSERVER_GROUPS, SCALES

log = logging.getLogger(__name__)

_CENTRAL = b'"central"'

RENEW_MS = 3_600_000
"""At this age the record of a central HPA is republished: records expire, and an observer that starts reads back to the
oldest record that still counts.
"""
MARK_EVERY_MS = 60_000

OnPublished = Callable[[str, str, str, dict[str, Any] | None], Awaitable[None]]
"""cluster, namespace, name, and the manifest; None: it was deleted."""
Republish = Callable[[HpaId, AutoscalerSet], Awaitable[None]]
"""Write a record of a central HPA to the topic."""


class NewestRecord(NamedTuple):
    """The newest record of an HPA and its offset; `body` None: a deletion."""

    body: AutoscalerSet | None
    time_ms: int
    partition: int
    offset: int


class CentralHpas:
    """The newest record of each central HPA of some clusters.

    A renewed record is believed only of an HPA of which nothing else is known: a user may have changed or deleted it
    just before, unseen by whoever renewed it.
    """

    def __init__(self, concerns: Callable[[str], bool]) -> None:
        """`concerns`: whether a cluster's HPAs are kept; may change its answer at any time."""
        self._concerns = concerns
        self._known: dict[HpaId, NewestRecord] = {}

    def take(self, hpa: HpaId, latest: NewestRecord) -> bool:
        """Take a record from the topic; return whether it brings a change."""
        if not self._concerns(hpa.cluster):
            return False
        newest = self._known.get(hpa)
        if newest is None or latest.body is None or not latest.body.renewed:
            self._known[hpa] = latest
            return True
        if newest.body is not None and newest.body.hpa == latest.body.hpa:
            self._known[hpa] = latest._replace(body=newest.body)
        return False

    def is_due(self, now_ms: int) -> bool:
        """Whether a record is old enough to be republished, or a deletion old enough to be forgotten."""
        return bool(self._old(now_ms))

    def due(self, now_ms: int) -> list[tuple[HpaId, AutoscalerSet]]:
        """The records to be republished, each once a period, without mode: a command may have changed it since."""
        old = self._old(now_ms)
        for hpa, latest in old.items():
            if latest.body is None:
                del self._known[hpa]
            else:
                self._known[hpa] = latest._replace(time_ms=now_ms)
        return [
            (hpa, structs.replace(latest.body, mode=None, renewed=True))
            for hpa, latest in old.items()
            if latest.body is not None
        ]

    def _old(self, now_ms: int) -> dict[HpaId, NewestRecord]:
        return {hpa: latest for hpa, latest in self._known.items() if now_ms - latest.time_ms >= RENEW_MS}

    def marks(self, positions: Mapping[int, int]) -> dict[int, int]:
        """Partition → offset of the oldest record that still counts, or of the next one (`positions`), if none does."""
        found = dict(positions)
        for latest in self._known.values():
            found[latest.partition] = min(found[latest.partition], latest.offset)
        return found


def group_of(clusters: Iterable[str]) -> str:
    """The consumer group that keeps the marks of an observer of these clusters."""
    digest = hashlib.sha256("\0".join(sorted(clusters)).encode()).hexdigest()
    return f"{OBSERVER_GROUPS}{digest[:12]}"


async def follow_central(
    settings: KafkaSettings,
    group: str,
    reported: OnPublished,
    known: CentralHpas,
    republish: Republish,
    clock: Clock,
    *,
    caught_up: Callable[[], None] = lambda: None,
    until: asyncio.Event | None = None,
) -> None:
    """Report every change of a central HPA, until `until` is set (None: for ever); keep records alive. `caught_up` is
    called once everything was passed on that the topic held at the start. A change is reported up to half a second
    late: most of the topic is what observers themselves report, and each record of it would be a fetch.

    Reading begins at the marks of `group`, else at the beginning of the topic, most of which is about other HPAs.
    """
    async with (
        kafkaclients.topic_reader(settings, AUTOSCALERS, patient=True, unhurried=True) as consumer,
        kafkaclients.marks(settings, group, consumer.assignment()) as marks,
    ):
        for partition in consumer.assignment():
            if (mark := await marks.committed(partition)) is not None:
                consumer.seek(partition, mark)
        marked_ms = clock()
        ends: Mapping[TopicPartition, int] | None = None
        begins: Mapping[TopicPartition, int] | None = await kafkaclients.ends_of(consumer)
        while until is None or not until.is_set():
            for records in (await consumer.getmany(timeout_ms=1_000 if begins is None else 100)).values():
                for record in records:
                    await _report(record, reported, known)
            if begins is not None and await kafkaclients.has_reached(consumer, begins):
                begins = None
                caught_up()
            # Nothing is republished before everything is read that was on the topic when it was found to be due.
            if ends is not None and await kafkaclients.has_reached(consumer, ends):
                ends = None
                for hpa, body in known.due(clock()):
                    await republish(hpa, body)
            elif ends is None and known.is_due(clock()):
                ends = await kafkaclients.ends_of(consumer)
            if abs(clock() - marked_ms) >= MARK_EVERY_MS:  # also where the clock was put back
                marked_ms = clock()
                await _mark(consumer, marks, known)


async def _mark(consumer: AIOKafkaConsumer, marks: AIOKafkaConsumer, known: CentralHpas) -> None:
    assigned = {partition.partition: partition for partition in consumer.assignment()}
    found = known.marks({number: await consumer.position(partition) for number, partition in assigned.items()})
    await marks.commit({assigned[number]: offset for number, offset in found.items()})


async def _report(record: ConsumerRecord, reported: OnPublished, known: CentralHpas) -> None:
    value = record.value or b""
    if _CENTRAL not in value:
        return  # most of the topic is reports of observers
    try:
        public = decode(record.value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in public.entries:
        manifest: dict[str, Any] | None = None
        if isinstance(entry, AutoscalerSet) and entry.origin == "central":
            if (manifest := _usable(entry.hpa, public.namespace)) is None:
                continue
            name, body = manifest["metadata"]["name"], entry
        elif isinstance(entry, AutoscalerDeleted) and entry.origin == "central":
            name, body = entry.name, None
        else:
            continue
        latest = NewestRecord(body, record.timestamp, record.partition, record.offset)
        if known.take(HpaId(public.cluster, public.namespace, name), latest):
            await reported(public.cluster, public.namespace, name, manifest)


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
        return cluster in self._ever or not self.knows_the_past

    def receive_before(self, cluster: str, beat: Heartbeat) -> None:
        """A heartbeat that was written before this session began to listen."""
        if parse_session(beat.session) != self._own:
            self._ever.add(cluster)

    def receive(self, cluster: str, beat: Heartbeat, now_ms: int) -> None:
        """A heartbeat was read from the topic; one that watches nothing is the last of its session."""
        self.receive_before(cluster, beat)
        if cluster not in self._clusters:
            return  # an observer of other clusters may well have this one's name
        other = parse_session(beat.session)
        if other is not None and other.instance == self._own.instance:
            self._receive_namesake(cluster, other)
            return
        self._received[cluster, beat.session] = now_ms
        if not beat.watches and not beat.problems:
            self._released.add(cluster)

    def _receive_namesake(self, cluster: str, other: SessionName) -> None:
        """An earlier session of this instance has been superseded; a later one supersedes this one."""
        if other.epoch > self._own.epoch and cluster not in self._superseded:
            self._superseded.add(cluster)
            log.error(
                "another observer of this name began later and is followed instead: give each its own --instance",
                extra={"cluster": cluster, "instance": self._own.instance},
            )

    def fallen_silent(self, now_ms: int) -> set[str]:
        """Clusters of sessions that have been silent for long enough, each returned once; after a farewell at once.

        The farewell and the lists that answer it stand on different topics, so the fold may meet the lists first and
        ignore them: those that are sent when the silence is over are surely taken.
        """
        silent = [key for key, received in self._received.items() if now_ms - received >= SILENCE_MS]
        for key in silent:
            del self._received[key]
        released, self._released = self._released, set()
        return released | {cluster for cluster, _ in silent}


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
            kafkaclients.look_back(settings, ends, clock() - LOOK_BACK_MS, LOOK_BACK_RECORDS)
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
        if isinstance(entry, Heartbeat):
            yield record.cluster, entry


async def after_own_start(resend: Callable[[], Awaitable[None]], may_precede: Callable[[], bool]) -> None:
    """Send full lists once more when a session that was killed just before this one began is silent for long enough.

    Args:
        may_precede: whether there may have been one: the lists of a large cluster are half of what its start costs.
    """
    await asyncio.sleep(SILENCE_MS / 1000)
    if may_precede():
        await resend()

"""What an observer reads from topics: the central HPAs of its clusters, and the heartbeats of their other observers.

The targets and metrics of central HPAs are observed like those of a cluster's own. When another observer of a cluster
falls silent, the fold turns to this one, which must begin with full lists: those that it sent while the other one was
followed were ignored, so it sends them again once the silence is longer than the fold waits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from runtime import kafkaclients
from runtime.log import Clock
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import Body, PublicRecord, central_name
from schemas.keys import SessionName, parse_session
from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
from schemas.kubernetes.validation import validate_create
from schemas.limits import CLUSTERS, NAME
from schemas.observed import AutoscalerSet, Heartbeat
from schemas.topics import SCALES

log = logging.getLogger(__name__)


def central_hpa(entry: Body, namespace: str) -> tuple[str, dict[str, Any] | None] | None:
    """The name of the central HPA that an entry is about, and its defaulted v2 object (None: it is deleted); None: the
    entry is about no central HPA, or ingest rejects it, too.
    """
    if isinstance(entry, AutoscalerSet) and entry.origin == "central":
        manifest = _usable(entry.hpa, namespace)
        return None if manifest is None else (manifest["metadata"]["name"], manifest)
    name = central_name(entry)
    return None if name is None else (name, None)


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
            self._receive_namesake(cluster, other)
            return
        if (cluster, beat.session) in self._received or len(self._received) < MOST_SESSIONS:
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

        The farewell and the lists that answer it are on different topics, so the fold may meet the lists first and
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

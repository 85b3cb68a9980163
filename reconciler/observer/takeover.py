"""When another observer of a cluster falls silent, the fold turns to this one, which must begin with full lists.

Lists that were sent while the other was followed were ignored, so they are sent again once it has been silent for
longer than the fold waits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from reconciler.apply.reconcilerconfig import Clock
from runtime import kafkaclients
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.observersessions import SessionName, parse_session
from schemas.scales import Heartbeat
from schemas.topics import SCALES

log = logging.getLogger(__name__)

SILENCE_MS = 33_000
"""A little more than the 30 s after which another session may be followed."""
LOOK_EVERY_S = 1.0


class OtherSessions:
    """Sessions of other observers of these clusters, and when each was last heard."""

    def __init__(self, own: SessionName, clusters: Collection[str]) -> None:
        self._own, self._clusters = own, clusters
        self._heard: dict[tuple[str, str], int] = {}
        self._released: set[str] = set()
        self._superseded: set[str] = set()

    def hear(self, cluster: str, beat: Heartbeat, now_ms: int) -> None:
        """A heartbeat stood on the topic; one that watches nothing says farewell."""
        if cluster not in self._clusters:
            return  # an observer of other clusters may well have this one's name
        other = parse_session(beat.session)
        if other is not None and other.instance == self._own.instance:
            self._hear_namesake(cluster, other)
            return
        self._heard[cluster, beat.session] = now_ms
        if not beat.watches and not beat.problems:
            self._released.add(cluster)

    def _hear_namesake(self, cluster: str, other: SessionName) -> None:
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
        silent = [key for key, heard in self._heard.items() if now_ms - heard >= SILENCE_MS]
        for key in silent:
            del self._heard[key]
        released, self._released = self._released, set()
        return released | {cluster for cluster, _ in silent}


async def follow_others(
    settings: KafkaSettings,
    own: SessionName,
    clusters: Collection[str],
    clock: Clock,
    silent: Callable[[str], Awaitable[None]],
) -> None:
    """Tell `silent` each of these clusters whose other observer has gone, for ever."""
    others = OtherSessions(own, clusters)
    async with kafkaclients.topic_reader(settings, SCALES, begin="latest") as consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=int(LOOK_EVERY_S * 1000))).values():
                for record in records:
                    _hear(others, record.value, clock())
            for cluster in others.fallen_silent(clock()):
                log.info("another observer has fallen silent: sending full lists", extra={"cluster": cluster})
                await silent(cluster)


def _hear(others: OtherSessions, value: bytes, now_ms: int) -> None:
    if b'"heartbeat"' not in value:
        return
    try:
        record = decode(value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in record.entries:
        if isinstance(entry, Heartbeat):
            others.hear(record.cluster, entry, now_ms)


async def after_own_start(resend: Callable[[], Awaitable[None]]) -> None:
    """Send full lists once more when a session that was killed just before this one began is silent for long enough."""
    await asyncio.sleep(SILENCE_MS / 1000)
    await resend()

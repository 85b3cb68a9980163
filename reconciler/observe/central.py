"""The central HPAs, learnt from `fleethpa.autoscalers`: their targets and metrics are observed like those of cluster
HPAs.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiokafka import ConsumerRecord
from msgspec import structs

from reconciler import kafka
from reconciler.config import Clock
from schemas.autoscalers import AutoscalerDeleted, AutoscalerSet
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.hpa import ManifestError, hpa_from_manifest
from schemas.keys import HpaId
from schemas.topics import AUTOSCALERS
from schemas.validation import validate_create

log = logging.getLogger(__name__)

_CENTRAL = b'"central"'

RENEW_MS = 24 * 3_600_000
"""So old the record of a central HPA is said again: records expire, and an observer that starts knows only what the
topic holds.
"""

Told = Callable[[str, str, str, dict[str, Any] | None], Awaitable[None]]
"""cluster, namespace, name, and the manifest; None: it was deleted."""
Say = Callable[[HpaId, AutoscalerSet], Awaitable[None]]
"""Write a record of a central HPA to the topic."""


class CentralHpas:
    """The newest record of each central HPA of some clusters; None of one that was deleted.

    A renewed record is believed only of an HPA of which nothing else is known: a user may have changed or deleted it
    just before, unseen by whoever renewed it.
    """

    def __init__(self, clusters: Collection[str]) -> None:
        self._clusters = clusters
        self._known: dict[HpaId, tuple[int, AutoscalerSet | None]] = {}

    def set(self, hpa: HpaId, body: AutoscalerSet, time_ms: int) -> bool:
        """A record that stands on the topic; whether it says something new."""
        if hpa.cluster not in self._clusters:
            return False
        if body.renewed and hpa in self._known:
            _, newest = self._known[hpa]
            if newest is not None and newest.hpa == body.hpa:
                self._known[hpa] = (time_ms, newest)
            return False
        self._known[hpa] = (time_ms, body)
        return True

    def deleted(self, hpa: HpaId, time_ms: int) -> None:
        """It was deleted."""
        self._known[hpa] = (time_ms, None)

    def due(self, now_ms: int) -> list[tuple[HpaId, AutoscalerSet]]:
        """The records to be said again, each once a period. Without its mode: a command may have changed it since."""
        due = [
            (hpa, body)
            for hpa, (time_ms, body) in self._known.items()
            if body is not None and now_ms - time_ms >= RENEW_MS
        ]
        for hpa, body in due:
            self._known[hpa] = (now_ms, body)
        return [(hpa, structs.replace(body, mode=None, renewed=True)) for hpa, body in due]


async def follow_central(settings: KafkaSettings, told: Told, known: CentralHpas, say: Say, clock: Clock) -> None:
    """Tell every change of a central HPA, for ever, from the beginning of the topic on; keep their records alive."""
    async with kafka.reader(settings, AUTOSCALERS) as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        while True:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    await _tell(record, told, known)
            if await kafka.has_reached(consumer, ends):
                for hpa, body in known.due(clock()):
                    await say(hpa, body)


async def _tell(stood: ConsumerRecord, told: Told, known: CentralHpas) -> None:
    if _CENTRAL not in (stood.value or b""):
        return  # most of the topic is what observers themselves tell
    try:
        record = decode(stood.value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in record.entries:
        if isinstance(entry, AutoscalerSet) and entry.origin == "central":
            if (manifest := _usable(entry.hpa, record.namespace)) is None:
                continue
            hpa = HpaId(record.cluster, record.namespace, manifest["metadata"]["name"])
            if known.set(hpa, entry, stood.timestamp):
                await told(*hpa, manifest)
        elif isinstance(entry, AutoscalerDeleted) and entry.origin == "central":
            known.deleted(HpaId(record.cluster, record.namespace, entry.name), stood.timestamp)
            await told(record.cluster, record.namespace, entry.name, None)


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

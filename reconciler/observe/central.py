"""The central HPAs, learnt from `fleethpa.autoscalers`: their targets and metrics are observed like those of cluster
HPAs.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from reconciler import kafka
from schemas.autoscalers import AutoscalerDeleted, AutoscalerSet
from schemas.codec import WireError, decode
from schemas.connection import KafkaSettings
from schemas.entries import PublicRecord
from schemas.hpa import ManifestError, hpa_from_manifest
from schemas.topics import AUTOSCALERS
from schemas.validation import validate_create

log = logging.getLogger(__name__)

_CENTRAL = b'"central"'

Told = Callable[[str, str, str, dict[str, Any] | None], Awaitable[None]]
"""cluster, namespace, name, and the manifest; None: it was deleted."""


async def follow_central(settings: KafkaSettings, told: Told) -> None:
    """Tell every change of a central HPA, for ever, from the beginning of the topic on."""
    async with kafka.reader(settings, AUTOSCALERS) as consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    await _tell(record.value, told)


async def _tell(value: bytes, told: Told) -> None:
    if _CENTRAL not in value:
        return  # most of the topic is what observers themselves tell
    try:
        record = decode(value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in record.entries:
        if isinstance(entry, AutoscalerSet) and entry.origin == "central":
            if (hpa := _usable(entry.hpa, record.namespace)) is not None:
                await told(record.cluster, record.namespace, hpa["metadata"]["name"], hpa)
        elif isinstance(entry, AutoscalerDeleted) and entry.origin == "central":
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

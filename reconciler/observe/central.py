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
from schemas.topics import AUTOSCALERS

log = logging.getLogger(__name__)

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
    try:
        record = decode(value, PublicRecord)
    except WireError:
        return  # ingest rejects it, with position and reason
    for entry in record.entries:
        if isinstance(entry, AutoscalerSet) and entry.origin == "central":
            name = (entry.hpa.get("metadata") or {}).get("name")
            if isinstance(name, str) and _is_usable(entry.hpa):
                await told(record.cluster, record.namespace, name, entry.hpa)
        elif isinstance(entry, AutoscalerDeleted) and entry.origin == "central":
            await told(record.cluster, record.namespace, entry.name, None)


def _is_usable(hpa: dict[str, Any]) -> bool:
    reference = (hpa.get("spec") or {}).get("scaleTargetRef") or {}
    usable = isinstance(reference.get("kind"), str) and isinstance(reference.get("name"), str)
    if not usable:
        log.warning("central HPA without a usable scaleTargetRef is passed over; ingest rejects it, too")
    return usable

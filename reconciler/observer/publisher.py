"""Writes what the observer reports: batched per topic and namespace, in order, within the size limit of a record.

Full lists and large answers are divided into parts that each fit.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Raw, structs

from reconciler.observer.clusterview import ObserverMetrics
from runtime.log import Clock
from runtime.process import FreeMemory
from runtime.records import Publisher
from schemas.answers import MetricAnswer
from schemas.codec import encode
from schemas.entries import Body
from schemas.fitting import fitted, split
from schemas.limits import BEAT_NAMESPACES
from schemas.observed import AutoscalerList, Heartbeat, Pod, PodList, Rival
from schemas.packed import packed, unpacked
from schemas.topics import SCALES

log = logging.getLogger(__name__)

LINGER_S = 0.02
AT_ONCE = 256
"""Records that the driver has at once: so many share a request while brokers are slow. Thousands, as at the start of a
large cluster, would only wait their turn there.
"""

WAITING_BYTES = 32 * 2**20
"""What may wait; beyond that the watches wait, too, until Kafka accepts records again."""

_BESIDE_HPAS_BYTES = 32 * 1024
"""Rivals that share a chunk with HPAs; more of them have chunks of their own."""
ANSWER_BYTES = 32 * 1024
"""Of an answer or a part of one. Deciders keep up to three of each part, each part in another row of the namespace."""

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
        """Take bodies to publish; waits while WAITING_BYTES are waiting already."""

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None:
        """Take a heartbeat that is about these namespaces, in as few records as there may be."""


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
        """Take bodies to publish; waits while WAITING_BYTES are waiting already."""
        bodies = within_limits(bodies, namespace)
        encoded = [encode(body) for body in bodies]  # once, and a list of HPAs takes a quarter of the objects' memory
        await self._drained.wait()
        self._batches.setdefault((topic, cluster, namespace), []).extend(map(Raw, encoded))
        self._waiting_bytes += sum(map(len, encoded))
        self._arrived.set()
        if self._waiting_bytes >= WAITING_BYTES:
            self._drained.clear()

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None:
        """Take a heartbeat: a record for the namespaces of one partition, behind what was reported on them."""
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
                self._metrics.records.labels(topic).inc()

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


def answer_records(found: Iterable[MetricAnswer], answer_id: str) -> list[list[MetricAnswer]]:
    """Answers in lists that each fit into a record, packed; a large one is divided into parts with `answer_id`."""
    answers = list(map(packed, found))
    if len(encode(answers)) <= ANSWER_BYTES:  # nearly always, and cheaper to see of all than of each
        return [answers]
    return list(split(part for answer in answers for part in _parts(answer, answer_id)))


def _parts(answer: MetricAnswer, answer_id: str) -> list[MetricAnswer]:
    if len(encode(answer)) <= ANSWER_BYTES:
        return [answer]
    answer = unpacked(answer)
    lists: dict[str, list[Any]] = {"usages": answer.usages, "values": answer.values, "items": answer.items}
    field, items = max(lists.items(), key=lambda named: len(named[1]))
    if len(items) < 2:
        return [answer]
    empty = structs.replace(answer, usages=[], values=[], items=[], answer_id=answer_id, part=99_999, parts=99_999)
    shares = list(split(items, max(ANSWER_BYTES - len(encode(empty)), ANSWER_BYTES // 2)))
    return [
        packed(structs.replace(empty, part=number, parts=len(shares), **{field: share}))
        for number, share in enumerate(shares)
    ]


def pod_lists(pods: Sequence[Pod], list_id: str, session: str) -> list[PodList]:
    """A full list of a namespace's pods; an empty namespace is one empty chunk."""
    parts = list(split(pods)) or [[]]
    return [
        PodList(list_id=list_id, pods=part, chunk=i, chunks=len(parts), session=session) for i, part in enumerate(parts)
    ]


def autoscaler_lists(
    hpas: Sequence[dict[str, Any]],
    rivals: Sequence[Rival],
    list_id: str,
    session: str,
    managers: Mapping[str, tuple[str, int]] | None = None,
) -> list[AutoscalerList]:
    """A full list of a namespace's HPAs; the first chunks name the rivals, each the managers of its own HPAs."""
    others = [list(rivals)] if len(encode(rivals)) <= _BESIDE_HPAS_BYTES else [*split(rivals), []]
    parts = [*([[]] * (len(others) - 1)), *(list(split(hpas)) or [[]])]
    known = managers or {}
    return [
        AutoscalerList(
            list_id=list_id,
            hpas=part,
            chunk=i,
            chunks=len(parts),
            rivals=others[i] if i < len(others) else [],
            session=session,
            managers={name: known[name] for hpa in part if known.get(name := hpa["metadata"]["name"], ("", 0))[0]},
        )
        for i, part in enumerate(parts)
    ]

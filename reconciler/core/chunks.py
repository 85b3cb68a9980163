"""Full lists in chunks and batches of entries, so that no record is larger than a topic takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from schemas.autoscalers import AutoscalerList
from schemas.codec import encode
from schemas.pods import Pod, PodList
from schemas.samples import MetricAnswer
from schemas.topics import MAX_LOG_RECORD_BYTES

T = TypeVar("T")

CHUNK_BYTES = MAX_LOG_RECORD_BYTES * 3 // 4
"""Ingest adds a source and a key to every entry and writes it into a log record; a quarter is kept for that."""


LARGEST_ANSWER_BYTES = MAX_LOG_RECORD_BYTES - 4_096
"""An answer stands for itself, so one above it would fit into no record: some 4,000 pods of one target."""
_SURELY_FITS = 50
"""Items of an answer that need not be measured."""


def answer_parts(found: Iterable[MetricAnswer]) -> list[list[MetricAnswer]]:
    """Answers in parts that fit into a record; one that fits into none is told as an error in its place."""
    return list(split(map(_fitting, found)))


def _fitting(answer: MetricAnswer) -> MetricAnswer:
    items = len(answer.usages) + len(answer.values) + len(answer.items)
    size = len(encode(answer)) if items > _SURELY_FITS else 0
    if size <= LARGEST_ANSWER_BYTES:
        return answer
    told = f"the answer has {size} bytes for {items} items, more than the {LARGEST_ANSWER_BYTES} that a record holds"
    return structs.replace(answer, usages=[], values=[], items=[], error=f"{told}: push samples of it instead")


def split(items: Iterable[T], limit: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split so that the encoded items of a part stay within `limit` bytes; an item above it stands alone."""
    part: list[T] = []
    size = 0
    for item in items:
        length = len(encode(item)) + 1
        if part and size + length > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


def pod_lists(pods: Sequence[Pod], list_id: str, session: str) -> list[PodList]:
    """A full list of a namespace's pods; an empty namespace is one empty chunk."""
    parts = list(split(pods)) or [[]]
    return [
        PodList(list_id=list_id, pods=part, chunk=i, chunks=len(parts), session=session) for i, part in enumerate(parts)
    ]


def autoscaler_lists(
    hpas: Sequence[dict[str, Any]],
    rivals: Sequence[dict[str, Any]],
    list_id: str,
    session: str,
    managers: Mapping[str, tuple[str, int]] | None = None,
) -> list[AutoscalerList]:
    """A full list of a namespace's HPAs; the first chunk names the rivals, each the managers of its own HPAs."""
    parts = list(split(hpas)) or [[]]
    known = managers or {}
    return [
        AutoscalerList(
            list_id=list_id,
            hpas=part,
            chunk=i,
            chunks=len(parts),
            rivals=[] if i else list(rivals),
            session=session,
            managers={name: known[name] for hpa in part if known.get(name := hpa["metadata"]["name"], ("", 0))[0]},
        )
        for i, part in enumerate(parts)
    ]

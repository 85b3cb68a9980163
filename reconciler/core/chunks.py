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

_BESIDE_HPAS_BYTES = 32 * 1024
"""Rivals that share a chunk with HPAs; more of them have chunks of their own."""
ANSWER_BYTES = 32 * 1024
"""Of an answer or a part of one. Deciders keep up to three of each part, each part in another row of the namespace."""
_SURELY_FITS = 20
"""Items of an answer that need not be measured."""


def answer_records(found: Iterable[MetricAnswer], answer_id: str) -> list[list[MetricAnswer]]:
    """Answers in lists that each fit into a record; a large one is divided into parts with `answer_id`."""
    answers = list(found)
    if len(encode(answers)) <= ANSWER_BYTES:  # nearly always, and cheaper to see of all than of each
        return [answers]
    return list(split(part for answer in answers for part in _parts(answer, answer_id)))


def _parts(answer: MetricAnswer, answer_id: str) -> list[MetricAnswer]:
    lists: dict[str, list[Any]] = {"usages": answer.usages, "values": answer.values, "items": answer.items}
    field, items = max(lists.items(), key=lambda named: len(named[1]))
    if len(items) <= _SURELY_FITS or len(encode(answer)) <= ANSWER_BYTES:
        return [answer]
    empty = structs.replace(answer, usages=[], values=[], items=[], answer_id=answer_id, part=99_999, parts=99_999)
    shares = list(split(items, max(ANSWER_BYTES - len(encode(empty)), ANSWER_BYTES // 2)))
    return [
        structs.replace(empty, part=number, parts=len(shares), **{field: share}) for number, share in enumerate(shares)
    ]


def split(items: Iterable[T], limit: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split so that the encoded items of a part stay within `limit` bytes; an item above it is a part of its own."""
    items = list(items)
    if len(items) == 1:
        yield items
        return
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

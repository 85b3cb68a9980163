"""Pods that keep once what they have in common: a fleet has many pods, and few shapes of them."""

from functools import lru_cache
from sys import intern

import msgspec
from msgspec import structs

from schemas.pods import Container, Pod


def shared(pod: Pod) -> Pod:
    """Give an equal pod that has in common with others what pods of one workload have in common: memory."""
    try:
        containers, init_containers, pod_requests, overhead = shared_shape(shape_of(pod))
        labels = _shared_labels(_ENCODER.encode(pod.labels))
    except msgspec.ValidationError:
        return pod  # not as an API server has it: ingest will say what is wrong
    return structs.replace(
        pod,
        labels=labels,
        containers=containers,
        init_containers=init_containers,
        pod_requests=pod_requests,
        overhead=overhead,
        phase=intern(pod.phase),
        ready=None if pod.ready is None else intern(pod.ready),
        owner=_same(pod.owner),
    )


_ENCODER = msgspec.msgpack.Encoder()
_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_Shape = tuple[list[Container], list[Container], dict[str, str] | None, dict[str, str]]
_SHAPE = msgspec.msgpack.Decoder(_Shape)


def shape_of(pod: Pod) -> bytes:
    """Give a key of what a pod requests: pods of one shape have the same."""
    return _ENCODER.encode((pod.containers, pod.init_containers, pod.pod_requests, pod.overhead))


@lru_cache(maxsize=8192)
def _shared_labels(labels: bytes) -> dict[str, str]:
    return _LABELS.decode(labels)


@lru_cache(maxsize=8192)
def shared_shape(shape: bytes) -> _Shape:
    """Give containers, init containers, pod-level requests and overhead of a shape, the same objects each time."""
    known: _Shape = _SHAPE.decode(shape)
    return known


@lru_cache(maxsize=8192)
def _same(text: str) -> str:
    return text

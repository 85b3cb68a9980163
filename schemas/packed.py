"""Smaller forms of what is about pods: answers as columns, and pods that share what those of a workload have in common.

As columns, an answer has a third of the bytes, and a few lists instead of several objects for each pod.

Nothing is lost: `unpacked` gives the items that `packed` took. An answer says by itself which pods it is about, so that
no reader depends on an earlier record.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from sys import intern
from typing import Final, TypeVar

import msgspec
from msgspec import structs

from schemas.answers import MetricAnswer, PackedPods, PodUsage, PodValue
from schemas.observed import Container, Pod

VERSION: Final = 1
T = TypeVar("T")
_LARGE: Final = 10**6
"""From here on a factor is looked for."""
PodColumn = tuple[str, str, list[T]]
"""Container, resource, and the value of each pod."""


def packed(answer: MetricAnswer) -> MetricAnswer:
    """Give the answer with its pods as columns; as it is where they have no common containers or resources."""
    usages, values = answer.usages, answer.values
    if answer.api == "resource" and usages:
        columns = columns_of([usage.containers for usage in usages])
        items: Sequence[PodUsage | PodValue] = usages
    elif answer.api == "pods" and values:
        columns = [("", "", [value.milli for value in values])]
        items = values
    else:
        return answer
    names, times, windows = zip(*[(item.pod, item.time, item.window_ms) for item in items], strict=True)
    pods = pack(names, times, windows, columns)
    return answer if pods is None else structs.replace(answer, usages=[], values=[], packed=pods)


PackedNames = tuple[str, str]
"""What all names begin with, and the rest of each, with commas between."""


def pack(
    names: Sequence[str], times: Sequence[int], windows: Sequence[int], columns: Sequence[PodColumn[int]]
) -> PackedPods | None:
    """Do what `pack_values` does; None: there are no columns, or a name has a comma."""
    packed_names = pack_names(names)
    return None if packed_names is None or not columns else pack_values(packed_names, times, windows, columns)


def pack_names(names: Sequence[str]) -> PackedNames | None:
    """Pack the names of pods, at least one; None: one has a comma."""
    prefix = _common_prefix(min(names), max(names))
    rest = ",".join([name[len(prefix) :] for name in names])
    return None if rest.count(",") >= len(names) else (prefix, rest)


def pack_values(
    names: PackedNames, times: Sequence[int], windows: Sequence[int], columns: Sequence[PodColumn[int]]
) -> PackedPods:
    """Pack pods with the columns of their values, at least one.

    metrics-server gives each pod a window of its own, the time between the last two reads of its node's kubelet.
    Source: kubernetes-sigs/metrics-server, pkg/storage/types.go `resourceUsage`.

    Args:
        names: of the pods, each with its time (Unix ms) and its window (ms).
    """
    newest, ages = _below_most(times)
    longest, shorter = _below_most(windows)
    reduced = [
        _with_factor(*column) if column[2][0] >= _LARGE else (column[0], column[1], 1, column[2]) for column in columns
    ]
    return PackedPods(VERSION, *names, newest, ages, longest, shorter, reduced)


def _below_most(numbers: Sequence[int]) -> tuple[int, list[int]]:
    """The highest number, and how far each is below it; nothing if all are the same."""
    most = max(numbers)
    return most, [] if numbers.count(most) == len(numbers) else [most - number for number in numbers]


def columns_of(pods: Sequence[Sequence[tuple[str, Mapping[str, T]]]]) -> list[PodColumn[T]]:
    """Turn the containers of pods into one column for each resource of each container.

    Empty: pods differ in containers or resources, or a container has no resource or the name of another.
    """
    if len(set(map(len, pods))) != 1:
        return []
    columns: list[PodColumn[T]] = []
    known: set[str] = set()
    for containers in zip(*pods, strict=True):
        names, amounts = zip(*containers, strict=True)
        container, resources = names[0], [*map(tuple, amounts)]
        is_alike = names.count(container) == len(names) and resources.count(resources[0]) == len(names)
        if not is_alike or not resources[0] or container in known:
            return []
        known.add(container)
        columns += [(container, resource, [each[resource] for each in amounts]) for resource in resources[0]]
    return columns


def _common_prefix(first: str, last: str) -> str:
    """What the first and the last name in order have in common, and so all between them."""
    length = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]


def _with_factor(container: str, resource: str, values: list[int]) -> tuple[str, str, int, list[int]]:
    """Bytes of memory are multiples of 1,000 milli, mostly of 1,024,000."""
    factor = max(gcd(*values), 1)
    return container, resource, factor, values if factor == 1 else [value // factor for value in values]


def unpacked(answer: MetricAnswer) -> MetricAnswer:
    """Give the answer with an item per pod. Raises ValueError: columns, ages or windows are not as many as the pods."""
    pods = answer.packed
    if pods is None:
        return answer
    names, times, windows = pod_names(pods), pod_times(pods), pod_windows(pods)
    if answer.api == "pods":
        (column,) = pods.columns
        values = [
            PodValue(name, milli, time_ms, window_ms)
            for name, milli, time_ms, window_ms in zip(names, millis(column), times, windows, strict=True)
        ]
        return structs.replace(answer, values=values, packed=None)
    containers: list[dict[str, dict[str, int]]] = [{} for _ in names]
    for column in pods.columns:
        container, resource, *_ = column
        for of_pod, milli in zip(containers, millis(column), strict=True):
            of_pod.setdefault(container, {})[resource] = milli
    usages = [
        PodUsage(name, time_ms, window_ms, list(of_pod.items()))
        for name, time_ms, window_ms, of_pod in zip(names, times, windows, containers, strict=True)
    ]
    return structs.replace(answer, usages=usages, packed=None)


def pod_names(pods: PackedPods) -> list[str]:
    """The names of the pods, in order."""
    prefix = pods.prefix
    return [prefix + rest for rest in pods.names.split(",")]


def pod_times(pods: PackedPods) -> list[int]:
    """The time of each pod's values (Unix ms, 0: the API gave none)."""
    time_ms = pods.time
    return [time_ms - age for age in pods.ages] if pods.ages else [time_ms] * (pods.names.count(",") + 1)


def pod_windows(pods: PackedPods) -> list[int]:
    """The window of each pod's values (ms)."""
    longest_ms = pods.window_ms
    return [longest_ms - less for less in pods.shorter] if pods.shorter else [longest_ms] * (pods.names.count(",") + 1)


def millis(column: tuple[str, str, int, list[int]]) -> list[int]:
    """The milli values of a column."""
    _, _, factor, values = column
    return values if factor == 1 else [factor * value for value in values]


# --- pods in memory ---------------------------------------------------------------------------------------------------


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


_same = lru_cache(maxsize=8192)(str)
"""Gives the same object for equal texts."""

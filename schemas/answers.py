"""What metrics APIs are asked and answer, as a record of one namespace and poll holds it, also in columns.

The query of a metric is sent by the observer and looked up by the evaluation. Source: k8s.io/metrics clients and
pkg/controller/podautoscaler/metrics/client.go.

As columns, an answer has a third of the bytes, and a few lists instead of several objects for each pod. Nothing is
lost: `unpacked` gives the items that `packed` took. An answer says by itself which pods it is about, so that no reader
depends on an earlier record. Pods share what those of a workload have in common.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from sys import intern
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas.kubernetes.metricspecs import metric_source
from schemas.kubernetes.quantity import wrap_i64
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import JsonView, group_of
from schemas.limits import Count, Int64, PartCount, TimeMs, WindowMs
from schemas.observed import Container, EntryBody, Pod

# --- as they are ------------------------------------------------------------------------------------------------------

MetricsApiName = Literal["resource", "pods", "object", "external"]
DEFAULT_WINDOW_MS: Final = 60_000
"""The window of a value that comes without one. Source: `metricServerDefaultMetricWindow` of the same file."""


class PodUsage(Struct, frozen=True, gc=False, array_like=True):
    """One PodMetrics item: `[pod, time, windowMs, [[container, {resource: milli}], …]]`, containers by name or in
    answered order.
    """

    pod: str
    time: TimeMs
    window_ms: WindowMs
    containers: list[tuple[str, dict[str, Int64]]]


class PodValue(Struct, frozen=True, gc=False, array_like=True):
    """One MetricValue of a pod: `[pod, milli, time, windowMs]`."""

    pod: str
    milli: Int64
    time: TimeMs
    window_ms: WindowMs = DEFAULT_WINDOW_MS


class PackedPods(Struct, frozen=True, gc=False, array_like=True):
    """The items of an answer about pods as columns, in answered order (`packed` makes, `unpacked` reads them).

    A pod is called `prefix` and its part of `names`, which commas divide; its time is `time` less its part of `ages`
    (ms), and its window `window_ms` less its part of `shorter` (ms), which are empty where all have the same. A column
    is `[container, resource, factor, values]`: the milli values are `factor` times these. Of a custom metric there is
    one column, without container and resource.
    """

    version: Literal[1]
    prefix: str
    names: str
    time: TimeMs
    ages: list[int]
    window_ms: WindowMs
    shorter: list[int]
    columns: list[tuple[str, str, int, list[int]]]


def window_of_seconds_ms(seconds: int) -> int:
    """Give a MetricValue's `windowSeconds` in milliseconds: through Go's 64 bit of nanoseconds, which wrap."""
    nanoseconds = wrap_i64(seconds * 10**9)
    return nanoseconds // 10**6 if nanoseconds >= 0 else -(-nanoseconds // 10**6)


class AnswerIdentity(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a metrics API was asked (see `MetricAnswer`)."""

    api: MetricsApiName
    selector: str = ""
    metric: str = ""
    metric_selector: str = ""
    group_kind: str = ""
    object: str = ""


class MetricAnswer(AnswerIdentity, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One answer of a metrics API to one query; replaces the previous answer to the same query completely.

    `api` says which API and so which fields matter:
    - `resource`: `selector` (string form of the target's pod selector) → `usages`;
    - `pods`: `metric`, `metricSelector`, `selector` → `values`;
    both come as `packed` where all pods have the same containers and resources;
    - `object`: `metric`, `metricSelector`, `groupKind` (`Kind.group`, no dot for the core group), `object` → `milli`,
      `time`;
    - `external`: `metric`, `metricSelector` → `items` (`[milli, time]`, in answered order).
    `error`: the API's own message, without the controller's prefixes; then nothing else counts. An empty list is a
    valid answer, not an error.

    An answer that is too large for one record comes in `parts` of one `answerId`, which no other answer has, numbered
    by `part` from 0, each with a share of the items. It replaces the former answer when all parts have come; one that
    lacks a part replaces nothing.

    `promql`: the query that a Prometheus was asked in place of the metrics API; without the names of pods, which
    change. No decision depends on it.
    """

    error: str | None = None
    usages: list[PodUsage] = []
    values: list[PodValue] = []
    milli: Int64 = 0
    time: TimeMs = 0
    items: list[tuple[Int64, TimeMs]] = []
    answer_id: str = ""
    part: Count = 0
    parts: PartCount = 1
    packed: PackedPods | None = None
    promql: str = ""


def query_of(answer: MetricAnswer) -> tuple[str, str, str, str, str, str]:
    """What was asked: the identity under which a newer answer replaces this one."""
    return (answer.api, answer.selector, answer.metric, answer.metric_selector, answer.group_kind, answer.object)


class Answers(EntryBody, frozen=True, gc=False, kw_only=True):
    """Answers of the metrics APIs for one namespace, asked together."""

    items: list[MetricAnswer]
    session: str = ""


API_OF: Final[dict[str, MetricsApiName]] = {
    "Resource": "resource",
    "ContainerResource": "resource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
"""Metric type: the `api` of its question."""

Query = MetricAnswer
"""A question: an answer whose values are not filled in yet."""


def metric_query(metric: JsonView, pod_selector: str) -> Query | None:
    """Give the query of one metric (an item of an autoscaling/v2 `spec.metrics`); None for an unknown type.

    `pod_selector`: string form of the target's pod selector, which Resource, ContainerResource and Pods metrics ask by.

    Raises SelectorError: the metric's own selector cannot be read.
    """
    kind = metric.get("type")
    if kind in ("Resource", "ContainerResource"):
        return MetricAnswer(api="resource", selector=pod_selector)
    if kind not in ("Pods", "Object", "External"):
        return None
    source = metric_source(metric)
    named = source["metric"]
    name, text = named["name"], label_selector_text(named.get("selector"))
    if kind == "Pods":
        return MetricAnswer(api="pods", selector=pod_selector, metric=name, metric_selector=text)
    if kind == "External":
        return MetricAnswer(api="external", metric=name, metric_selector=text)
    described = source["describedObject"]
    return MetricAnswer(
        api="object",
        metric=name,
        metric_selector=text,
        group_kind=_group_kind(described),
        object=described.get("name", ""),
    )


def is_root_scoped(query: AnswerIdentity) -> bool:
    """Say whether an Object metric describes a Namespace, asked for at the root, always the HPA's own."""
    return query.api == "object" and query.group_kind == "Namespace"


def _group_kind(described: JsonView) -> str:
    group = group_of(described.get("apiVersion") or "")
    return f"{described['kind']}.{group}" if group else str(described["kind"])


# --- in columns -------------------------------------------------------------------------------------------------------

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
    newest, longest = max(times), max(windows)
    return PackedPods(
        VERSION,
        *names,
        newest,
        [] if times.count(newest) == len(times) else [newest - time_ms for time_ms in times],
        longest,
        [] if windows.count(longest) == len(windows) else [longest - window_ms for window_ms in windows],
        [
            _with_factor(*column) if column[2][0] >= _LARGE else (column[0], column[1], 1, column[2])
            for column in columns
        ],
    )


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
        containers, init_containers, pod_requests, overhead = _shared_shape(shape_of(pod))
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
PodShape = tuple[list[Container], list[Container], dict[str, str] | None, dict[str, str]]
"""Containers, init containers, pod-level requests and overhead of a pod."""
_SHAPE = msgspec.msgpack.Decoder(PodShape)


def shape_of(pod: Pod) -> bytes:
    """Give a key of what a pod requests: pods of one shape have the same."""
    return _ENCODER.encode((pod.containers, pod.init_containers, pod.pod_requests, pod.overhead))


@lru_cache(maxsize=8192)
def _shared_labels(labels: bytes) -> dict[str, str]:
    return _LABELS.decode(labels)


def decode_shape(shape: bytes) -> PodShape:
    """Return what the key of a shape says."""
    known: PodShape = _SHAPE.decode(shape)
    return known


_shared_shape = lru_cache(maxsize=8192)(decode_shape)
"""Gives the same objects for pods of one shape."""


_same = lru_cache(maxsize=8192)(str)
"""Gives the same object for equal texts."""

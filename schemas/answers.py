"""What metrics APIs are asked and answer, as a record of one namespace and poll holds it.

The query of a metric is sent by the observer and looked up by the evaluation. Source: k8s.io/metrics clients and
pkg/controller/podautoscaler/metrics/client.go.

An answer about pods has columns: a third of the bytes of an object for each pod. It says by itself which pods it is
about, so that no reader depends on an earlier record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from schemas import limits
from schemas.codec import encode
from schemas.kubernetes.metricspecs import metric_source
from schemas.kubernetes.quantity import wrap_i64
from schemas.kubernetes.selectors import label_selector_text
from schemas.kubernetes.shape import JsonView, group_of
from schemas.limits import Int64, TimeMs, WindowMs
from schemas.observed import EntryBody

# --- as they are ------------------------------------------------------------------------------------------------------

MetricsApiName = Literal["resource", "pods", "object", "external"]
DEFAULT_WINDOW_MS: Final = 60_000
"""The window of a value that comes without one. Source: `metricServerDefaultMetricWindow` of the same file."""


class PodUsage(NamedTuple):
    """What one pod uses, as a metrics API answers it: of each container its resources in milli units. The value of a
    custom metric is the resource without a name of the container without a name.
    """

    pod: str
    time: int
    """Unix ms; 0: the API gave none."""
    window_ms: int
    containers: Sequence[tuple[str, Mapping[str, int]]]


def pod_value(pod: str, milli: int, time: int, window_ms: int = DEFAULT_WINDOW_MS) -> PodUsage:
    """Return the value of a custom metric for a pod."""
    return PodUsage(pod, time, window_ms, [("", {"": milli})])


PodColumn = tuple[str, str, int, list[int | None]]
"""Container, resource, factor and a value for each pod: the milli value is `factor` times this. None: the pod has no
such container, or the container has nothing of the resource.
"""


class PodColumns(Struct, frozen=True, gc=False, array_like=True):
    """What pods use, as columns, the pods in answered order (`in_columns` makes them).

    A pod is called `prefix` and its part of `names`, which commas divide; its time is `time` less its part of `ages`
    (ms), and its window `window_ms` less its part of `shorter` (ms), which are empty where all have the same. A pod has
    a container if one of the container's columns has a value for it. A container without resources has a column
    without a resource; the second container of a name, which only a wrong answer has, has the columns of that name once
    more. Of a custom metric there is one column, without container and resource.
    """

    prefix: str
    names: str
    time: TimeMs
    ages: list[int]
    window_ms: WindowMs
    shorter: list[int]
    columns: list[PodColumn]

    @property
    def count(self) -> int:
        """How many pods there are."""
        return self.names.count(",") + 1

    @property
    def pod_names(self) -> list[str]:
        """The names of the pods, in order."""
        return [self.prefix + rest for rest in self.names.split(",")]

    @property
    def times(self) -> list[int]:
        """The time of each pod's values (Unix ms, 0: the API gave none)."""
        return [self.time - age for age in self.ages] if self.ages else [self.time] * self.count

    @property
    def newest_ms(self) -> int:
        """The time of the newest values."""
        return self.time - min(self.ages, default=0)

    @property
    def windows(self) -> list[int]:
        """The window of each pod's values (ms)."""
        return [self.window_ms - less for less in self.shorter] if self.shorter else [self.window_ms] * self.count

    def containers(self) -> Iterator[tuple[str, dict[str, list[int | None]]]]:
        """Yield the name of each container and resource -> milli value for each pod."""
        usage: dict[tuple[str, int], dict[str, list[int | None]]] = {}
        seen: Counter[tuple[str, str]] = Counter()
        for container, resource, factor, values in self.columns:
            place = (container, seen[container, resource])
            seen[container, resource] += 1
            millis = values if factor == 1 else [value if value is None else factor * value for value in values]
            usage.setdefault(place, {})[resource] = millis
        return ((name, columns) for (name, _), columns in usage.items())


def window_of_seconds_ms(seconds: int) -> int:
    """Return a MetricValue's `windowSeconds` in milliseconds: through Go's 64 bit of nanoseconds, which wrap."""
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
    - `resource`: `selector` (string form of the target's pod selector) → `pods`;
    - `pods`: `metric`, `metricSelector`, `selector` → `pods`;
    - `object`: `metric`, `metricSelector`, `groupKind` (`Kind.group`, no dot for the core group), `object` → `milli`,
      `time`;
    - `external`: `metric`, `metricSelector` → `items` (`[milli, time]`, in answered order).
    `error`: the API's own message, or that of a polled source behind its name (`prometheus: …`), without the
    controller's prefixes, which the evaluation adds; then nothing else counts. An answer without pods or items is a
    valid answer, not an error.

    `asked`: what a polled source was asked in place of the metrics API, such as the query of a Prometheus; without the
    names of pods, which change. No decision depends on it.
    """

    error: str | None = None
    pods: PodColumns | None = None
    milli: Int64 = 0
    time: TimeMs = 0
    items: list[tuple[Int64, TimeMs]] = []
    asked: str = ""


def query_of(answer: MetricAnswer) -> tuple[str, str, str, str, str, str]:
    """Return what was asked: the identity under which a newer answer replaces this one."""
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
    """Return the query of one metric (an item of an autoscaling/v2 `spec.metrics`); None for an unknown type.

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
    """Return whether an Object metric describes a Namespace, asked for at the root, always the HPA's own."""
    return query.api == "object" and query.group_kind == "Namespace"


def _group_kind(described: JsonView) -> str:
    group = group_of(described.get("apiVersion") or "")
    return f"{described['kind']}.{group}" if group else str(described["kind"])


# --- in columns -------------------------------------------------------------------------------------------------------

_LARGE: Final = 10**6
"""From here on a factor is looked for."""
_LEAST_BYTES: Final = 2
"""Of a value in JSON, with its comma."""
_MOST_BYTES: Final = 21
"""Likewise."""
_ESCAPED_BYTES: Final = 6
"""The most of a character of a text in JSON."""
_CONTAINERLESS: Final = {"": 0}


def in_columns(pods: Sequence[PodUsage]) -> PodColumns | None:
    """Return what pods use as columns; None: there are no pods.

    metrics-server gives each pod a window of its own, the time between the last two reads of its node's kubelet.
    Source: kubernetes-sigs/metrics-server, pkg/storage/types.go `resourceUsage`.

    Raises ValueError: a name has a comma; or so many containers and pods have columns of their own that they are beyond
    what an answer may have.
    """
    if not pods:
        return None
    names, times, windows, containers = zip(*pods, strict=True)
    prefix = _common_prefix(min(names), max(names))
    rest = ",".join([name[len(prefix) :] for name in names])
    if rest.count(",") >= len(names):
        raise ValueError("the name of a pod has a comma")
    newest, longest = max(times), max(windows)
    return PodColumns(
        prefix,
        rest,
        newest,
        [] if times.count(newest) == len(times) else [newest - time_ms for time_ms in times],
        longest,
        [] if windows.count(longest) == len(windows) else [longest - window_ms for window_ms in windows],
        [_with_factor(*column) for column in _columns(containers)],
    )


def _common_prefix(first: str, last: str) -> str:
    """Return what the first and the last name in order have in common, and so all between them."""
    length = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]


def _columns(pods: Sequence[Sequence[tuple[str, Mapping[str, int]]]]) -> list[tuple[str, str, list[int | None]]]:
    """Turn the containers of pods into columns, by their names: metrics-server gives containers in any order.

    Source: kubernetes-sigs/metrics-server, pkg/storage/pod.go `GetMetrics`, which goes through a map.
    """
    columns: dict[tuple[str, int, str], list[int | None]] = {}
    for number, containers in enumerate(pods):
        places: dict[str, int] = {}
        for container, resources in containers:
            place = places[container] = places.get(container, -1) + 1
            for resource, milli in (resources or _CONTAINERLESS).items():
                # With a column for each container of this name before it, which says that it is another one.
                for earlier in range(place, -1, -1):
                    key = (container, earlier, resource)
                    if key in columns:
                        break
                    limits.check(limits.ANSWER, (len(columns) + 1) * len(pods) * _LEAST_BYTES, "so many containers")
                    columns[key] = [None] * len(pods)
                columns[container, place, resource][number] = milli
    return [
        (container, resource, columns[container, place, resource]) for container, place, resource in sorted(columns)
    ]


def _with_factor(container: str, resource: str, values: list[int | None]) -> PodColumn:
    """Bytes of memory are multiples of 1,000 milli, mostly of 1,024,000."""
    known = [value for value in values if value is not None]
    factor = max(gcd(*known), 1) if known and known[0] >= _LARGE else 1
    divided = values if factor == 1 else [value if value is None else value // factor for value in values]
    return container, resource, factor, divided


def check_size(answer: MetricAnswer) -> None:
    """Check that an answer is not larger than an answer may be. Raises OverLimitError: naming the metric."""
    values, pods = len(answer.items) * 2, answer.pods
    texts = len(answer.error or "") + len(answer.asked)
    of = answer.metric[:80] or answer.api
    if pods is not None:
        limits.check(limits.ANSWER_PODS, pods.count, of)
        values += sum([len(column[3]) for column in pods.columns]) + len(pods.ages) + len(pods.shorter)
        texts += len(pods.names) + sum([len(column[0]) + len(column[1]) for column in pods.columns])
    if (
        values * _MOST_BYTES + texts * _ESCAPED_BYTES > limits.ANSWER.most // 2
    ):  # far below, as nearly always: it need not be encoded
        limits.check(limits.ANSWER, len(encode(answer)), of)

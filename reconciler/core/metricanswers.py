"""Which questions the HPAs of a namespace have for the metrics APIs, and their answers as bodies.

Source: k8s.io/metrics clients and pkg/controller/podautoscaler/metrics/client.go; paths as in recorded requests.

When a namespace's metrics are asked for: on its own phase of the sync period, so that a fleet's load spreads.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct, structs

from reconciler.core.objects import Asking
from schemas.answers import (
    DEFAULT_WINDOW_MS,
    MetricAnswer,
    PackedNames,
    PackedPods,
    PodUsage,
    PodValue,
    Query,
    columns_of,
    is_root_scoped,
    pack,
    pack_names,
    pack_values,
    query_of,
    window_of_seconds_ms,
)
from schemas.codec import encode
from schemas.keys import murmur2
from schemas.kubernetes.gotimes import parse_durations_ms, time_ms
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.kubernetes.shape import JsonView, json_milli, json_millis
from schemas.observed import Target

APART_MS = (1_000, 500, 200, 100)
TOGETHER_HPAS = 100


def apart_ms(hpas: int, period_ms: int) -> int:
    """How far apart phases are, so that about `TOGETHER_HPAS` of the HPAs that a process observes are on one.

    What is asked at one moment shares wake-ups, records and fetches all the way to the decision; where it is spread
    evenly, each process wakes up for little at a time. Of a large fleet, what comes together would wait for its turn.
    """
    return next((each for each in APART_MS if each * hpas <= TOGETHER_HPAS * period_ms), APART_MS[-1])


@lru_cache(maxsize=65_536)  # asked for each namespace in each period, and for each kind of work
def phase_ms(key: str, period_ms: int, apart: int = APART_MS[-1]) -> int:
    """Offset of a `cluster/namespace` within the period, in [0, period), a multiple of `apart` milliseconds."""
    return murmur2(key.encode()) % period_ms // apart * apart


def next_poll_ms(key: str, period_ms: int, now_ms: int, apart: int = APART_MS[-1]) -> int:
    """The first moment after `now_ms` that lies on the namespace's phase."""
    phase = phase_ms(key, period_ms, apart)
    return now_ms - (now_ms - phase) % period_ms + period_ms


# --- questions --------------------------------------------------------------------------------------------------------


def queries(hpas: Iterable[Asking], selectors: Mapping[Target, str], pushed: Collection[str] = ()) -> list[Query]:
    """The questions of these HPAs, each once, in the order in which they first occur.

    `selectors`: status.selector of the targets whose scale is known. A question that needs an unknown or empty selector
    is not asked, as upstream does not get that far. `pushed`: metric types of which samples are pushed; nothing is
    asked about them.
    """
    found: dict[Any, Query] = {}
    for hpa in hpas:
        selector = selectors.get(hpa.target, "")
        for kind, query in hpa.metrics:
            if kind in pushed:
                continue
            if query.api in ("resource", "pods"):
                if not selector:
                    continue
                query = structs.replace(query, selector=selector)
            found.setdefault(query_of(query), query)
    return list(found.values())


def resource_path(namespace: str, selector: str = "") -> str:
    """Path of metrics.k8s.io; without a selector for the whole namespace."""
    return f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods{_asked({'labelSelector': selector})}"


def custom_path(query: Query, namespace: str, version: str, resource: str = "") -> str:
    """Path of custom.metrics.k8s.io for a `pods` or `object` question.

    `resource`: plural and group of the described object, such as `ingresses.networking.k8s.io`. The core group's
    Namespace is asked for at the root, under the HPA's own namespace, whatever the described object is called.
    """
    base = f"/apis/custom.metrics.k8s.io/{version}/namespaces/{namespace}"
    metric = quote(query.metric, safe="")
    if query.api == "pods":
        asked = {"labelSelector": query.selector, "metricLabelSelector": query.metric_selector}
        return f"{base}/pods/*/{metric}{_asked(asked)}"
    asked = {"metricLabelSelector": query.metric_selector}
    if is_root_scoped(query):
        return f"{base}/metrics/{metric}{_asked(asked)}"
    return f"{base}/{resource}/{quote(query.object, safe='')}/{metric}{_asked(asked)}"


def external_path(query: Query, namespace: str) -> str:
    base = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{quote(query.metric, safe='')}"
    return base + _asked({"labelSelector": query.metric_selector})


def _asked(parameters: Mapping[str, str]) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


# --- answers ----------------------------------------------------------------------------------------------------------


def failed(query: Query, error: str) -> MetricAnswer:
    """The API's error as the answer."""
    return structs.replace(query, error=error)


class PodMetricsMetadata(Struct, frozen=True, gc=False):
    """Whose metrics they are; `labels` are as they came, and empty where the API does not give any."""

    name: str
    labels: Raw = Raw()


class ContainerMetrics(Struct, frozen=True, gc=False):
    """What a container uses: quantities, as texts or numbers."""

    name: str
    usage: dict[str, Any] | None = None


class PodMetrics(Struct, frozen=True, gc=False):
    """What is read of one item of a PodMetricsList: half of what is sent need not become objects."""

    metadata: PodMetricsMetadata
    timestamp: str | None = None
    window: str | None = None
    containers: list[ContainerMetrics] | None = None


class PodMetricsList(Struct, frozen=True, gc=False):
    """Metrics of pods as metrics.k8s.io gives them."""

    items: list[PodMetrics] | None = None


def has_labels(found: PodMetricsList) -> bool:
    """Whether PodMetrics carry their pods' labels, so that one list can be split by selectors."""
    return all([len(item.metadata.labels) for item in found.items or ()])


class _Share(Struct, frozen=True, gc=False):
    """What one question gets of a list: the items with these numbers.

    `chosen`: the same as a slice, where the items are in a row, as nearly always, since APIs list pods by name.
    `names`: of the pods, packed; None: they differ in their `containers`. `error`: of the selector.
    """

    numbers: Sequence[int] = ()
    chosen: slice | None = None
    names: PackedNames | None = None
    containers: Sequence[str] = ()
    error: str = ""


class Division(Struct, frozen=True, gc=False):
    """How the metrics of a namespace's pods are divided among questions: the same as long as pods and questions are.

    `of`: hash of the selectors, and of the names, labels and containers of the pods.
    """

    of: int
    shares: list[_Share]


def split_usages(
    asked: Sequence[Query], found: PodMetricsList, known: Division | None = None
) -> tuple[list[MetricAnswer], Division]:
    """Answer several `resource` questions from one list of a namespace, by the labels of its items.

    Args:
        known: how the list before was divided, which is not worked out again where it is still so.
    """
    items = found.items or []
    table = _table(items)
    names, labels = [item.metadata.name for item in items], [item.metadata.labels for item in items]
    containers, count = (table.containers, 1 + table.columns[-1][0]) if table is not None else ([], 0)
    selectors = [query.selector for query in asked]
    texts = "\0".join([*names, "", *containers, "", *selectors])
    of = hash((texts, b"\0".join(labels), count))  # labels are as they came
    if known is None or known.of != of:
        known = Division(of, _shares(selectors, names, labels, containers, count))
    return list(map(_answer, asked, known.shares, repeat(items), repeat(table))), known


_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_Group = tuple[dict[str, str], list[int]]
"""Labels, and the numbers of the items that have them."""


def _shares(
    selectors: Sequence[str], names: Sequence[str], labels: Sequence[Raw], containers: Sequence[str], count: int
) -> list[_Share]:
    """What each question gets. `containers`: of each pod the names, `count` of them; empty: pods are not alike."""
    # The pods of a workload have the same labels, which need be read only once.
    groups: dict[bytes, list[int]] = {}
    for number, each in enumerate(labels):
        groups.setdefault(bytes(each), []).append(number)
    by_labels = [(_LABELS.decode(text) or {}, numbers) for text, numbers in groups.items()]
    bearing: dict[tuple[str, str], list[_Group]] = {}
    for group in by_labels:
        for label in group[0].items():
            bearing.setdefault(label, []).append(group)
    shares = []
    for text in selectors:
        try:
            numbers = _matching(text, by_labels, bearing)
        except SelectorError as error:
            shares.append(_Share(error=str(error)))
            continue
        found = _Share(numbers)
        if numbers and containers and len({containers[number] for number in numbers}) == 1:
            first, end = numbers[0], numbers[-1] + 1
            chosen = slice(first, end) if end - first == len(numbers) else None
            own = containers[first].split(_SEPARATOR)
            packed = pack_names([names[number] for number in numbers]) if len(set(own)) == len(own) == count else None
            found = _Share(numbers if chosen is None else range(first, end), chosen, packed, own)
        shares.append(found)
    return shares


def _matching(
    text: str, groups: Sequence[_Group], bearing: Mapping[tuple[str, str], Sequence[_Group]]
) -> Sequence[int]:
    """The numbers of the items whose labels match, in order. Raises SelectorError: it cannot be read.

    `bearing`: label → the groups that bear it. Where a selector asks for a label, only these are looked at: otherwise
    each of the questions of a large namespace would look at all of its workloads.
    """
    selector = parse_selector(text)
    candidates = min((bearing.get(label, ()) for label in selector.equalities), key=len, default=groups)
    found = [numbers for labels, numbers in candidates if selector.matches(labels)]
    return found[0] if len(found) == 1 else sorted(chain.from_iterable(found))


def _answer(query: Query, share: _Share, items: Sequence[PodMetrics], table: "_Table | None") -> MetricAnswer:
    if share.error:
        return failed(query, share.error)
    if table is None or share.names is None:
        return _answered(query, [items[number] for number in share.numbers])
    return structs.replace(query, packed=table.packed(share, share.names))


class _Table(Struct, frozen=True, gc=False):
    """The pods of a namespace as columns, each pod with as many containers: read in one go for all questions.

    `containers`: of each pod, by name. `columns`: place of the container, resource, and the value of each pod.
    """

    times: list[int]
    windows: list[int]
    containers: list[str]
    columns: list[tuple[int, str, list[int]]]

    def packed(self, share: _Share, names: PackedNames) -> PackedPods:
        """Pack the pods of a share, whose containers have the same names."""
        own, chosen = share.containers, share.chosen
        if chosen is not None:
            columns = [(own[place], name, values[chosen]) for place, name, values in self.columns]
            return pack_values(names, self.times[chosen], self.windows[chosen], columns)
        lists = [self.times, self.windows, *(values for *_, values in self.columns)]
        times, windows, *picked = [[values[number] for number in share.numbers] for values in lists]
        columns = [(own[place], name, values) for (place, name, _), values in zip(self.columns, picked, strict=True)]
        return pack_values(names, times, windows, columns)


def _table(items: Sequence[PodMetrics]) -> _Table | None:
    """Give the table of a list; None: pods have no containers, or differ in their number or their resources."""
    used = _containers_of(items)
    count = len(used[0]) if used else 0
    if not count or [*map(len, used)].count(count) < len(used):
        return None
    columns: list[tuple[int, str, list[Any]]] = []
    names = []
    for place, containers in enumerate(zip(*used, strict=True)):
        amounts = [container.usage or {} for container in containers]
        resources = amounts[0]
        if not resources or [*map(len, amounts)].count(len(resources)) < len(items):
            return None
        try:
            columns += [(place, name, [usage[name] for usage in amounts]) for name in resources]
        except KeyError:
            return None
        names.append([container.name for container in containers])
    containers_of = names[0] if count == 1 else list(map(_SEPARATOR.join, zip(*names, strict=True)))
    amounts_of = [(place, name, json_millis(values)) for place, name, values in columns]
    return _Table(*_moments(items), containers_of, amounts_of)


_SEPARATOR = ","
"""Between the names of a pod's containers, which are DNS labels."""
_NAME = attrgetter("name")


def _containers_of(items: Sequence[PodMetrics]) -> list[Sequence[ContainerMetrics]]:
    """The containers of each pod by name, so that pods of a workload are alike: metrics-server gives them in any order.

    Their sum, and the first one of a name, do not depend on it. Source: kubernetes-sigs/metrics-server,
    pkg/storage/pod.go `GetMetrics`, which goes through a map.
    """
    found: list[Sequence[ContainerMetrics]] = [item.containers or () for item in items]
    return found if max(map(len, found), default=0) < 2 else [sorted(each, key=_NAME) for each in found]


def _moments(items: Sequence[PodMetrics]) -> tuple[list[int], list[int]]:
    """Times (Unix ms) and windows (ms) of pods."""
    stamps = [item.timestamp for item in items]
    known = {stamp: _time_ms(stamp) for stamp in set(stamps)}
    return list(map(known.__getitem__, stamps)), parse_durations_ms([item.window or "0s" for item in items])


def fill(query: Query, body: JsonView) -> MetricAnswer:
    """The answer to one question from the body of a 200.

    Raises ValueError: the body is not what the API promises; KeyError and TypeError likewise.
    """
    items = body.get("items") or ()
    match query.api:
        case "resource":
            return fill_usages(query, msgspec.json.decode(encode(body), type=PodMetricsList))
        case "pods":
            return structs.replace(query, values=[_pod_value(item) for item in items])
        case "object":
            return _object_answer(query, body)
        case _:
            return structs.replace(query, items=[_series(item) for item in items])


def _object_answer(query: Query, body: JsonView) -> MetricAnswer:
    items: list[JsonView] = body.get("items") or []
    if len(items) != 1:
        return failed(
            query, f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
        )
    value = items[0]
    return structs.replace(query, milli=json_milli(value["value"]), time=_time_ms(value.get("timestamp")))


def fill_usages(query: Query, found: PodMetricsList) -> MetricAnswer:
    """The answer to one `resource` question. Raises ValueError: a quantity, time or window cannot be read."""
    return _answered(query, found.items or [])


def _answered(query: Query, items: Sequence[PodMetrics]) -> MetricAnswer:
    """Give the answer packed, without an object per pod, where the pods are alike enough."""
    if not items:
        return query
    used = [[(each.name, each.usage or {}) for each in containers] for containers in _containers_of(items)]
    pods = ([item.metadata.name for item in items], *_moments(items))
    columns = [(container, resource, json_millis(values)) for container, resource, values in columns_of(used)]
    if (found := pack(*pods, columns)) is not None:
        return structs.replace(query, packed=found)
    amounts = [
        [(name, {each: json_milli(value) for each, value in usage.items()}) for name, usage in containers]
        for containers in used
    ]
    usages = list(map(PodUsage, *pods, amounts))
    return structs.replace(query, usages=usages)


def _pod_value(item: JsonView) -> PodValue:
    seconds = item.get("windowSeconds")
    if seconds is None:
        seconds = item.get("window")  # v1beta1 of some adapters
    return PodValue(
        pod=item["describedObject"]["name"],
        milli=json_milli(item["value"]),
        time=_time_ms(item.get("timestamp")),
        window_ms=DEFAULT_WINDOW_MS if seconds is None else window_of_seconds_ms(int(seconds)),
    )


@lru_cache(maxsize=256)  # the metrics of a node have the same time
def _time_ms(timestamp: str | None) -> int:
    """Give the time of a value; 0 if the API gave none, or one before 1970."""
    return max(time_ms(timestamp) or 0, 0)


def _series(item: JsonView) -> tuple[int, int]:
    return json_milli(item["value"]), _time_ms(item.get("timestamp"))

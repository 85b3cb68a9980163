"""Which questions the HPAs of a namespace have for the metrics APIs, and their answers as bodies.

Source: k8s.io/metrics clients and pkg/controller/podautoscaler/metrics/client.go; paths as in recorded requests.

When a namespace's metrics are asked for: on its own phase of the sync period, so that a fleet's load spreads.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct, structs

from reconciler.core.objects import Asking
from schemas.answers import (
    DEFAULT_WINDOW_MS,
    MetricAnswer,
    PodUsage,
    Query,
    check_size,
    in_columns,
    is_root_scoped,
    pod_value,
    query_of,
    window_of_seconds_ms,
)
from schemas.codec import encode
from schemas.kubernetes.decoding import json_milli, json_millis
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.kubernetes.shape import JsonView
from schemas.kubernetes.textcolumns import parse_durations_ms
from schemas.limits import OverLimitError
from schemas.observed import Target
from schemas.partitioning import murmur2

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
    by_identity: dict[Any, Query] = {}
    for hpa in hpas:
        selector = selectors.get(hpa.target, "")
        for kind, query in hpa.metrics:
            if kind in pushed:
                continue
            if query.api in ("resource", "pods"):
                if not selector:
                    continue
                query = structs.replace(query, selector=selector)
            by_identity.setdefault(query_of(query), query)
    return list(by_identity.values())


def resource_path(namespace: str, selector: str = "", version: str = "v1beta1") -> str:
    """Path of metrics.k8s.io; without a selector for the whole namespace."""
    return f"/apis/metrics.k8s.io/{version}/namespaces/{namespace}/pods{_asked({'labelSelector': selector})}"


def custom_path(query: Query, namespace: str, version: str, resource: str = "") -> str:
    """Path of custom.metrics.k8s.io for a `pods` or `object` question.

    `resource`: plural and group of the described object, such as `ingresses.networking.k8s.io`. The core group's
    Namespace is asked for at the root, under the HPA's own namespace, whatever the described object is called.
    """
    base = f"/apis/custom.metrics.k8s.io/{version}/namespaces/{namespace}"
    metric = quote(query.metric, safe="")
    if query.api == "pods":
        selectors = {"labelSelector": query.selector, "metricLabelSelector": query.metric_selector}
        return f"{base}/pods/*/{metric}{_asked(selectors)}"
    selectors = {"metricLabelSelector": query.metric_selector}
    if is_root_scoped(query):
        return f"{base}/metrics/{metric}{_asked(selectors)}"
    return f"{base}/{resource}/{quote(query.object, safe='')}/{metric}{_asked(selectors)}"


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


def within_limits(answer: MetricAnswer) -> MetricAnswer:
    """The answer; one that is larger than an answer may be is an error that says so."""
    try:
        check_size(answer)
    except OverLimitError as error:
        return failed(structs.replace(answer, pods=None, items=[]), str(error))
    return answer


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


def has_labels(answer: PodMetricsList) -> bool:
    """Whether PodMetrics carry their pods' labels, so that one list can be split by selectors."""
    return all([len(item.metadata.labels) for item in answer.items or ()])


def split_usages(asked: Sequence[Query], answer: PodMetricsList, *, saturating: bool = False) -> list[MetricAnswer]:
    """Answer several `resource` questions from one list of a namespace, by the labels of its items.

    `saturating`: the quantities of this API server are those of Kubernetes 1.38 and later, as in `fill`.
    Raises ValueError: a quantity, time or window cannot be read.
    """
    items = answer.items or []
    usages = _usages(items, saturating)
    # The pods of a workload have the same labels, which need be read only once.
    groups: dict[bytes, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(bytes(item.metadata.labels), []).append(number)
    by_labels = [(_LABELS.decode(text) or {}, numbers) for text, numbers in groups.items()]
    bearing: dict[tuple[str, str], list[_Group]] = {}
    for group in by_labels:
        for label in group[0].items():
            bearing.setdefault(label, []).append(group)
    answers = []
    for query in asked:
        try:
            numbers = _matching(query.selector, by_labels, bearing)
        except SelectorError as error:
            answers.append(failed(query, str(error)))
        else:
            answers.append(_of_pods(query, [usages[number] for number in numbers]))
    return answers


_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_Group = tuple[dict[str, str], list[int]]
"""Labels, and the numbers of the items that have them."""


def _matching(
    text: str, groups: Sequence[_Group], bearing: Mapping[tuple[str, str], Sequence[_Group]]
) -> Sequence[int]:
    """The numbers of the items whose labels match, in order. Raises SelectorError: it cannot be read.

    `bearing`: label → the groups that bear it. Where a selector asks for a label, only these are looked at: otherwise
    each of the questions of a large namespace would look at all of its workloads.
    """
    selector = parse_selector(text)
    candidates = min((bearing.get(label, ()) for label in selector.equalities), key=len, default=groups)
    return sorted(chain.from_iterable([numbers for labels, numbers in candidates if selector.matches(labels)]))


def _usages(items: Sequence[PodMetrics], saturating: bool) -> list[PodUsage]:
    """Return what the pods of a list use; all quantities are read in one go."""
    containers_of = [item.containers or () for item in items]
    millis = iter(
        json_millis(
            [value for containers in containers_of for each in containers for value in (each.usage or {}).values()],
            saturating=saturating,
        )
    )
    windows = parse_durations_ms([item.window or "0s" for item in items])
    return [
        PodUsage(
            item.metadata.name,
            _time_ms(item.timestamp),
            window_ms,
            [(each.name, dict(zip(each.usage or {}, millis, strict=False))) for each in containers],
        )
        for item, window_ms, containers in zip(items, windows, containers_of, strict=True)
    ]


def _of_pods(query: Query, usages: Sequence[PodUsage]) -> MetricAnswer:
    """Answer a question about pods. Raises ValueError: it is larger than an answer may be."""
    return structs.replace(query, pods=in_columns(usages))


def fill(query: Query, body: JsonView, *, saturating: bool = False) -> MetricAnswer:
    """The answer to one question from the body of a 200. `saturating`: by an API server of 1.38 or later.

    Raises ValueError: the body is not what the API promises; KeyError and TypeError likewise.
    """
    items = body.get("items") or ()
    match query.api:
        case "resource":
            pod_list = msgspec.json.decode(encode(body), type=PodMetricsList)
            return fill_usages(query, pod_list, saturating=saturating)
        case "pods":
            return _of_pods(query, [_pod_value(item, saturating) for item in items])
        case "object":
            return _object_answer(query, body, saturating)
        case _:
            return structs.replace(query, items=[_series(item, saturating) for item in items])


def _object_answer(query: Query, body: JsonView, saturating: bool) -> MetricAnswer:
    items: list[JsonView] = body.get("items") or []
    if len(items) != 1:
        return failed(
            query, f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
        )
    value = items[0]
    milli = json_milli(value["value"], saturating=saturating)
    return structs.replace(query, milli=milli, time=_time_ms(value.get("timestamp")))


def fill_usages(query: Query, answer: PodMetricsList, *, saturating: bool = False) -> MetricAnswer:
    """The answer to one `resource` question. Raises ValueError: a quantity, time or window cannot be read."""
    return _of_pods(query, _usages(answer.items or [], saturating))


def _pod_value(item: JsonView, saturating: bool) -> PodUsage:
    seconds = item.get("windowSeconds")
    if seconds is None:
        seconds = item.get("window")  # v1beta1 of some adapters
    return pod_value(
        item["describedObject"]["name"],
        json_milli(item["value"], saturating=saturating),
        _time_ms(item.get("timestamp")),
        DEFAULT_WINDOW_MS if seconds is None else window_of_seconds_ms(int(seconds)),
    )


@lru_cache(maxsize=256)  # the metrics of a node have the same time
def _time_ms(timestamp: str | None) -> int:
    """Return the time of a value; 0 if the API gave none, or one before 1970."""
    return max(time_ms(timestamp) or 0, 0)


def _series(item: JsonView, saturating: bool) -> tuple[int, int]:
    return json_milli(item["value"], saturating=saturating), _time_ms(item.get("timestamp"))

"""What upstream's metrics clients make of a metrics API's answer: values per pod, or an error text.

Bodies are the APIs' JSON: PodMetricsList (metrics.k8s.io), MetricValueList (custom.metrics.k8s.io),
ExternalMetricValueList (external.metrics.k8s.io). Source: upstream `metrics/client.go`, v1.37.1.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from schemas.kubernetes.shape import json_milli
from schemas.samples import window_of_seconds_ms
from streams.hpa.compile import parse_group
from streams.hpa.gofloat import wrap64
from streams.hpa.observation import (
    ZERO_TIME_MS,
    ExternalSamples,
    MetricFailure,
    ObjectSample,
    PodSamples,
    pod_samples,
)

MetricsApi = Literal["resource", "custom", "external"]
Json = Mapping[str, Any]

DEFAULT_WINDOW_MS: Final = 60_000
"""Window of a custom metric that names none."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


class ObjectQuery(Struct, frozen=True):
    """Which object an Object metric asks for. `group_kind` as Go prints it, `Ingress.networking.k8s.io`."""

    group_kind: str
    name: str
    root_scoped: bool


def object_query(described_object: Json, namespace: str) -> ObjectQuery:
    """Give the query of an Object metric: a core Namespace is asked for at the root, and always the HPA's own."""
    kind, (group, _) = described_object["kind"], parse_group(described_object.get("apiVersion", ""))
    if kind == "Namespace" and not group:
        return ObjectQuery(kind, namespace, True)
    return ObjectQuery(f"{kind}.{group}" if group else kind, described_object["name"], False)


def fetch_failure(api: MetricsApi, message: str) -> MetricFailure:
    """Give the error of a request that the API answered with an error; `message` is that of the answer's Status."""
    return MetricFailure(f"unable to fetch metrics from {api} metrics API: {message}")


def empty_failure(api: MetricsApi) -> MetricFailure:
    """Give the error of an answer without items."""
    return MetricFailure(f"no metrics returned from {api} metrics API")


def resource_answer(body: Json, resource: str, container: str) -> PodSamples | MetricFailure:
    """Read a PodMetricsList for a resource of one container or, with an empty name, summed over each pod.

    A pod whose item lacks the value (no containers, or one of them without the resource) is absent: its sample is
    missing.

    Raises:
        ValueError: a quantity, time or duration cannot be read.
    """
    items = body.get("items")
    if not items:
        return empty_failure("resource")
    samples: dict[str, tuple[int, int, int]] = {}
    for item in items:
        containers = item.get("containers") or ()
        milli = _container_milli(containers, resource, container) if container else _pod_milli(containers, resource)
        if milli is not None:
            name = item["metadata"]["name"]
            samples[name] = (milli, _time_ms(item), parse_duration_ms(item.get("window") or "0s"))
    return pod_samples(samples)


def pods_answer(body: Json) -> PodSamples | MetricFailure:
    """Read a MetricValueList of a Pods metric; the last item of a pod wins.

    Raises:
        ValueError: a quantity or time cannot be read.
    """
    items = body.get("items")
    if not items:
        return empty_failure("custom")
    samples: dict[str, tuple[int, int, int]] = {}
    for item in items:
        window_s = item.get("windowSeconds")
        window_ms = DEFAULT_WINDOW_MS if window_s is None else window_of_seconds_ms(window_s)
        name = item["describedObject"]["name"]
        samples[name] = (json_milli(item["value"]), _time_ms(item), window_ms)
    return pod_samples(samples)


def object_answer(value: Json) -> ObjectSample:
    """Read one MetricValue.

    Raises:
        ValueError: the quantity or time cannot be read.
    """
    return ObjectSample(json_milli(value["value"]), _time_ms(value))


def object_list_answer(body: Json) -> ObjectSample | MetricFailure:
    """Read the MetricValueList in which the API answers for one object.

    Raises:
        ValueError: the quantity or time cannot be read.
    """
    items = body.get("items") or []
    if len(items) != 1:
        return fetch_failure(
            "custom", f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
        )
    return object_answer(items[0])


def external_answer(body: Json) -> ExternalSamples | MetricFailure:
    """Read an ExternalMetricValueList: the values of all its series.

    Raises:
        ValueError: a quantity or time cannot be read.
    """
    items = body.get("items")
    if not items:
        return empty_failure("external")
    times = [_time_ms(item) for item in items]
    return ExternalSamples(tuple(json_milli(item["value"]) for item in items), min(times), max(times))


def _pod_milli(containers: Any, resource: str) -> int | None:
    if not containers:
        return None
    total = 0
    for each in containers:
        usage = (each.get("usage") or {}).get(resource)
        if usage is None:
            return None
        total += json_milli(usage)
    return wrap64(total)


def _container_milli(containers: Any, resource: str, name: str) -> int | None:
    """Read the first container of that name, also where a later one has the resource and it does not."""
    for each in containers:
        if each["name"] == name:
            usage = (each.get("usage") or {}).get(resource)
            return None if usage is None else json_milli(usage)
    return None


def _time_ms(item: Json) -> int:
    """Give an item's time; one that is null or absent is Go's zero time."""
    text = item.get("timestamp")
    return ZERO_TIME_MS if text is None else parse_time_ms(text)


def parse_time_ms(text: str) -> int:
    """Read an RFC 3339 time as Unix milliseconds; what is finer is cut off.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone; write it as RFC 3339, for instance 2000-01-01T00:00:00Z")
    return int(moment.timestamp() // 1) * 1000 + moment.microsecond // 1000


def parse_duration_ms(text: str) -> int:
    """Read a Go duration (`15s`, `1m30s`) as milliseconds; what is finer is cut off.

    Raises:
        ValueError: the text is no Go duration.
    """
    negative = text.startswith("-")
    rest = text.removeprefix("-") if negative else text.removeprefix("+")
    if rest == "0":
        return 0
    total_ns = position = 0
    for part in _DURATION.finditer(rest):
        if part.start() != position:
            break
        position = part.end()
        whole, _, fraction = part[1].partition(".")
        unit = _UNIT_NS[part[2]]
        total_ns += int(whole or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
    if not rest or position != len(rest):
        raise ValueError(f"duration {text!r} cannot be read; write it as in Go, for instance 30s or 1m30s")
    milli = total_ns // 1_000_000
    return -milli if negative else milli

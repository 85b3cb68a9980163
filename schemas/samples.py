"""Entries of metrics: what the metrics APIs answered, and pushed samples."""

from typing import Literal

from msgspec import Struct

from schemas.kubernetes.quantity import wrap_i64

MetricsApiName = Literal["resource", "pods", "object", "external"]
MetricType = Literal["Resource", "ContainerResource", "Pods", "Object", "External"]


# --- metrics APIs: what they answered ---------------------------------------------------------------------------------


class PodUsage(Struct, frozen=True, gc=False, array_like=True):
    """One PodMetrics item: `[pod, time, windowMs, [[container, {resource: milli}], …]]`, containers in answered
    order.
    """

    pod: str
    time: int
    window_ms: int
    containers: list[tuple[str, dict[str, int]]]


class PodValue(Struct, frozen=True, gc=False, array_like=True):
    """One MetricValue of a pod: `[pod, milli, time, windowMs]`."""

    pod: str
    milli: int
    time: int
    window_ms: int = 60_000


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
    - `object`: `metric`, `metricSelector`, `groupKind` (`Kind.group`, no dot for the core group), `object` → `milli`,
      `time`;
    - `external`: `metric`, `metricSelector` → `items` (`[milli, time]`, in answered order).
    `error`: the API's own message, without the controller's prefixes; then nothing else counts. An empty list is a
    valid answer, not an error.

    An answer that is too large for one record comes in `parts` of one `answerId`, which no other answer has, numbered
    by `part` from 0, each with a share of the items. It replaces the former answer when all parts have come; one that
    lacks a part replaces nothing.
    """

    error: str | None = None
    usages: list[PodUsage] = []
    values: list[PodValue] = []
    milli: int = 0
    time: int = 0
    items: list[tuple[int, int]] = []
    answer_id: str = ""
    part: int = 0
    parts: int = 1


def query_of(answer: MetricAnswer) -> tuple[str, str, str, str, str, str]:
    """What was asked: the identity under which a newer answer replaces this one."""
    return (
        answer.api,
        answer.selector,
        answer.metric,
        answer.metric_selector,
        answer.group_kind,
        answer.object,
    )


class Answers(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="answers"
):
    """Answers of the metrics APIs for one namespace, asked together."""

    items: list[MetricAnswer]
    session: str = ""


# --- pushed samples ---------------------------------------------------------------------------------------------------


class Point(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One pushed sample (OpenTelemetry, Prometheus, our JSON).

    `type` says whose value it is: `Resource`/`ContainerResource`/`Pods` carry `pod`, `Object` carries `objectKind`
    and `object`, `External` carries only `labels`. `temporality` `cumulative` (with `startTime` where known) and
    `delta` pass through ingest as they are; the fold makes rates. `utilization`: the value is a share of the request
    (milli of 1, so 670 is 67 %), as OpenTelemetry's `*_request_utilization`.
    """

    type: MetricType
    metric: str
    milli: int
    time: int
    pod: str = ""
    container: str = ""
    object_kind: str = ""
    object: str = ""
    labels: dict[str, str] = {}
    temporality: Literal["gauge", "delta", "cumulative"] = "gauge"
    start_time: int = 0
    utilization: bool = False


class Samples(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="samples"
):
    """Pushed samples of one namespace."""

    points: list[Point]

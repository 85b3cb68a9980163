"""Collect the inputs of one evaluation from a namespace's state: scale, pods, and an answer per metric."""

from collections.abc import Sequence
from sys import intern
from typing import Any

from msgspec import Struct

from schemas.answers import API_OF, metric_query
from schemas.decisions import UNANSWERED
from schemas.kubernetes.metricspecs import metric_source
from schemas.kubernetes.selectors import matches_label_selector
from streams.hpa.autoscaler import INVALID, Autoscaler
from streams.hpa.observation import (
    SERVED_BY,
    ExternalSamples,
    MetricFailure,
    MetricReading,
    ObjectSample,
    PodSamples,
    PodTemplate,
    Scale,
    ScaleFailure,
    TargetPods,
    compile_answer,
    fetch_failure,
    pod_samples,
)
from streams.state.answers import REMEMBERED_MS
from streams.state.clustersettings import Effective
from streams.state.namespace import Namespace
from streams.state.namespacerows import query_key
from streams.state.rows import AnswerRow, QueryKey, SampleRow, ScaleRow, SeriesKey, WatchRow
from streams.state.timing import held_ms

HEARTBEAT_LIMIT_MS = 30_000
_NO_ANSWER, _NO_REPORT = UNANSWERED
_SILENT = f"{_NO_REPORT}: its last report on this scale is too old to act on"

_TOO_OLD = "its last observation is too old to act on"
_SAYS_WHY = {
    "unreachable": f"the cluster's API server has not answered for more than 30s: {_TOO_OLD}",
    "forbidden": f"the observer has had no right to read this scale for more than 30s: {_TOO_OLD}",
    "failing": f"the observer has failed to read this scale for more than 30s: {_TOO_OLD}",
    "identity": f"the API server has not shown that it is this cluster's for more than 30s: {_TOO_OLD}",
}


class MetricQuery(Struct, frozen=True, gc=False):
    """Where one metric of an HPA comes from: a query to a metrics API, or a pushed series."""

    type: str
    query: QueryKey | None = None
    series: SeriesKey | None = None
    resource: str = ""
    container: str = ""
    selector: dict[str, Any] | None = None
    """Metric selector of a pushed External metric."""

    @property
    def key(self) -> QueryKey | SeriesKey | None:
        """The query or series that the evaluation waits for; None: the metric's spec is invalid, so nothing."""
        return self.query if self.query is not None else self.series


def plan(
    autoscaler: Autoscaler, spec: dict[str, Any], pod_selector: str, sources: dict[str, str]
) -> tuple[MetricQuery, ...]:
    """Say, per metric of the spec, where its answers come from."""
    metrics = zip(autoscaler.metrics, spec.get("metrics") or (), strict=True)
    return tuple(
        MetricQuery(compiled.type)
        if compiled.calculation == INVALID
        else _query(metric, pod_selector, sources.get(compiled.type, "api") == "samples")
        for compiled, metric in metrics
    )


def _query(metric: dict[str, Any], pod_selector: str, pushed: bool) -> MetricQuery:
    kind = intern(metric["type"])
    source = metric_source(metric)
    if kind in ("Resource", "ContainerResource"):
        resource, container = intern(source["name"]), intern(source.get("container", ""))
        if pushed:
            return MetricQuery(kind, series=(kind, resource, container, "", ""), resource=resource, container=container)
        return MetricQuery(kind, query=_asked(metric, pod_selector), resource=resource, container=container)
    name, selector = source["metric"]["name"], source["metric"].get("selector")
    described = source.get("describedObject") or {}
    if pushed:
        series = (kind, name, "", described.get("kind", ""), described.get("name", ""))
        return MetricQuery(kind, series=series, selector=selector)
    return MetricQuery(kind, query=_asked(metric, pod_selector))


def _asked(metric: dict[str, Any], pod_selector: str) -> QueryKey | None:
    query = metric_query(metric, pod_selector)
    return None if query is None else query_key(query)


# --- scale ------------------------------------------------------------------------------------------------------------


def observe_scale(
    namespace: Namespace, autoscaler: Autoscaler, row: ScaleRow | None, now_ms: int
) -> Scale | ScaleFailure:
    """Read the newest observation of the scale; one whose observer is silent for more than 30 s is a failed read."""
    if row is None:
        name = f"{autoscaler.target_kind}/{autoscaler.target_name}"
        return ScaleFailure(f"the scale of {name} has not been observed yet")
    if is_silent(namespace, row, now_ms):
        return ScaleFailure(_why_too_old(namespace.watches.get("scales"), now_ms))
    if row.error is not None:
        return ScaleFailure(row.error, unmapped=row.error.startswith("no matches for kind "))
    return Scale(row.spec_replicas, row.status_replicas, row.selector)


def _why_too_old(watch: WatchRow | None, now_ms: int) -> str:
    """Return the reason for an old scale: a silent observer, or the problem that the observer reported."""
    if watch is None or not watch.problem:
        return _SILENT
    is_known = watch.reason and now_ms - watch.beat_ms <= HEARTBEAT_LIMIT_MS
    return f"{_SAYS_WHY[watch.reason] if is_known else _SILENT} ({watch.problem})"


def is_silent(namespace: Namespace, row: ScaleRow, now_ms: int) -> bool:
    """Return whether it is too long ago that the observation was last known to hold."""
    since_ms = now_ms - HEARTBEAT_LIMIT_MS
    if not row.session or row.seen_ms >= since_ms:
        return False
    watch = namespace.watches.get("scales")
    return watch is None or watch.session != row.session or watch.reported_ms < since_ms


# --- answers ----------------------------------------------------------------------------------------------------------


def observe_metric(
    namespace: Namespace, query: MetricQuery, pods: TargetPods, settings: Effective, now_ms: int
) -> tuple[MetricReading | None, str]:
    """Return the answer for a metric and the source position."""
    if query.query is not None:
        return _of_api(namespace, query, namespace.answers.get(query.query), settings, now_ms)
    if query.series is not None:
        limit_ms = min(settings.sample_age_limit_ms, REMEMBERED_MS)
        return _pushed(namespace, query, pods, now_ms - limit_ms, limit_ms)
    return None, ""


def _of_api(
    namespace: Namespace, query: MetricQuery, row: AnswerRow | None, settings: Effective, now_ms: int
) -> tuple[MetricReading, str]:
    limit_ms = held_ms(settings.sync_period_ms)
    if row is None or now_ms - row.time_ms > limit_ms:
        served_by = SERVED_BY[API_OF[query.type]]
        return fetch_failure(served_by, f"{_NO_ANSWER} ({limit_ms // 1000}s)"), ""
    rules = settings.controller.rules
    return compile_answer(row.answer, query.resource, query.container, namespace.name, rules), row.source


def asked_of_sources(namespace: Namespace, queries: Sequence[MetricQuery]) -> tuple[str, ...]:
    """Return what a polled source was asked for each metric, empty for one of a metrics API; nothing, if none was."""
    rows = [namespace.answers.get(each.query) if each.query else None for each in queries]
    texts = [row.answer.asked if row is not None and b'"asked":' in row.json else "" for row in rows]
    return tuple(texts) if any(texts) else ()


# --- pushed samples ---------------------------------------------------------------------------------------------------


def _pushed(
    namespace: Namespace, query: MetricQuery, pods: TargetPods, oldest_ms: int, limit_ms: int
) -> tuple[MetricReading, str]:
    series = namespace.samples(query.series or ("", "", "", "", ""))
    if query.type == "External":
        # Upstream asks the metrics API with the selector's text, which is empty without one: every series.
        selector = query.selector or {}
        names = [name for name in sorted(series) if matches_label_selector(selector, _labels(name))]
    elif query.type == "Object":
        names = [name for name in sorted(series)]
    else:
        names = [pod.name for pod in pods.rows if pod.name in series]
    fresh = [
        (name, series[name]) for name in names if series[name].time_ms >= oldest_ms and series[name].milli is not None
    ]
    if not fresh:
        return MetricFailure(f"no sample pushed within the last {limit_ms // 1000}s"), ""
    source = max(fresh, key=lambda item: (item[1].time_ms, item[0]))[1].source
    if query.type == "Object":
        newest = fresh[-1][1]
        return ObjectSample(newest.milli or 0, newest.time_ms), source
    if query.type == "External":
        times = [row.time_ms for _, row in fresh]
        return ExternalSamples(tuple(row.milli or 0 for _, row in fresh), min(times), max(times)), source
    return _pushed_pods(dict(fresh), query, pods), source


def _pushed_pods(fresh: dict[str, SampleRow], query: MetricQuery, pods: TargetPods) -> PodSamples:
    samples: dict[str, tuple[int, int, int]] = {}
    for pod in pods.rows:
        row = fresh.get(pod.name)
        milli = None if row is None else _usage(row, pod.template, query)
        if row is not None and milli is not None:
            samples[pod.name] = (milli, row.time_ms, row.window_ms)
    return pod_samples(samples)


def _usage(row: SampleRow, template: PodTemplate, query: MetricQuery) -> int | None:
    """Return a sample's usage; a share of the request needs the request, so without one the pod has no sample."""
    if not row.utilization or row.milli is None:
        return row.milli
    request = template.request(query.resource, query.container)
    return None if isinstance(request, str) else row.milli * request // 1000


def _labels(name: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in name.split(",") if "=" in pair)

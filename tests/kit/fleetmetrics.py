"""Where the fleet's metrics come from: the resource metrics API, the custom metrics API, or a Prometheus.

The load is the same each time. With the last two, all HPAs of a namespace use one Pods metric.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal
from urllib.parse import parse_qs

MetricsFrom = Literal["resource", "custom", "prometheus"]
METRIC: Final = "load"
"""The Pods metric, and the series of which a Prometheus makes it."""
RULES: Final = f"""
rules:
- seriesQuery: '{METRIC}{{namespace!="",pod!=""}}'
  resources: {{template: "<<.Resource>>"}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""
_NAMESPACE = re.compile('namespace="([^"]*)"')
CUSTOM_GROUP: Final = b'{"versions":[{"version":"v1beta2"}],"preferredVersion":{"version":"v1beta2"}}'


def hpa_metric(source: MetricsFrom, request_milli: int, target_percent: int) -> str:
    """The metric of an HPA's spec; a target of so many percent of the request each time."""
    if source == "resource":
        target = f'{{"type":"Utilization","averageUtilization":{target_percent}}}'
        return f'{{"type":"Resource","resource":{{"name":"cpu","target":{target}}}}}'
    value = f'{{"type":"AverageValue","averageValue":"{request_milli * target_percent // 100}m"}}'
    return f'{{"type":"Pods","pods":{{"metric":{{"name":"{METRIC}"}},"target":{value}}}}}'


def custom_values(namespace: str, loads: Mapping[str, float], stamp: str) -> bytes:
    """The answer of the custom metrics API about pods: `loads` in milli, by pod."""
    items = ",".join(
        f'{{"describedObject":{{"kind":"Pod","namespace":"{namespace}","name":"{pod}","apiVersion":"/v1"}},'
        f'"metric":{{"name":"{METRIC}","selector":null}},"timestamp":"{stamp}","value":"{round(milli)}m"}}'
        for pod, milli in loads.items()
    )
    head = b'{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","metadata":{},"items":['
    return head + items.encode() + b"]}"


def queried_namespace(body: bytes) -> str:
    """The namespace that an instant query is about. Raises ValueError: it names none."""
    found = _NAMESPACE.search(parse_qs(body.decode())["query"][0])
    if found is None:
        raise ValueError(f"no namespace in {body[:200]!r}")
    return found[1]


def vector(loads: Mapping[str, float], time_ms: int) -> bytes:
    """The answer of a Prometheus: an instant vector with a series per pod, of `loads` in milli."""
    items = ",".join(
        f'{{"metric":{{"pod":"{pod}"}},"value":[{time_ms / 1000:.3f},"{milli / 1000:.6f}"]}}'
        for pod, milli in loads.items()
    )
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{items}]}}}}'.encode()


def prometheus_file(port: int, clusters: int, rules: str) -> Iterator[str]:
    """Lines of the file of `--prometheus`: each cluster's metrics behind its own address."""
    yield "clusters:"
    for number in range(clusters):
        yield f"  c{number}:"
        yield f"    url: http://127.0.0.1:{port}/c{number}/prom"
        yield f"    rules: {rules}"
        yield "    sources: {Pods: prometheus}"
        yield "    queriesPerSecond: 1000"

"""The reference page of metrics, made from the registries.

`python -m tests.metricsreference > docs/reference/metrics.md` renews the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from fleethpa.processes.scheduler import SchedulerMetrics
from reconciler.agents.router.copies import RouterMetrics
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.observer.clusterview import ObserverMetrics
from streams.decider.metrics import FAMILIES, HPA, Metrics
from streams.ingest.appendtimes import AppendTimes
from streams.ingest.logwriter import IngestMetrics

MetricRow = tuple[str, str, tuple[str, ...], str]
"""Name, type, labels, meaning."""

HEAD = """# Metrics

Made from the metrics by `python -m tests.metricsreference`; a test keeps it current.

Every long-running part serves `/metrics`, `/healthz` and `/readyz` on its `--web-port`. Times are in seconds, sizes in
bytes. Metrics of an HPA carry `cluster`, `namespace` and `hpa`; only the worker that owns its log partition has them.
`fleethpa_hpa_…` is read from the state when Prometheus asks: a deleted HPA has no series from then on. In shadow, an
HPA's status is that of its cluster. An agent has the metrics of an observer and of a reconciler.
"""


def _ingest() -> CollectorRegistry:
    registry = IngestMetrics().registry
    AppendTimes(registry)
    return registry


def page() -> str:
    """Give the page."""
    sections = {
        "Decider: HPAs": [_family(name) for name in FAMILIES],
        "Decider: decisions, log and state": list(_rows(_decider())),
        "Ingest": list(_rows(_registered(_ingest()))),
        "Observer": list(_rows(_made(ObserverMetrics))),
        "Reconciler": list(_rows(_made(ReconcilerMetrics))),
        "Router": list(_rows(_made(RouterMetrics))),
        "Scheduler": list(_rows(_made(SchedulerMetrics))),
    }
    return HEAD + "".join(_section(title, rows) for title, rows in sections.items())


def _family(name: str) -> MetricRow:
    text, labels = FAMILIES[name]
    return f"fleethpa_hpa_{name}", "gauge", (*HPA, *labels), text


def _decider() -> Iterator[MetricWrapperBase]:
    metrics = Metrics()
    yield from _attributes(metrics.results)
    yield from _attributes(metrics)


def _made(metrics: Callable[[CollectorRegistry], object]) -> Iterator[MetricWrapperBase]:
    registry = CollectorRegistry()
    metrics(registry)
    return _registered(registry)


def _registered(registry: CollectorRegistry) -> Iterator[MetricWrapperBase]:
    """The metrics of a registry, whatever attributes of their holder keep them by."""
    return (each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase))


def _attributes(holder: object) -> Iterator[MetricWrapperBase]:
    return (value for value in vars(holder).values() if isinstance(value, MetricWrapperBase))


def _rows(metrics: Iterable[MetricWrapperBase]) -> Iterator[MetricRow]:
    for metric in metrics:
        family = next(iter(metric.describe()))
        name = family.name + ("_total" if family.type == "counter" else "")
        yield name, family.type, tuple(metric._labelnames), family.documentation


def _section(title: str, rows: list[MetricRow]) -> str:
    lines = [f"\n## {title}\n", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, text in sorted(rows):
        named = ", ".join(f"`{label}`" for label in labels) or "-"
        lines.append(f"| `{name}` | {kind} | {named} | {text.rstrip('.')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

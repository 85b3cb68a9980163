"""What ingest counts, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.ingest.pieces import Conversion


class IngestMetrics:
    """Counters and gauges of one worker, all named `fleethpa_ingest_…`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._records = Counter(
            "fleethpa_ingest_records",
            "Records read, by what became of them: ok, partial, rejected or unmatched.",
            ["topic", "format", "result", "reason"],
            registry=self.registry,
        )
        self._points = Counter(
            "fleethpa_ingest_points", "Pushed samples taken.", ["topic", "format"], registry=self.registry
        )
        self._left_out = Counter(
            "fleethpa_ingest_points_left_out",
            "Pushed samples that matched no rule or had no value.",
            ["topic", "format"],
            registry=self.registry,
        )
        self.log_records = Counter("fleethpa_ingest_log_records", "Records appended.", registry=self.registry)
        self.log_entries = Counter("fleethpa_ingest_log_entries", "Entries appended.", registry=self.registry)
        self.log_bytes = Counter("fleethpa_ingest_log_bytes", "Bytes appended.", registry=self.registry)
        self.forced = Counter(
            "fleethpa_ingest_merges_forced",
            "Times that records went on without waiting for a partition that is behind.",
            registry=self.registry,
        )
        self.held = Gauge("fleethpa_ingest_held_records", "Records that wait for their turn.", registry=self.registry)
        self.lag = Gauge(
            "fleethpa_ingest_lag_records",
            "Records of a partition not yet in the log.",
            ["topic", "partition"],
            registry=self.registry,
        )
        self.delay = Histogram(
            "fleethpa_ingest_delay_seconds",
            "From a record's Kafka timestamp until the log has it.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
            registry=self.registry,
        )

    def count(self, topic: str, found: Conversion) -> None:
        """Count one converted record."""
        self._records.labels(topic, found.format, found.result, found.code).inc()
        if found.points:
            self._points.labels(topic, found.format).inc(found.points)
        if found.left_out:
            self._left_out.labels(topic, found.format).inc(found.left_out.total())

"""What is counted as a plain number is in its counter whenever metrics are read."""

from prometheus_client import CollectorRegistry, Counter

from runtime.process import FrequentCounters


def test_counters_contain_what_was_counted_before_they_are_read() -> None:
    registry = CollectorRegistry()
    frequent = FrequentCounters(registry)
    counter = Counter("writes_total", "Writes", ["result"], registry=registry)
    more = frequent.of(counter.labels("ok"))
    for expected in (2, 4):
        more.count += 2
        assert registry.get_sample_value("writes_total", {"result": "ok"}) == expected
    frequent.of(counter.labels("ok")).count += 1
    counter.labels("ok").inc()
    assert registry.get_sample_value("writes_total", {"result": "ok"}) == 6

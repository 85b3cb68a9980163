"""Ingest compares the time at which brokers append with its own clock."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from streams.ingest.appendtimes import MOST_OFF_MS, AppendTimes

NOW_MS = 1_767_225_600_000


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def times(registry: CollectorRegistry) -> AppendTimes:
    return AppendTimes(registry, lambda: NOW_MS)


@pytest.mark.parametrize(
    ("off_ms", "words"),
    [(7_200_000, "7200 s ahead of"), (-7_200_000, "7200 s behind"), (MOST_OFF_MS, ""), (-MOST_OFF_MS, ""), (0, "")],
)
def test_a_broker_whose_clock_is_off_is_named(
    times: AppendTimes, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture, off_ms: int, words: str
) -> None:
    with caplog.at_level(logging.ERROR, "fleethpa.ingest"):
        times.appended(3, NOW_MS + off_ms)
        times.appended(3, NOW_MS + off_ms)
    assert registry.get_sample_value("fleethpa_ingest_append_time_offset_seconds", {"partition": "3"}) == off_ms / 1000
    assert [words in note and "log partition 3" in note for note in times.notes()] == [True] * bool(words)
    assert len(caplog.records) == bool(words), "once, not with each record"


def test_it_ends_when_the_clock_is_right_again(times: AppendTimes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fleethpa.ingest"):
        for off_ms in (MOST_OFF_MS + 1, 0, MOST_OFF_MS + 1):
            times.appended(0, NOW_MS + off_ms)
            assert bool(times.notes()) == bool(off_ms)
    assert [each.levelname for each in caplog.records] == ["ERROR", "INFO", "ERROR"]

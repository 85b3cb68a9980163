"""Traces as loads: what a file may hold, how it is scaled, what is refused."""

from __future__ import annotations

import pytest

from tests.experiments.policies import PEAK_PODS, Played, play, played_load, row, trace_files
from tests.kit.loads import PointsLoad, Trace, TraceLoad, parse_trace, read_trace
from tests.kit.simulated_hpa import REQUEST_MILLI, spec


def test_a_number_a_line_is_a_value_a_second() -> None:
    assert parse_trace("3\n4.5\n\n6\n", "t") == Trace((0.0, 1.0, 2.0), (3.0, 4.5, 6.0))


def test_a_csv_begins_at_its_first_timestamp() -> None:
    text = "timestamp,value\n2014-04-10 00:04:00,94.0\n2014-04-10 00:09:00,56\n2014-04-10T00:19:00Z,1\n"
    assert parse_trace(text, "t") == Trace((0.0, 300.0, 900.0), (94.0, 56.0, 1.0))


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("", "at least two values"),
        ("timestamp,value\n", "at least two values"),
        ("7", "at least two values"),
        ("1\nx\n", "line 2: not a number"),
        ("1\nnan\n", "line 2: a load is a finite number"),
        ("1\n-1\n", "line 2: a load is a finite number"),
        ("timestamp,value\nyesterday,1\n", "line 2: no timestamp"),
        ("timestamp,value\n2014-04-10 00:04:00\n", "line 2: no value"),
        ("timestamp,value\n2014-04-10 00:04:00,1\n2014-04-10 00:04:00,2\n", "line 3: timestamps must rise"),
    ],
)
def test_what_is_not_a_trace_is_refused_with_its_line(text: str, stated: str) -> None:
    with pytest.raises(ValueError, match=stated):
        parse_trace(text, "t")


def test_a_trace_is_scaled_in_size_and_time_and_begins_again() -> None:
    load = TraceLoad(Trace((0.0, 10.0, 20.0), (1.0, 2.0, 3.0)), scale=10.0, speed=2.0)

    assert load.length_s == 15
    assert [load.at(second) for second in (0, 4.9, 5, 10, 14.9, 15, 20)] == [10, 10, 20, 30, 30, 10, 20]


def test_every_trace_of_the_repository_can_be_played() -> None:
    files = trace_files()
    assert len(files) >= 6
    for path in files:
        load = played_load(path)
        highest = max(read_trace(path).values) * load.scale
        assert highest * 5.0 / REQUEST_MILLI == pytest.approx(PEAK_PODS)
        assert 3_600 <= load.length_s <= 86_400


def test_a_lower_target_costs_more_and_lacks_less() -> None:
    load = played_load(next(path for path in trace_files() if "bursty" in path.name))
    cheap, dear = (play(load, spec(target, 1, 100), 1_200) for target in (90, 45))

    assert dear.replica_hours > cheap.replica_hours
    assert dear.under_share <= cheap.under_share
    assert row(Played("bursty", "cpu 90 %", cheap)).count("|") == 12


def test_a_load_between_points_is_a_straight_line_and_flat_before_them() -> None:
    load = PointsLoad(((5, 2), (10, 4)))
    assert [load.at(second) for second in (0, 7.5, 20)] == [2, 3, 4]

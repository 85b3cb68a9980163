"""Specs that change with the time: which rule holds when."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.lab.simulator.model import SineLoad
from schemas.windows import Weekdays, Window, parse_window
from streams.analysis.candidate import Candidate, Scheduled, TimedRule, candidate
from streams.analysis.closedloop import ClosedLoop
from streams.state.inputs import EvaluationInputs
from tests.kit.simulated_hpa import HPA, live, spec

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


@cache
def recorded() -> list[EvaluationInputs]:
    return live(SineLoad(400.0, 300.0, 1_200), candidate(HPA, spec(50)), 3_600, lambda _: None, step_s=5)


@pytest.mark.parametrize(
    ("text", "local", "holds"),
    [
        pytest.param("Mon-Fri 07:00-20:00", "2026-01-05T07:00", True, id="the first minute"),
        pytest.param("Mon-Fri 07:00-20:00", "2026-01-09T19:59:59", True, id="the last minute"),
        pytest.param("Mon-Fri 07:00-20:00", "2026-01-09T20:00", False, id="the end is not in it"),
        pytest.param("Mon-Fri 07:00-20:00", "2026-01-10T10:00", False, id="another day"),
        pytest.param("Sat,Sun 00:00-24:00", "2026-01-11T23:59", True, id="all day"),
        pytest.param("Fri-Mon 10:00-11:00", "2026-01-11T10:00", True, id="days over the week's end"),
        pytest.param("daily 22:00-06:00", "2026-01-08T23:00", True, id="over midnight, before"),
        pytest.param("daily 22:00-06:00", "2026-01-08T05:00", True, id="over midnight, after"),
        pytest.param("Fri 22:00-06:00", "2026-01-10T05:00", True, id="the night of Friday ends on Saturday"),
        pytest.param("Fri 22:00-06:00", "2026-01-09T05:00", False, id="the morning of Friday is Thursday's night"),
        pytest.param("monthly 1,15 08:00-18:00", "2026-02-15T08:00", True, id="a day of the month"),
        pytest.param("monthly 1,15 08:00-18:00", "2026-02-14T08:00", False, id="another day of the month"),
        pytest.param("monthly 10-12 08:00-18:00", "2026-02-12T08:00", True, id="days of the month from to"),
        pytest.param("monthly last 08:00-18:00", "2026-02-28T08:00", True, id="the last day of February"),
        pytest.param("monthly last 08:00-18:00", "2028-02-28T08:00", False, id="which is the 29th in a leap year"),
        pytest.param("monthly last 22:00-06:00", "2026-03-01T05:59", True, id="the last night ends in the next month"),
        pytest.param("monthly 31,last 00:00-24:00", "2026-04-30T08:00", True, id="a day or the last one"),
        pytest.param("monthly 31 00:00-24:00", "2026-04-30T08:00", False, id="a month without the day is passed over"),
        pytest.param("2026-12-24..2026-12-26 00:00-24:00", "2026-12-24T00:00", True, id="the first date"),
        pytest.param("2026-12-24..2026-12-26 00:00-24:00", "2026-12-26T23:59", True, id="the last date is in it"),
        pytest.param("2026-12-24..2026-12-26 00:00-24:00", "2026-12-27T00:00", False, id="and the day after is not"),
        pytest.param("2026-12-24..2026-12-26 00:00-24:00", "2027-12-25T08:00", False, id="another year"),
        pytest.param("2026-12-24..2026-12-26 08:00-18:00", "2026-12-25T07:59", False, id="the times are of each date"),
        pytest.param("2026-12-24,2026-12-31 00:00-24:00", "2026-12-31T08:00", True, id="single dates"),
        pytest.param("2026-12-31 22:00-06:00", "2027-01-01T05:00", True, id="the night of a date ends in the new year"),
        pytest.param("12-24 00:00-24:00", "2031-12-24T08:00", True, id="a date of every year"),
        pytest.param("12-24..01-02 00:00-24:00", "2027-01-02T08:00", True, id="over the end of every year"),
        pytest.param("12-24..01-02 00:00-24:00", "2027-01-03T08:00", False, id="and not after it"),
        pytest.param("02-29 00:00-24:00", "2028-02-29T08:00", True, id="the 29th of February"),
    ],
)
def test_which_minutes_belong_to_it(text: str, local: str, holds: bool) -> None:
    assert parse_window(text).holds(datetime.fromisoformat(local)) is holds


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Mon-Fri", "has no times"),
        ("12-24..12-26", "has no times"),
        ("Mo 07:00-08:00", "'Mo' is not a day"),
        ("Mon 7:00-08:00", "'7:00' is not a time of day"),
        ("Mon 07:00-24:01", "'24:01' is not a time of day"),
        ("Mon 07:00-07:00", "is empty"),
        ("Mon Tue 07:00-08:00", "'Mon Tue' is not one word of days"),
        ("monthly 07:00-08:00", "'monthly' is not one word of days"),
        ("monthly 0 07:00-08:00", "'0' is not a day of the month"),
        ("monthly 32 07:00-08:00", "'32' is not a day of the month"),
        ("monthly first 07:00-08:00", "'first' is not a day of the month"),
        ("monthly 28-3 07:00-08:00", "write 28-31,1-3"),
        ("1,15 07:00-08:00", "'monthly 24' for every month"),
        ("2026-02-30 07:00-08:00", "'2026-02-30' is not a date: day"),
        ("13-01 07:00-08:00", "'13-01' is not a date: month"),
        ("0000-01-01 07:00-08:00", "'0000-01-01' is not a date: year"),
        ("2026-12-26..2026-12-24 07:00-08:00", "ends before it begins"),
        ("2026-12-24..12-26 07:00-08:00", "has a year at one end only"),
        ("12-24..12-26..12-28 07:00-08:00", "is not a span of dates"),
        ("2026-12-24-2026-12-26 07:00-08:00", "is not a date"),
        ("2026-12-24,Mon 07:00-08:00", "'Mon' is not a date"),
        ("Mon,12-24 07:00-08:00", "'12' is not a day"),
    ],
)
def test_what_is_not_a_time_of_a_rule(text: str, stated: str) -> None:
    with pytest.raises(ValueError, match=stated):
        parse_window(text)


DATES = st.dates(date(2025, 1, 1), date(2029, 1, 1))


def local_time(day: date, minute: int) -> datetime:
    return datetime.fromisoformat(day.isoformat()) + timedelta(minutes=minute)


@given(DATES, st.integers(0, 1439), st.integers(0, 1439), st.integers(1, 1440))
def test_a_time_and_the_rest_of_the_week_share_no_minute(day: date, minute: int, begin: int, end: int) -> None:
    days = frozenset({0, 2, 5})
    if begin == end:
        return
    own, rest = Window(Weekdays(days), begin, end), Window(Weekdays(frozenset(range(7)) - days), begin, end)
    assert not (own.holds(local_time(day, minute)) and rest.holds(local_time(day, minute)))


@given(DATES, st.integers(0, 9), st.integers(-2 * 1440, 12 * 1440))
def test_a_span_holds_where_one_of_its_dates_does(first: date, more: int, minute: int) -> None:
    dates = [str(first + timedelta(days=step)) for step in range(more + 1)]
    span, each = (parse_window(f"{days} 22:00-06:00") for days in (f"{first}..{dates[-1]}", ",".join(dates)))
    assert span.holds(local_time(first, minute)) is each.holds(local_time(first, minute))


def at(text: str, zone: ZoneInfo) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def rule(text: str, least: int) -> TimedRule:
    return TimedRule(parse_window(text), candidate(HPA, spec(50, least)))


def least(tried: Candidate) -> int:
    return tried.autoscaler.min_replicas


def test_the_last_rule_that_holds_wins_and_the_base_holds_else() -> None:
    made = Scheduled(candidate(HPA, spec(50)), [rule("daily 07:00-20:00", 6), rule("Mon 08:00-09:00", 9)], UTC)

    assert least(made.at(at("2026-01-05T08:30", UTC))) == 9  # a Monday
    assert least(made.at(at("2026-01-06T08:30", UTC))) == 6
    assert least(made.at(at("2026-01-06T20:00", UTC))) == 2


def test_times_are_those_of_the_zone_in_summer_and_winter() -> None:
    made = Scheduled(candidate(HPA, spec(50)), [rule("daily 07:00-20:00", 6)], BERLIN)

    for day in ("2026-01-05", "2026-07-06"):
        assert least(made.at(at(f"{day}T06:59", BERLIN))) == 2
        assert least(made.at(at(f"{day}T07:00", BERLIN))) == 6


def test_dates_are_those_of_the_zone() -> None:
    made = Scheduled(candidate(HPA, spec(50)), [rule("2026-12-24 00:00-24:00", 6)], BERLIN)

    assert least(made.at(at("2026-12-23T22:59", UTC))) == 2
    assert least(made.at(at("2026-12-23T23:00", UTC))) == 6
    assert least(made.at(at("2026-12-24T23:00", UTC))) == 2


def test_a_schedule_without_rules_is_its_base_in_the_closed_loop() -> None:
    base = candidate(HPA, spec(80))
    assert ClosedLoop(Scheduled(base, [], UTC), 30_000).run(recorded()) == ClosedLoop(base, 30_000).run(recorded())


def test_a_rule_raises_the_replicas_while_it_holds() -> None:
    made = Scheduled(candidate(HPA, spec(80)), [rule("daily 00:20-00:40", 15)], UTC)
    moments = ClosedLoop(made, 30_000).run(recorded())  # the recording begins at midnight

    held = [each.replicas for each in moments if 1_230 <= each.time_ms // 1000 % 86_400 < 2_400]
    assert min(held) == 15
    assert min(each.replicas for each in moments[-20:]) < 15

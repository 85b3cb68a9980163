"""Specs that change with the time: which rule holds when."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.lab.simulator.model import SineLoad
from schemas.weekly import Weekly, parse_weekly
from streams.analysis.candidate import Candidate, Scheduled, TimedRule, candidate
from streams.analysis.closedloop import ClosedLoop
from streams.state.inputs import EvaluationInputs
from tests.bench.simulated_hpa import HPA, live, spec

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


@cache
def recorded() -> list[EvaluationInputs]:
    return live(SineLoad(400.0, 300.0, 1_200), candidate(HPA, spec(50)), 3_600, lambda _: None, step_s=5)


@pytest.mark.parametrize(
    ("text", "day", "minute", "holds"),
    [
        pytest.param("Mon-Fri 07:00-20:00", 0, 420, True, id="the first minute"),
        pytest.param("Mon-Fri 07:00-20:00", 4, 1199, True, id="the last minute"),
        pytest.param("Mon-Fri 07:00-20:00", 4, 1200, False, id="the end is not in it"),
        pytest.param("Mon-Fri 07:00-20:00", 5, 600, False, id="another day"),
        pytest.param("Sat,Sun 00:00-24:00", 6, 1439, True, id="all day"),
        pytest.param("Fri-Mon 10:00-11:00", 6, 600, True, id="days over the week's end"),
        pytest.param("daily 22:00-06:00", 3, 1380, True, id="over midnight, before"),
        pytest.param("daily 22:00-06:00", 3, 300, True, id="over midnight, after"),
        pytest.param("Fri 22:00-06:00", 5, 300, True, id="the night of Friday ends on Saturday"),
        pytest.param("Fri 22:00-06:00", 4, 300, False, id="the morning of Friday is Thursday's night"),
    ],
)
def test_which_minutes_belong_to_it(text: str, day: int, minute: int, holds: bool) -> None:
    assert parse_weekly(text).holds(day, minute) is holds


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Mon-Fri", "has no times"),
        ("Mo 07:00-08:00", "'Mo' is not a day"),
        ("Mon 7:00-08:00", "'7:00' is not a time of day"),
        ("Mon 07:00-24:01", "'24:01' is not a time of day"),
        ("Mon 07:00-07:00", "is empty"),
    ],
)
def test_what_is_not_a_time_of_the_week(text: str, stated: str) -> None:
    with pytest.raises(ValueError, match=stated):
        parse_weekly(text)


@given(st.integers(0, 6), st.integers(0, 1439), st.integers(0, 1439), st.integers(1, 1440))
def test_a_time_and_the_rest_of_the_week_share_no_minute(day: int, minute: int, begin: int, end: int) -> None:
    days = frozenset({0, 2, 5})
    if begin == end:
        return
    own, rest = Weekly(days, begin, end), Weekly(frozenset(range(7)) - days, begin, end)
    assert not (own.holds(day, minute) and rest.holds(day, minute))


def at(text: str, zone: ZoneInfo) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def rule(text: str, least: int) -> TimedRule:
    return TimedRule(parse_weekly(text), candidate(HPA, spec(50, least)))


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


def test_a_schedule_without_rules_is_its_base_in_the_closed_loop() -> None:
    base = candidate(HPA, spec(80))
    assert ClosedLoop(Scheduled(base, [], UTC), 30_000).run(recorded()) == ClosedLoop(base, 30_000).run(recorded())


def test_a_rule_raises_the_replicas_while_it_holds() -> None:
    made = Scheduled(candidate(HPA, spec(80)), [rule("daily 00:20-00:40", 15)], UTC)
    moments = ClosedLoop(made, 30_000).run(recorded())  # the recording begins at midnight

    held = [each.replicas for each in moments if 1_230 <= each.time_ms // 1000 % 86_400 < 2_400]
    assert min(held) == 15
    assert min(each.replicas for each in moments[-20:]) < 15

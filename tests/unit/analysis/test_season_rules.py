"""A forecast as rules of a schedule: never below it, few, and worth in the backtest what applying them gives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.changes.schedules import SEASONS, forecast_rules, made, parse_rule, spec_at, spec_under, with_schedule
from fleethpa.simulator.model import SineLoad
from schemas.codec import Weekly, parse_weekly
from streams.analysis.candidate import MOST_RULES, Forecast, Scheduled, TimedRule, candidate, season_rules
from streams.analysis.closedloop import ClosedLoop
from streams.state.inputs import EvaluationInputs
from tests.bench.simulated_hpa import HPA, START_MS, live, spec
from tests.laws import examples

BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000
MONDAY_MS = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp() * 1000)
WEEKDAYS = st.frozensets(st.integers(0, 6), min_size=1)


@given(WEEKDAYS, st.integers(0, 1439), st.integers(1, 1440))
def test_times_of_the_week_are_read_as_they_are_written(days: frozenset[int], begin: int, end: int) -> None:
    if begin != end:
        times = Weekly(days, begin, end)
        assert parse_weekly(times.text) == times


@settings(max_examples=examples(6), deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=24, max_size=24),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
    st.sampled_from([1, 7]),
)
def test_rules_are_never_below_the_forecast(hours: list[int], name: str, days: Literal[1, 7]) -> None:
    """A forecast that changes every hour, and from day to day where a week is the season."""
    zone = ZoneInfo(name)

    def floor(now_ms: int) -> int:
        hour = now_ms // 3_600_000
        return hours[(hour + (hour // 24 if days == 7 else 0)) % 24]

    rules = season_rules(floor, 3, MONDAY_MS, days, zone)
    for minute in range(0, days * 1440, 29):
        now_ms = MONDAY_MS + minute * 60_000
        local = datetime.fromtimestamp(now_ms // 1000, zone)
        held = [n for times, n in rules if times.holds(local.weekday(), local.hour * 60 + local.minute)]
        assert len(held) <= 1
        assert max([3, *held]) >= floor(now_ms)


def test_equal_slots_and_equal_days_are_one_rule() -> None:
    def floor(now_ms: int) -> int:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        return 8 if now.weekday() < 5 and 7 <= now.hour < 20 else 2

    rules = season_rules(floor, 2, MONDAY_MS + 5 * 3_600_000, 7, ZoneInfo("UTC"))
    assert [(times.text, replicas) for times, replicas in rules] == [("Mon-Fri 07:00-20:00", 8)]
    assert season_rules(lambda _: 2, 2, MONDAY_MS, 7, ZoneInfo("UTC")) == []


def test_a_restless_forecast_gets_longer_slots() -> None:
    rules = season_rules(lambda now_ms: now_ms // 1_800_000 % 97 + 3, 2, MONDAY_MS, 7, ZoneInfo("UTC"))
    assert 0 < len(rules) <= MOST_RULES


class Applied:
    """The spec that the scheduler has published by then, for each recorded evaluation."""

    def __init__(self, held: dict[str, Any], rules: tuple[str, ...], zone: str) -> None:
        base = candidate(HPA, held["spec"])
        self.held, self.schedule = held, made(held, rules, zone)
        self.hpa, self.autoscaler, self.asked, self.targets = base.hpa, base.autoscaler, base.asked, base.targets

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        self.held = with_schedule(self.held, self.schedule, spec_at(self.held, self.schedule, inputs.now_ms))
        return candidate(HPA, self.held["spec"]).on(inputs)


@pytest.fixture(scope="module")
def day() -> list[EvaluationInputs]:
    """A day of a load that comes and goes every six hours, of which every 16th evaluation is kept, to be short."""
    found = live(SineLoad(400.0, 350.0, 21_600), candidate(HPA, spec(50)), 86_400, lambda _: None, step_s=15)
    return found[::16]


def test_the_backtest_of_emitted_rules_is_what_applying_the_schedule_gives(day: list[EvaluationInputs]) -> None:
    body: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec(80),
    }
    base = candidate(HPA, body["spec"])
    forecast = Forecast(base, day, DAY_MS, 60_000)
    rules = tuple(forecast_rules(forecast, START_MS + DAY_MS, DAY_MS, BERLIN))
    assert 2 <= len(rules) <= MOST_RULES
    assert SEASONS[DAY_MS] == 1

    parsed = [parse_rule(text, "--schedule") for text in rules]
    tried = Scheduled(
        base, [TimedRule(r.times, candidate(HPA, spec_under(body, r, "--schedule"))) for r in parsed], BERLIN
    )
    applied = Applied(body, rules, BERLIN.key)

    moments = ClosedLoop(tried, 30_000).run(day)
    assert moments == ClosedLoop(cast("Any", applied), 30_000).run(day)  # in the place of a candidate
    assert moments != ClosedLoop(base, 30_000).run(day)  # and the rules do something

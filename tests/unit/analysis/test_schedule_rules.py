"""Rules of a schedule are worth in the backtest what applying them gives."""

from __future__ import annotations

from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from fleethpa.changes.schedules import made, parse_rule, spec_at, spec_under, with_schedule
from fleethpa.lab.simulator.model import SineLoad
from streams.analysis.candidate import Scheduled, TimedRule, candidate
from streams.analysis.closedloop import ClosedLoop
from streams.state.inputs import EvaluationInputs
from tests.kit.simulated_hpa import HPA, live, spec

BERLIN = ZoneInfo("Europe/Berlin")


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


RULES = (
    "daily 06:00-09:30 minReplicas=9",
    "Mon-Fri 18:00-22:00 minReplicas=12",
    "monthly 1-31 11:00-12:00 minReplicas=10",
    "01-01..12-31 14:00-15:00 minReplicas=11",
)


def test_the_backtest_of_rules_is_what_applying_the_schedule_gives(day: list[EvaluationInputs]) -> None:
    body: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec(80),
    }
    base = candidate(HPA, body["spec"])
    parsed = [parse_rule(text, "--schedule") for text in RULES]
    tried = Scheduled(
        base, [TimedRule(r.times, candidate(HPA, spec_under(body, r, "--schedule"))) for r in parsed], BERLIN
    )
    applied = Applied(body, RULES, BERLIN.key)

    moments = ClosedLoop(tried, 30_000).run(day)
    assert moments == ClosedLoop(cast("Any", applied), 30_000).run(day)  # in the place of a candidate
    assert moments != ClosedLoop(base, 30_000).run(day)  # and the rules do something

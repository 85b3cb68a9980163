"""Reports begin with their answer in one sentence, and `tune` shows a choice where nothing is free."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleethpa.cli.tune import MOST_CHOICES, Tuned, frontier, unproven
from fleethpa.cli.tune import in_a_sentence as in_a_line
from fleethpa.questions.backtestreport import Reported, in_a_sentence
from schemas.keys import HpaId
from streams.analysis.measures import Measures
from streams.analysis.tuning.recording import CurvePoint, Tuning


def measures(hours: float, above: float = 0.0, at_max: float = 0.0, worst: float = 0.9) -> Measures:
    return Measures(
        replica_hours=hours,
        above_target_minutes=above,
        worst_overload=worst,
        at_max_minutes=at_max,
        scale_events=0,
        direction_flips=0,
        unknown_minutes=0.0,
        hours=1.0,
    )


def reported(
    was: Measures, own: Measures, change: str = "maxReplicas 12→20", deployed: Measures | None = None, edits: int = 0
) -> Reported:
    return Reported(cast(Any, SimpleNamespace(recorded=was, candidate=own, deployed=deployed, edits=edits)), [change])


@pytest.mark.parametrize(
    ("one", "price", "stated"),
    [
        pytest.param(
            reported(measures(3.4, 13.75, at_max=10, worst=1.4), measures(5.3, 13.75)),
            None,
            "maxReplicas 12→20 would have cost 1.90 replica-hours more (+55.9 %); time above target stays 13m45s; "
            "demand beyond maxReplicas is not known.",
            id="more, and what cannot be known",
        ),
        pytest.param(
            reported(measures(100.0), measures(60.0, 8.0), "minReplicas 12→2"),
            Decimal("0.04"),
            "minReplicas 12→2 would have cost 40.00 replica-hours less (-40.0 %; 1.60 at 0.04/h); time above target "
            "goes from 0s to 8m.",
            id="less, in money",
        ),
        pytest.param(
            reported(measures(2.0), measures(2.0), "tolerance 0.1→0.2"),
            Decimal("0.04"),
            "tolerance 0.1→0.2 would have cost the same replica-hours; time above target stays 0s.",
            id="nothing",
        ),
        pytest.param(
            reported(measures(0.45), measures(0.495), deployed=measures(0.495)),
            None,
            "maxReplicas 12→20 would have cost 0.04 replica-hours more (+10.0 %); time above target stays 0s; the "
            "model gives the deployed spec +10.0 %, too: +0.00 replica-hours are due to the change.",
            id="what the model gives without any change",
        ),
        pytest.param(
            reported(measures(10.0, 30.0), measures(12.0), "minReplicas 2→4", edits=2),
            None,
            "minReplicas 2→4 would have cost 2.00 replica-hours more (+20.0 %); time above target goes from 30m to 0s; "
            "the deployed spec was edited 2 times meanwhile: part of this is due to that.",
            id="a deployed spec that was edited",
        ),
        pytest.param(
            reported(measures(100.0), measures(60.0), "minReplicas 12→2", deployed=measures(100.9)),
            None,
            "minReplicas 12→2 would have cost 40.00 replica-hours less (-40.0 %); time above target stays 0s.",
            id="a model that is near enough",
        ),
    ],
)
def test_a_backtest_is_one_sentence(one: Reported, price: Decimal | None, stated: str) -> None:
    assert in_a_sentence([one], price) == stated


def point(hours: float, overload: float) -> CurvePoint:
    return CurvePoint(target=60, min_replicas=2, window_seconds=300, replica_hours=hours, overload_share=overload)


@pytest.mark.parametrize(
    ("curve", "hours"),
    [
        pytest.param([(90, 0.01), (80, 0.02)], [80, 90], id="each saves more and costs more"),
        pytest.param([(90, 0.01), (85, 0.01)], [85], id="one that saves less at the same overload is none"),
        pytest.param([(100, 0.0), (110, 0.0)], [], id="what saves nothing is none"),
        pytest.param([(50 + n, (50 - n) / 100) for n in range(40)], [50, 60, 70, 79, 89], id="of many, five"),
    ],
)
def test_the_frontier_is_what_saves_most_for_its_cost(curve: list[tuple[float, float]], hours: list[float]) -> None:
    tuning = SimpleNamespace(curve=[point(*each) for each in curve], deployed_point=point(100, 0.0))
    found = frontier(cast(Tuning, tuning))
    assert [each.replica_hours for each in found] == hours
    assert len(found) <= MOST_CHOICES


def test_a_spec_that_saves_with_no_more_overload_is_not_among_the_specs_that_cost_something() -> None:
    curve = [point(80, 0.05), point(85, 0.02), point(90, 0.01), point(99.5, 0.001)]
    tuning = cast(Tuning, SimpleNamespace(changed=False, curve=curve, deployed_point=point(100, 0.02)))
    assert frontier(tuning) == [curve[0]]
    (stated,) = unproven(tuning)
    assert stated.startswith("2 specs would have saved up to 15% with no more overload there: they are not proposed")
    tuning = cast(Tuning, SimpleNamespace(changed=False, curve=curve[1:], deployed_point=point(100, 0.02)))
    assert in_a_line([Tuned(HpaId("c", "n", "a"), {}, tuning)]).startswith("No change is certain to be free; ")

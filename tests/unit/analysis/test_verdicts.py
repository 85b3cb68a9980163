"""Reports begin with their answer in one sentence."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleethpa.questions.backtestreport import Reported, in_a_sentence
from fleethpa.tuning.specsearch import Tuning
from fleethpa.tuning.tune import Tuned
from fleethpa.tuning.tune import in_a_sentence as in_a_line
from schemas.keys import HpaId
from streams.analysis.ideal import ideal
from streams.analysis.measures import Measures, Moment, Scores, scores


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
            "maxReplicas 12→20 would have cost 1.90 replica-hours more (+55.9%); time above target stays 13m45s; "
            "demand beyond maxReplicas is not known.",
            id="more, and what cannot be known",
        ),
        pytest.param(
            reported(measures(100.0), measures(60.0, 8.0), "minReplicas 12→2"),
            Decimal("0.04"),
            "minReplicas 12→2 would have cost 40.00 replica-hours less (-40.0%; 1.60 at 0.04/h); time above target "
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
            "maxReplicas 12→20 would have cost 0.04 replica-hours more (+10.0%); time above target stays 0s; the "
            "model gives the deployed spec +10.0%, too: +0.00 replica-hours are due to the change.",
            id="what the model gives without any change",
        ),
        pytest.param(
            reported(measures(10.0, 30.0), measures(12.0), "minReplicas 2→4", edits=2),
            None,
            "minReplicas 2→4 would have cost 2.00 replica-hours more (+20.0%); time above target goes from 30m to 0s; "
            "the deployed spec was edited 2 times meanwhile: part of this is due to that.",
            id="a deployed spec that was edited",
        ),
        pytest.param(
            reported(measures(100.0), measures(60.0), "minReplicas 12→2", deployed=measures(100.9)),
            None,
            "minReplicas 12→2 would have cost 40.00 replica-hours less (-40.0%); time above target stays 0s.",
            id="a model that is near enough",
        ),
    ],
)
def test_a_backtest_is_one_sentence(one: Reported, price: Decimal | None, stated: str) -> None:
    assert in_a_sentence([one], price) == stated


def ran(replicas: int, need: float = 2.0) -> Scores:
    """An hour of as many replicas."""
    moments = [Moment(minute * 60_000, replicas, replicas, need, False) for minute in range(60)]
    return scores(moments, 60_000, ideal(each.need for each in moments))


def tuned(replicas: int, saved: float | None) -> Tuned:
    found = SimpleNamespace(recorded=ran(replicas), proposed=None if saved is None else object(), saved=saved or 0.0)
    return Tuned(HpaId("c", "n", "a"), {}, cast(Tuning, found))


@pytest.mark.parametrize(
    ("found", "price", "stated"),
    [
        pytest.param(
            [tuned(5, 2.0)],
            Decimal("0.04"),
            "While the load was known, "
            "5.00 replica-hours ran where an ideal autoscaler runs 2.00; a better spec saves 2.00 of them (0.08 at "
            "0.04/h).",
            id="one",
        ),
        pytest.param(
            [tuned(5, 2.0), tuned(3, None), tuned(2, 0.5)],
            None,
            "While the load was known, "
            "10.00 replica-hours ran where an ideal autoscaler runs 6.00; 2 better specs for 3 HPAs save 2.50 of them.",
            id="several",
        ),
        pytest.param(
            [tuned(2, -1.0)],
            None,
            "While the load was known, "
            "2.00 replica-hours ran where an ideal autoscaler runs 2.00; a better spec costs 1.00 more.",
            id="safety",
        ),
        pytest.param(
            [tuned(3, None)],
            None,
            "While the load was known, 3.00 replica-hours ran where an ideal autoscaler runs 2.00; no spec is better.",
            id="none",
        ),
        pytest.param(
            [Tuned(HpaId("c", "n", "a"), {}, None, "too short")], None, "It cannot be tuned: too short.", id="refused"
        ),
    ],
)
def test_a_tuning_is_one_sentence(found: list[Tuned], price: Decimal | None, stated: str) -> None:
    assert in_a_line(found, price) == stated

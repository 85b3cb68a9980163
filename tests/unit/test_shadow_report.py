"""The shadow report: agreement with the native controller, and every difference in its class."""

from __future__ import annotations

from typing import Any

import pytest

from fleethpa.simulator.loadcurve import SineLoad, StepLoad
from schemas.keys import HpaId
from streams.analysis.shadowreport import ShadowReport, shadow_report
from streams.history.evaluationinputs import events
from streams.history.nativetraces import NativeTraces
from streams.state.partition import Partition
from tests.partition_kit import LogBuilder
from tests.shadow_kit import ShadowWorld

WEB = HpaId("eu", "shop", "web")


def report(log: LogBuilder) -> ShadowReport:
    traces = NativeTraces(lambda _: True)
    found = shadow_report(WEB, list(events(Partition.empty(0), list(log.records), lambda _: True, traces)))
    assert found is not None
    return found


def test_beside_the_same_algorithm_it_agrees_and_is_ready() -> None:
    made = report(ShadowWorld(SineLoad(400, 250, 900)).run(52))
    assert made.decisions >= 200
    assert made.rescales == made.rescales_agreed >= 10
    assert made.agreement > 0.8
    # It samples at another moment than the native controller evaluates: nothing else sets them apart.
    assert set(made.counts.values()) == {0, made.counts["timing"]}
    assert made.ready, made.reasons
    assert all(each.why for each in made.differences)


@pytest.mark.parametrize(
    ("world", "kind"),
    [
        pytest.param({"native_sees": lambda milli: milli * 13 // 10}, "metric", id="it read other values"),
        pytest.param({"native_spec": {"maxReplicas": 6}}, "limit", id="it was held by a limit"),
        pytest.param(
            {
                "native_spec": {
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 45}},
                        }
                    ]
                }
            },
            "semantics",
            id="it follows another rule",
        ),
    ],
)
def test_each_difference_has_its_class(world: dict[str, Any], kind: str) -> None:
    made = report(ShadowWorld(**world).run(25))
    assert made.counts[kind] > 0, made.counts
    assert kind == "semantics" or not made.counts["semantics"], made.counts
    assert not made.ready
    assert made.reasons


def test_a_native_controller_that_was_late_is_a_matter_of_timing() -> None:
    """However late it was: its next status shows the values that fleethpa saw, so it had not synced since then."""
    world = ShadowWorld(StepLoad(200, 400, 600), native_away=range(598, 690), noise=0.0)
    made = report(world.run(14))
    late = [each for each in made.differences if "had not synced" in each.why]
    assert len(late) >= 3
    assert made.counts["semantics"] == 0, made.differences


def test_a_native_controller_that_saw_the_same_and_did_nothing_is_not_excused() -> None:
    """Its status has the values of fleethpa's sample all the time: it was not late, it decided otherwise."""
    world = ShadowWorld(StepLoad(200, 400, 600), native_spec={"behavior": {"scaleUp": {"tolerance": "5"}}}, noise=0.0)
    assert report(world.run(14)).counts["semantics"] > 0


def test_little_evidence_is_not_enough() -> None:
    made = report(ShadowWorld().run(5))
    assert not made.ready
    assert "decisions were compared" in made.reasons[0]


def test_another_hand_is_not_a_difference() -> None:
    world = ShadowWorld()
    world.hand = {603: 12}
    made = report(world.run(15))
    assert made.counts["semantics"] == made.counts["metric"] == 0


def test_an_enforced_hpa_has_no_report() -> None:
    assert shadow_report(WEB, []) is None

"""The shadow report: agreement with the native controller, and every difference in its class."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from fleethpa.lab.simulator.model import SineLoad, StepLoad
from schemas.keys import HpaId
from streams.analysis.answer import answer
from streams.analysis.retracing import by_moved_windows
from streams.analysis.shadowreport import DAY_MS, ShadowReport, _minutes, shadow_report
from streams.history.evaluations import Evaluated, NativeSync, NativeTraces, events
from streams.hpa.evaluation import EMPTY_HISTORY, History
from streams.partition import Partition
from streams.state.inputs import EvaluationInputs
from tests.kit.partition import LogBuilder
from tests.kit.shadow import ShadowWorld

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
    made = report(ShadowWorld(**world).run(12))
    assert made.counts[kind] > 0, made.counts
    assert kind == "semantics" or not made.counts["semantics"], made.counts
    assert not made.ready
    assert made.reasons


@pytest.mark.parametrize(
    "window_s",
    [pytest.param(300, id="the same window", marks=pytest.mark.slow), pytest.param(290, id="another window")],
)
def test_what_only_moved_windows_explain_is_timing_and_proves_nothing(window_s: int) -> None:
    """A window that is shorter by less than a sync period looks the same as one of another moment."""
    up = [{"type": "Percent", "value": 100, "periodSeconds": 15}, {"type": "Pods", "value": 4, "periodSeconds": 15}]
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": up},
        "scaleDown": {"stabilizationWindowSeconds": window_s, "selectPolicy": "Max", "policies": up[:1]},
    }
    made = report(ShadowWorld(SineLoad(400, 300, 1500), native_spec={"behavior": behavior}, noise=0.0).run(45))
    moved = [each for each in made.differences if "windows as of one sync period" in each.why]
    assert {each.kind for each in moved} == {"timing"}
    assert 0 < made.rescales_agreed == made.rescales - len(moved)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param({"downscale_stabilization_ms": 60_000}, "downscale-stabilization=60s", id="a shorter window"),
        pytest.param({"downscale_stabilization_ms": 600_000}, "downscale-stabilization=600s", id="a longer window"),
        pytest.param({"tolerance": 0.3}, "tolerance=0.3", id="a wider tolerance"),
        pytest.param({"tolerance": 0.05}, "tolerance=0.05", id="a narrower tolerance"),
    ],
)
def test_another_setting_of_the_native_controller_is_named(settings: dict[str, Any], named: str) -> None:
    made = report(ShadowWorld(SineLoad(500, 350, 700), native_settings=settings).run(45))
    assert made.setting == named, (made.setting, made.counts, made.reasons)
    assert made.counts["settings"] >= 3
    assert not made.counts["semantics"], made.counts
    assert made.counts["settings"] > 4 * made.counts["limit"]
    assert not made.ready
    assert f"fleethpa settings eu {named}" in made.reasons[0]


def test_no_setting_is_named_for_a_controller_that_was_started_again() -> None:
    world = ShadowWorld(SineLoad(500, 350, 700))
    world.restarts = {1_500}
    made = report(world.run(50))
    assert not made.setting
    assert not made.counts["settings"]


@pytest.mark.parametrize("joins_at", [640, 700, 760])
def test_what_a_recommendation_from_before_the_first_evaluation_holds_is_left_out(joins_at: int) -> None:
    """The native controller remembers a peak that fleethpa has not seen."""
    made = report(ShadowWorld(StepLoad(1_200, 200, 600), joins_at=joins_at).run(25))
    assert made.left_out
    assert made.skipped >= made.left_out
    assert made.counts["semantics"] == made.counts["limit"] == made.counts["settings"] == 0, made.differences


def test_the_percentage_of_the_verdict_follows_from_numbers_beside_it() -> None:
    made = report(ShadowWorld(native_spec={"maxReplicas": 6}).run(13))  # 93.88 %: rounded, it would be another
    why = next(each for each in made.reasons if each.startswith("agreement is"))
    found = re.fullmatch(r"agreement is ([\d.]+)%, below 99%: ([\d,]+) of ([\d,]+) decisions differ .*", why)
    assert found is not None, why
    others, of = (int(each.replace(",", "")) for each in found.groups()[1:])
    assert of == made.decisions
    assert float(found[1]) == (of - others) * 1_000 // of / 10


def test_two_native_statuses_of_one_moment_are_both_read() -> None:
    """A reflector that lists anew, or an API server that was away, may bring two in one record of the log."""
    log = ShadowWorld().run(12)
    traces = NativeTraces(lambda _: True)
    seen = list(events(Partition.empty(0), list(log.records), lambda _: True, traces))
    twice = [again for each in seen for again in ([each, each] if isinstance(each, NativeSync) else [each])]
    once, made = shadow_report(WEB, seen), shadow_report(WEB, twice)
    assert once is not None
    assert made is not None
    assert made.differences == once.differences
    assert made.decisions > once.decisions > 0


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


def test_an_hpa_that_was_never_scaled_is_not_called_ready_without_saying_so() -> None:
    made = report(ShadowWorld(StepLoad(240, 240, 60)).run(25))
    assert (made.rescales, made.ready) == (0, True), made.reasons
    assert made.not_seen[0].startswith("a rescale under the present spec that fleethpa gives too")
    assert made.not_seen[1] == "a whole day: the comparison covers 25 minutes of the present spec"


def test_a_spec_that_was_changed_is_compared_anew() -> None:
    """What agreed under the spec before says nothing about this one."""
    world = ShadowWorld(SineLoad(400, 250, 900))
    world.changes_spec_at = 50 * 60
    made = report(world.run(55))
    assert made.decisions > 180
    assert not made.ready
    assert re.search(
        r"only \d+ decisions were compared under the present spec \(\d+ in all\), 40 are needed", made.reasons[0]
    )
    assert re.search(r"about \d minutes more", made.reasons[0])
    assert made.not_seen[-1] == "a whole day: the comparison covers 5 minutes of the present spec"


def test_replicas_that_something_else_writes_are_no_evidence() -> None:
    world = ShadowWorld(native_away=range(700, 3000))
    world.hand = {second: 6 + second % 2 for second in range(700, 3000, 15)}
    made = report(world.run(50))
    assert made.skipped > made.decisions
    assert not made.ready
    assert any("something else wrote the replicas" in each for each in made.reasons), made.reasons


def test_what_is_missing_says_how_long_it_will_take() -> None:
    made = report(ShadowWorld().run(5))
    lacking = 40 - made.decisions
    assert f"about {-(-lacking // 4)} minutes more" in made.reasons[0]


@pytest.mark.parametrize(
    ("reported", "agreed"),
    [
        pytest.param("v1.32.4", 1, id="the version of the cluster is known"),
        pytest.param("", 0, id="it is not known, so that 1.37 decides"),
    ],
)
def test_it_compares_by_the_rules_of_the_clusters_version(reported: str, agreed: int) -> None:
    """At exactly 10 % above the target 1.32 scales up, and 1.33 does not."""
    world = ShadowWorld(StepLoad(200, 256, 300), noise=0.0, minor=32, reported=reported)
    made = report(world.run(10))

    assert (made.rescales, made.rescales_agreed) == (1, agreed)
    assert bool(made.differences) is not bool(agreed)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        pytest.param(60_001, "2 minutes", id="begun minutes"),
        pytest.param(119 * 60_000, "119 minutes", id="below two hours"),
        pytest.param(DAY_MS - 59_100, "23 hours", id="a minute less than a day is not a day"),
    ],
)
def test_times_are_not_rounded_up_to_what_was_not_seen(time_ms: int, text: str) -> None:
    assert _minutes(time_ms) == text


@cache
def _scaling_down() -> EvaluationInputs:
    """An evaluation that scales down, once nothing in its window holds it."""
    log = ShadowWorld(StepLoad(1_200, 200, 600)).run(30)
    for event in events(Partition.empty(0), list(log.records), lambda _: True, NativeTraces(lambda _: True)):
        if isinstance(event, Evaluated):
            free = structs.replace(event.inputs, history=History(()))
            if (made := answer(free)).final < made.current:
                return free
    raise AssertionError("nothing was scaled down")


@pytest.mark.parametrize(
    ("age_ms", "found"),
    [
        pytest.param(305_000, "earlier", id="it has just left fleethpa's window"),
        pytest.param(330_000, "", id="it left both windows long ago"),
    ],
)
def test_a_recommendation_that_has_left_the_window_of_one_of_the_two_is_a_matter_of_timing(
    age_ms: int, found: str
) -> None:
    free = _scaling_down()
    current = answer(free).current
    inputs = structs.replace(free, history=EMPTY_HISTORY.with_recommendations([(current, free.now_ms - age_ms)]))
    assert answer(inputs).final < current
    explained = by_moved_windows(inputs, current)
    assert (bool(explained), found in explained) == (bool(found), True)

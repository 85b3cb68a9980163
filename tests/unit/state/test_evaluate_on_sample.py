"""`evaluateOn: sample`: a pushed sample that moves a metric brings an evaluation before the next sync period."""

from typing import Any

import pytest

from schemas.entries import Outcome
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.pushed import ON, SECOND, Pushed

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("changes", "milli", "wants"),
    [
        pytest.param(ON, 100, 4, id="twice the target is scaled at once"),
        pytest.param(ON, 54, None, id="within the tolerance it waits for its period"),
        pytest.param(ON, 25, 1, id="below the target, too"),
        pytest.param({}, 100, None, id="not unless settings ask for it"),
        pytest.param({"evaluate_on": "period"}, 100, None, id="not with the default written out"),
    ],
)
def test_a_sample_brings_an_evaluation_if_it_moves_the_metric(changes: Json, milli: int, wants: int | None) -> None:
    downscale = {} if wants != 1 else {"downscale_stabilization_ms": 0}
    pushed = Pushed(**changes, **downscale).settled()
    made = pushed.push(milli, 2 * SECOND)
    assert [decision.get("wants") for decision in made] == ([] if wants is None else [wants])


def test_a_metric_that_stays_where_it_moved_brings_one_evaluation() -> None:
    pushed = Pushed(**ON).settled()
    pushed.log.add(Command(command="pause", name="web"))
    assert len(pushed.push(100, 2 * SECOND)) == 1
    assert [pushed.push(100 + step, SECOND) for step in range(5)] == [[], [], [], [], []]
    assert len(pushed.push(120, SECOND)) == 1


@pytest.mark.parametrize(
    ("floor", "passed_ms"),
    [pytest.param({}, 1_000, id="1 s"), pytest.param({"evaluate_floor_ms": 3_000}, 3_000, id="3 s")],
)
def test_it_comes_no_sooner_after_the_one_before_than_the_floor(floor: Json, passed_ms: int) -> None:
    pushed = Pushed(**ON, **floor).settled()
    pushed.log.add(Command(command="pause", name="web"))
    assert len(pushed.push(100, 4 * SECOND)) == 1
    assert pushed.push(200, 400) == []
    after_ms, _ = pushed.until_decided()
    assert 400 + after_ms == passed_ms


def test_a_metric_that_moves_back_within_the_floor_brings_none() -> None:
    pushed = Pushed(**ON).settled()
    pushed.log.add(Command(command="pause", name="web"))
    assert len(pushed.push(100, 2 * SECOND)) == 1
    assert pushed.push(200, 300) == pushed.push(100, 300) == []
    after_ms, _ = pushed.until_decided()
    assert after_ms > 5 * SECOND


def test_samples_of_other_pods_bring_none() -> None:
    pushed = Pushed("api", "web", **ON).settled()
    made = pushed.push(100, 2 * SECOND, "api")
    assert [decision["name"] for decision in made] == ["api"]


def test_what_moves_during_a_write_is_evaluated_when_it_has_ended() -> None:
    pushed = Pushed(**ON).settled()
    [first] = pushed.push(100, 2 * SECOND)
    assert pushed.push(200, 2 * SECOND) == []
    done = Outcome(decision=first["id"], name="web", uid=first["uid"], result="applied", spec_replicas=first["wants"])
    ended, again = pushed.log.add(done, after_ms=100)
    assert (ended["kind"], again["wants"]) == ("completion", 8)


def test_the_evaluations_of_the_periods_stay_where_they_are() -> None:
    pushed = Pushed(**ON).settled()
    pushed.log.add(Command(command="pause", name="web"))
    due_ms = pushed.log.partition.state.hpas[next(iter(pushed.log.partition.state.hpas))].row.next_due_ms
    [early] = pushed.push(100, 2 * SECOND)
    _, regular = pushed.until_decided()
    assert due_ms <= parse_time_ms(regular["time"]) < due_ms + SECOND
    assert parse_time_ms(early["time"]) < due_ms


def test_a_setting_that_is_taken_away_ends_what_was_planned() -> None:
    pushed = Pushed(**ON).settled()
    pushed.log.add(Command(command="pause", name="web"))
    pushed.push(100, 2 * SECOND)
    assert pushed.push(200, 300) == []
    pushed.log.add(SettingsSet(cluster="*", settings=ClusterSettings(), unset=["evaluateOn"]))
    after_ms, _ = pushed.until_decided()
    assert after_ms > 5 * SECOND

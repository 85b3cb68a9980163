"""Who moved the replicas: attribution in the log, and fights."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fleethpa.fleet.views import HpaView
from schemas.answers import Answers
from schemas.entries import Outcome
from schemas.keys import HpaId
from schemas.observed import AutoscalerSet, Mode, PodSet
from schemas.settings import SettingsSet
from streams.decider.metrics import Metrics
from streams.partition import Partition
from streams.state.fights import FIGHT_WINDOW_MS, fight_now, fights
from streams.state.moves import ANOTHER, Move
from tests.kit.partition import ENFORCING, LogBuilder, cpu_answer, make_hpa, make_pod, scale

WEB = HpaId("eu", "shop", "web")
US, THEM, NATIVE = "fleethpa", "kubectl-scale", "native HPA"


def moves(*steps: tuple[int, int, str], every_ms: int = 15_000) -> list[Move]:
    return [Move(number * every_ms, *step) for number, step in enumerate(steps)]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param([], [], id="nobody moved"),
        pytest.param(moves((2, 4, US), (4, 6, US), (6, 3, US)), [], id="one writer changes its mind"),
        pytest.param(moves((2, 4, US), (4, 2, THEM)), [], id="one correction is no fight"),
        pytest.param(moves((2, 4, US), (4, 6, THEM), (6, 8, US)), [], id="two writers of one mind"),
        pytest.param(moves((2, 4, US), (4, 2, THEM), (2, 4, US)), [], id="one act of another hand, which is answered"),
        pytest.param(
            moves((2, 4, US), (4, 2, THEM), (2, 4, US), (4, 2, THEM)),
            [(("fleethpa", THEM), 3)],
            id="undone again and again",
        ),
        pytest.param(
            moves((2, 4, NATIVE), (4, 2, THEM), (2, 4, NATIVE), (4, 2, THEM)), [((THEM, NATIVE), 3)], id="not only ours"
        ),
        pytest.param(
            moves((2, 4, US), (4, 2, THEM), (2, 4, US), every_ms=FIGHT_WINDOW_MS + 1), [], id="too far apart to be one"
        ),
        pytest.param(
            moves((2, 4, US), (4, 2, THEM), (2, 4, NATIVE), (4, 2, THEM), (2, 3, NATIVE)),
            [((THEM, NATIVE), 3)],
            id="a third writer begins another",
        ),
        pytest.param(
            moves((2, 4, US), (4, 2, THEM), (2, 4, US), (4, 2, THEM), (2, 1, THEM)),
            [(("fleethpa", THEM), 3)],
            id="and then peace",
        ),
    ],
)
def test_fights(known: list[Move], expected: list[tuple[tuple[str, str], int]]) -> None:
    assert [(fight.writers, fight.turns) for fight in fights(known)] == expected


def test_a_fight_is_over_after_a_while() -> None:
    known = moves((2, 4, US), (4, 2, THEM), (2, 4, US), (4, 2, THEM))
    fight = fight_now(known, 50_000)
    assert fight is not None
    assert (fight.lowest, fight.highest) == (2, 4)
    assert fight_now(known, 45_000 + FIGHT_WINDOW_MS + 1) is None


def _fight() -> LogBuilder:
    """fleethpa scales to 4, somebody scales back to 2, three times."""
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(2)], scale("web", 2))
    for _ in range(3):
        made = _answer(log)
        wanted = next(decision for decision in made if decision.get("wants"))
        log.add(Outcome(decision=wanted["id"], name="web", uid="uid-web", result="applied", spec_replicas=4))
        _answer(log)
        log.add(scale("web", 2, manager="kubectl-scale", manager_time=log.now_ms), after_ms=1_000)
    return log


def test_the_log_attributes_every_change_and_a_row_keeps_the_fight() -> None:
    log = _fight()
    row = log.partition.state.hpas[WEB].row
    writers = [move[3] for move in row.moves]
    assert writers[:4] == ["fleethpa", "kubectl-scale", "fleethpa", "kubectl-scale"]
    fight = fight_now(row.moves, log.now_ms)
    assert fight is not None
    assert fight.writers == ("fleethpa", "kubectl-scale")
    rows = dict(log.partition.checkpoint())
    again = Partition.restore(0, rows)
    assert again.state.hpas[WEB].row.moves == tuple(tuple(move) for move in row.moves)
    changes = [msgspec.json.decode(d.value).get("observed", {}).get("change") for d in log.decisions]
    assert [change["by"] for change in changes if change][:2] == ["decision", "other"]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(4, [(2, 4, US)], id="what was written is seen: one move"),
        pytest.param(3, [(2, 4, US), (4, 3, THEM)], id="taken back in part before it was seen"),
        pytest.param(2, [(2, 4, US), (4, 2, THEM)], id="taken back whole before it was seen"),
        pytest.param(6, [(2, 4, US), (4, 6, THEM)], id="somebody went further"),
    ],
)
def test_a_write_that_was_applied_is_a_move_whatever_the_next_evaluation_sees(
    seen: int, expected: list[tuple[int, int, str]]
) -> None:
    log = _written()
    log.add(scale("web", seen, manager=THEM, manager_time=log.now_ms), after_ms=1_000)
    _answer(log)
    assert [move[1:] for move in log.partition.state.hpas[WEB].row.moves] == expected


def test_a_scale_that_is_set_back_within_each_period_is_a_fight() -> None:
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(2)], scale("web", 2))
    for _ in range(3):
        wanted = next(decision for decision in _answer(log) if decision.get("wants"))
        log.add(Outcome(decision=wanted["id"], name="web", uid="uid-web", result="applied", spec_replicas=4))
        # Each evaluation sees what the one before saw: only the outcomes tell of fleethpa's own moves.
        log.add(scale("web", 2, manager=THEM, manager_time=log.now_ms), after_ms=1_000)
    assert all("change" not in msgspec.json.decode(each.value).get("observed", {}) for each in log.decisions)
    fight = fight_now(log.partition.state.hpas[WEB].row.moves, log.now_ms)
    assert fight is not None
    assert (fight.writers, fight.lowest, fight.highest) == (("fleethpa", THEM), 2, 4)


def _moved_by_another_hub(*replicas: int) -> LogBuilder:
    log = _written()
    for count in replicas:
        log.add(scale("web", count, manager="fleethpa", manager_time=log.now_ms), after_ms=1_000)
        _answer(log)
    return log


def test_a_move_of_fleethpa_that_this_log_did_not_decide_is_another_hubs() -> None:
    row = _moved_by_another_hub(4, 6, 5).partition.state.hpas[WEB].row
    assert [move[1:] for move in row.moves] == [(2, 4, US), (4, 6, ANOTHER), (6, 5, ANOTHER)]


def test_two_hubs_that_undo_each_other_fight() -> None:
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(2)], scale("web", 2))
    for _ in range(3):
        wanted = next(decision for decision in _answer(log) if decision.get("wants"))
        log.add(Outcome(decision=wanted["id"], name="web", uid="uid-web", result="applied", spec_replicas=4))
        log.add(scale("web", 2, manager="fleethpa", manager_time=log.now_ms), after_ms=1_000)
    fight = fight_now(log.partition.state.hpas[WEB].row.moves, log.now_ms)
    assert fight is not None
    assert fight.writers == (ANOTHER, US)


@pytest.mark.parametrize(
    ("mode", "replicas", "is_problem"),
    [
        pytest.param("enforce", (6, 5), True, id="again and again: there are two hubs"),
        pytest.param("enforce", (6,), False, id="once: the outcome of a write may have been lost"),
        pytest.param("shadow", (6, 5), False, id="in shadow another hub is meant to"),
    ],
)
def test_a_second_hub_is_a_problem_of_the_hpas_that_it_scales(
    mode: Mode, replicas: tuple[int, ...], is_problem: bool
) -> None:
    log = _moved_by_another_hub(*replicas)
    row = log.partition.state.hpas[WEB].row
    view = HpaView(WEB, {}, mode, "cluster", 0, moves=tuple(Move(*each) for each in row.moves), clock_ms=log.now_ms)
    text = (
        "fleethpa scaled it 2 times, of which no outcome came into this log: "
        "does another hub enforce it, or were outcomes lost?"
    )
    assert [problem.text for problem in view.problems] == [text] * is_problem


def _written() -> LogBuilder:
    """fleethpa has scaled from 2 to 4; no evaluation has seen it yet."""
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(2)], scale("web", 2))
    wanted = next(decision for decision in _answer(log) if decision.get("wants"))
    log.add(Outcome(decision=wanted["id"], name="web", uid="uid-web", result="applied", spec_replicas=4))
    return log


def test_the_decider_counts_changes_and_shows_fights() -> None:
    log = _fight()
    metrics = Metrics()
    metrics.decided(log.decisions)
    owned: Any = SimpleNamespace(partition=log.partition, log_time_ms=log.now_ms)
    metrics.positions({0: owned}, {})
    text = metrics.exposition().decode()
    assert re.search(r'^fleethpa_replica_changes_total\{by="decision"\} [23]\.0$', text, re.MULTILINE), text
    assert re.search(r'^fleethpa_replica_changes_total\{by="other"\} [23]\.0$', text, re.MULTILINE), text
    assert re.search(r"^fleethpa_replica_fights 1\.0$", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("manager", "after_ms", "replicas", "expected"),
    [
        pytest.param("fleethpa", 1_000, 4, US, id="as the lost write would have it, at its time"),
        pytest.param("fleethpa", 1_000, 6, ANOTHER, id="another count: that decision did not ask for it"),
        pytest.param("fleethpa", 200_000, 4, ANOTHER, id="long after it could have been made"),
        pytest.param(THEM, 1_000, 4, THEM, id="by another field manager"),
    ],
)
def test_a_write_whose_outcome_never_came_is_not_another_hubs(
    manager: str, after_ms: int, replicas: int, expected: str
) -> None:
    log = _lost()
    written_ms = log.now_ms + after_ms
    made = log.ticks(20)
    assert [each["outcome"]["result"] for each in made if "outcome" in each] == ["timeout"]
    log.add(scale("web", replicas, manager=manager, manager_time=written_ms), after_ms=1_000)
    seen = [each["observed"]["change"] for each in _answer(log) if "change" in each.get("observed", {})]
    assert [move[1:] for move in log.partition.state.hpas[WEB].row.moves] == [(2, replicas, expected)]
    lost = next(msgspec.json.decode(each.value)["id"] for each in log.decisions if each.body.wants)
    mine = {"from": 2, "to": 4, "by": "decision", "decision": lost, "outcome": "lost"}
    assert [change == mine for change in seen] == [expected == US]


def test_a_lost_write_is_found_after_a_restart_of_the_decider() -> None:
    log = _lost()
    written_ms = log.now_ms + 1_000
    log.ticks(20)
    again = Partition.restore(0, dict(log.partition.checkpoint()))
    log.partition = again
    for count in (4, 3):
        log.add(scale("web", count, manager="fleethpa", manager_time=written_ms), after_ms=1_000)
        _answer(log)
    assert [move[1:] for move in again.state.hpas[WEB].row.moves] == [(2, 4, US), (4, 3, ANOTHER)]


def _lost() -> LogBuilder:
    """fleethpa wants to scale from 2 to 4; no outcome of that has come."""
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(2)], scale("web", 2))
    assert any(decision.get("wants") for decision in _answer(log))
    return log


def _answer(log: LogBuilder) -> list[dict[str, Any]]:
    return log.add(Answers(items=[cpu_answer("web", {"web-0": 100, "web-1": 100}, log.now_ms)]), after_ms=16_000)

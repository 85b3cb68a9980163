"""Many clusters, some of which lie, cannot write, go away or have settings of their own: what holds for the others."""

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest

from schemas.keys import FLEET
from tests.across_model.__main__ import main
from tests.kit.crashing import assert_the_same_after_crashes
from tests.kit.exploring import ViolationError
from tests.kit.hostilefleet import HONEST, KINDS, LOAD, MORE, PODS, Hostile, hostile_run
from tests.laws import one_of

lived = cache(hostile_run)
"""A whole run; asked for again it is the same one, which nobody changes."""


def test_everything_that_a_cluster_may_do_happens_in_the_runs() -> None:
    happened: Counter[str] = sum((lived(seed).happened for seed in range(4)), Counter())
    assert set(happened) == set(KINDS)


@pytest.mark.parametrize("seed", one_of(2, range(12)))
def test_under_a_constant_load_no_honest_cluster_falls_below_what_it_needs(seed: int) -> None:
    lived(seed)


@pytest.mark.parametrize("seed", one_of(3, range(12)))
def test_without_lies_nothing_is_added_without_load(seed: int) -> None:
    """A member that goes away or cannot write."""
    run = Hostile(seed)
    for number in range(60):
        if number % 8 == 4:
            run.do(*[each for each in ("away", "cannot write") if run.random.random() < 0.5])
        run.period(LOAD)
        assert run.replicas == PODS, f"period {number}"


@pytest.mark.parametrize("seed", one_of(2, range(6)))
def test_every_share_that_is_not_reached_is_a_step_of_the_decision(seed: int) -> None:
    run = Hostile(seed)
    run.do("cannot write")
    for _ in range(8):
        run.period(MORE)
        run.check(is_constant=False)
    known = run.row(FLEET).fleet
    assert known is not None
    missing = {name for name, share in known.shares.items() if run.replicas[name] < share}
    named = {name for each in run.last()["steps"] if each["step"] == "shares" for name in each["detail"]}
    assert missing <= named


@pytest.mark.parametrize("seed", one_of(2, range(4)))
def test_no_crash_changes_a_decision(seed: int) -> None:
    run = hostile_run(seed, constant=40, growing=0)
    assert_the_same_after_crashes(run.logs, Random(seed))


def test_what_does_not_hold_is_found_with_its_seed(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert main(["--model", "hostile", "--runs", "2", "--seed", "7"]) == 0
    assert "every invariant holds" in capsys.readouterr().out
    run = Hostile(1)
    run.replicas[HONEST[0]] = PODS[HONEST[0]] - 1
    with pytest.raises(ViolationError, match="below what their own metrics keep"):
        run.check(is_constant=True)
    run = Hostile(1)
    run.replicas["west"] += 1
    with pytest.raises(ViolationError, match="added without load"):
        run.check(is_constant=True)
    monkeypatch.setattr("tests.kit.hostilefleet._SHOWN_WITHIN", -1)  # before it can be
    assert main(["--model", "hostile", "--runs", "1"]) == 1
    assert "BROKEN: seed 1, period" in capsys.readouterr().out

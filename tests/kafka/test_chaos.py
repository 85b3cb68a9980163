"""A short, seeded run of the crash-equivalence harness; `make chaos FAULTS=200` is the long one."""

from pathlib import Path

import pytest

from tests.kafka.chaos.decider import run_once
from tests.kafka.chaos.faults import FAULTS as KINDS
from tests.kafka.chaos.fleetfaults import FAULTS as FLEET_KINDS
from tests.kafka.chaos.harness import Tally, deal

FAULTS = 6


@pytest.mark.parametrize(("faults", "runs"), [(len(FLEET_KINDS), 2), (40, 2), (41, 3)])
def test_every_kind_of_fault_comes_once_over_the_runs_of_one_call(faults: int, runs: int) -> None:
    weights = {name: weight for name, (weight, _) in FLEET_KINDS.items()}
    dealt = deal(weights, seed=7, faults=faults, a_run=20)
    assert [len(names) for names in dealt] == [len(dealt[0])] * (runs - 1) + [faults - len(dealt[0]) * (runs - 1)]
    assert {name for names in dealt for name in names} == set(FLEET_KINDS)
    assert dealt == deal(weights, seed=7, faults=faults, a_run=20) != deal(weights, seed=8, faults=faults, a_run=20)


@pytest.mark.slow
async def test_decisions_stay_the_same_bytes_under_seeded_faults(tmp_path: Path) -> None:
    tally = Tally()
    (names,) = deal(dict.fromkeys(KINDS, 1), 3, FAULTS, FAULTS)
    await run_once(seed=5, names=names, minutes=15, hpas=60, tally=tally, module="fleethpa", folder=tmp_path)
    assert tally.faults == FAULTS, tally.report()
    assert tally.totals["backward or restarting steps of log time"] > 0
    assert tally.totals["decisions"] > 0
    print(tally.report())

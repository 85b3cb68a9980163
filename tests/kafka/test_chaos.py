"""A short, seeded run of the crash-equivalence harness; `make chaos FAULTS=200` is the long one."""

from pathlib import Path

import pytest

from tests.kafka.chaos.decider import run_once
from tests.kafka.chaos.faults import FAULTS as KINDS
from tests.kafka.chaos.harness import Tally, deal

FAULTS = 6


@pytest.mark.slow
async def test_decisions_stay_the_same_bytes_under_seeded_faults(tmp_path: Path) -> None:
    tally = Tally()
    (names,) = deal(dict.fromkeys(KINDS, 1), 3, FAULTS, FAULTS)
    await run_once(seed=5, names=names, minutes=15, hpas=60, tally=tally, module="streams.decider", folder=tmp_path)
    assert tally.faults == FAULTS, tally.report()
    assert tally.totals["backward or restarting steps of log time"] > 0
    assert tally.totals["decisions"] > 0
    print(tally.report())

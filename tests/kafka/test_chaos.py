"""A short, seeded run of the crash-equivalence harness; `make chaos FAULTS=200` is the long one."""

from pathlib import Path

import pytest

from tests.kafka.chaos.decider import Tally, report, run_once

FAULTS = 6


@pytest.mark.slow
async def test_decisions_stay_the_same_bytes_under_seeded_faults(tmp_path: Path) -> None:
    tally = Tally()
    await run_once(seed=3, faults=FAULTS, minutes=15, hpas=60, tally=tally, module="streams.decider", folder=tmp_path)
    assert sum(row.count for row in tally.rows.values()) == FAULTS, report(tally)
    assert tally.decisions > 0
    print(report(tally))

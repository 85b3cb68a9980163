"""A real control plane, played through the pipeline in shadow mode: our counts are those of the native controller.

The recording holds every watch event and metric answer of a v1.37.1 control plane, and what its HPA controller made of
them (data/README.md). Evaluations take place at other moments here than there, and a controller that is restarted loses
its memory; each difference has to be of such a class, told by a rule (native.py). Run with `-s` to see the counts.
"""

import os
from pathlib import Path

import pytest

from tests.pipeline.native import EQUAL, EQUAL_ELSEWHEN, UNEXPLAINED, Finding, compare, same_conditions, table
from tests.pipeline.playing import partition_of, play
from tests.pipeline.tape import Tape, observed

DATA = Path(__file__).parent / "data"
PART_S = 1_050
"""Into this fall edits, faults of each metrics API, a deleted twin and the restart of the native controller."""


def report(title: str, findings: list[Finding]) -> None:
    print(f"\n{title}\n{table(findings)}")


def check(findings: list[Finding], least_equal: float) -> None:
    """Nothing is unexplained, and what agrees is by far the most."""
    assert [finding for finding in findings if finding.why == UNEXPLAINED] == []
    agree = sum(finding.why in (EQUAL, EQUAL_ELSEWHEN) for finding in findings)
    assert agree >= least_equal * len(findings), table(findings)
    assert same_conditions(findings) >= least_equal, table(findings)


async def test_counts_are_the_native_controllers_through_broker_ingest_and_decider(tmp_path: Path) -> None:
    await _through_the_pipeline(DATA, PART_S, tmp_path, timeout_s=100)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_counts_of_a_whole_recording(tmp_path: Path) -> None:
    folder = Path(os.environ.get("FLEETHPA_RECORDING", DATA))
    await _through_the_pipeline(folder, float("inf"), tmp_path, timeout_s=500)


async def _through_the_pipeline(folder: Path, seconds: float, tmp_path: Path, timeout_s: float) -> None:
    tape = Tape(folder, seconds)
    records, number = observed(tape), partition_of(tape.namespace)
    played, pure = await play(records, number, tmp_path, timeout_s)
    findings = compare(tape, records, played.decisions)
    report(f"{len(tape.syncs)} native syncs, {len(played.decisions)} decisions", findings)
    check(findings, least_equal=0.97)
    assert played.log_records == pure.log_records
    assert played == pure  # the log, too: the hash of it is in every decision

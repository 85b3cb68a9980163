"""A real control plane, played through the pipeline in shadow mode: our counts are those of the native controller.

The recording holds every watch event and metric answer of a v1.37.1 control plane, and what its HPA controller made of
them (data/README.md). Evaluations take place at other moments here than there, and a controller that is restarted loses
its memory; each difference has to be of such a class, by a rule of native.py. Run with `-s` to see the counts.
"""

import os
from pathlib import Path

import pytest
from msgspec import structs

from schemas.keys import HpaId
from schemas.settings import ClusterSettings
from streams.analysis.shadowreport import ShadowReport, shadow_report
from streams.history.evaluations import HpaEvent, NativeTraces, events, hpa_of
from streams.partition import Partition
from tests.patience import PATIENCE_S
from tests.pipeline.native import EQUAL, EQUAL_ELSEWHEN, UNEXPLAINED, Finding, compare, same_conditions, table
from tests.pipeline.playing import log_of, partition_of, play
from tests.pipeline.tape import SETTINGS, Tape, observed

DATA = Path(__file__).parent / "data"
WHOLE_S = 1_690
PART_S = 350
"""Into this fall edits and faults of metrics APIs; the whole recording is played in the slow tier."""


def report(title: str, findings: list[Finding]) -> None:
    print(f"\n{title}\n{table(findings)}")


def check(findings: list[Finding], least_equal: float) -> None:
    """Nothing is unexplained, and what agrees is by far the most."""
    assert [finding for finding in findings if finding.why == UNEXPLAINED] == []
    agree = sum(finding.why in (EQUAL, EQUAL_ELSEWHEN) for finding in findings)
    assert agree >= least_equal * len(findings), table(findings)
    assert same_conditions(findings) >= least_equal, table(findings)


async def test_counts_are_the_native_controllers_through_broker_ingest_and_decider(tmp_path: Path) -> None:
    await _through_the_pipeline(DATA, PART_S, tmp_path, timeout_s=PATIENCE_S)


@pytest.mark.slow
async def test_counts_of_a_whole_recording(tmp_path: Path) -> None:
    folder = Path(os.environ.get("FLEETHPA_RECORDING", DATA))
    await _through_the_pipeline(folder, float("inf"), tmp_path, timeout_s=500)


# --- the shadow report of it ------------------------------------------------------------------------------------------


def shadow_reports(
    later_ms: int, seconds: float = float("inf"), settings: ClusterSettings = SETTINGS
) -> list[ShadowReport]:
    tape = Tape(DATA, seconds)
    number = partition_of(tape.namespace)
    log = log_of(observed(tape, later_ms=later_ms, settings=settings), number)
    records = [(offset, record.time_ms, record.value) for offset, record in enumerate(log)]
    found: dict[HpaId, list[HpaEvent]] = {}
    for event in events(Partition.empty(number), records, lambda _: True, NativeTraces(lambda _: True)):
        found.setdefault(hpa_of(event), []).append(event)
    return [made for hpa, some in sorted(found.items()) if (made := shadow_report(hpa, some)) is not None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "later_ms",
    [
        pytest.param(0, id="polls as the native controller does"),
        pytest.param(1_500, id="polls on another phase"),
        pytest.param(3_500, id="polls right before the next sync"),
    ],
)
def test_a_shadow_report_proves_every_difference_and_opens_the_gate(later_ms: int) -> None:
    """Among the disturbances are faults of each metrics API, edits, and a restart of the native controller."""
    made = shadow_reports(later_ms, WHOLE_S)
    assert len(made) >= 15
    rescales = sum(report.rescales for report in made)
    for report in made:
        print(report.hpa.name, report.decisions, f"{report.agreement:.3f}", report.counts, report.reasons)
        assert report.counts["semantics"] == 0
        # A spec that was edited shortly before the end has to be compared for a while.
        assert report.ready or ["under the present spec" in why for why in report.reasons] == [True], report.reasons
        assert report.reproduced >= 10
    assert rescales > 100
    # At the place of a native rescale fleethpa gives its result, apart from the memory that a restart has cost.
    assert sum(report.rescales_agreed for report in made) >= 0.97 * rescales


@pytest.mark.slow
def test_a_shadow_report_notices_a_setting_that_is_not_the_native_controllers() -> None:
    """The controller was started with a stabilization of 60 s; with another one, fleethpa would scale down early.

    HPAs whose own behavior sets the window are ready all the same.
    """
    made = shadow_reports(0, 620, structs.replace(SETTINGS, downscale_stabilization_ms=5_000))
    ready = [report.hpa.name for report in made if report.ready]
    assert len(ready) <= len(made) - 6, ready


async def _through_the_pipeline(folder: Path, seconds: float, tmp_path: Path, timeout_s: float) -> None:
    tape = Tape(folder, seconds)
    records, number = observed(tape), partition_of(tape.namespace)
    played, pure = await play(records, number, tmp_path, timeout_s)
    findings = compare(tape, records, played.decisions)
    report(f"{len(tape.syncs)} native syncs, {len(played.decisions)} decisions", findings)
    check(findings, least_equal=0.97)
    assert played.log_records == pure.log_records
    assert played == pure  # the log, too: the hash of it is in every decision

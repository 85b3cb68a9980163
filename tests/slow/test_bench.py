"""`make bench` runs, and what it costs is compared with what is stored, loudly; noise never fails it."""

import pytest

from tests.bench import year
from tests.bench.__main__ import YARDSTICK, main, much_dearer, relative_costs
from tests.kit.churn import Churn

pytestmark = pytest.mark.slow


def test_the_bench_of_the_core_runs_and_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--compare", "decide", "partition", "bytes", "memory", "replay"]) == 0
    printed = capsys.readouterr().out
    with capsys.disabled():
        print(f"\n{printed}")
    assert printed.count("\n") >= 10


@pytest.mark.parametrize(
    ("cost", "row", "reported"),
    [
        pytest.param(6.0, 2_000, [], id="as stored"),
        pytest.param(8.9, 2_190, [], id="noise"),
        pytest.param(9.1, 2_000, ["partition"], id="slower in relation to the algorithm"),
        pytest.param(6.0, 2_201, ["row"], id="more bytes"),
    ],
)
def test_only_what_is_much_dearer_is_reported(cost: float, row: int, reported: list[str]) -> None:
    then = {"partition": (6.0, "times"), "row": (2_000, "bytes")}
    lines = much_dearer({"partition": (cost, "times"), "row": (row, "bytes"), "new": (1.0, "times")}, then)
    assert [line.partition(":")[0] for line in lines] == reported


def test_a_machine_that_is_slower_as_a_whole_costs_the_same() -> None:
    figures = [(YARDSTICK, 50_000.0, "evaluations/s"), ("partition", 8_000.0, "decisions/s")]
    slower = [(what, value / 3, unit) for what, value, unit in figures]
    assert relative_costs(figures) == relative_costs(slower)
    assert relative_costs([("partition", 8_000.0, "decisions/s"), ("p99", 3.0, "ms")]) == {}


def test_twelve_weeks_of_churn_leave_no_more_rows_and_bytes_than_six(capsys: pytest.CaptureFixture[str]) -> None:
    """Six weeks, since what a departed cluster reported is kept for thirty days. Times are not compared here."""
    churn = Churn(days=84, previews=6, names=6, steady=2, renamed_hpas=2)
    first, second = year.months(churn, days=42)
    with capsys.disabled():
        print(f"\n{first}\n{second}")
    assert first.rows > 50
    assert not {"rows", "changelog_bytes", "largest_row"} & set(second.within(0.1, first))

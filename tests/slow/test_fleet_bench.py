"""The fleet bench runs to its end; its ratios are compared with the stored ones, loudly, but noise never fails it."""

from pathlib import Path

import orjson
import pytest

from tests.bench import fleet
from tests.bench.fleetreport import worse_than_stored

pytestmark = pytest.mark.slow


def test_two_thousand_hpas_go_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    arguments = ["--hpas", "2000", "--broker", "embedded", "--seconds", "45", "--step", "200", "--compare"]
    assert fleet.main([*arguments, "--json", str(file)]) == 0
    with capsys.disabled():
        print(f"\n{capsys.readouterr().out}")
    found = orjson.loads(file.read_bytes())
    assert found["evaluations"] > 0
    assert found["step"]["last_write_ms"][0] > 0, "the load step led to writes"
    assert set(found["cpu_s_per_1000"]) >= {"observer", "ingest", "decider", "reconciler"}


@pytest.mark.parametrize(
    ("decider", "share", "reported"),
    [
        pytest.param(0.5, 1.0, [], id="as stored"),
        pytest.param(0.7, 1.0, [], id="noise"),
        pytest.param(0.8, 1.0, ["decider"], id="a process needs much more than the fleet's servers do"),
        pytest.param(0.5, 0.8, ["evaluated"], id="fewer are evaluated"),
    ],
)
def test_only_ratios_that_are_much_worse_are_reported(decider: float, share: float, reported: list[str]) -> None:
    cpu_s = {"observer": 0.5, "ingest": 0.5, "decider": 0.5, "reconciler": 0.5, "fleet": 1.0}
    stored = {"cpu_s_per_1000": cpu_s, "share_evaluated": 1.0}
    # A machine that is twice as slow as a whole is no news.
    now = {name: 2 * each for name, each in (cpu_s | {"decider": decider}).items()}
    lines = worse_than_stored({"cpu_s_per_1000": now, "share_evaluated": share}, stored)
    assert [line.split()[0].rstrip(":") for line in lines] == reported

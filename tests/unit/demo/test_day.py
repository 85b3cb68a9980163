"""The recorded day: the same bytes each time, and nothing in it that the log does not give."""

from hashlib import sha256
from pathlib import Path

import pytest

from fleethpa.lab.demo.day import HOUR_MS, SHARED_SPEC, START_MS, WAVES_MS, DayLoad, apps, spec, write_day
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool
from streams.history.verify import verify, verify_partition


@pytest.fixture(
    scope="module", params=[pytest.param(0.2, id="a part"), pytest.param(1, id="an hour", marks=pytest.mark.slow)]
)
def hours(request: pytest.FixtureRequest) -> float:
    found: float = request.param
    return found


@pytest.fixture(scope="module")
def morning(hours: float, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("day")
    write_day(folder, lambda _: None, hours)
    return folder


def test_the_same_day_has_the_same_bytes(morning: Path, hours: float, tmp_path: Path) -> None:
    write_day(tmp_path, lambda _: None, hours)
    assert _files(tmp_path) == _files(morning)


async def test_every_decision_of_it_follows_from_its_log(morning: Path, hours: float) -> None:
    pool = ReplayPool(verify_partition, 1)
    reports = [report async for report in verify(ArchivePast(morning / "archive"), None, [], pool)]
    assert [report.fault for report in reports if report.fault] == []
    assert sum(report.decisions for report in reports) > 2_000 * hours


def test_its_fleet_has_what_every_question_is_about() -> None:
    found = apps()
    assert (len(found), len({app.id.cluster for app in found})) == (20, 2)
    assert sum(app.native for app in found) >= 5
    assert spec("checkout", **SHARED_SPEC)["maxReplicas"] == 8
    assert START_MS % (24 * HOUR_MS) == 0
    assert all(START_MS + at_ms > START_MS for at_ms in WAVES_MS)


def test_a_load_is_a_function_of_time_alone() -> None:
    load = DayLoad(100, 500, 12.0, 0.0, bumps=((14.0, 14.5, 0.0),))
    assert load.at(12 * 3_600) == pytest.approx(500)
    assert load.at(0) == pytest.approx(100, rel=0.01)
    assert load.at(14.25 * 3_600) == 0


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

"""Every analysis over HPAs in which each optional field is absent: none ends in an internal error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

from fleethpa.frame.errors import INTERNAL
from fleethpa.lab.demo.day import START_MS, DayLoad, spec
from fleethpa.lab.demo.dayworld import PERIOD_MS, DayApp, DayWorld
from fleethpa.lab.simulator.model import PodProfile
from schemas.keys import HpaId
from schemas.settings import ClusterSettings, SettingsSet
from streams.analysis.candidate import CandidateError
from streams.archive.archiver import Archiver, SegmentLimits
from streams.history.evaluations import hpa_of
from tests.kit.broken import BrokenError, break_for
from tests.kit.cli import Cli

PARTITIONS = 2
WHOLE = spec("whole", down_s=60)
ABSENT = (
    ("behavior",),
    ("minReplicas",),
    ("behavior", "scaleUp"),
    ("behavior", "scaleDown"),
    ("behavior", "scaleUp", "stabilizationWindowSeconds"),
    ("behavior", "scaleUp", "selectPolicy"),
    ("behavior", "scaleUp", "policies"),
    ("behavior", "scaleDown", "stabilizationWindowSeconds"),
    ("behavior", "scaleDown", "selectPolicy"),
    ("behavior", "scaleDown", "policies"),
)
"""Paths of the fields that a stored spec may lack; ingest fills in `metrics`, as the API server does."""


def without(path: tuple[str, ...]) -> dict[str, Any]:
    """The spec without one field."""
    made = copy.deepcopy(WHOLE)
    place = made
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return made


class Size(NamedTuple):
    """How much is analysed: the first of these absent fields, and for how long the fleet lives."""

    absent: int
    minutes: int


FEW, ALL = Size(3, 21), Size(len(ABSENT), 63)


def _apps(absent: int) -> Iterator[DayApp]:
    profile = PodProfile(schedule_ms=1_000, ready_ms=14_000)
    for number, path in enumerate(((), *ABSENT[:absent])):
        made = without(path) if path else copy.deepcopy(WHOLE)
        name = "-".join(("no", *path)).lower() if path else "whole"
        made["scaleTargetRef"]["name"] = name
        for cluster in ("east", "north"):
            load = DayLoad(100, 400, 0.2 + 0.05 * number, seed=f"{cluster}/{name}")
            yield DayApp(HpaId(cluster, f"ns{number % 3}", name), made, load, profile, native=cluster == "north")


@pytest.fixture(
    scope="module", params=[pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.slow)]
)
def size(request: pytest.FixtureRequest) -> Size:
    found: Size = request.param
    return found


@pytest.fixture(scope="module")
def archive(size: Size, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive")
    archiver = Archiver(root, PARTITIONS, SegmentLimits(segment_ms=size.minutes * 60_000))
    world = DayWorld(list(_apps(size.absent)), PARTITIONS, START_MS, archiver.append)
    world.broadcast(
        SettingsSet(cluster="*", settings=ClusterSettings(sync_period_ms=PERIOD_MS)),
        SettingsSet(cluster="east", settings=ClusterSettings(default_mode="enforce", native_controller="absent")),
        SettingsSet(cluster="north", settings=ClusterSettings(default_mode="shadow", native_controller="present")),
    )
    world.begin()
    for _ in range(size.minutes * 60_000 // PERIOD_MS):
        world.live()
    archiver.finish()
    return root


Ask = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Cli(monkeypatch)


@pytest.fixture
def ask(archive: Path, run: Cli) -> Ask:
    def made(*arguments: str) -> Result:
        command = [*arguments, "--from", str(archive)]
        done = run(*command)
        assert "internal error" not in done.output, (command, done.output)
        assert "Traceback" not in done.output, (command, done.output)
        return done

    return made


def names(size: Size, cluster: str) -> list[str]:
    return [str(app.id) for app in _apps(size.absent) if app.id.cluster == cluster]


@pytest.mark.parametrize(
    "arguments",
    [("backtest", "-A", "--set", "maxReplicas=8"), ("export", "decisions", "-A", "-o", "csv")],
    ids=" ".join,
)
def test_an_analysis_of_the_fleet_answers_for_every_hpa(ask: Ask, size: Size, arguments: tuple[str, ...]) -> None:
    done = ask(*arguments)
    assert done.exit_code == 0, done.output
    # An HPA is named by its name alone in a list that has its namespace and cluster in columns.
    lacking = [name for name in names(size, "east") if name.rpartition("/")[2] not in done.stdout]
    assert lacking == []


@pytest.mark.parametrize("size", [ALL], indirect=True, ids=["all"])
@pytest.mark.slow  # an hour has to be recorded
def test_tune_searches_for_every_hpa(ask: Ask, size: Size) -> None:
    stated = ask("tune", "-A", "-C", "east").stdout
    assert f"{len(names(size, 'east'))} HPAs: " in stated
    assert " 0 that cannot be tuned" in stated


def test_the_shadow_report_answers(ask: Ask, size: Size) -> None:
    done = ask("shadow-report", "-A", "-C", "north", "-o", "wide")
    assert done.exit_code in (0, 1), done.output
    assert [name for name in names(size, "north") if name.rpartition("/")[2] not in done.stdout] == []


def broken(*_: Any) -> None:
    raise BrokenError("here")


FAULTS: tuple[tuple[str, str, Callable[..., HpaId]], ...] = (
    ("backtest -A --set maxReplicas=8", "fleethpa.questions.backtests.backtest", lambda es, *_: hpa_of(es[0])),
    ("shadow-report -A -o wide", "fleethpa.cli.shadow_report.compare", lambda hpa, events: hpa),
    ("export decisions -A -o csv", "fleethpa.questions.exports.row_of", lambda recorded, format_: recorded.hpa),
    ("export decisions -A -o jsonl", "fleethpa.questions.exports.row_of", lambda recorded, format_: recorded.hpa),
    ("tune -A", "fleethpa.tuning.tunings.search", lambda hpa, *_: hpa),
    ("tune -A", "fleethpa.tuning.tunings.Condensed.add", lambda recorded, inputs: recorded.hpa),
    (
        "upgrade-preview -A --to 1.36 -o json",
        "streams.analysis.upgradepreview.UpgradeReader.add",
        lambda _, inputs: inputs.hpa,
    ),
    (
        "upgrade-preview -A --to 1.36 -o json",
        "streams.analysis.upgradepreview.UpgradeReader.preview",
        lambda reader: reader._hpa,
    ),
)


@pytest.mark.parametrize("size", [FEW], indirect=True, ids=["few"])
@pytest.mark.parametrize(("command", "place", "whose"), FAULTS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_fault_with_one_hpa_does_not_end_an_analysis_over_the_others(
    archive: Path,
    run: Cli,
    size: Size,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    place: str,
    whose: Callable[..., HpaId],
) -> None:
    cluster = "north" if command.startswith("shadow") else "east"
    hpas = [app.id for app in _apps(size.absent) if app.id.cluster == cluster]
    victim = next(hpa for hpa in hpas if hpa.name == "no-minreplicas")
    words = [*command.split(), "--from", str(archive), "-C", cluster]
    break_for(monkeypatch, victim, place, whose)
    done = run(*words)
    assert done.exit_code == INTERNAL, done.output
    assert f"Error: {victim}: internal error: BrokenError: here" in done.stderr
    assert "Next: run it again with --debug" in done.stderr
    assert "Traceback" not in done.stderr
    assert [hpa for hpa in hpas if hpa != victim and hpa.name not in done.stdout] == []
    if not command.startswith("tune"):  # it says of each HPA why it has no proposal
        assert victim.name not in done.stdout
    assert "Traceback" in run(*words, "--debug").stderr


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("backtest east/ns0/whole --set maxReplicas=8", "fleethpa.questions.backtests.backtest"),
        ("shadow-report north/ns0/whole", "fleethpa.cli.shadow_report.compare"),
        ("shadow-report north/ns0/whole -o json", "fleethpa.cli.shadow_report.compare"),
        ("export decisions east/ns0/whole -o jsonl", "fleethpa.questions.exports.row_of"),
    ],
)
def test_a_fault_with_the_only_hpa_that_is_named_is_the_whole_answer(
    archive: Path, run: Cli, monkeypatch: pytest.MonkeyPatch, command: str, place: str
) -> None:
    monkeypatch.setattr(place, broken)
    done = run(*command.split(), "--from", str(archive))
    assert (done.exit_code, done.stdout) == (INTERNAL, "")
    assert "ns0/whole: internal error: BrokenError: here" in done.stderr


def test_a_fault_is_named_where_no_other_hpa_could_be_tried(
    archive: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(events: Any, *_: Any) -> None:
        raise BrokenError("here") if hpa_of(events[0]).name == "whole" else CandidateError("not this one")

    monkeypatch.setattr("fleethpa.questions.backtests.backtest", tried)
    done = run("backtest", "-A", "-C", "east", "--set", "maxReplicas=8", "--from", str(archive))
    assert (done.exit_code, done.stdout) == (INTERNAL, "")
    assert "Error: east/ns0/whole: internal error: BrokenError: here" in done.stderr
    assert "left out: " in done.stderr


@pytest.mark.parametrize("question", ["explain", "history", "describe", "what-if --set maxReplicas=9"])
def test_the_questions_about_one_hpa_are_answered(ask: Ask, size: Size, question: str) -> None:
    for hpa in names(size, "east"):
        verb, *options = question.split()
        done = ask(verb, hpa, *options)
        assert done.exit_code == 0, (hpa, done.output)

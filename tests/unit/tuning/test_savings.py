"""`fleethpa savings`: the interval holds the truth, as the simulator knows it; what is refused, and what is printed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fleethpa.lab.demo.day import DayLoad
from fleethpa.lab.demo.day import spec as day_spec
from fleethpa.lab.demo.dayworld import PERIOD_MS, DayApp, DayWorld
from fleethpa.lab.simulator.model import PodProfile, SimulatedWorkload
from fleethpa.tuning import savings as verb
from fleethpa.tuning.savings import SavingFinding, SavingsReader, in_a_sentence
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from schemas.observed import AutoscalerSet
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from streams.analysis import savings as analysis
from streams.analysis.candidate import candidate
from streams.analysis.closedloop import start_up
from streams.analysis.savings import Saving, saving
from streams.archive.archiver import Archiver, SegmentLimits
from tests.experiments.policies import played_load, trace_files
from tests.kit.cli import Cli
from tests.kit.published import fits
from tests.kit.simulated_hpa import HPA, live, spec

HOUR_MS = 3_600_000
HALF_MS = HOUR_MS // 2
CALM = {"stabilizationWindowSeconds": 60}
SLOW = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
SPECS = (
    *(spec(target, 2, 50) for target in (40, 55, 60, 65, 80)),
    spec(50, 4, 50),
    spec(70, 2, 50, down=CALM),
    spec(60, 2, 50, up=SLOW),
)


class ChangedSpec(NamedTuple):
    """A change of a spec on a load, by its number: everything about it follows from that."""

    number: int

    def lived(self, hours: float) -> tuple[Saving, float]:
        """What is said of it, and what it really saved: the load lived twice, under each spec."""
        chance = random.Random(self.number)
        files = trace_files()
        load = played_load(files[self.number % len(files)], chance.choice((4, 8, 16)))
        former, present = (candidate(HPA, each) for each in chance.sample(SPECS, 2))
        profile = PodProfile(
            schedule_ms=2_000,
            ready_ms=chance.choice((5_000, 28_000, 90_000)),
            stop_ms=5_000,
            noise=chance.choice((0.0, 0.03, 0.1)),
            idle_cpu_milli=chance.choice((10, 10, 30, 60)),
        )
        ran = [0.0, 0.0]

        def looking(at: int) -> Any:
            def look(workload: SimulatedWorkload) -> None:
                ran[at] += len(workload.alive()) * 15 / 3_600

            return look

        seconds = round(hours * 3_600)
        recorded = live(load, present, seconds, looking(0), profile, step_s=15)
        live(load, former, seconds, looking(1), profile, step_s=15)
        return saving(HPA, recorded, former, start_up(recorded).ms), ran[1] - ran[0]


def is_true(number: int, hours: float) -> bool:
    found, truth = ChangedSpec(number).lived(hours)
    assert found.low <= found.saved <= found.high
    return found.low <= truth <= found.high


@pytest.mark.parametrize("number", [0, 4, 9])
def test_the_interval_holds_what_really_was_saved(number: int) -> None:
    assert is_true(number, 1.5)


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_of_thirty_changes_at_least_twenty_seven_intervals_hold_the_truth() -> None:
    assert sum(is_true(number, 8.0) for number in range(100, 130)) >= 27


# --- what is refused --------------------------------------------------------------------------------------------------


def read(load: Any, present: dict[str, Any], seconds: int, profile: PodProfile) -> SavingFinding:
    """What is said of a change from cpu 50 % to a spec, after so many seconds with it."""
    reader = SavingsReader(HPA, spec(50, 2, 50))
    for inputs in live(load, candidate(HPA, present), seconds, lambda _: None, profile, step_s=15):
        reader.add(inputs)
    return reader.finding()


def test_less_than_two_days_are_too_few() -> None:
    found = read(played_load(trace_files()[0]), spec(60, 2, 50), 3_600, PodProfile())
    assert found.saving is None
    assert found.refused == "only 0.0 days were recorded since the change, and two are needed"


@pytest.mark.parametrize(
    ("present", "profile", "text"),
    [
        pytest.param(
            spec(30, 2, 4), PodProfile(cpu_limit_milli=300), "true demand is not known", id="saturated at the maximum"
        ),
        pytest.param(
            spec(60, 2, 50),
            PodProfile(idle_cpu_milli=220, cpu_milli_per_unit=1.5),
            "grows with the pods",
            id="base usage",
        ),
    ],
)
def test_where_the_model_does_not_hold_the_hpa_is_refused(
    monkeypatch: pytest.MonkeyPatch, present: dict[str, Any], profile: PodProfile, text: str
) -> None:
    monkeypatch.setattr(verb, "LEAST_MS", 0)
    found = read(played_load(trace_files()[1], 8), present, 4 * 3_600, profile)
    assert found.saving is None
    assert text in found.refused


# --- the verb ---------------------------------------------------------------------------------------------------------

START_MS = 1_767_571_200_000


def world(emit: Any, halves: int) -> None:
    """Three HPAs, for so many half hours: one changed after the first and the second; one never; one at the end."""
    apps = [
        DayApp(
            HpaId("east", "shop", name),
            day_spec(name, target=40),
            DayLoad(90, 700, 2.0, seed=name),
            PodProfile(schedule_ms=1_000, ready_ms=20_000, stop_ms=5_000, noise=0.03),
        )
        for name in ("web", "same", "late")
    ]
    made = DayWorld(apps, 1, START_MS, emit)
    made.broadcast(
        EngineSet(engine=ENGINE, partitions=1, author="anna", reason="first start"),
        SettingsSet(cluster="*", settings=ClusterSettings(sync_period_ms=PERIOD_MS), author="anna"),
        SettingsSet(cluster="east", settings=ClusterSettings(default_mode="enforce", native_controller="absent")),
    )
    made.begin()
    changes = {HALF_MS: ("web", 70), 2 * HALF_MS: ("web", 75), halves * HALF_MS - HALF_MS // 2: ("late", 60)}
    for period in range(halves * HALF_MS // PERIOD_MS):
        if (change := changes.get(period * PERIOD_MS)) is not None:
            name, target = change
            body = made.apps[HpaId("east", "shop", name)].hpa | {"spec": day_spec(name, target=target)}
            made.add("east/shop", AutoscalerSet(hpa=body, origin="central", author="ben", reason="SAVE-1"))
        made.live()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive") / "a"
    archiver = Archiver(root, 1, SegmentLimits(segment_ms=HALF_MS))
    world(archiver.append, 4)
    archiver.finish()
    return root


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> Any:
    """Run the verb on the archive, in which half an hour is enough."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(verb, "LEAST_MS", HALF_MS)
    run = Cli(monkeypatch)
    return lambda *arguments: run("savings", *arguments, "--from", str(archive))


def test_what_was_saved_is_said_with_its_ends_and_who_is_not_in_it(ask: Any) -> None:
    done = ask("-A", "--price", "0.04/h")
    assert done.exit_code == 0, done.output
    first = done.stdout.splitlines()[0]
    assert first.startswith("1 changed HPA saved ")
    assert " replica-hours (" in first
    assert "at 0.04/h) of the " in first
    assert first.endswith("; 2 HPAs are not in it.")
    assert "east/shop/web " in done.stdout
    assert "cpu 40%→75%" in done.stdout
    assert "east/shop/same: its spec has not changed in this time, so there is nothing to compare" in done.stdout
    assert "east/shop/late: only 0.0 days were recorded since the change, and two are needed" in done.stdout
    assert "The intervals rest on this:" in done.stdout


def test_where_nothing_can_be_said_the_next_step_names_other_specs_to_compare_with(ask: Any) -> None:
    done = ask("east/shop/same")
    assert done.exit_code == 5, "scripts can tell it from a saving"
    assert "Next: fleethpa history east/shop/same " in done.stderr
    assert "To compare with another spec, add --against and the number of its revision." in done.stderr


def test_the_document_has_no_total_without_its_ends(ask: Any) -> None:
    document = fits("SavingsList", ask("-A", "-o", "json").stdout)
    (known,) = [each for each in document["items"] if "saved" in each]
    assert known["low"] <= known["saved"] <= known["high"]
    assert document["total"] == {name: known[name] for name in ("ran", "former", "low", "high", "saved")}
    assert known["former"] > known["ran"]
    assert all("refused" in each for each in document["items"] if each is not known)


def test_a_signed_report_is_what_was_signed_and_a_changed_one_is_refused(
    ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, key, report = Cli(monkeypatch), tmp_path / "a.key", tmp_path / "savings.json"
    assert run("audit", "keygen", "--key", str(key)).exit_code == 0
    assert run("audit", "keygen", "--key", str(tmp_path / "b.key")).exit_code == 0
    shown = ask("-A", "--signed", str(report), "--key", str(key))
    assert shown.exit_code == 0, shown.output
    checked = run("audit", "report", str(report), "--public-key", str(tmp_path / "a.pub"))
    assert (checked.exit_code, shown.stdout.splitlines()[0] in checked.stdout) == (0, True), checked.output
    document = run("audit", "report", str(report), "--public-key", str(tmp_path / "a.pub"), "-o", "json").stdout
    assert fits("SavingsList", document)["total"] == fits("SavingsList", ask("-A", "-o", "json").stdout)["total"]
    other = run("audit", "report", str(report), "--public-key", str(tmp_path / "b.pub"))
    assert (other.exit_code, "signed with another key" in other.stderr) == (1, True)
    report.write_bytes(report.read_bytes().replace(b"1 changed HPA", b"9 changed HPA"))
    changed = run("audit", "report", str(report), "--public-key", str(tmp_path / "a.pub"))
    assert (changed.exit_code, "the signature is not that of this report" in changed.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key", "a.key"], "--key signs a report"),
        (["--signed", "out.json", "--key", "/no/key"], "--key /no/key: no such file"),
        (["--signed", "out.json"], "--signed: there is no private key /"),
        (["--signed", "out.json", "--key", "/dev/null"], "--key /dev/null is not a private key"),
    ],
)
def test_a_report_that_cannot_be_signed_is_refused_before_anything_is_read(
    ask: Any, arguments: list[str], said: str
) -> None:
    refused = ask("-A", *arguments)
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr


def test_the_former_spec_is_a_revision_or_the_first_that_was_enforced(ask: Any) -> None:
    by_number = ask("east/shop/web", "--against", "2", "-o", "json").stdout
    first = ask("east/shop/web", "--against", "first-enforced", "--since", "90m", "-o", "json").stdout
    assert fits("SavingsList", by_number)["items"][0]["differences"] == ["cpu 70%→75%"]
    assert fits("SavingsList", first)["items"][0]["differences"] == ["cpu 40%→75%"]
    unknown = ask("east/shop/web", "--against", "9")
    assert "It is not known: no revision 9" in unknown.stdout


def test_a_former_spec_that_is_none_is_refused(ask: Any) -> None:
    done = ask("-A", "--against", "main")
    assert done.exit_code == 2
    assert "--against 'main' is no revision" in done.stderr


def test_the_total_is_the_sum_of_all_ends() -> None:
    def found(name: str, former: float) -> SavingFinding:
        made = Saving(
            hpa=HpaId("c", "n", name),
            since_ms=0,
            until_ms=1,
            evaluations=1,
            ran=10.0,
            former=former,
            low=former - 12.0,
            high=former - 9.0,
            model_error=0.0,
            base=0.1,
            changes=9,
        )
        return SavingFinding(made.hpa, made, ["minReplicas 4→2"])

    text = in_a_sentence([found("a", 14.0), found("b", 9.0), SavingFinding(HpaId("c", "n", "d"), refused="x")])
    assert text.startswith("2 changed HPAs saved 3.00 replica-hours (-1.00 to 5.00) of the 23.00 ")
    assert text.endswith("; 1 HPA is not in it.")


def test_what_is_named_in_the_report_is_what_is_counted_with() -> None:
    assert f"{analysis.LEAST_BASE:.0%}" in verb.ERRORS[0]
    assert f"{analysis.UNSEEN:.1%}" in verb.ERRORS[1]

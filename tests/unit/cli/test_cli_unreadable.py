"""An archive of which a file cannot be read: every verb names it, none mentions Kafka or a fault of fleethpa."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import orjson
import pytest
from msgspec import structs

from streams.archive.layout import DECISIONS
from streams.archive.signing import CheckpointWriter, make_key, read_private
from tests.kit.archive import ENFORCING, topics_of, write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

LATER = "2099-01-01T00:00:00.000Z"
FLEET = Fleet(hpas=2, namespaces=1, minutes=1, partitions=1, metrics=1, seed=2, settings=ENFORCING)
APP = "c0/ns0/app0"
VERBS = [
    ("get", "hpa", "-A"),
    ("get", "hpa", "-A", "--at", "20s"),
    ("decisions", "-A"),
    ("explain", APP),
    ("what-if", APP, "--set", "maxReplicas=9"),
    ("backtest", APP, "--set", "maxReplicas=9"),
    ("history", APP),
    ("export", "decisions", "-o", "jsonl"),
]
PLACES = ["archive.json", "decisions/0/HEAD.json", "decisions/0/*.zst", "log/0/*.seg", "log/0/0*.json", "snapshots/0/*"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=20_000)


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "archive"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch)


def obstruct(root: Path, place: str) -> list[str]:
    """Put folders where files are: reading them fails, also for root."""
    paths = sorted(root.glob(place))
    for path in paths:
        path.unlink()
        path.mkdir()
    assert paths
    return [str(path) for path in paths]


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_cannot_be_read_is_named_with_exit_2(run: Cli, root: Path, place: str) -> None:
    paths = obstruct(root, place)
    failed = []
    for verb in VERBS:
        result = run(*verb, "--from", str(root))
        if result.exit_code == 0:  # it did not need that file
            continue
        failed.append(verb)
        assert result.exit_code == 2, (verb, result.output)
        assert any(path in result.stderr for path in paths), (verb, result.stderr)
        assert not any(word in result.stderr for word in ("Kafka at", "internal error", "--out")), result.stderr
    assert len(failed) >= 3


def test_a_file_that_is_missing_is_not_called_a_record(run: Cli, root: Path) -> None:
    min((root / "log/0").glob("*.seg")).unlink()
    result = run("backtest", APP, "--set", "maxReplicas=9", "--since", "2026-01-01T00:00:00Z", "--from", str(root))
    assert result.exit_code == 2
    assert f"The archive {root} has a file that is missing or damaged" in result.stderr, result.stderr


@pytest.mark.parametrize("place", [*PLACES[1:], "log/0"])
def test_a_verification_tells_an_archive_that_cannot_be_read_as_a_fault(run: Cli, root: Path, place: str) -> None:
    if place == "log/0":
        shutil.rmtree(root / place)
        paths = [str(root / place)]
    else:
        paths = obstruct(root, place)
    result = run("audit", "verify", "--jobs", "1", "--from", str(root), "-o", "json")
    assert result.exit_code == 1, result.output
    document = fits("AuditReport", result.stdout)
    assert not document["ok"]
    assert any(path in fault for path in paths for fault in document["faults"])
    assert not result.stderr


@pytest.mark.parametrize("partitions", [0, -3, 10_001, 4_000_000_000])
def test_an_archive_has_a_possible_number_of_partitions(run: Cli, root: Path, partitions: int) -> None:
    (root / "archive.json").write_text(f'{{"v":1,"partitions":{partitions}}}')
    result = run("get", "hpa", "-A", "--from", str(root))
    assert result.exit_code == 2
    assert f"{partitions} partitions" in result.stderr


def test_a_segment_that_was_emptied_is_named(run: Cli, root: Path) -> None:
    for segment in (root / "decisions/0").glob("0*.zst"):
        segment.write_bytes(b"")
    result = run("audit", "verify", "--jobs", "1", "--from", str(root))
    assert result.exit_code == 1
    assert str(root / "decisions/0") in result.stdout


def test_decisions_of_another_form_are_named_with_exit_2_also_where_a_row_is_what_reads_them(
    run: Cli, tmp_path: Path
) -> None:
    topics = topics_of(FLEET)
    for at, record in enumerate(topics[DECISIONS, 0]):
        body = orjson.loads(record.value)
        body["metrics"] = [list(metric.values()) for metric in body.get("metrics", ())]
        topics[DECISIONS, 0][at] = structs.replace(record, value=orjson.dumps(body))
    root = write_archive(tmp_path / "other", FLEET, topics=topics)
    for verb in (("decisions", "-A"), ("explain", APP), ("export", "decisions", "-o", "jsonl")):
        result = run(*verb, "--from", str(root))
        assert result.exit_code == 2, (verb, result.output)
        assert "decision at 0@" in result.stderr, result.stderr
        assert "audit verify" in result.stderr


@pytest.mark.parametrize("name", ["snapshots/0/9abc.rows", "snapshots/0/7.rows.bak"])
def test_a_file_that_is_none_of_the_archives_is_passed_over_until_it_is_verified(
    run: Cli, root: Path, name: str
) -> None:
    (root / name).touch()
    assert run("get", "hpa", "-A", "--from", str(root)).exit_code == 0
    result = run("audit", "verify", "--jobs", "1", "--from", str(root))
    assert result.exit_code == 1, result.output
    assert f"{name} does not belong" in result.stdout


@pytest.mark.parametrize(
    ("source", "stated"),
    [("", "--from is empty"), ("{file}", "is a file, and not a bundle"), ("/none", "no such folder")],
)
def test_what_from_names_is_an_archives_folder(run: Cli, tmp_path: Path, source: str, stated: str) -> None:
    file = tmp_path / "file"
    file.touch()
    result = run("get", "hpa", "-A", "--from", source.format(file=file))
    assert result.exit_code == 2, result.output
    assert stated in result.stderr


def test_verify_names_the_id_of_a_decision_that_is_in_what_cannot_be_read(run: Cli, root: Path) -> None:
    id_ = str(orjson.loads(topics_of(FLEET)[DECISIONS, 0][0].value)["id"])
    obstruct(root, "log/0/*.seg")
    result = run("replay", id_, "--from", str(root))
    assert (result.exit_code, id_ in result.stderr, ".seg" in result.stderr) == (2, True, True), result.output


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        pytest.param(("--checkpoints", "/no/such/folder"), "--checkpoints /no/such/folder: no such folder", id="none"),
        pytest.param(("--checkpoints", "{empty}"), "contains no signed checkpoint", id="a folder without checkpoints"),
        pytest.param(("--public-key", "{garbage}"), "is not a public key in PEM form", id="a key file that is none"),
    ],
)
def test_a_verification_is_never_held_to_less_than_was_asked(
    run: Cli, root: Path, tmp_path: Path, flags: tuple[str, str], stated: str
) -> None:
    places = {"empty": tmp_path / "empty", "garbage": tmp_path / "garbage"}
    places["empty"].mkdir()
    places["garbage"].write_text("nothing")
    result = run("audit", "verify", "--from", str(root), flags[0], flags[1].format(**places))
    assert result.exit_code == 2, result.output
    assert stated in result.stderr


@pytest.mark.parametrize("keyed", [False, True])
def test_checkpoints_that_do_not_hold_are_a_fault_with_or_without_a_key(
    run: Cli, root: Path, tmp_path: Path, keyed: bool
) -> None:
    key, public = tmp_path / "audit.key", tmp_path / "audit.pub"
    make_key(key, public)
    CheckpointWriter(root, read_private(key)).write({"log/0": (3, "ab" * 32)})
    (root / "checkpoints" / "000000000000.json").write_text("{}")
    flags = ("--public-key", str(public)) if keyed else ()
    result = run("audit", "verify", "--jobs", "1", "--from", str(root), "-o", "json", *flags)
    assert result.exit_code == 1, result.output
    faults = fits("AuditReport", result.stdout)["faults"]
    assert len(faults) == 1
    assert faults[0].startswith(f"the signed checkpoints do not hold: {root}/checkpoints/000000000000.json")


@pytest.mark.parametrize(
    ("field", "value", "output", "stated"),
    [
        pytest.param("generation", -(2**63) - 1, "jsonl", "generation", id="a number in a line"),
        pytest.param("steps", [{"step": "bounds", "in": 2**70, "out": 1}], "csv", "steps", id="one within a text"),
        pytest.param("currentReplicas", "3", "csv", "Expected `int`, got `str`", id="a text in place of a number"),
        pytest.param("error", "\ud800", "jsonl", "truncated", id="a text that is not Unicode"),
    ],
)
def test_a_value_that_an_export_cannot_hold_is_refused_with_its_record_and_field(
    run: Cli, tmp_path: Path, field: str, value: object, output: str, stated: str
) -> None:
    topics = topics_of(FLEET)
    decisions = list(topics[DECISIONS, 0])
    at = 0
    body = json.loads(decisions[at].value) | {field: value}
    decisions[at] = structs.replace(decisions[at], value=json.dumps(body).encode())
    root, out = tmp_path / "archive", tmp_path / "out"
    write_archive(root, FLEET, topics=topics | {(DECISIONS, 0): decisions})
    done = run("export", "decisions", "-o", output, "--out", str(out), "--from", str(root))
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert f"Error: decision at 0@{decisions[at].offset}: " in done.stderr
    assert stated in done.stderr
    assert "internal error" not in done.stderr
    assert not out.exists()


def test_a_folder_that_an_export_cannot_write_to_is_stated_in_plain_words(run: Cli, whole: Path) -> None:
    done = run("export", "decisions", "--out", "/nosuch/x.jsonl", "--from", str(whole))
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: --out /nosuch/x.jsonl cannot be written: No such file or directory\n")


@pytest.mark.parametrize(
    ("verb", "stated"),
    [
        pytest.param(
            ("get", "hpa", "-A", "--at", LATER),
            ("ends at 20", "before 2099-01-01 00:00:00: shown as of its end"),
            id="of the fleet",
        ),
        pytest.param(
            ("explain", f"{APP}@{LATER}"),
            (f"warning: {APP}@ {LATER} is later than 20", "the newest there is, which is shown"),
            id="of an HPA",
        ),
    ],
)
def test_a_moment_after_the_end_of_an_archive_shows_the_newest_and_says_so_once(
    run: Cli, whole: Path, verb: tuple[str, ...], stated: tuple[str, ...]
) -> None:
    done = run(*verb, "--from", str(whole))
    assert [text for text in stated if text not in done.stderr] == []
    assert sum("2099-01-01" in line for line in done.stderr.splitlines()) == 1
    assert "app0" in done.stdout


def test_an_empty_window_is_stated_with_its_ends(run: Cli, whole: Path) -> None:
    ends = ("--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z")
    done = run("decisions", "-A", *ends, "--from", str(whole))
    assert done.exit_code == 2
    assert "would begin at 2026-01-02T00:00:00.000Z and end at 2026-01-01T00:00:00.000Z" in done.stderr

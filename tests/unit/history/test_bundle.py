"""A bundle: one file of what an HPA's log partition recorded in a time, from which the same bytes come out again."""

import asyncio
import io
import tarfile
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas import limits
from schemas.limits import OverLimitError
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, ArchiveError
from streams.archive.segmentreader import PartitionReader
from streams.history import archivepast, replay
from streams.history.archivepast import ArchivePast, pack, unpack, write_bundle
from streams.history.recorded import Recorded
from streams.history.replay import Task
from streams.history.verify import verify_partition
from tests.kit.archive import ENFORCING, Topics, topics_of, write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet

FLEET = Fleet(hpas=4, namespaces=2, minutes=24, partitions=2, metrics=1, seed=11, settings=ENFORCING)
NUMBER = 1


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(FLEET)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, made: Topics) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive"), FLEET, topics=made, segment_ms=300_000)


def time_ms(made: Topics, minutes: float) -> int:
    return made[LOG, NUMBER][0].timestamp_ms + round(minutes * 60_000)


def bundled(source: Path, made: Topics, folder: Path, minutes: tuple[float, float]) -> Path:
    """The folder that a bundle of some minutes of an archive is unpacked into."""
    since_ms, until_ms = (time_ms(made, each) for each in minutes)
    asyncio.run(write_bundle(ArchivePast(source), NUMBER, since_ms, until_ms, folder / "made"))
    pack(folder / "made", folder / "bundle.tar")
    unpack(folder / "bundle.tar", folder / "read")
    return folder / "read"


@pytest.fixture(scope="module")
def read(root: Path, made: Topics, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of four minutes, unpacked."""
    return bundled(root, made, tmp_path_factory.mktemp("bundle"), (14, 18))


def decisions(root: Path, since_ms: int, until_ms: int) -> list[Recorded]:
    async def read() -> list[Recorded]:
        async with aclosing(ArchivePast(root).decisions(NUMBER, since_ms, until_ms)) as found:
            return [each async for each in found]

    return asyncio.run(read())


def records(root: Path, topic: str) -> list[ArchivedRecord]:
    return list(PartitionReader(root, topic, NUMBER).records())


def test_a_bundle_is_verified_and_replayed_to_the_same_bytes(read: Path, made: Topics) -> None:
    for topic in (LOG, DECISIONS):
        held = records(read, topic)
        assert held
        assert held == [each for each in made[topic, NUMBER] if held[0].offset <= each.offset <= held[-1].offset]
    report = verify_partition(Task(ArchivePast(read, checked=True), NUMBER))
    assert (report.fault, report.decisions) == ("", len(records(read, DECISIONS)))
    assert (report.diverged, report.identical) == (0, report.decisions)
    assert all(verify_partition(Task(ArchivePast(read), number)).fault == "" for number in range(FLEET.partitions))


def test_each_decision_of_the_time_is_read_as_from_the_source(root: Path, made: Topics, read: Path) -> None:
    window = time_ms(made, 14), time_ms(made, 18)
    found = decisions(read, *window)
    assert found
    assert [each.decision for each in found] == [each.decision for each in decisions(root, *window)]


def test_it_begins_and_ends_with_the_time_that_is_asked_for(read: Path, made: Topics) -> None:
    log = records(read, LOG)
    assert 0 <= log[0].timestamp_ms - time_ms(made, 14) < 60_000
    assert log[-1].timestamp_ms < time_ms(made, 18)


def test_a_time_that_begins_before_the_log_is_read_from_its_first_record(
    root: Path, made: Topics, tmp_path: Path
) -> None:
    read = bundled(root, made, tmp_path, (-30, 2))
    assert records(read, LOG)[0] == made[LOG, NUMBER][0]
    assert verify_partition(Task(ArchivePast(read), NUMBER)).start == -1


def test_a_bundle_of_a_bundle_begins_where_the_first_one_does(read: Path, made: Topics, tmp_path: Path) -> None:
    second = bundled(read, made, tmp_path, (3, 16))
    assert records(second, LOG)[0] == records(read, LOG)[0]
    assert verify_partition(Task(ArchivePast(second), NUMBER)).fault == ""


def test_the_same_records_make_the_same_bytes(root: Path, read: Path, made: Topics, tmp_path: Path) -> None:
    bundled(root, made, tmp_path, (14, 18))
    assert (tmp_path / "bundle.tar").read_bytes() == (read.parent / "bundle.tar").read_bytes()


def test_a_bundle_that_would_be_too_large_is_refused(
    root: Path, made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivepast, "BUNDLE", replace(limits.BUNDLE, most=1_000))
    with pytest.raises(OverLimitError, match="the limit is 1000"):
        bundled(root, made, tmp_path, (14, 18))
    assert not (tmp_path / "bundle.tar").exists()


def test_decisions_that_end_before_the_log_are_an_error(
    made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "LAG_S", 0.0)
    cut = dict(made) | {(DECISIONS, NUMBER): made[DECISIONS, NUMBER][:-3]}
    source = write_archive(tmp_path / "cut", FLEET, topics=cut)
    with pytest.raises(ArchiveError, match="the decider is behind"):
        bundled(source, made, tmp_path, (14, 25))


def hostile(**fields: Any) -> tarfile.TarInfo:
    member = tarfile.TarInfo("archive.json")
    for name, value in fields.items():
        setattr(member, name, value)
    return member


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(hostile(name="../archive.json"), id="above its folder"),
        pytest.param(hostile(name="/archive.json"), id="from the root"),
        pytest.param(hostile(name="log/0/../../../../x.seg"), id="up again"),
        pytest.param(hostile(name="archive.json/x"), id="another file"),
        pytest.param(hostile(type=tarfile.SYMTYPE, linkname="/etc/passwd"), id="a link"),
        pytest.param(hostile(type=tarfile.LNKTYPE, linkname="/etc/passwd"), id="a hard link"),
        pytest.param(hostile(type=tarfile.FIFOTYPE), id="a pipe"),
        pytest.param(hostile(type=tarfile.DIRTYPE), id="a folder"),
    ],
)
def test_what_does_not_belong_to_a_bundle_is_not_unpacked(member: tarfile.TarInfo, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bundle.tar", "w:") as tar:
        tar.addfile(member)
    with pytest.raises(ArchiveError, match="does not belong to a bundle"):
        unpack(tmp_path / "bundle.tar", tmp_path / "read" / "deep")
    assert [path.name for path in tmp_path.rglob("*")] == ["bundle.tar"]


def test_a_sparse_file_that_claims_to_be_huge_is_not_unpacked(tmp_path: Path) -> None:
    member = hostile(pax_headers={"GNU.sparse.major": "0", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 50)})
    with tarfile.open(tmp_path / "bundle.tar", "w:", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO())
    with pytest.raises(ArchiveError, match="does not belong to a bundle"):
        unpack(tmp_path / "bundle.tar", tmp_path / "read")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "bundle.tar").open("wb") as file:
        file.truncate(limits.BUNDLE.most + 1)
    with pytest.raises(ArchiveError, match="a bundle of `export bundle`"):
        unpack(tmp_path / "bundle.tar", tmp_path / "read")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    for name in ("XDG_CONFIG_HOME", "FLEETHPA_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", None)
    return Cli(monkeypatch)


def an_hpa(made: Topics) -> str:
    subject = dict(made[DECISIONS, NUMBER][0].headers)["ce_subject"].decode()
    _, cluster, namespace, _, name = subject.split("/")
    return f"{cluster}/{namespace}/{name}"


def test_export_bundle_writes_a_file_from_which_the_verbs_answer_as_from_the_source(
    root: Path, made: Topics, tmp_path: Path, run: Cli
) -> None:
    hpa = an_hpa(made)
    done = run("export", "bundle", hpa, "--from", str(root), "--since", "6m")
    assert done.exit_code == 0, done.output
    file = done.stdout.strip()
    assert file.startswith(hpa.rpartition("/")[2])
    assert "Whoever gets it can read the HPAs of the same log partition, too: c" in done.stderr
    assert f"Next: fleethpa explain {hpa} --from {file}" in done.stderr
    explained = [run("explain", hpa, "--from", source, "-o", "json") for source in (str(root), file)]
    assert explained[0].exit_code == explained[1].exit_code == 0, explained[1].output
    assert explained[0].stdout == explained[1].stdout
    for arguments in (["audit", "verify"], ["replay", hpa], ["get", "hpa", "-A"]):
        answer = run(*arguments, "--from", file)
        assert answer.exit_code == 0, answer.output
    assert f"from {file}" in run("audit", "verify", "--from", file).stdout
    assert [path.name for path in tmp_path.iterdir()] == [file], "nothing unpacked is left behind"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["nobody", "-n", "ns0"], 4, "no HPA nobody", id="no such HPA"),
        pytest.param(["c0/ns0/app0", "--since", "2020-01-01T00:00:00Z", "--until", "2020-01-02T00:00:00Z"], 4,
                     "nothing was decided", id="before the log"),
        pytest.param(["c0/ns0/app0", "--out", "no/such/folder.tar"], 2, "cannot be written", id="no folder"),
        pytest.param(["c0/ns0/app0", "--since", "1m", "--until", "2m"], 2, "window is empty", id="no time"),
        pytest.param(["c0/ns0/app0", "c0/ns1/app1"], 2, "one HPA at a time", id="two"),
    ],
)  # fmt: skip
def test_a_bundle_that_cannot_be_written_says_why(
    root: Path, run: Cli, arguments: list[str], code: int, words: str
) -> None:
    done = run("export", "bundle", *arguments, "--from", str(root))
    assert done.exit_code == code, done.output
    assert words in done.stderr


def test_a_file_that_is_no_bundle_is_named(tmp_path: Path, run: Cli) -> None:
    (tmp_path / "notes").write_text("not a bundle")
    done = run("get", "hpa", "-A", "--from", "notes")
    assert (done.exit_code, "--from notes: is a file, and not a bundle" in done.stderr) == (2, True), done.output

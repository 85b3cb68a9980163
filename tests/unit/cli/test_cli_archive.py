"""Every read verb over an archive with nothing running: answers, machine formats, wrong inputs, time travel."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from msgspec import structs

from fleethpa.frame.errors import PARTIAL
from runtime.process import PortTakenError
from schemas.partitioning import partition_for
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import DECISIONS
from streams.history.archivepast import ArchivePast
from streams.history.past import Enough
from streams.history.recorded import Recorded, in_sequence
from tests.kit.archive import ENFORCING, Topics, in_order, topics_of, write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import START_MS, Fleet
from tests.kit.published import fits

FLEET = Fleet(hpas=6, namespaces=3, minutes=3, partitions=2, metrics=2, seed=7, churn=0.5, settings=ENFORCING)


@pytest.fixture(scope="module")
def made() -> Topics:
    return topics_of(FLEET)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, made: Topics) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive"), FLEET, topics=made)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch)


def decisions_of(made: Topics) -> int:
    return sum(len(records) for (topic, _), records in made.items() if topic == DECISIONS)


def an_id(made: Topics) -> str:
    return str(orjson.loads(made[DECISIONS, 1][10].value)["id"])


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        pytest.param("HpaList", ["get", "hpa", "-A", "-o", "json"], id="get hpa"),
        pytest.param("HpaList", ["get", "hpa", "-A", "-o", "json", "--at", "1m"], id="get hpa in the past"),
        pytest.param("ClusterList", ["get", "clusters", "-o", "json"], id="get clusters"),
        pytest.param("DecisionList", ["decisions", "-A", "-o", "json"], id="decisions"),
        pytest.param("Decision", ["explain", "c0/ns0/app0", "-o", "json"], id="explain"),
        pytest.param("AuditReport", ["audit", "verify", "-o", "json", "--jobs", "1"], id="audit verify"),
        pytest.param("AuditReport", ["audit", "verify", "-o", "json", "--jobs", "1"], id="replay"),
        pytest.param("AuditReport", ["replay", "c0/ns1/app1", "-o", "json"], id="replay of one HPA"),
    ],
)
def test_machine_output_of_read_verbs_fits_the_published_schemas(
    run: Cli, root: Path, kind: str, arguments: list[str]
) -> None:
    result = run(*arguments, "--from", str(root))
    assert result.exit_code in (0, 5), result.output
    document = fits(kind, result.stdout)
    assert document.get("items", [1])
    assert document.get("ok", True)


@pytest.mark.parametrize("verb", [("get", "hpa", "-A"), ("get", "clusters"), ("describe", "c0/ns0/app0")], ids=" ".join)
def test_a_time_after_the_end_of_an_archive_is_named(run: Cli, root: Path, verb: tuple[str, ...]) -> None:
    after = run(*verb, "--from", str(root), "--at", "2026-01-01T00:05:00Z")
    assert "ends at 2026-01-01 00:03:00, before 2026-01-01 00:05:00" in after.stderr
    assert after.stdout == run(*verb, "--from", str(root)).stdout or verb[0] != "get"
    for moment in ("00:02:00Z", "00:02:00.321Z"):  # of a record, and between two
        within = run(*verb, "--from", str(root), "--at", f"2026-01-01T{moment}")
        assert within.exit_code == 0
        assert "ends at" not in within.stderr


@pytest.mark.parametrize("verb", [("get", "hpa", "-A"), ("get", "clusters")], ids=" ".join)
def test_over_an_archive_nothing_is_told_to_be_started(run: Cli, root: Path, verb: tuple[str, ...]) -> None:
    told = run(*verb, "--from", str(root)).stderr
    assert "c0: no reconciler serves it: 6 enforced HPAs not written. Next: fleethpa get clusters --from kafka" in told
    assert "fleethpa run" not in told


def test_a_partition_that_an_archive_has_less_of_is_named_and_no_observer_is_taken_for_silent(
    run: Cli, tmp_path: Path
) -> None:
    fleet = replace(FLEET, clusters=2, churn=0.0)
    end_ms = START_MS + 120_000
    cut = {
        (topic, number): [each for each in records if number or each.timestamp_ms < end_ms]
        for (topic, number), records in topics_of(fleet).items()
    }
    root = write_archive(tmp_path / "cut", fleet, topics=cut)
    result = run("get", "clusters", "--from", str(root))
    assert "silent" not in result.stdout + result.stderr
    assert "log partition 0 ends at 00:01:59, and the newest at 00:03:00: what is of it is shown as of then" in (
        result.stderr
    )
    assert result.exit_code == PARTIAL
    complete = write_archive(tmp_path / "whole", fleet)
    whole = run("get", "clusters", "--from", str(complete))
    assert "log partition" not in whole.stderr
    assert whole.exit_code == 0

    def codes(of: Path) -> dict[int, set[int]]:
        """Log partition → the exit codes for its namespaces."""
        found: dict[int, set[int]] = {}
        for namespace in ("ns0", "ns1", "ns2"):
            code = run("get", "hpa", "-n", namespace, "-C", "c0", "--from", str(of)).exit_code
            found.setdefault(partition_for(f"c0/{namespace}", fleet.partitions), set()).add(code)
        return found

    assert codes(root) == {0: {PARTIAL}, 1: {0}}
    assert codes(complete) == {0: {0}, 1: {0}}
    assert run("get", "hpa", "-A", "--from", str(root)).exit_code == PARTIAL
    assert "when last known" in run("status", "-A", "--from", str(root)).stdout
    assert "when last known" not in run("status", "-A", "--from", str(complete)).stdout


def test_describe_of_the_past_shows_its_last_decisions(run: Cli, root: Path) -> None:
    page = run("describe", "c0/ns0/app0", "--from", str(root), "--at", "2026-01-01T00:01:00Z").stdout
    assert "2026-01-01T00:00:5" in page
    assert "T00:01:0" not in page
    assert "T00:02" not in page


def test_decisions_takes_a_time(run: Cli, root: Path) -> None:
    since = ("--since", "2026-01-01T00:02:30Z", "-A", "-o", "json", "--from", str(root))
    listed = orjson.loads(run("decisions", *since).stdout)["items"]
    assert listed[0]["time"] >= "2026-01-01T00:02:30Z"


@pytest.mark.parametrize("stated", [["c0/ns0/app0@1m"], ["c0/ns0/app0", "--at", "1m"]])
def test_explain_takes_a_moment_as_every_other_verb_does(run: Cli, root: Path, stated: list[str]) -> None:
    result = run("explain", *stated, "--from", str(root), "-o", "json")
    assert "2026-01-01T00:01:30Z" < fits("Decision", result.stdout)["time"] <= "2026-01-01T00:01:59.999Z"


def test_names_are_looked_up_before_the_whole_past_is_read(
    run: Cli, tmp_path: Path, made: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_archive(tmp_path / "archive", FLEET, topics=made, segment_ms=4_000)
    asked: list[tuple[tuple[int, ...] | None, int]] = []
    tail = ArchivePast.tail

    async def watched(past: ArchivePast, enough: Enough, partitions: Any = None, upto_ms: Any = None) -> Any:
        found = await tail(past, enough, partitions, upto_ms)
        asked.append((None if partitions is None else tuple(partitions), sum(map(len, found.values()))))
        return found

    monkeypatch.setattr(ArchivePast, "tail", watched)
    assert run("explain", "app0", "-n", "ns0", "--from", str(root), "--no-counterfactuals").exit_code == 0
    assert asked[-1][0] == (partition_for("c0/ns0", 2),)
    newest = orjson.loads(made[DECISIONS, 0][-1].value)["id"]
    assert run("explain", newest + "x", "--from", str(root)).exit_code == 4
    assert asked[-1][1] < len(made[DECISIONS, 0])


def test_a_list_reads_other_partitions_no_further_back_than_it_must(
    run: Cli, tmp_path: Path, made: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_archive(tmp_path / "archive", FLEET, topics=made, segment_ms=2_000)
    read: dict[int, int] = {}
    tail = ArchivePast.tail

    async def watched(past: ArchivePast, enough: Enough, partitions: Any = None, upto_ms: Any = None) -> Any:
        found = await tail(past, enough, partitions, upto_ms)
        read.update({number: len(decisions) for number, decisions in found.items()})
        return found

    monkeypatch.setattr(ArchivePast, "tail", watched)
    home = partition_for("c0/ns0", 2)
    other = 1 - home
    for named in (["c0/ns0/app0"], ["app0", "-n", "ns0"], ["-n", "ns0"], ["-A", "-C", "c0"]):
        read.clear()
        result = run("decisions", *named, "--last", "3", "-o", "json", "--from", str(root))
        assert len(fits("DecisionList", result.stdout)["items"]) == 3
        assert read[home] < len(made[DECISIONS, home])
        assert read.get(other, 0) < len(made[DECISIONS, other])


def test_describe_reads_the_last_decisions_of_all_hpas_once_and_not_the_whole_past(
    run: Cli, tmp_path: Path, made: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_archive(tmp_path / "archive", FLEET, topics=made, segment_ms=4_000)
    asked: list[int] = []
    tail = ArchivePast.tail

    async def watched(past: ArchivePast, enough: Enough, partitions: Any = None, upto_ms: Any = None) -> Any:
        found = await tail(past, enough, partitions, upto_ms)
        asked.append(sum(map(len, found.values())))
        return found

    monkeypatch.setattr(ArchivePast, "tail", watched)
    assert run("describe", "hpa", "-A", "--from", str(root)).stdout.count("Last decisions:") == FLEET.hpas
    assert len(asked) == 1
    monkeypatch.setattr("fleethpa.fleet.decisions._LOOKED_BACK_MS", 30_000)
    monkeypatch.setattr("fleethpa.fleet.decisions.LAST_DECISIONS", 1_000)
    assert run("describe", "hpa", "-A", "--from", str(root)).exit_code == 0
    assert asked[-1] < decisions_of(made)


def test_a_long_past_is_decoded_a_few_times_only(tmp_path: Path, made: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    root, stretches = write_archive(tmp_path, FLEET, topics=made, segment_ms=4_000), list[int]()

    def counted(partition: int, records: Iterable[tuple[int, bytes]]) -> list[Recorded]:
        stretch = list(records)
        stretches.append(len(stretch))
        return in_sequence(partition, stretch)

    monkeypatch.setattr("streams.history.past.in_sequence", counted)
    found = asyncio.run(ArchivePast(root).tail(lambda *_: False, [0]))[0]
    assert [each.offset for each in found] == list(range(len(made[DECISIONS, 0])))
    assert sum(stretches) <= 3 * len(found)


def test_verify_derives_one_decision_again(run: Cli, root: Path, made: Topics) -> None:
    result = run("replay", an_id(made), "--from", str(root), "-o", "json")
    document = fits("DecisionVerification", result.stdout)
    assert (result.exit_code, document["identical"]) == (0, True)
    assert run("replay", an_id(made), "--from", str(root)).stdout.endswith("identical  to the byte\n")


def test_verify_of_a_changed_decision_names_the_number_that_differs(run: Cli, tmp_path: Path, made: Topics) -> None:
    record = made[DECISIONS, 1][10]
    body = orjson.loads(record.value) | {"maxReplicas": 4711}
    changed = [*made[DECISIONS, 1]]
    changed[10] = structs.replace(record, value=orjson.dumps(body))
    write_archive(tmp_path / "a", FLEET, topics=made | {(DECISIONS, 1): changed})
    for verb in (["replay", body["id"]], ["audit", "verify"]):
        result = run(*verb, "--from", str(tmp_path / "a"))
        assert result.exit_code == 1
        assert "maxReplicas: recorded 4711" in result.stdout
        assert body["id"] in result.stdout
    found = fits("AuditReport", run("audit", "verify", "--from", str(tmp_path / "a"), "-o", "json").stdout)
    # The next decision names the hash of the one that was made: that it is another one now is no fault of its own.
    assert (found["diverged"], found["identical"], found["faults"]) == (1, decisions_of(made) - 1, [])


def test_verify_says_which_part_of_the_log_a_fault_leaves_unverified(
    run: Cli, root: Path, tmp_path: Path, made: Topics
) -> None:
    record = made[DECISIONS, 1][10]
    body = orjson.loads(record.value) | {"prev": "0" * 64}
    changed = [*made[DECISIONS, 1]]
    changed[10] = structs.replace(record, value=orjson.dumps(body))
    write_archive(tmp_path / "a", FLEET, topics=made | {(DECISIONS, 1): changed})
    found = run("audit", "verify", "--from", str(tmp_path / "a")).stdout
    assert f"\nnot verified  log partition 1 from offset {body['input']['offset']} on" in found, found
    assert "partition 0" not in found
    shutil.copytree(root, tmp_path / "b")
    min((tmp_path / "b" / "log" / "0").glob("*.seg")).unlink()
    found = run("audit", "verify", "--from", str(tmp_path / "b")).stdout
    assert found.endswith("\nnot verified  log partition 0: nothing of it\n"), found


def queried(query: str) -> list[tuple[Any, ...]]:
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


@pytest.mark.parametrize("window", [(), ("--since", "1m"), ("--since", "2m", "--until", "1m")], ids=" ".join)
def test_exports_have_a_row_for_each_decision_in_every_format(
    run: Cli, root: Path, made: Topics, tmp_path: Path, window: tuple[str, ...]
) -> None:
    name = str(tmp_path / "d.jsonl")
    assert run("export", "decisions", "--from", str(root), "--out", name, *window).exit_code == 0
    rows = list(
        csv.DictReader(io.StringIO(run("export", "decisions", "--from", str(root), "-o", "csv", *window).stdout))
    )
    lines = run("export", "decisions", "--from", str(root), *window).stdout.splitlines()
    count, names = queried(f"select count(*), count(distinct id) from '{name}'")[0]
    assert count == names == len(rows) == len(lines)
    assert count == decisions_of(made) if not window else 0 < count < decisions_of(made)
    assert {row["id"] for row in rows} == {orjson.loads(line)["id"] for line in lines}
    assert all(int(row["final_desired_replicas"]) >= 1 for row in rows)


def test_a_partitioned_export_is_read_back_by_folder(run: Cli, root: Path, made: Topics, tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path / "x"), "--partition-by", "cluster,namespace,date"]
    assert run("export", "decisions", "--from", str(root), *arguments).exit_code == 0
    found = queried(
        f"select namespace, count(*) from read_json('{tmp_path}/x/**/*.jsonl', hive_partitioning=true) group by 1"
    )
    assert sorted(name for name, _ in found) == ["ns0", "ns1", "ns2"]
    assert sum(count for _, count in found) == decisions_of(made)


# --- time travel ------------------------------------------------------------------------------------------------------


def test_the_past_is_shown_as_it_was_shown_then(run: Cli, made: Topics, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    shown: dict[int, tuple[str, str]] = {}
    archiver = Archiver(root, FLEET.partitions, SegmentLimits(segment_ms=50_000))
    everything = in_order(made)
    for at, (topic, number, record) in enumerate(everything):
        archiver.append(topic, number, record)
        last = at + 1 == len(everything) or everything[at + 1][2].timestamp_ms > record.timestamp_ms
        if at % 150 > 140 and last:
            archiver.flush()
            shown.setdefault(record.timestamp_ms, looked(run, root))
    archiver.finish()
    assert len(shown) > 4
    assert len(set(shown.values())) > 4
    for time_ms, then in shown.items():
        assert looked(run, root, "--at", rfc3339(time_ms)) == then


def looked(run: Cli, root: Path, *at: str) -> tuple[str, str]:
    listed = run("get", "hpa", "-A", "-o", "json", "--from", str(root), *at)
    page = run("describe", "-A", "--from", str(root), *at)
    # 5: nobody applies what this fleet wants, so from some moment on an HPA has a problem.
    assert {listed.exit_code, page.exit_code} <= {0, 5}, listed.output + page.output
    return listed.stdout, page.stdout


def rfc3339(time_ms: int) -> str:
    from fleethpa.show.text import rfc3339 as print_time

    return print_time(time_ms)


@pytest.mark.parametrize("behind_ms", [3 * 3_600_000, -3 * 3_600_000], ids=["late", "of a clock that is behind"])
def test_decisions_whose_topic_times_are_not_their_log_times_are_found_all_the_same(
    run: Cli, root: Path, made: Topics, tmp_path: Path, behind_ms: int
) -> None:
    shifted = {
        (topic, number): [
            structs.replace(each, timestamp_ms=each.timestamp_ms + behind_ms) if topic == DECISIONS else each
            for each in records
        ]
        for (topic, number), records in made.items()
    }
    other = write_archive(tmp_path / "a", FLEET, topics=shifted)
    for arguments in (
        ("get", "hpa", "-A", "-o", "json", "--at", "2026-01-01T00:02:00Z"),
        ("describe", "-A", "--at", "2026-01-01T00:02:00Z"),
        ("export", "decisions", "-o", "csv", "--until", "2026-01-01T00:02:00Z"),
        ("export", "decisions", "-o", "csv", "--since", "2026-01-01T00:01:00Z", "--until", "2026-01-01T00:02:00Z"),
        ("explain", "c0/ns0/app0@2026-01-01T00:02:00Z", "--no-counterfactuals"),
    ):
        answers = [run(*arguments, "--from", str(folder)) for folder in (root, other)]
        assert answers[0].exit_code == answers[1].exit_code == 0
        assert len(answers[0].stdout.splitlines()) > 5
        # The next steps name the archive that was read.
        assert answers[0].stdout.replace(str(root), "DIR") == answers[1].stdout.replace(str(other), "DIR")


# --- wrong inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["describe", "c0/ns0/nobody"], 4, "no HPA c0/ns0/nobody", id="describe of an unknown HPA"),
        pytest.param(["replay", "c0/ns0/nobody"], 4, "no decision of c0/ns0/nobody", id="replay of an unknown HPA"),
        pytest.param(["replay", "app0"], 4, "no HPA app0", id="replay of half a name"),
        pytest.param(
            ["audit", "verify", "--since", "1m", "--until", "2m"], 2, "window is empty", id="a window that ends first"
        ),
        pytest.param(
            ["export", "decisions", "--since", "1m", "--until", "2m"], 2, "window is empty", id="empty export"
        ),
        pytest.param(
            ["audit", "verify", "--since", "2030-01-01T00:00:00Z"], 2, "window is empty", id="verify the future"
        ),
        pytest.param(["audit", "verify", "--since", "yesterday"], 2, "is not a valid time", id="no time"),
        pytest.param(["audit", "verify", "--public-key", "/no/key"], 2, "no such file", id="no public key"),
        pytest.param(["replay", "0-99999-uid"], 4, "no decision", id="verify an unknown decision"),
        pytest.param(["replay", "77-1-uid"], 4, "no partition 77", id="verify in an unknown partition"),
        pytest.param(
            ["explain", "77-1-uid"], 4, "Next: fleethpa decisions -A", id="explain in an unknown partition: what next"
        ),
        pytest.param(["replay", "a/b/c/d"], 2, "is not the name of an HPA", id="replay what is no name"),
        pytest.param(["replay", "0-9-uid", "--since", "1h"], 2, "excludes --since", id="one of a window"),
        pytest.param(["verify", "0-9-uid"], 2, "Next: fleethpa replay ID", id="verify is replay"),
        pytest.param(["audit", "list", "-A"], 2, "Next: fleethpa decisions -A", id="audit list is decisions"),
        pytest.param(["get", "hpa", "-A", "--at", "5h"], 4, "no record as old as", id="before the log began"),
        pytest.param(["get", "hpa", "-A", "--at", "noon"], 2, "is not a valid time", id="at no time"),
        pytest.param(
            ["get", "hpa", "-A", "--at", "99999999d"], 4, "no record as old as 1970", id="before time itself began"
        ),
        pytest.param(
            ["audit", "verify", "--until", "99999999d"], 4, "in the window", id="a window before time itself began"
        ),
        pytest.param(
            ["decisions", "-A", "--since", "9999-12-31T23:59:59-10:00"],
            2,
            "is not a valid time",
            id="after the year 9999",
        ),
        pytest.param(
            ["get", "hpa", "-A", "--at", "2026-01-01T00:01:00"], 2, "with its zone", id="at a time of no zone"
        ),
        pytest.param(["get", "hpa", "-A", "-C", "mars*,x"], 4, "no cluster matches 'mars*'", id="no cluster"),
        pytest.param(["decisions", "-A", "--limited-by", "Nope"], 2, "is not one of", id="no limit of that name"),
        pytest.param(["decisions", "-A", "--since", "soon"], 2, "is not a valid time", id="decisions since no time"),
        pytest.param(["decisions", "-A", "--reason", "Nope"], 0, "No decisions of any namespace match", id="no such"),
        pytest.param(["explain", "c0/ns0/app0@"], 2, "has no time after the @", id="explain at nothing"),
        pytest.param(["explain", "c0/ns0/app0@1m", "--at", "2m"], 2, "exclude each other", id="explain at two moments"),
        pytest.param(
            ["what-if", "c0/ns0/app0@noon", "--set", "maxReplicas=9"], 2, "is not a valid time", id="what-if then"
        ),
        pytest.param(["explain", "0-10-x", "--at", "1m"], 2, "is the ID of a decision", id="explain an id at a moment"),
        pytest.param(["explain", "0-10-x", "--change"], 2, "is the ID of a decision", id="explain an id that changed"),
        pytest.param(["get", "hpa", "-A", "--at", "1m", "-w"], 2, "exclude each other", id="watching the past"),
        pytest.param(["export", "decisions", "--partition-by", "moon", "--out", "x"], 2, "unknown", id="unknown key"),
        pytest.param(["export", "decisions", "--out", "/no/such/dir/x"], 2, "/no/such/dir/x", id="no place to write"),
        pytest.param(
            ["export", "decisions", "-o", "parquet"], 2, "-o jsonl, which DuckDB and Spark read", id="Parquet"
        ),
    ],
)
def test_wrong_input_has_its_exit_code_and_a_clear_message(
    run: Cli, root: Path, arguments: list[str], code: int, text: str
) -> None:
    result = run(*arguments, "--from", str(root))
    assert result.exit_code == code, result.output
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_a_second_key_is_never_made_over_the_first(run: Cli) -> None:
    assert run("audit", "keygen").exit_code == 0
    again = run("audit", "keygen")
    assert (again.exit_code, "exists" in again.stderr) == (2, True)


def test_an_export_that_fails_leaves_what_stood_there(run: Cli, root: Path, tmp_path: Path) -> None:
    broken, out = tmp_path / "archive", tmp_path / "out.jsonl"
    shutil.copytree(root, broken)
    last = max((broken / "decisions" / "1").glob("*.zst"))
    last.write_bytes(last.read_bytes()[:-3])
    out.write_text("of last week")
    assert run("export", "decisions", "--out", str(out), "--from", str(broken)).exit_code == 2
    assert run("export", "decisions", "nobody", "-n", "ns0", "--out", str(out), "--from", str(root)).exit_code == 4
    assert out.read_text() == "of last week"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.jsonl"]


@pytest.mark.parametrize("output", ["csv", "jsonl"])
def test_an_export_to_many_folders_opens_a_few_files_at_a_time(
    run: Cli, root: Path, made: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr("fleethpa.questions.exports.MOST_OPEN", 1)
    monkeypatch.setattr("fleethpa.questions.exports.MOST_HELD", 5)
    result = run(
        "export", "decisions", "-o", output, "--partition-by", "cluster,namespace", "--out", str(tmp_path / "out"),
        "--from", str(root),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    files = list((tmp_path / "out").rglob("*.*"))
    assert {path.stem for path in files} >= {"decisions", "decisions-1"}
    assert f"{decisions_of(made):,} decisions in {len(files)} files" in result.stderr
    reader = {"csv": "read_csv", "jsonl": "read_json"}[output]
    found = queried(f"select count(distinct id) from {reader}('{tmp_path}/out/**/decisions*.{output}')")
    assert found == [(decisions_of(made),)]


@pytest.mark.parametrize(
    ("error", "stated"),
    [
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device", "open.seg"),
            "the archive {0} cannot be written: No space left on device\n"
            "  Next: make room there; started again, the archive continues where it ended\n",
            id="a full disk",
        ),
        pytest.param(
            OSError(errno.EACCES, "Permission denied", "open.seg"),
            "the archive {0} cannot be written: Permission denied\n"
            "  Next: name a folder that this user may write with --to\n",
            id="no permission",
        ),
        pytest.param(
            PortTakenError("another process listens on 127.0.0.1:9; --web-port names another port"),
            "archive cannot continue: another process listens on 127.0.0.1:9; --web-port names another port\n"
            "  Next: fleethpa admin archive --help\n",
            id="a port that is taken is not the archive's trouble",
        ),
    ],
)
def test_why_an_archive_ends_is_named_with_what_to_do(
    run: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, stated: str
) -> None:
    async def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr("streams.history.archiving.run_archive", failing)
    made = run("admin", "archive", "--to", str(tmp_path / "a"), "--brokers", "k:9")
    assert (made.exit_code, made.stderr.partition("Error: ")[2]) == (2, stated.format(tmp_path / "a"))

"""`fleethpa cost`: the figures of the folded log from decisions alone; reports in shards, and put together again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from schemas.codec import WireError
from schemas.decisionfields import reader_of
from schemas.decisions import Decision
from schemas.keys import HpaId
from streams.analysis.backtest import Condensed, recorded_moments
from streams.analysis.costs import CostSeries
from streams.analysis.ideal import recorded_ideal
from streams.analysis.measures import Scores, scores
from streams.archive.layout import DECISIONS
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from streams.history.evaluations import readers_by_hpa
from tests.kit.archive import topics_in_closed_loop, write_archive
from tests.kit.cli import Cli
from tests.kit.closedloop import steady_fleet
from tests.kit.documented import ROOT
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

SINCE, UNTIL = "2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z"
WINDOW = ("--since", SINCE, "--until", UNTIL)
FLEET = Fleet(hpas=6, namespaces=3, minutes=20, partitions=3, metrics=2, seed=3, pods=4)
JOB = ROOT / "compose" / "kubernetes" / "report-job.yaml"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=300_000)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> Any:
    """Run a command on the archive."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    return lambda *arguments: run(*arguments, "--from", str(archive))


def folded(root: Path, hpas: set[HpaId]) -> dict[HpaId, Scores]:
    """The scores that the folded log gives."""

    async def read() -> dict[HpaId, Condensed]:
        found: dict[HpaId, Condensed] = {}
        async with aclosing(readers_by_hpa(ArchivePast(root), hpas, (0, 1 << 60), Condensed)) as parts:
            async for part in parts:
                found |= part
        return found

    recorded = asyncio.run(read())
    return {
        hpa: scores(recorded_moments(each.inputs), each.inputs[-1].period_ms, recorded_ideal(each.inputs))
        for hpa, each in recorded.items()
    }


def test_the_figures_are_those_of_the_folded_log_within_the_stated_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fleet = steady_fleet(4, 30)
    root = write_archive(tmp_path / "a", fleet, topics=topics_in_closed_loop(fleet), segment_ms=600_000)
    done = Cli(monkeypatch)("cost", "-A", *WINDOW, "-o", "json", "--from", str(root))
    found = {
        HpaId(each["cluster"], each["namespace"], each["name"]): each for each in fits("CostList", done.stdout)["items"]
    }
    true = folded(root, set(found))

    assert len(found) == fleet.hpas
    for hpa, each in found.items():
        own, its = each["scores"], true[hpa]
        period_h = 15 / 3600
        assert own["hours"] == pytest.approx(its.hours, abs=2 * period_h)
        assert each["measures"]["replicaHours"] == pytest.approx(its.replica_hours, rel=0.02)
        # A load that is wrong by a share is wrong by a pod at most wherever it is near a whole number of pods.
        assert own["idealReplicaHours"] == pytest.approx(its.ideal_replica_hours, rel=each["loadError"] + 0.02)


def test_the_table_has_the_largest_waste_first_and_says_what_it_rests_on(ask: Any) -> None:
    done = ask("cost", "-A", *WINDOW, "--price", "0.04/h", "--top", "2")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0, done.output
    assert " replica-hours ran, of which an ideal autoscaler would not have run " in lines[0]
    assert "where the load is known to ±" in lines[0]
    head = next(at for at, line in enumerate(lines) if line.startswith("HPA "))
    assert "± LOAD" in lines[head]
    assert "COST AT 0.04/H" in lines[head]
    assert float(lines[head + 1].split()[3]) >= float(lines[head + 2].split()[3])
    assert lines[head + 3].startswith("all of them ")
    assert "4 further HPAs with less waste: --top 6 shows all" in done.stdout
    assert "percentages are whole" in done.stdout


def test_of_an_hpa_without_an_evaluation_nothing_is_said(ask: Any) -> None:
    done = ask("cost", "-A", "--since", "2026-01-01T10:00:00Z", "--until", "2026-01-01T11:00:00Z")
    assert done.exit_code == 4
    assert "no evaluation of any namespace in this window" in done.stderr


# --- one declared reader ----------------------------------------------------------------------------------------------


def test_a_reader_of_some_fields_gives_what_the_whole_record_says(archive: Path) -> None:
    read = reader_of("seq", "kind", "metrics", "current_replicas", "steps")
    values = [each.value for number in range(3) for each in PartitionReader(archive, DECISIONS, number).records()]
    assert values
    for value in values:
        whole, part = msgspec.json.decode(value, type=Decision), read(value)
        assert (part.seq, part.kind, part.metrics, part.current_replicas, part.steps) == (
            *(whole.seq, whole.kind, whole.metrics, whole.current_replicas, whole.steps),
        )
    with pytest.raises(AttributeError):
        _ = read(values[0]).reason
    with pytest.raises(KeyError):
        reader_of("replicas")
    for damaged in (values[0][:-1], b"\xff", b'{"seq":"1"}', b"[" * 100_000):
        with pytest.raises(WireError):
            read(damaged)


def test_a_request_is_known_more_exactly_by_many_percentages_than_by_one() -> None:
    def decision(value: int) -> Decision:
        metric = {"type": "Resource", "name": "cpu", "value": value, "utilization": value * 100 // 500}
        record = {"id": "0-1-u", "seq": 1, "prev": "", "cluster": "c", "namespace": "n", "name": "a", "uid": "u"}
        record |= {"time": "", "input": {"partition": 0, "offset": 1, "hash": ""}, "specHash": "s", "maxReplicas": 9}
        record |= {"currentReplicas": 4, "metrics": [metric | {"targetUtilization": 60, "podsUsed": 4}]}
        return msgspec.convert(record, Decision)

    one, many = CostSeries(HpaId("c", "n", "a")), CostSeries(HpaId("c", "n", "a"))
    one.add(decision(333), 0)
    for at in range(100):
        many.add(decision(200 + 7 * at % 300), at * 15_000)
    assert many.cost().error < 0.003 < one.cost().error
    # 333m of a request of 500m are 1.11 times a target of 60 %, on four pods.
    assert one.cost().scores.replica_hours == 0.0
    assert many.cost().measures.worst_overload == pytest.approx(499 / 300, rel=0.01)


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["cost -A --price 0.04", "tune -A --objective cost"])
def test_shards_put_together_say_what_one_run_says(ask: Any, tmp_path: Path, command: str) -> None:
    words, folder = [*command.split(), *WINDOW], str(tmp_path / "parts")
    for shard in ("0/2", "1/2"):
        done = ask(*words, "--shard", shard, "--parts", folder)
        assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert ask(command.split()[0], "--parts", folder).stdout == ask(*words).stdout


def test_what_lacks_a_part_or_mixes_questions_is_refused_by_name(ask: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "parts")
    nothing = ask("cost", "--parts", folder)
    assert nothing.exit_code == 2
    assert "has no parts" in nothing.stderr
    ask("cost", "-A", *WINDOW, "--shard", "1/3", "--parts", folder)
    lacking = ask("cost", "--parts", folder)
    assert lacking.exit_code == 2
    assert "2 shards of 3 missing" in lacking.stderr
    assert "0/3, 2/3" in lacking.stderr
    ask("cost", "-A", "--since", SINCE, "--until", "2026-01-01T00:10:00Z", "--shard", "0/3", "--parts", folder)
    mixed = ask("cost", "--parts", folder)
    assert mixed.exit_code == 2
    assert "is of another question than the other parts" in mixed.stderr
    (tmp_path / "parts" / "part-0-of-3.jsonl").write_text("{")
    assert "cannot be read" in ask("cost", "--parts", folder).stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(("--shard", "3/3", "--parts", "x"), "the last 7/8", id="beyond the last"),
        pytest.param(("--shard", "one", "--parts", "x"), "is no shard", id="no numbers"),
        pytest.param(("--shard", "0/3"), "--parts DIR", id="nowhere to write"),
    ],
)
def test_a_shard_that_cannot_be_is_refused(ask: Any, words: tuple[str, ...], text: str) -> None:
    done = ask("cost", "-A", *words)
    assert done.exit_code == 2
    assert text in done.stderr


def test_the_pods_of_the_job_do_all_shards_and_nothing_twice(ask: Any, tmp_path: Path) -> None:
    (job,) = yaml.safe_load_all(JOB.read_text())
    spec, (container,) = job["spec"], job["spec"]["template"]["spec"]["containers"]
    assert spec["completionMode"] == "Indexed"
    folder = str(tmp_path / "parts")
    for index in range(spec["completions"]):
        words = [each.replace("$(JOB_COMPLETION_INDEX)", str(index)) for each in container["args"]]
        at = words.index("--from")
        words = [*words[:at], *words[at + 2 :]]
        places = {"/parts": folder, "2026-11-01T00:00:00Z": SINCE, "2026-11-08T00:00:00Z": UNTIL}
        words = [places.get(word, word) for word in words]
        assert ask(*words).exit_code == 0
    parts = [path.read_bytes().splitlines()[1:] for path in sorted(Path(folder).iterdir())]
    assert sum(map(len, parts)) == FLEET.hpas
    assert ask("cost", "--parts", folder).stdout == ask("cost", "-A", *WINDOW).stdout

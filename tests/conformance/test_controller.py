"""The engine against what upstream's controller answered; the files are a representative part of the full vectors."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleethpa.frame import errors as failures
from tests.conformance import calculatorcases, scenarios
from tests.conformance.__main__ import conformance, to_json, to_text
from tests.conformance.runner import run
from tests.conformance.vectorerrors import InputError, MissingFileError, UnknownFileKindError

DATA = Path(__file__).parent / "data"
STANDALONE = (
    *("controller-boundary", "controller-random", "controller-trace", "controller-compiled"),
    *("calculator", "metrics-client"),
)


def cases_of(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


def written(path: Path, cases: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


@pytest.mark.parametrize("name", STANDALONE)
def test_every_answer_is_upstreams(name: str) -> None:
    report = run([DATA / f"{name}.jsonl.gz"], jobs=1)

    assert [shown for file in report.files for shown in file.first] == []
    assert report.files[0].equal == report.files[0].cases == len(cases_of(name)) > 0


def test_every_sync_of_a_recording_is_equal_or_explained() -> None:
    report = run([DATA / "A-syncs.jsonl.gz"], jobs=1).files[0]

    assert report.first == ()
    assert (report.kind, report.cases, report.different) == ("recording", 160, 0)
    assert report.explained == {"order of two HPA names": 13, "pod named": 5}
    assert report.equal == 142


def test_the_order_of_samples_does_not_matter() -> None:
    for case in cases_of("controller-random")[:120]:
        for tick in case["ticks"]:
            for metric in tick["in"].get("metrics", []):
                if "pods" in metric:
                    metric["pods"] = dict(reversed(metric["pods"].items()))
        assert list(scenarios.check_scenario(case)) == []


def test_the_order_of_pods_matters_only_to_the_pod_that_an_error_names() -> None:
    for case in cases_of("calculator"):
        case["pods"] = list(reversed(case.get("pods") or []))
        error = case["out"].get("error", "")
        (_, differences), *_ = calculatorcases.check([case])
        if " Pod " in error:
            case["out"]["error"] = ""
            assert [path for path, *_ in differences] in ([], ["out.error"])
        else:
            assert differences == []


@pytest.mark.parametrize("selector", [pytest.param("", id="none"), pytest.param("cheddar cheese", id="a bad one")])
def test_another_hpa_without_a_usable_selector_shares_no_pods(selector: str) -> None:
    for case in cases_of("controller-random")[:40]:
        for tick in case["ticks"]:
            tick["in"]["otherHpas"] = [*tick["in"].get("otherHpas", []), {"name": "zz-unknown", "selector": selector}]
        assert list(scenarios.check_scenario(case)) == []


def test_a_wrong_answer_is_found_and_shown(tmp_path: Path) -> None:
    case = cases_of("controller-trace")[0]
    case["ticks"][3]["out"]["status"]["desiredReplicas"] += 1
    path = written(tmp_path / "changed.jsonl", [case])

    report = run([path], jobs=1)

    assert report.different == 1
    assert report.files[0].first[0].path == "ticks[3].out.status.desiredReplicas"
    assert "ticks[3].out.status.desiredReplicas" in to_text(report)


def test_a_wrong_memory_is_found(tmp_path: Path) -> None:
    case = cases_of("controller-trace")[0]
    case["memory"]["recommendations"].append([1, 0])

    report = run([written(tmp_path / "changed.jsonl", [case])], jobs=1)

    assert report.files[0].first[0].path == "memory.recommendations"


def test_a_changed_sync_is_not_explained_away(tmp_path: Path) -> None:
    for part in ("watch", "answers", "controller"):
        (tmp_path / f"A-{part}.jsonl.gz").write_bytes((DATA / f"A-{part}.jsonl.gz").read_bytes())
    syncs = cases_of("A-syncs")
    changed = next(sync for sync in syncs if sync.get("write"))
    changed["write"]["asked"] += 1
    with gzip.open(tmp_path / "A-syncs.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(sync) + "\n" for sync in syncs)

    assert run([tmp_path / "A-syncs.jsonl.gz"], jobs=1).different == 1


def test_two_processes_report_what_one_does() -> None:
    one, two = (run([DATA / "calculator.jsonl.gz"], jobs=jobs).files[0] for jobs in (1, 2))

    assert (one.cases, one.equal, one.different) == (two.cases, two.equal, two.different)


def test_the_json_report_has_exactly_the_promised_members() -> None:
    report = json.loads(to_json(run([DATA / "metrics-client.jsonl.gz"], jobs=1, limit=10)))

    file = report["files"][0]
    assert report == {"files": [file], "different": 0}
    assert list(file) == ["file", "kind", "cases", "equal", "different", "ticksPerSecond", "explained"]
    assert (file["kind"], file["cases"], file["equal"], file["explained"]) == ("metrics-client", 10, 10, {})


def test_the_command_exits_1_on_a_difference(tmp_path: Path) -> None:
    case = cases_of("metrics-client")[0]
    case["out"] = 1
    path = written(tmp_path / "one.jsonl", [case])

    result = CliRunner().invoke(conformance, [str(path), "--jobs", "1", "-o", "json"])

    assert result.exit_code == failures.ANSWER_IS_NO
    assert json.loads(result.output)["different"] == 1


@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param(None, MissingFileError, id="a missing file"),
        pytest.param(b"", UnknownFileKindError, id="an empty file"),
        pytest.param(b"\x1f\x8bnot gzip", InputError, id="a broken gzip file"),
        pytest.param(b"hello\n", InputError, id="a text"),
        pytest.param(b"[1]\n", InputError, id="JSON that is no object"),
        pytest.param(b'{"a":1}\n', UnknownFileKindError, id="an object of no known kind"),
        pytest.param(b'{"type":"header"}\n{"type":"watch"}\n', UnknownFileKindError, id="a recording's other part"),
        pytest.param(b'{"type":"header"}\n{"type":"sync"}\n', InputError, id="syncs under a foreign name"),
    ],
)
def test_what_cannot_be_checked_is_named(tmp_path: Path, content: bytes | None, error: type[InputError]) -> None:
    path = tmp_path / "file.jsonl"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(error, match="file"):
        run([path], jobs=1)


def test_a_missing_sibling_of_a_recording_is_named(tmp_path: Path) -> None:
    (tmp_path / "A-syncs.jsonl.gz").write_bytes((DATA / "A-syncs.jsonl.gz").read_bytes())

    with pytest.raises(InputError, match=r"A-answers\.jsonl\.gz"):
        run([tmp_path / "A-syncs.jsonl.gz"], jobs=1)

"""Files as they come: plain or packed, cut short, of another recording, with a case that breaks the engine."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conformance.__main__ import conformance
from tests.conformance.runner import run
from tests.conformance.vectorerrors import InputError

DATA = Path(__file__).parent / "data"
PARTS = ("syncs", "answers", "controller", "watch")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording under another name, some of it unpacked."""
    for part in PARTS:
        raw = (DATA / f"A-{part}.jsonl.gz").read_bytes()
        plain = part in ("syncs", "watch")
        (tmp_path / f"B-{part}.jsonl{'' if plain else '.gz'}").write_bytes(gzip.decompress(raw) if plain else raw)
    return tmp_path / "B-syncs.jsonl"


def command(*arguments: Path | str) -> tuple[int, str]:
    """Return the exit code and what is printed."""
    result = CliRunner().invoke(conformance, ["--jobs", "1", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_recording_may_have_any_name_and_be_unpacked(recording: Path) -> None:
    report = run([recording], jobs=1, limit=40).files[0]

    assert (report.kind, report.cases, report.different) == ("recording", 40, 0)


def cut(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def empty(path: Path) -> None:
    path.write_bytes(gzip.compress(b""))


def foreign(path: Path) -> None:
    first, rest = gzip.decompress(path.read_bytes()).split(b"\n", 1)
    other = json.dumps({**json.loads(first), "t": 1.5}).encode()
    path.write_bytes(gzip.compress(other + b"\n" + rest))


def text(path: Path) -> None:
    path.write_bytes(b"hello\n")


def array(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"[1]\n"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(cut, "is not gzipped JSON lines", id="cut short"),
        pytest.param(empty, "its first line is not a header", id="empty"),
        pytest.param(foreign, "belongs to another recording", id="of another recording"),
        pytest.param(text, "is not gzipped JSON lines", id="no JSON"),
        pytest.param(array, "is not part of a recording", id="a line that is no object"),
        pytest.param(Path.unlink, "cannot be read", id="missing"),
    ],
)
@pytest.mark.parametrize("part", ["answers", "controller"])
def test_a_bad_part_of_a_recording_is_named(
    recording: Path, part: str, damage: Callable[[Path], None], says: str
) -> None:
    damage(recording.with_name(f"B-{part}.jsonl.gz"))

    code, output = command(recording)
    assert code == 2
    assert says in output
    assert "B-" in output


def test_a_sync_that_lacks_what_it_must_have_is_an_input_error(recording: Path) -> None:
    header = recording.read_bytes().split(b"\n", 1)[0]
    recording.write_bytes(header + b'\n{"type":"sync","hpa":"web"}\n')

    with pytest.raises(InputError, match="a sync or the header cannot be read"):
        run([recording], jobs=1)


def lines_of(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "place", "broken"),
    [
        pytest.param("controller-boundary", 3, {"ticks": [{}]}, id="a scenario"),
        pytest.param("calculator", 3, {"currentReplicas": 1}, id="a calculation"),
        pytest.param("api-conversion", 3, {"from": "v2"}, id="a conversion"),
        pytest.param("api-selectors", 3, {"neither": 1}, id="a selector"),
        pytest.param("kubectl", 1, {"kind": "age", "seconds": "x", "text": "1s"}, id="an age"),
    ],
)
def test_a_case_that_breaks_the_engine_is_one_difference(
    tmp_path: Path, name: str, place: int, broken: dict[str, Any]
) -> None:
    cases = lines_of(name)[:12]
    cases.insert(place, broken)
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))

    report = run([path], jobs=1).files[0]

    assert report.different == 1
    assert report.equal == report.cases - 1 > 8
    assert "Error" in report.first[0].ours


def test_a_line_that_is_no_json_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in lines_of("calculator")[:4]) + "nope\n")

    code, output = command(path)
    assert code == 2
    assert "line 5 is not JSON" in output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param([], 2, id="no file"),
        pytest.param(["nowhere.jsonl.gz"], 4, id="a file that is not there"),
        pytest.param(["."], 2, id="a folder"),
        pytest.param([str(DATA / "A-watch.jsonl.gz")], 2, id="another part of a recording"),
        pytest.param([str(DATA / "metrics-client.jsonl.gz"), "--limit", "3"], 0, id="equal cases"),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert command(*arguments)[0] == code


def test_files_of_several_kinds_are_reported_in_the_order_given() -> None:
    names = ["metrics-client.jsonl.gz", "api-quantity.jsonl.gz", "calculator.jsonl.gz", "api-selectors.jsonl.gz"]

    report = run([DATA / name for name in names], jobs=1, limit=20)

    assert [file.kind for file in report.files] == ["metrics-client", "quantity", "calculator", "selectors"]
    assert [file.cases for file in report.files] == [20, 20, 20, 20]
    assert report.different == 0

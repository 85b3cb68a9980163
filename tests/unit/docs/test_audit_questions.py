"""What docs/audit.md shows of other tools works on an archive, as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from msgspec import structs

from fleethpa.questions.exports import COLUMNS
from schemas.decisionfields import DECISION_FIELDS
from streams.archive.layout import DECISIONS
from tests.kit.archive import ENFORCING, topics_of, write_archive
from tests.kit.generated_log import Fleet

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Asking the archive with other tools\n")[1].split("\n## ")[0]
FLEET = Fleet(hpas=8, namespaces=2, minutes=6, partitions=2, metrics=1, settings=ENFORCING)
QUESTIONS = 5


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive named `DIR`, one HPA of which is named as in the page."""
    folder = tmp_path_factory.mktemp("asked")
    made = {
        key: [structs.replace(each, value=each.value.replace(b"app1", b"checkout")) for each in records]
        for key, records in topics_of(FLEET).items()
    }
    write_archive(folder / "DIR", FLEET, topics=made, segment_ms=120_000)
    return folder


def test_duckdb_answers_the_questions_of_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    view, *questions = blocks("sql")
    assert len(questions) == QUESTIONS
    with duckdb.connect() as connection:
        connection.execute(view)
        counted = connection.execute("select count(*), count(distinct id) from decisions").fetchall()
        made = topics_of(FLEET)
        count = sum(len(made[DECISIONS, number]) for number in range(FLEET.partitions))
        assert counted == [(count, count)]
        for question in questions:
            assert connection.execute(question).fetchall(), question


DUCKDB = {
    "text": "VARCHAR",
    "integer": "INTEGER",
    "texts": "VARCHAR[]",
    "time": "TIMESTAMP",
    "json": "JSON",
    "result": "JSON",
}


def test_the_view_names_fields_of_a_decision_with_their_types() -> None:
    declared = {each.wire: DUCKDB[each.column] for each in DECISION_FIELDS if each.column}
    named = dict(re.findall(r"(\w+): '([A-Z\[\]]+)'", blocks("sql")[0].split("columns = {")[1]))
    assert len(named) > 10
    assert named.items() <= declared.items()


def test_the_page_lists_the_columns_of_an_export() -> None:
    listed = PAGE.split("One row for each decision has the columns ")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == [name for name, *_ in COLUMNS]


@pytest.mark.skipif(not shutil.which("zstdcat") or not shutil.which("jq"), reason="NOT TESTED: no zstdcat or no jq")
def test_jq_lists_the_wanted_writes(folder: Path) -> None:
    (line,) = blocks("sh")
    found = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=True)
    rows = [row.split("\t") for row in found.stdout.splitlines()]
    assert len(rows) > 20
    assert all(len(row) == 6 and row[5].isdecimal() for row in rows)
    assert rows == sorted(rows)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="`compression.zstd` comes with Python 3.14")
def test_python_reads_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (code,) = blocks("python")
    names: dict[str, object] = {}
    exec(code, names)
    assert names["wanted"]

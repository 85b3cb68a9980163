"""`make generated` renews every page and schema that is made from the code."""

import re
from pathlib import Path

import pytest

from tests.generated import DOCS, MADE, ROOT, write


def test_every_page_that_says_it_is_made_is_among_them() -> None:
    made = re.compile(r"\bmade\b.{0,80}?\bby\s`python (?:-m) tests\.", re.IGNORECASE | re.DOTALL)
    saying = {path for path in DOCS.rglob("*.md") if made.search(path.read_text()[:600])}
    assert len(saying) >= 5
    assert saying <= MADE.keys()


def test_every_published_schema_of_a_format_is_among_them() -> None:
    assert set((ROOT / "schemas" / "json").glob("*.json")) <= MADE.keys()


def test_what_is_stale_or_missing_is_written_and_nothing_else(tmp_path: Path) -> None:
    current, stale, missing = (tmp_path / name for name in ("current", "stale", "missing"))
    current.write_text("é")
    stale.write_text("before")
    before = current.stat().st_mtime_ns
    assert write({current: lambda: "é", stale: lambda: "now", missing: lambda: b"new"}) == [stale, missing]
    assert (current.stat().st_mtime_ns, stale.read_text(), missing.read_text()) == (before, "now", "new")


def test_a_fault_leaves_every_file_as_it_is(tmp_path: Path) -> None:
    def fault() -> str:
        raise ValueError("no page")

    with pytest.raises(ValueError, match="no page"):
        write({tmp_path / "first": lambda: "now", tmp_path / "second": fault})
    assert list(tmp_path.iterdir()) == []

"""The reference page of metrics says what the parts serve."""

from pathlib import Path

from tests.metricsreference import page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make generated`"


def test_every_name_has_the_prefix_and_a_meaning() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert all(row[0].startswith("| `fleethpa_") for row in rows)
    assert all(len(row[3]) > len("Always 1") for row in rows)

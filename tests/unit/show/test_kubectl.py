"""What kubectl shows: ages at their edges, cells and lines that the vectors touch lightly, hostile text."""

from typing import Any

import pytest

from fleethpa.show.kubectl import align, describe, hpa_table_cells, targets
from fleethpa.show.text import human_duration
from schemas.kubernetes.gotimes import parse_time_ms
from tests.conformance.kubectltable import hpa_table, print_table

NOW_MS = parse_time_ms("2001-02-03T04:05:06Z")


def hpa(metrics: Any = None, current: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop"} | metadata,
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5, "metrics": metrics or []},
        "status": {"desiredReplicas": 0, "currentMetrics": current},
    }


def external(**target: str) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": 'q"x'}, "target": target}}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(-2, "<invalid>", id="two seconds ahead"),
        pytest.param(-1.9, "0s", id="less than two ahead: cut toward zero, not down"),
        pytest.param(0.9, "0s", id="part of a second"),
        pytest.param(119, "119s", id="below two minutes"),
        pytest.param(120, "2m", id="two minutes"),
        pytest.param(599, "9m59s", id="below ten minutes"),
        pytest.param(600, "10m", id="ten minutes"),
        pytest.param(10799, "179m", id="below three hours"),
        pytest.param(10800, "3h", id="three hours"),
        pytest.param(28799, "7h59m", id="below eight hours"),
        pytest.param(28800, "8h", id="eight hours"),
        pytest.param(172799, "47h", id="below two days"),
        pytest.param(172800, "2d", id="two days"),
        pytest.param(691199, "7d23h", id="below eight days"),
        pytest.param(691200, "8d", id="eight days"),
        pytest.param(730 * 86400 - 1, "729d", id="below two years"),
        pytest.param(730 * 86400, "2y", id="two years"),
        pytest.param(2920 * 86400 - 1, "7y364d", id="below eight years"),
        pytest.param(2921 * 86400, "8y", id="eight years"),
    ],
)
def test_ages_get_coarser(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("metric", "current", "cell"),
    [
        pytest.param(external(averageValue="5"), {}, "<unknown>/5 (avg)", id="no current value"),
        pytest.param(
            external(averageValue="5"), {"external": {"current": {"value": "1"}}}, "<unknown>/5 (avg)", id="no average"
        ),
        pytest.param(external(value="5"), {"external": {"current": {"averageValue": "1"}}}, "<nil>/5", id="no total"),
        pytest.param(
            external(value="5"), {"resource": {"current": {}}}, "<unknown>/5", id="another source in its place"
        ),
        pytest.param(
            {"type": "Resource", "resource": {"name": "cpu", "target": {}}}, {}, "cpu: <unknown>/<auto>", id="no target"
        ),
        pytest.param({"type": "Magic"}, {}, "<unknown type>", id="an unknown type"),
    ],
)
def test_targets_without_all_values(metric: dict[str, Any], current: dict[str, Any], cell: str) -> None:
    assert targets(hpa([metric], [current])) == cell


def test_no_metrics_no_minimum_no_time() -> None:
    assert hpa_table_cells(hpa(), NOW_MS) == ["web", "Deployment/web", "<none>", "<unset>", 5, 0, "<unknown>"]
    assert targets(hpa([external(value="1")] * 4)) == "<unknown>/1, <unknown>/1 + 2 more..."


def test_label_columns_are_headed_by_the_name_part() -> None:
    text = hpa_table([hpa(labels={"example.com/team": "a"})], NOW_MS, label_columns=["example.com/team"])

    assert text.splitlines()[0].endswith("AGE         TEAM")
    assert text.splitlines()[1].endswith("<unknown>   a")


def test_labels_are_in_order_of_their_whole_text() -> None:
    labels = {"app": "a", "app-x": "b", "app.kubernetes.io/name": "c", "app2": "d", "b": "e"}

    text = hpa_table([hpa(labels=labels)], NOW_MS, show_labels=True)

    assert text.splitlines()[1].endswith("   app-x=b,app.kubernetes.io/name=c,app2=d,app=a,b=e")


def test_a_column_stays_as_wide_as_it_was_before_a_row_without_it() -> None:
    text = print_table(["A", "B"], [["a\tlong name", "c"], ["x", "y"], ["a\tb", "c"]])

    assert text.splitlines()[-1] == "a             b           c"


def test_a_cell_shows_its_first_line_and_no_control_sequence() -> None:
    assert print_table(["A", "B"], [["x\x1b[2J", "one\ntwo"]]) == "A        B\nx^[[2J   one...\n"


@pytest.mark.parametrize(
    ("name", "headers", "text"),
    [
        pytest.param("sevens\nmore", True, "A             B\nsevens...     x\n", id="a cut cell counts whole"),
        pytest.param("sevens\nmore", False, "sevens...   x\n", id="no wider than itself in the first row"),
        pytest.param("日本語", True, "A           B\n日本語         x\n", id="in bytes, though aligned by characters"),
    ],
)
def test_a_column_is_as_wide_as_the_bytes_of_its_longest_cell(name: str, headers: bool, text: str) -> None:
    assert print_table(["A", "B"], [[name, "x"]], headers=headers) == text


def test_a_table_without_rows_has_no_headers() -> None:
    assert print_table(["A"], []) == ""


def test_describe_shows_long_and_many_lined_annotations_in_full_width() -> None:
    annotations = {"long": "é" * 150, "note": "a\nb\n", "kubectl.kubernetes.io/last-applied-configuration": "{}"}

    lines = describe(hpa(annotations=annotations)).splitlines()

    start = lines.index("Annotations:        long:")
    assert lines[start + 1] == " " * 22 + "é" * 69 + "..."
    assert [line.strip() for line in lines[start + 2 : start + 5]] == ["note:", "a", "b"]
    assert not any("last-applied" in line for line in lines)


def test_describe_quotes_and_escapes() -> None:
    text = describe(hpa([external(value="5"), {"type": "Magic"}], None, labels={"a": "\x1b[2J\r"}))

    assert '"q\\"x" (target value):' in text
    assert '<unknown metric type "Magic">' in text
    assert "a=^[[2J\\r" in text


@pytest.mark.parametrize(
    ("text", "aligned"),
    [
        pytest.param("a\tb\nccc\td\n", "a    b\nccc  d\n", id="a column has one width"),
        pytest.param("a\tb\n\nccc\td\n", "a  b\n\nccc  d\n", id="a line without cells ends it"),
        pytest.param(
            "a\tb\tc\nddd\te\nf\tg\th\n", "a    b  c\nddd  e\nf    g  h\n", id="a shorter line ends inner columns"
        ),
        pytest.param("a\t\nb\tc\n", "a  \nb  c\n", id="what ends with a tab is padded"),
        pytest.param("a\vb\nccc\td", "a    b\nccc  d", id="another end of a cell"),
        pytest.param("a\tb\fccc\td", "a  b\nccc  d", id="a form feed ends a line and its columns"),
    ],
)
def test_columns_are_gos(text: str, aligned: str) -> None:
    assert align(text) == aligned

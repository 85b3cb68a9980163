"""Reports as one HTML file: the chart's script is the only one, and what a name contains stays data."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from fleethpa.show.html import chart_script, page_of
from fleethpa.show.report import Chart, Curve, Grid, QuestionReport, Section, Sentences, thinned

HOSTILE = "</script><script>alert(1)</script>"
CHART = Chart("Replicas", "replicas", [Curve(HOSTILE, "recorded", [(0, 3.0), (15_000, 5.0)])], 0, 15_000, 5.0)
WITH_CHART = QuestionReport("Backtest", "BacktestList", {}, [Section(HOSTILE, parts=[CHART])])


def _scripts(html: str) -> list[tuple[str, str]]:
    return re.findall(r"<script([^>]*)>(.*?)</script>", html, re.DOTALL)


def test_a_report_has_one_script_and_the_name_of_a_curve_is_data() -> None:
    (kind, data), (plain, script) = _scripts(page_of(WITH_CHART))
    assert (kind, plain, script) == (' type="application/json"', "", chart_script())
    assert json.loads(data)["lines"][0]["name"] == HOSTILE


def test_a_report_reaches_no_other_host_and_keeps_its_picture_where_no_script_runs() -> None:
    html = page_of(WITH_CHART)
    assert not re.search(r"(?:src|href)=|url\(|@import", html)
    assert '<path class="recorded" d="M64.0 100.8H940.0V12.0H940.0"/>' in html


def test_a_report_without_charts_has_no_script() -> None:
    assert _scripts(page_of(QuestionReport("Tune", "TuningList", {}, [Section("a")]))) == []


def test_texts_of_a_report_are_text_on_one_line() -> None:
    table = Grid([("HPA", "RAN"), ("<img src=x>", "1")])
    section = Section("<i>", "<u>", [Sentences(["<b>\u202eone\ntwo"]), table])
    html = page_of(QuestionReport("Tune", "TuningList", {}, [section]))
    assert "<p>&lt;b&gt; one two</p>" in html
    assert "<td>&lt;img src=x&gt;</td>" in html
    assert not re.search(r"<(?:img|b|i|u)[ >]", html)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(2, 30))
def test_a_thinned_curve_keeps_its_ends_and_its_highest_point_in_order(values: list[int], most: int) -> None:
    points = list(enumerate(values))
    kept = thinned(points, most, lambda point: point[1])
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(value for _, value in kept) == max(values)
    assert len(kept) <= most + 2

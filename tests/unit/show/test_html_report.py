"""Reports as one HTML file: the chart's script is the only one, and what a name contains stays data."""

import base64
import hashlib
import json
import re

from fleethpa.show.html import ChartLine, chart_figure, html_document, script_source

HOSTILE = "</script><script>alert(1)</script>"
LINE = ChartLine(name=HOSTILE, colour="--recorded", times=[0.0, 15.0], values=[3.0, 5.0])


def _scripts(html: str) -> list[tuple[str, str]]:
    return re.findall(r"<script([^>]*)>(.*?)</script>", html, re.DOTALL)


def test_a_policy_can_allow_the_reports_script_and_no_other() -> None:
    html = html_document("Backtest", [chart_figure("Replicas", [LINE], 5.0, "<svg></svg>")], charts=True)
    (kind, data), (plain, script) = _scripts(html)
    assert (kind, plain) == (' type="application/json"', "")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert script_source() == f"'sha256-{digest}'"
    assert json.loads(data)["lines"][0]["name"] == HOSTILE


def test_a_report_reaches_no_other_host_and_keeps_its_picture_where_no_script_runs() -> None:
    html = html_document("Backtest", [chart_figure("Replicas", [LINE], 5.0, "<svg></svg>")], charts=True)
    assert not re.search(r"(?:src|href)=|url\(|@import", html)
    assert "<svg></svg>" in html


def test_a_report_without_charts_has_no_script() -> None:
    assert _scripts(html_document("Regret", ["<p></p>"])) == []

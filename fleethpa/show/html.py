"""Reports as one HTML file that needs nothing else: no network; readable without its script, light and dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

import msgspec
from msgspec import Struct

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d5dae1; --page: #fff; --card: #f6f8fa;
  --recorded: #57606a; --candidate: #0969da; --need: #bf8700; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4b0; --line: #30363d; --page: #0d1117;
  --card: #161b22; --recorded: #9aa4b0; --candidate: #58a6ff; --need: #d29922; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p, li { color: var(--soft); margin: .2rem 0; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; background: var(--card); border-radius: 6px; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); stroke-width: 1; } path { fill: none; stroke-width: 2; }
.recorded { stroke: var(--recorded); } .candidate { stroke: var(--candidate); }
.need { stroke: var(--need); stroke-width: 1.2; stroke-dasharray: 3 3; }
.failed { color: var(--bad); font-weight: 600; }
.key span { margin-right: 1.2rem; } .key i { display: inline-block; width: 1.4em; height: 0; margin-right: .4em;
  border-top: 3px solid; vertical-align: middle; }
figure { margin: 0; } .plot { background: var(--card); border-radius: 6px; } .plot .u-title { font-size: .85rem; }
.reading { min-height: 1.5em; font-variant-numeric: tabular-nums; }
.bars rect { fill: var(--candidate); } .tried { fill: var(--soft); } .deployed { fill: var(--recorded); }
.proposed { fill: var(--candidate); } pre { overflow-x: auto; background: var(--card); padding: .6rem; }
"""


_SCRIPTS: Final = ("vendor/uplot-1.6.32.min.js", "static/chart.js", "static/report.js")
"""What draws the charts of the page draws those of a report."""


class ChartLine(Struct, kw_only=True):
    """A step line: `values` at `times` (seconds since 1970). `colour`: a name of the style; `dash`: as of a canvas."""

    name: str
    colour: str
    times: list[float]
    values: list[float]
    dash: list[int] = []


def html_document(title: str, parts: Iterable[str], *, charts: bool = False) -> str:
    """The whole page; `charts`: with the script that draws the figures of `chart_figure`."""
    style = _page_file("vendor/uplot-1.6.32.min.css") + _STYLE if charts else _STYLE
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>fleethpa {escape(title.lower())}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{''.join(parts)}"
        f"{f'<script>{chart_script()}</script>' if charts else ''}</body>\n</html>\n"
    )


def chart_figure(title: str, lines: Sequence[ChartLine], top: float, picture: str) -> str:
    """A chart of step lines up to `top`; `picture`: the same as SVG, which stays where no script runs."""
    data = msgspec.json.encode({"title": title, "top": top, "lines": lines}).decode().replace("<", "\\u003c")
    return (
        f'<figure class="chart"><script type="application/json">{data}</script><div class="plot"></div>{picture}'
        '<p class="reading"></p></figure>'
    )


@cache
def chart_script() -> str:
    """The only script of a report."""
    return "\n".join(map(_page_file, _SCRIPTS))


def script_source() -> str:
    """What a Content-Security-Policy allows so that this script runs, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(chart_script().encode()).digest()).decode()}'"


def _page_file(path: str) -> str:
    return files("fleethpa").joinpath("page", path).read_text(encoding="utf-8")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, the first one the header."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def items(texts: Iterable[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>\n"

"""`python -m tests.conformance FILE… [-o json]`: the engine against upstream's recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from fleethpa.frame import errors
from fleethpa.frame.session import say
from fleethpa.show.text import layout
from streams.hpa.rules import UnknownRulesError, minor_of, parse_gates, rules_of
from tests.conformance.runner import ConformanceReport, FileReport, Shown, run
from tests.conformance.vectorerrors import InputError, MissingFileError

_HEADER = ("FILE", "KIND", "CASES", "EQUAL", "DIFFERENT", "TICKS/S", "EXPLAINED")
_WIDTH = 300


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--jobs", type=click.IntRange(1), help="Number of processes [default: one per core].")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N cases of each file.")
@click.option("--show", type=click.IntRange(0), default=10, show_default=True, help="Number of differences to print.")
@click.option("--as", "version", metavar="1.NN", help="Answer recordings as this version of Kubernetes.")
@click.option("--gates", default="", metavar="NAME=true,…", help="Feature gates of that version.")
@click.option("--split", type=click.IntRange(1), default=1, metavar="K", help="Split the pods over K clusters.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def conformance(
    context: click.Context,
    files: tuple[Path, ...],
    jobs: int | None,
    limit: int | None,
    show: int,
    version: str | None,
    gates: str,
    split: int,
    output: str,
) -> None:
    """Compare the engine with upstream's recorded answers.

    FILES hold cases of any kind (recognized by content), or the syncs of a recording (NAME-syncs.jsonl.gz, its siblings
    beside it). With --split every case is decided from what the reports of K clusters add up to. Exit 1 when any case
    differs.
    """
    try:
        rules = rules_of(minor_of(version), parse_gates(gates)) if version else None
        report = run(files, jobs, limit, show, rules, split)
    except UnknownRulesError as error:
        raise click.BadParameter(str(error), param_hint="--as, --gates") from error
    except InputError as error:
        say(f"Error: {error}")
        context.exit(errors.NOT_FOUND if isinstance(error, MissingFileError) else errors.USAGE)
    say(to_json(report) if output == "json" else to_text(report), err=False)
    if report.different:
        context.exit(errors.ANSWER_IS_NO)


def to_json(report: ConformanceReport) -> str:
    """Render a report for programs."""
    body: dict[str, Any] = {"files": [_file(each) for each in report.files], "different": report.different}
    return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()


def _file(report: FileReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "kind": report.kind,
        "cases": report.cases,
        "equal": report.equal,
        "different": report.different,
        "ticksPerSecond": report.ticks_per_second,
        "explained": report.explained,
    } | ({"writes": report.writes} if report.as_another else {})


def to_text(report: ConformanceReport) -> str:
    """Render a report for people: a table, then the first differences."""
    rows = [_HEADER, *(_row(each) for each in report.files)]
    lines = layout(rows)
    for file in report.files:
        if file.as_another:
            lines += ["", f"{file.file}: other replicas would have been written at {file.writes} syncs"]
        for shown in file.first:
            lines += _shown(file, shown)
    return "\n".join(lines)


def _row(report: FileReport) -> tuple[str, ...]:
    explained = ", ".join(f"{count} {reason}" for reason, count in report.explained.items())
    counts = (report.cases, report.equal, report.different, round(report.ticks_per_second))
    return (report.file, report.kind, *(str(count) for count in counts), explained or "-")


def _shown(file: FileReport, shown: Shown) -> list[str]:
    return [
        "",
        f"{file.file} {shown.case} {shown.path}".rstrip(),
        f"  upstream: {_value(shown.upstream)}",
        f"  ours:     {_value(shown.ours)}",
    ]


def _value(value: Any) -> str:
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


if __name__ == "__main__":
    conformance()

"""`fleethpa lint`: HPA manifests checked as the API server would, and for what is likely not meant."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, usage
from fleethpa.cli.common.linting import lint as check
from fleethpa.cli.common.manifestfiles import FieldValidation, read_input, validate_option
from fleethpa.cli.common.selection import DEFAULT_NAMESPACE
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.words import counted

if TYPE_CHECKING:
    from fleethpa.cli.common.linting import Finding


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, help="Namespace for manifests without one.")
@validate_option
@click.option("--strict", is_flag=True, help="Also exit 1 for warnings.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option(formats=("table", "json", "yaml", "jsonl", "csv"))
@command_options()
def lint(
    session: Session,
    filenames: tuple[str, ...],
    namespace: str,
    validate: FieldValidation,
    strict: bool,
    no_headers: bool,
    output: str,
) -> int:
    """Check HPA manifests without a cluster; exit 1 if one is invalid or two scale the same target.

    Manifests of the targets, if they are in the input, are checked too: for requests that a utilization needs, and for
    a count that would be reset.
    """
    read = read_input(filenames, validate)
    if not read.hpas:
        raise usage(f"-f {' '.join(filenames)}: no HorizontalPodAutoscaler found")
    found = check(read, namespace)
    if output != "table" or found:
        session.out(render(_listing(found), output, headers=not no_headers, color=session.color))
    errors = sum(each.level == "error" for each in found)
    session.note(
        f"{counted(len(read.hpas), 'HPA')}: {counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}"
    )
    return ANSWER_IS_NO if errors or (strict and found) else OK


def _listing(found: list[Finding]) -> Listing[Finding]:
    columns: tuple[Column[Finding], ...] = (
        Column("LEVEL", lambda f: f.level),
        Column("NAMESPACE", lambda f: f.namespace),
        Column("NAME", lambda f: f.name),
        Column("RULE", lambda f: f.rule),
        Column("MESSAGE", lambda f: f.message),
        Column("SOURCE", lambda f: f.source),
    )
    return Listing(
        kind="Finding",
        items=found,
        columns=columns,
        document=asdict,
        name=lambda f: f"{f.rule}/{f.namespace}/{f.name}",
        style=lambda f: "red" if f.level == "error" else "yellow",
    )

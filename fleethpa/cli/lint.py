"""`fleethpa lint`: check manifests without a cluster."""

from __future__ import annotations

from dataclasses import asdict

import click

from fleethpa.changes.lintrules import Finding, version_named
from fleethpa.changes.lintrules import lint as check
from fleethpa.changes.manifests import FieldValidation, Input, read_hpas, validate_option
from fleethpa.fleet.capacity import CAPACITY_KIND
from fleethpa.fleet.finding import DEFAULT_NAMESPACE
from fleethpa.frame.errors import ANSWER_IS_NO, OK
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing
from fleethpa.show.text import Column
from fleethpa.show.words import counted
from schemas.observed import FLEET_KIND


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, help="Namespace for manifests without one.")
@validate_option
@click.option("--kubernetes", metavar="1.NN", help="Also check against this version of Kubernetes.")
@click.option("--gates", metavar="NAME=true,…", help="Feature gates of that version that are set otherwise.")
@click.option("--strict", is_flag=True, help="Also exit 1 for warnings.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
def lint(
    session: Session,
    filenames: tuple[str, ...],
    namespace: str,
    validate: FieldValidation,
    kubernetes: str | None,
    gates: str | None,
    strict: bool,
    no_headers: bool,
    output: str,
) -> int:
    """Check HPAs, FleetHPAs and CapacityGroups without a cluster; exit 1 if one is invalid or two scale one target.

    Manifests of the targets, if they are in the input, are checked too: for requests that a utilization needs, and for
    a count that would be reset. Of several files, each that cannot be read is a finding, and the others are checked.
    """
    read = read_hpas(session, filenames, validate, also=(FLEET_KIND, CAPACITY_KIND), to_the_end=True)
    findings = check(read, namespace, None if kubernetes is None else version_named("--kubernetes", kubernetes, gates))
    if output != "table" or findings:
        session.listing(_listing(findings), output, headers=not no_headers)
    errors = sum(each.level == "error" for each in findings)
    session.note(f"{_counts(read)}: {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    return ANSWER_IS_NO if errors or (strict and findings) else OK


def _counts(read: Input) -> str:
    """Return what was read: `2 HPAs, 1 FleetHPA`."""
    counts = {"HPA": len(read.hpas)} | {kind: len(read.of_kind(kind)) for kind in (FLEET_KIND, CAPACITY_KIND)}
    return ", ".join(counted(count, kind) for kind, count in counts.items() if count) or counted(0, "HPA")


def _listing(findings: list[Finding]) -> Listing[Finding]:
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
        items=findings,
        columns=columns,
        document=asdict,
        name=lambda f: f"{f.rule}/{f.namespace}/{f.name}",
        style=lambda f: "red" if f.level == "error" else "yellow",
    )

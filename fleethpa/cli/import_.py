"""`fleethpa import`: what other autoscalers' objects are as HPAs, with every field that is not carried over by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fleethpa.changes.keda import JOB_KIND, KIND, KedaImport, imported, scaled_objects_in
from fleethpa.changes.manifests import read_input
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, unreadable_text, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import machine, to_yaml, to_yaml_documents
from fleethpa.show.words import counted, listed


@click.group("import", cls=SuggestingGroup)
def import_() -> None:
    """Make HPAs of KEDA's ScaledObjects; name every field that is not carried over."""


@import_.command()
@click.option(
    "-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="ScaledObjects."
)
@click.option(
    "--rules", metavar="FILE", help="Write the queries of Prometheus triggers there, as rules of an observer."
)
@output_option(formats=("table", "yaml", "json"))
@command_options()
def keda(session: Session, filenames: tuple[str, ...], rules: str | None, output: str) -> int:
    """Make HPAs of KEDA's ScaledObjects, and name every field that is not carried over.

    The HPAs go to stdout, as `fleethpa lint` and `apply` take them; what is not carried over to stderr. They have the
    names of the HPAs that KEDA made. Cron triggers become a schedule, queries of a Prometheus rules for `fleethpa run
    observer --prometheus` (--rules). Nothing is written to a cluster. Exit 1 if a trigger is in no HPA, so that it
    would scale by less than KEDA does.
    """
    read = read_input(filenames, into="fleethpa import keda -f -")
    manifests = list(scaled_objects_in(read.others))
    if not manifests:
        kinds = dict.fromkeys(str(each.body["kind"]) for each in (*read.hpas, *read.others))
        cause = f"It has objects of other kinds: {listed(kinds)}." if kinds else "The input is empty."
        what = f"-f {' '.join(filenames)}: no {KIND} found"
        raise usage(what, cause=cause, next_step="kubectl get scaledobjects -A -o yaml")
    for each in read.of_kind(JOB_KIND):
        session.warn(f"{each.source}: {JOB_KIND} {each.name} starts Jobs; an HPA changes replicas: KEDA has to keep it")
    imports = [imported(each) for each in manifests]
    if rules is not None:
        _write_rules(rules, imports)
    if output == "json":
        session.out(
            machine(
                {"apiVersion": "fleethpa.io/v1", "kind": "KedaImportList", "items": list(map(_document, imports))},
                "json",
            )
        )
    else:
        session.out(to_yaml_documents([each.hpa for each in imports if each.hpa is not None]))
        session.lines((line for each in imports for line in _lines(each)), err=True)
    whole = sum(each.is_whole for each in imports)
    session.note(f"{counted(len(imports), KIND)}, {whole} with every trigger in an HPA")
    return OK if whole == len(imports) else ANSWER_IS_NO


def _lines(imported: KedaImport) -> list[str]:
    hpa_text = "no HPA" if imported.hpa is None else f"HPA {imported.hpa['metadata']['name']}"
    state = "" if imported.is_whole else ", which scales by less than KEDA does" if imported.hpa is not None else ""
    return [
        f"{imported.name}: {hpa_text}{state}",
        *(f"  not carried over: {path}: {why}" for path, why in sorted(imported.left.items())),
    ]


def _document(imported: KedaImport) -> dict[str, Any]:
    return {
        "name": imported.name,
        "source": imported.source,
        "hpa": imported.hpa,
        "rules": [{"server": server, "rule": rule} for server, rule in imported.rules],
        "notCarriedOver": dict(sorted(imported.left.items())),
        "everyTrigger": imported.is_whole,
    }


def _write_rules(file: str, imports: Sequence[KedaImport]) -> None:
    """Write the rules of an observer.

    Raises CommandError: there are two servers, of which a file has one, or it cannot be written (exit 2).
    """
    servers = sorted({server for each in imports for server, _ in each.rules})
    if len(servers) > 1:
        cause = f"A file of rules is of one Prometheus, and the triggers name {', '.join(servers)}."
        raise usage(f"--rules {file}", cause=cause, next_step="import the ScaledObjects of one server at a time")
    names = [rule["name"]["as"] for each in imports for _, rule in each.rules]
    if len(set(names)) < len(names):
        cause = "The metrics of two ScaledObjects have one name, so that one rule would serve both."
        raise usage(f"--rules {file}", cause=cause, next_step="import one ScaledObject at a time, with a file each")
    try:
        Path(file).write_text(to_yaml({"externalRules": [rule for each in imports for _, rule in each.rules]}) + "\n")
    except OSError as error:
        raise usage(f"--rules {file} cannot be written", cause=unreadable_text(error)) from error

"""`fleethpa verify ID`: one decision derived again from the log."""

from __future__ import annotations

import click

from fleethpa.cli.common.decisionids import asked_id
from fleethpa.cli.common.deriving import derived_again, document, text
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, usage
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import one


@click.command()
@click.argument("id_", metavar="ID")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def verify(session: Session, id_: str, output: str) -> int:
    """Re-derive one decision from the log and compare it byte for byte; exit 1 if it differs.

    ID may be short, as lists of decisions print it.
    """
    asked = asked_id(id_)
    if asked is None:
        raise usage(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A -o wide")
    past = session.unopened_past()
    derived = session.run(derived_again(past, asked, session.config.servers))
    found = document(past, derived)
    session.out(text(found) if output == "table" else one("DecisionVerification", found, output))
    return OK if found["identical"] else ANSWER_IS_NO

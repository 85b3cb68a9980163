"""`fleethpa explain`: one decision, step by step, with every number that led to it."""

from __future__ import annotations

import click

from fleethpa.completing import hpa_names
from fleethpa.decisions import Recorded
from fleethpa.session import Session, command_options, output_option


@click.command()
@click.argument("what", shell_complete=hpa_names, metavar="[CLUSTER/][NAMESPACE/]NAME | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("--at", metavar="TIME", help="The decision that stood at this time (RFC 3339), not the newest.")
@click.option("--change", is_flag=True, help="The newest decision that changed the replicas.")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def explain(session: Session, what: str, namespace: str | None, at: str | None, change: bool, output: str) -> None:
    """Show a decision step by step, with every number that led to it.

    WHAT names an HPA (its newest evaluation) or is the id of a decision. A decision that changed nothing is
    explained just so.
    """
    from fleethpa.finding import find_decision
    from fleethpa.output.explanation import explanation

    async def work() -> tuple[Recorded, Recorded | None]:
        async with session.reader() as reader:
            return await find_decision(reader, what, namespace, at=at, change=change)

    recorded, ending = session.run(work())
    if output != "table":
        session.out(_document(recorded, output))
        return
    lines = explanation(
        recorded.decision,
        ending.decision if ending else None,
        now_ms=session.now_ms(),
        time_style=session.time_style,
        color=session.color,
    )
    session.out("\n".join(lines))


def _document(recorded: Recorded, output: str) -> str:
    from fleethpa.decisions import document
    from fleethpa.output.formats import one

    return one("Decision", document(recorded.decision), output)

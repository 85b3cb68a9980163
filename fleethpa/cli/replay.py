"""`fleethpa replay`: recorded decisions derived again from the log, and compared."""

from __future__ import annotations

import click

from fleethpa.changes.specs import read_one
from fleethpa.fleet.decisionfinding import AskedId, asked_id
from fleethpa.fleet.finding import hpa_names, parse_ref, select
from fleethpa.frame.errors import ANSWER_IS_NO, OK, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import unopened_past
from fleethpa.questions.explaining import derived_again, derived_document, derived_text
from fleethpa.questions.rederiving import AskedSpan, Comparison, compare, span_options
from fleethpa.show.formats import one
from schemas.keys import HpaId
from streams.history.replay import Derived


@click.command()
@click.argument("what", metavar="[ID | [CLUSTER/][NAMESPACE/]NAME]", required=False, shell_complete=hpa_names)
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("-A", "--all-namespaces", "every", is_flag=True, help="All decisions of all HPAs.")
@span_options
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def replay(session: Session, what: str | None, namespace: str | None, every: bool, span: AskedSpan, output: str) -> int:
    """Derive recorded decisions again from the log and compare them byte for byte; exit 1 if anything differs.

    Name one decision by its ID, which may be short as lists print it, or an HPA for all of its decisions; -A is for
    those of all HPAs. `fleethpa audit verify` also checks files and signatures.
    """
    if (what is None) is not every:
        cause = "It is a decision, an HPA, or all of them."
        raise usage("name what to derive again", cause=cause, next_step="fleethpa replay NAME, or replay -A")
    decision_id = asked_id(what) if what else None
    if decision_id is not None:
        if span.since or span.until or namespace:
            raise usage("the ID of a decision excludes --since, --until and --namespace")
        return _one(session, decision_id, output)
    hpa = _named(session, what, namespace) if what else None
    past = unopened_past(session.source, session.config)
    return compare(session, Comparison(past, span, hpa), output)


def _one(session: Session, asked: AskedId, output: str) -> int:
    past = unopened_past(session.source, session.config)

    async def work() -> Derived:
        await session.reach(past)
        return await derived_again(past, asked, session.config.servers)

    derived = session.run(work())
    verification = derived_document(past, derived)
    if output == "table":
        session.lines(derived_text(verification).splitlines())
    else:
        session.out(one("DecisionVerification", verification, output))
    return OK if verification["identical"] else ANSWER_IS_NO


def _named(session: Session, text: str, namespace: str | None) -> HpaId:
    """Return the HPA that is meant; one that is named in full may have been deleted."""
    ref = parse_ref(text)
    if ref.cluster and ref.namespace:
        return HpaId(ref.cluster, ref.namespace, ref.name)

    async def work() -> HpaId:
        async with session.past() as past:
            _, hpa = await read_one(past, select([text], namespace=namespace))
            return hpa

    return session.run(work())

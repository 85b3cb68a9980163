"""`fleethpa tune`: propose a better spec for HPAs from their own past, with the evidence."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleethpa.fleet import selection as selecting
from fleethpa.fleet.filters import closed_window
from fleethpa.fleet.finding import chosen_some
from fleethpa.fleet.prices import price_for
from fleethpa.fleet.selection import Selection
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import OK
from fleethpa.frame.options import html_option, output_option, parse_price, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import telling
from fleethpa.questions.tuningreport import Tuned, report
from fleethpa.questions.tunings import Asked, InFile, InMemory, Progress, parse_within, run
from fleethpa.show.formats import to_yaml_documents
from streams.history.parallel import cores

if TYPE_CHECKING:
    from streams.analysis.tuning.recording import Objective


@click.command()
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option(
    "--objective",
    type=click.Choice(["cost", "safety", "balanced"]),
    default="balanced",
    show_default=True,
    help="What is better; see above.",
)
@click.option("--since", default="14d", show_default=True, metavar="14d|TIME", help="Start at this time.")
@click.option("--until", metavar="1h|TIME", help="End at this time [default: now].")
@click.option(
    "--within",
    "limits",
    metavar="SPEC",
    help="What a proposal must keep to: 'target=40..80,minReplicas=2..,maxReplicas=..30,window=60..600'; "
    "also tolerance and scaleUpPercent.",
)
@click.option("--resume", metavar="FILE", help="Save results in this file, and continue from those that it holds.")
@price_option
@click.option("--emit-yaml", is_flag=True, help="Print the proposed manifests to stdout, the report to stderr.")
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def tune(
    session: Session,
    selection: Selection,
    objective: Objective,
    since: str,
    until: str | None,
    limits: str | None,
    resume: str | None,
    emit_yaml: bool,
    html: str | None,
    price: str | None,
    output: str,
) -> int:
    """Propose specs from the recorded past: target, windows, policies, tolerances, minReplicas and maxReplicas.

    They are chosen on the first two thirds of the recording and scored on the rest. Nothing is written anywhere. A spec
    is proposed only if it is better than the deployed one on both parts. balanced: fewer replica-hours with
    no more overload. cost: fewer replica-hours, overload for up to 0.5 % more of the time. safety: half the overload or
    less, at up to half more cost where that must be, which the report says; else less overload at no more cost. The
    same recording gives the same proposal. Several HPAs are tuned on all cores.
    """
    within, given = parse_within(limits), parse_price(price)
    begin, end = closed_window(since, until, session.now_ms())
    asked = Asked(since_ms=begin, until_ms=end, objective=objective, within=within)
    kept = InFile(Path(resume), asked) if resume else InMemory()
    found, used = session.run(_tuned(session, selection, kept, asked, given))
    emitted = to_yaml_documents([each.manifest for each in found if each.manifest is not None]) if emit_yaml else None
    session.publish(report(found, used), output, html=html, instead=emitted)
    return OK


async def _tuned(
    session: Session, selection: Selection, kept: InFile | InMemory, asked: Asked, given: Decimal | None
) -> tuple[list[Tuned], Decimal | None]:
    """What was found, and the price of a replica-hour."""
    if isinstance(kept, InFile):
        asked = kept.asked
    async with session.past() as past:
        state = await read_state(past)
        views = chosen_some(state, selection)
        progress = Progress(len(views), sum(view.id in kept.known for view in views))
        if progress.done:
            session.note(f"{progress.done} of {progress.total} HPAs were tuned before; the period is the one of then")
        window = (asked.since_ms, asked.until_ms)
        async with telling(session, progress.text):
            await run(past, [view.id for view in views], window, asked, kept, progress, cores())
    findings = [(view, kept.known[view.id]) for view in views]
    tuned = [Tuned(view.id, view.hpa, finding.found, finding.refused) for view, finding in findings]
    return tuned, price_for(session, given, state.settings, {view.id.cluster for view in views})

"""`fleethpa tune`: propose a better spec for HPAs from their own past, with the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common import selection as selecting
from fleethpa.cli.common.failures import OK, not_found
from fleethpa.cli.common.selection import Selection
from fleethpa.cli.common.session import Session, command_options, output_option

if TYPE_CHECKING:
    from fleethpa.cli.common.backtesting import Window
    from fleethpa.cli.common.views import HpaView
    from fleethpa.cli.output.tuningpage import Tuned
    from streams.analysis.tuning import Objective, Within


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
    help="What a proposal must keep to: 'target=40..80,minReplicas=2..,maxReplicas=..30,window=60..600'.",
)
@click.option("--emit-yaml", is_flag=True, help="Print the proposed manifests to stdout, the report to stderr.")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def tune(
    session: Session,
    selection: Selection,
    objective: Objective,
    since: str,
    until: str | None,
    limits: str | None,
    emit_yaml: bool,
    output: str,
) -> int:
    """Propose specs: target, scale-down window and policies, minReplicas and maxReplicas, from the recorded past.

    They are chosen on the first two thirds of the recording and scored on the rest. Nothing is written anywhere, and a
    proposal that is not better than the deployed spec on both parts is not made. balanced: fewer replica-hours with
    no more overload. cost: fewer replica-hours, overload for up to 0.5 % more of the time. safety: less overload with
    no more replica-hours. The same recording gives the same proposal.
    """
    from fleethpa.cli.common.backtesting import Window
    from fleethpa.cli.common.filters import closed_window
    from fleethpa.cli.common.tuninglimits import parse_within

    within = parse_within(limits)
    begin, end = closed_window(since, until, session.now_ms())
    found = session.run(_tuned(session, selection, Window(begin, end), objective, within))
    _show(session, found, output, emit=emit_yaml)
    return OK


async def _tuned(
    session: Session, selection: Selection, window: Window, objective: Objective, within: Within
) -> list[Tuned]:
    from contextlib import aclosing

    from fleethpa.cli.common.backtesting import events_by_hpa
    from fleethpa.cli.common.fleetstate import read_state
    from fleethpa.cli.common.sources import telling

    made: list[Tuned] = []
    async with session.past() as past:
        views = _chosen(selection, list((await read_state(past)).hpas.values()))
        by_hpa = {view.id: view for view in views}
        count = await past.partitions()

        def text(seconds: float) -> str:
            return f"tuned {len(made)} of {len(by_hpa)} HPAs" if len(by_hpa) > 1 else ""

        async with telling(session, text), aclosing(events_by_hpa(past, set(by_hpa), count, window)) as parts:
            async for part in parts:
                for hpa in part:
                    made.append(_one(by_hpa[hpa], part[hpa], objective, within))
                    part[hpa] = []  # what was tuned is let go; the key says that it was read
    order = {view.id: number for number, view in enumerate(views)}
    return sorted(made, key=lambda each: order[each.view.id])


def _chosen(selection: Selection, views: list[HpaView]) -> list[HpaView]:
    from fleethpa.cli.common.finding import no_such_hpa

    if missing := selection.missing(view.id for view in views):
        raise no_such_hpa(missing[0], [view.id for view in views], selection.namespace)
    chosen = [view for view in views if selection.matches(view.id, view.labels)]
    if not chosen:
        raise not_found(f"no HPA matches {selection}", next_step="fleethpa get hpa -A")
    return chosen


def _one(view: HpaView, events: list[Any], objective: Objective, within: Within) -> Tuned:
    from fleethpa.cli.output.tuningpage import Tuned
    from streams.analysis.tuning import RefusedError
    from streams.analysis.tuning import tune as search
    from streams.history.evaluationinputs import Evaluated

    inputs = [event.inputs for event in events if isinstance(event, Evaluated)]
    try:
        return Tuned(view, search(view.id, inputs, objective, within))
    except RefusedError as error:
        return Tuned(view, None, str(error))


def _show(session: Session, found: list[Tuned], output: str, *, emit: bool) -> None:
    from fleethpa.cli.output import tuningpage as pages
    from fleethpa.cli.output.formats import API_VERSION, machine, to_yaml

    if output != "table":
        items = [pages.document(each) for each in found]
        session.out(machine({"apiVersion": API_VERSION, "kind": "TuningList", "items": items}, output))
        return
    lines = [line for each in found for line in [*pages.page(each), ""]]
    lines += [*pages.ranking(found), *pages.caution()]
    if not emit:
        session.out("\n".join(lines))
        return
    click.echo("\n".join(lines), err=True)
    manifests = [pages.manifest(each) for each in found]
    session.out("---\n".join(to_yaml(each) + "\n" for each in manifests if each is not None).rstrip("\n"))

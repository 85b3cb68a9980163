"""`fleethpa decisions`, `audit`, `explain` and `describe`: what was decided, as a list and step by step."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from fleethpa.fleet.decisionfinding import find_decision, name_and_moment, short_ids
from fleethpa.fleet.decisionpage import explanation_lines, metric_health
from fleethpa.fleet.decisions import (
    DEFAULT_LAST,
    Filter,
    ListedDecisions,
    decision_listing,
    filter_options,
    last_of,
    listed,
    window,
    with_newest,
)
from fleethpa.fleet.decisions import follow as follow_on
from fleethpa.fleet.finding import Selection, check_known, chosen, hpa_names, nothing_found, selection_options
from fleethpa.fleet.lists import possible
from fleethpa.fleet.state import look_for_trouble, read_state
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import ImportedGroup, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options, travel_option
from fleethpa.questions.explaining import Again, document, evaluated_again, troubles_of
from fleethpa.show import words
from fleethpa.show.formats import one
from fleethpa.show.kubectl import describe as kubectl_describe
from fleethpa.show.text import layout, shown
from runtime.log import clean, clean_lines
from schemas.keys import HpaId
from streams.history.recorded import Recorded

# --- decisions --------------------------------------------------------------------------------------------------------


class AuditGroup(ImportedGroup):
    """The commands of `audit`."""

    places: ClassVar = {"verify": "cli.verify:audit_verify", "keygen": "cli.verify:audit_keygen"}


@click.group(cls=AuditGroup)
def audit() -> None:
    """Check that no decision was altered, and create the key that signs checkpoints."""


@click.command()
@selection_options(labels=False)
@click.option("-f", "--follow", is_flag=True, help="Print decisions from now on, as they are made.")
@filter_options
@click.option("--since", metavar="2h|TIME", help="Start at this time.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option("--last", type=click.IntRange(min=1), help=f"The newest N [default: {DEFAULT_LAST}, all with --since].")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def decisions(
    session: Session,
    selection: Selection,
    follow: bool,
    only: dict[str, Any],
    since: str | None,
    until: str | None,
    last: int | None,
    no_headers: bool,
    output: str,
) -> None:
    """List decisions, oldest first, including those that changed nothing; -f follows them.

    `-o wide` adds the reason, the metric that decided, what limited the change, and how the write ended. With
    --changes each change has one row, with the outcome of its write; followed, it has a second one when that ends.
    """
    wanted = Filter(selection, *window(since, until, session.now_ms()), **only)
    if follow:
        if output not in ("table", "wide", "jsonl"):
            cause = "This format needs the whole list, and following has no end."
            raise usage(f"--follow cannot print {output}", cause=cause, next_step="use -o jsonl")
        if until or last:
            raise usage(f"--follow and --{'until' if until else 'last'} exclude each other")
        session.run(_follow(session, wanted, output, not no_headers), follows=True)
        return
    found, endings, has_older = session.run(_listed(session, wanted, last))
    if not found and output in ("table", "wide"):
        session.note(f"No decisions of {selection} match. Next: fleethpa decisions -A")
        return
    changes = bool(only["changes"])
    listing = decision_listing(found, endings, session.time_style, session.now_ms(), changes=changes)
    session.listing(listing, output, headers=not no_headers)
    if has_older and last is None:
        session.note(f"The newest {len(found)} are listed; there are older ones. Next: --since 24h, or --last N")


async def _listed(session: Session, wanted: Filter, last: int | None) -> ListedDecisions:
    async with session.past() as past:
        await look_for_trouble(past)
        return await listed(past, wanted, last)


async def _follow(session: Session, wanted: Filter, output: str, headers: bool) -> None:
    async with session.past(watching=True) as past:
        await check_known(past, wanted.selection)
        state = await read_state(past)
        if count := sum(map(wanted.selection.matches, state.hpas)):
            session.note(f"following {words.counted(count, 'HPA')} of {wanted.selection}")
        else:
            session.note(nothing_found(wanted.selection, state, "decisions --follow"))
            session.note("waiting for one to appear")
        await follow_on(session, past, wanted.matches, output, headers=headers)


# --- one decision, one HPA --------------------------------------------------------------------------------------------


@click.command()
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME…")
@travel_option
@command_options(reads=True)
def describe(session: Session, selection: Selection) -> None:
    """Show HPAs as `kubectl describe hpa` does, then mode, inputs and last decisions."""

    async def work() -> list[tuple[HpaView, list[Recorded]]]:
        async with session.past() as past:
            state = await read_state(past)
            views = chosen(state, selection)
            last = await last_of(past, views)
            return [(with_newest(view, last[view.id]), last[view.id]) for view in views]

    found = session.run(work(), brief=True)
    if not found:
        session.note(f"No HPAs found in {selection}. Next: fleethpa get hpa -A")
    pages = [page(session, view, last) for view, last in found]
    session.lines(line for number, lines in enumerate(pages) for line in [*[""] * (2 * bool(number)), *lines])


def page(session: Session, view: HpaView, last: list[Recorded]) -> list[str]:
    """The page of one HPA: kubectl's part, a blank line, ours."""
    head = kubectl_describe(_cleaned(possible(view.hpa))).rstrip("\n").splitlines()
    return [
        *head,
        "",
        *_facts(view),
        *_division(view),
        *_inputs(session, view),
        *_moves(session, view),
        *_decisions(session, last),
        f"Next: fleethpa explain {view.id}",
    ]


def _cleaned(value: Any) -> Any:
    """An object whose texts keep to their lines; the lines of an annotation are kept, since kubectl indents them."""
    if isinstance(value, dict):
        cleaned = {clean(key): _cleaned(each) for key, each in value.items()}
        annotations = value.get("annotations")
        if isinstance(annotations, dict):
            cleaned["annotations"] = {clean(key): clean_lines(text) for key, text in annotations.items()}
        return cleaned
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return clean(value) if isinstance(value, str) else value


def _facts(view: HpaView) -> list[str]:
    rows = [
        ("Cluster:", view.id.cluster),
        ("Mode:", f"{view.mode} ({view.origin})"),
        ("Paused:", view.paused or "no"),
        ("Override:", view.override.text if view.override is not None else ""),
        ("Refused:", view.refused),
        ("FleetHPA:", str(view.whole or "")),
        ("Incomplete:", view.incomplete),
        ("Changed by:", view.author + (f" ({view.reason})" if view.author and view.reason else "")),
    ]
    return layout([row for row in rows if row[1]])


def _division(view: HpaView) -> list[str]:
    """The clusters of a FleetHPA, with what its newest decision gives each."""
    if view.fleet is None:
        return []
    known = {} if view.decision is None else view.decision.decision.observed.get("clusters", {})
    rows = []
    for each in view.fleet.clusters:
        found = known.get(each.name, {})
        bounds, share = f"{each.min_replicas} … {each.max_replicas}", str(found.get("share", "-"))
        rows.append((f"  {each.name}", str(each.weight), bounds, share, words.of_cluster(found)))
    return ["Clusters:", *layout([("  CLUSTER", "WEIGHT", "BOUNDS", "SHARE", "NOTE"), *rows])]


def _inputs(session: Session, view: HpaView) -> list[str]:
    if view.decision is None:
        return ["Inputs:         none yet"]
    decision, now_ms = view.decision.decision, session.now_ms()
    rows = [(f"  {metric}", *others) for metric, *others in metric_health(decision, now_ms)]
    return ["Inputs:", *layout([("  METRIC", "SOURCE", "NEWEST SAMPLE", "PODS USED", "NOTE"), *rows])]


def _moves(session: Session, view: HpaView) -> list[str]:
    """Who moved the replicas."""
    if not view.moves:
        return []
    rows = [
        (f"  {shown(move.time_ms, session.time_style, session.now_ms())}", f"{move.before} → {move.after}", move.writer)
        for move in reversed(view.moves)
    ]
    fight = [f"  Fight: {words.fight(view.fight)}"] if view.fight is not None else []
    return ["Moved by:", *fight, *layout([("  TIME", "REPLICAS", "WHO"), *rows])]


def _decisions(session: Session, last: list[Recorded]) -> list[str]:
    if not last:
        return ["Last decisions: none yet"]
    ids = short_ids(recorded.decision.id for recorded in last)
    rows = [
        (
            f"  {shown(recorded.time_ms, session.time_style, session.now_ms())}",
            words.change(recorded.decision),
            ids[recorded.decision.id],
            words.why(recorded.decision),
        )
        for recorded in reversed(last)
    ]
    return ["Last decisions:", *layout([("  TIME", "REPLICAS", "ID", "WHY"), *rows])]


def _warn_of_end(session: Session, view: HpaView | None, hpa: HpaId) -> None:
    """Warn where the newest decision is the last one: none follows it."""
    if view is None:
        session.warn(f"{hpa} has been deleted; this was its last decision. Next: fleethpa history {hpa}")
    elif view.mode == "off":
        session.warn(f"{hpa} is off now: nothing was decided since. Next: fleethpa history {hpa}")


@click.command()
@click.argument("what", shell_complete=hpa_names, metavar="[CLUSTER/][NAMESPACE/]NAME[@TIME] | ID")
@click.option("-n", "--namespace", help="Namespace [default: default].")
@click.option("--at", metavar="TIME|2h", help="The decision that was in force at that time.")
@click.option("--change", is_flag=True, help="The newest decision that changed the replicas.")
@click.option(
    "--counterfactuals/--no-counterfactuals", default=True, help="Search for values that would have changed the answer."
)
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def explain(
    session: Session, what: str, namespace: str | None, at: str | None, change: bool, counterfactuals: bool, output: str
) -> None:
    """Show a decision step by step, with every number that led to it.

    Name an HPA for its newest evaluation (with @TIME, the one in force at that time), or give the ID of a decision,
    which may be short. Decisions that changed nothing are explained too. What would have changed the answer is found
    by evaluating the decision again, from the log, with other values.
    """
    name, at_ms = name_and_moment(session, what, at)

    async def work() -> tuple[Again, Recorded | None, list[ClusterTrouble]]:
        async with session.past() as past:
            found, ending, state = await find_decision(past, name, namespace, at_ms=at_ms, change=change)
            if state is None:
                await look_for_trouble(past, found.partition)
            elif at_ms is None and not change:
                _warn_of_end(session, state.hpas.get(found.hpa), found.hpa)
            again = await evaluated_again(past, found) if counterfactuals else Again(found)
            return again, ending, await troubles_of(past, found, ending, session.now_ms())

    again, ending, troubles = session.run(work())
    if again.lacking:
        session.note(f"note: what would have changed the answer cannot be found out: {again.lacking}")
    if output != "table":
        session.out(one("Decision", document(again), output))
        return
    found = again.explained(ending, troubles)
    now_ms = session.now_ms()
    session.lines(explanation_lines(found, now_ms=now_ms, time_style=session.time_style, color=session.color))

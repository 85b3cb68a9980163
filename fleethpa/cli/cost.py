"""`fleethpa cost`: what HPAs cost and what of it was too much, from their decisions, for any number of HPAs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import click
import msgspec

from fleethpa.fleet.costreading import costs_of
from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, not_evaluated, selection_options
from fleethpa.fleet.shards import AskedShard, asked_of, shard_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import price_for, priced
from fleethpa.frame.options import html_option, output_option, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339, span
from fleethpa.show.words import counted, percent
from streams.analysis.costs import ASSUMED, Cost
from streams.analysis.measures import by_hours, total
from streams.history.parallel import Faults

_SHOWN: Final = 20


@click.command()
@selection_options()
@period_options("7d")
@price_option
@click.option("--top", type=click.IntRange(min=1), default=_SHOWN, help="Rows of the table, the largest waste first.")
@shard_options()
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def cost(
    session: Session,
    selection: Selection,
    period: AskedPeriod,
    price: Decimal | None,
    top: int,
    asked_shard: AskedShard,
    html: str | None,
    output: str,
) -> int:
    """Show what HPAs cost and what of it was too much, against an ideal autoscaler, the largest waste first.

    Reads decisions alone and folds no log, so that a week of 1,000 HPAs takes minutes. Replica-hours are exact; the
    column ± LOAD and the notes below say what the others rest on. `fleethpa tune` folds the log, and proposes a spec.
    --shard 3/8 --parts DIR does one of eight parts; --parts DIR alone puts them together, and reads nothing else.
    """
    faults = Faults()
    if asked_shard.merges:
        question, costs = asked_shard.merged(Cost)
        used = price if price is not None or question["price"] is None else Decimal(question["price"])
    else:
        window = period.window(session.now_ms())
        costs, used, faults = session.run(_costs(session, selection, window, asked_shard, price))
        if asked_shard.shard is not None:
            question = asked_of("cost", selection, window, price=None if used is None else str(used))
            asked_shard.write(session, faults, question, costs, Cost)
            return session.failed(faults)
    if costs:
        session.publish(report(costs, used, top), output, html=html)
    elif not faults:
        raise not_evaluated(f"no evaluation of {selection} in this window")
    return session.failed(faults)


async def _costs(
    session: Session, selection: Selection, window: tuple[int, int], asked: AskedShard, price: Decimal | None
) -> tuple[list[Cost], Decimal | None, Faults]:
    async with session.past() as past:
        state = await read_state(past)
        views = asked.kept(alone(chosen_some(state, selection), "cost", session.note))
        used = price_for(price, state.settings, {view.id.cluster for view in views}, session.note)
        costs, faults = await costs_of(session, past, views, window)
    return list(costs.values()), used, faults


# --- the report -------------------------------------------------------------------------------------------------------

_HEAD: Final = (
    "HPA",
    "REPLICA-HOURS",
    "IDEAL",
    "TOO MANY",
    "TOO FEW",
    "TIME WITH TOO FEW",
    "AT MAX",
    "LOAD UNKNOWN",
    "± LOAD",
)


def _minutes(value: float) -> str:
    return span(round(value * 60) * 1000) or "0s"


def _error(parts: Sequence[Cost]) -> float:
    """By which share the load of some HPAs may be wrong: their errors add up at most."""
    ideal = sum(each.scores.ideal_replica_hours for each in parts)
    wrong = sum(each.error * each.scores.ideal_replica_hours for each in parts)
    return wrong / ideal if ideal else max(each.error for each in parts)


def _row(name: str, parts: Sequence[Cost], price: Decimal | None) -> tuple[str, ...]:
    measures, scores = total(each.measures for each in parts), by_hours([each.scores for each in parts])
    hours = (measures.replica_hours, scores.too_many_replica_hours)
    money = () if price is None else tuple(f"{priced(each, price):,.2f}" for each in hours)
    return (
        name,
        f"{measures.replica_hours:,.2f}",
        f"{scores.ideal_replica_hours:,.2f}",
        f"{scores.too_many_replica_hours:,.2f}",
        f"{scores.too_few_replica_hours:,.2f}",
        percent(scores.too_few_share, 2),
        _minutes(measures.at_max_minutes),
        _minutes(measures.unknown_minutes),
        percent(_error(parts), 2),
        *money,
    )


def report(costs: Sequence[Cost], price: Decimal | None, top: int = _SHOWN) -> QuestionReport:
    """The report of some HPAs. `price`: of a replica-hour; `top`: rows of its table."""
    ordered = sorted(costs, key=lambda each: (-each.scores.too_many_replica_hours, each.hpa))
    head = _HEAD + (() if price is None else (f"COST AT {price}/H", "OF IT TOO MUCH"))
    rows = [_row(str(each.hpa), [each], price) for each in ordered[:top]]
    left = len(ordered) - len(rows)
    rows += [_row("all of them", costs, price)] if len(costs) > 1 else []
    about = f"{rfc3339(min(each.since_ms for each in costs))} … {rfc3339(max(each.until_ms for each in costs))}"
    more = (
        [Sentences([f"{counted(left, 'further HPA')} with less waste: --top {len(ordered)} shows all"])] if left else []
    )
    return QuestionReport(
        "Cost",
        "CostList",
        {"items": [_document(each) for each in ordered], "assumed": list(ASSUMED)}
        | ({} if price is None else {"price": str(price)}),
        [
            verdict(in_a_sentence(costs, price)),
            Section(f"{counted(len(costs), 'HPA')}", about, [Grid([head, *rows], numbers=True), *more]),
        ],
        closing=[Notes("The figures of the load rest on this:", ASSUMED)],
    )


def in_a_sentence(costs: Sequence[Cost], price: Decimal | None = None) -> str:
    """The cost of all of them, and how much of it an ideal autoscaler would not have run."""
    measures, scores = total(each.measures for each in costs), by_hours([each.scores for each in costs])
    hours, waste = measures.replica_hours, scores.too_many_replica_hours
    money = "" if price is None else f" ({priced(hours, price):,.2f} and {priced(waste, price):,.2f} at {price}/h)"
    return (
        f"{hours:,.2f} replica-hours ran, of which an ideal autoscaler would not have run {waste:,.2f}{money}, "
        f"where the load is known to ±{percent(_error(costs), 2)}."
    )


def _document(cost: Cost) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(
        {
            "since": rfc3339(cost.since_ms),
            "until": rfc3339(cost.until_ms),
            "evaluations": cost.evaluations,
            "measures": cost.measures,
            "scores": cost.scores,
            "loadError": cost.error,
        }
    )
    return cost.hpa._asdict() | document

"""`fleethpa regret`: what the decisions of a period cost, compared with an ideal autoscaler, by cause."""

from __future__ import annotations

from contextlib import aclosing
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from fleethpa.fleet import selection as selecting
from fleethpa.fleet.filters import closed_window
from fleethpa.fleet.finding import chosen
from fleethpa.fleet.prices import price_for
from fleethpa.fleet.selection import Selection
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import OK, not_found
from fleethpa.frame.options import html_option, output_option, parse_price, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.questions.regretreport import report
from streams.analysis.regret import RegretReader
from streams.history.evaluations import readers_by_hpa

if TYPE_CHECKING:
    from streams.analysis.regret import Regret


@click.command()
@click.argument("names", nargs=-1, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@selecting.options()
@click.option("--since", default="7d", show_default=True, metavar="7d|TIME", help="Start at this time.")
@click.option("--until", metavar="1h|TIME", help="End at this time [default: now].")
@price_option
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def regret(
    session: Session,
    selection: Selection,
    since: str,
    until: str | None,
    price: str | None,
    html: str | None,
    output: str,
) -> int:
    """Show what decisions cost compared with an ideal autoscaler: replicas too many, too few, and why.

    The causes add up to the whole. Nothing about latency is in the log. Costs are shown where --price gives a price, or
    the settings give the clusters of these HPAs the same one.
    """
    given = parse_price(price)
    window = closed_window(since, until, session.now_ms())
    found, used = session.run(_regrets(session, selection, window, given))
    session.publish(report(found, used), output, html=html)
    return OK


async def _regrets(
    session: Session, selection: Selection, window: tuple[int, int], given: Decimal | None
) -> tuple[list[Regret], Decimal | None]:
    """The regrets, and the price of a replica-hour."""
    async with session.past() as past:
        state = await read_state(past)
        views = chosen(state, selection)
        made: dict[object, Regret | None] = {}
        wanted = {view.id for view in views}
        async with aclosing(readers_by_hpa(past, wanted, window, RegretReader)) as parts:
            async for readers in parts:
                made |= {hpa: reader.regret() for hpa, reader in readers.items()}
    found = [each for view in views if (each := made[view.id]) is not None]
    if not found:
        raise not_found(
            f"no evaluation of {selection} in this window",
            cause="Regret is computed from recorded evaluations.",
            next_step="fleethpa decisions -A --since 30d, to see when there are some",
        )
    return found, price_for(session, given, state.settings, {each.hpa.cluster for each in found})

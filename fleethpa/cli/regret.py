"""`fleethpa regret`: what the decisions of a period cost, compared with an ideal autoscaler, by cause."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.decisions import AskedPeriod, period_options
from fleethpa.fleet.finding import Selection, alone, chosen_some, not_evaluated, selection_options
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import price_for
from fleethpa.frame.errors import usage
from fleethpa.frame.options import html_option, output_option, price_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, Sentences, verdict
from fleethpa.show.text import rfc3339
from streams.analysis.regret import (
    CARRIED_MS,
    CAUSES,
    MILLI_REPLICA_HOUR_MS,
    Cause,
    Parts,
    Regret,
    RegretReader,
    added,
    rounded,
)
from streams.history.evaluations import readers_by_hpa
from streams.history.parallel import Faults


@click.command()
@selection_options()
@period_options("7d")
@price_option
@html_option
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def regret(
    session: Session, selection: Selection, period: AskedPeriod, price: Decimal | None, html: str | None, output: str
) -> int:
    """Show what decisions cost compared with an ideal autoscaler: replicas too many, too few, and why.

    The causes add up to the whole. Nothing about latency is in the log. Costs are shown where --price gives a price, or
    the settings give the clusters of these HPAs the same one.
    """
    faults = Faults()
    found, used = session.run(_regrets(session, selection, period.window(session.now_ms()), price, faults))
    if found:
        session.publish(report(found, used), output, html=html)
    return session.failed(faults)


async def _regrets(
    session: Session, selection: Selection, window: tuple[int, int], given: Decimal | None, faults: Faults
) -> tuple[list[Regret], Decimal | None]:
    """The regrets, and the price of a replica-hour."""
    async with session.past() as past:
        state = await read_state(past)
        views = alone(chosen_some(state, selection), "regret", session.note)
        made: dict[object, Regret | None] = {}
        refused: list[str] = []
        wanted = {view.id for view in views}
        async with aclosing(readers_by_hpa(past, wanted, window, RegretReader, faults=faults)) as parts:
            async for readers in parts:
                for hpa, reader in readers.items():
                    with faults.of(hpa):
                        base = None if hpa in faults else reader.base()
                        if base is not None:
                            refused.append(f"{hpa}: {base.text}")
                        made[hpa] = None if hpa in faults or base is not None else reader.regret()
    found = [each for view in views if (each := made.get(view.id)) is not None]
    if refused and not found:
        raise usage(refused[0])
    for text in refused:
        session.warn(f"left out: {text}")
    if not found and not faults:
        raise not_evaluated(f"no evaluation of {selection} in this window")
    return found, price_for(given, state.settings, {each.hpa.cluster for each in found}, session.note)


# --- the report -------------------------------------------------------------------------------------------------------

_MILLI_MINUTE_MS: Final = 60
_NAMED: Final = 3
"""HPAs that the verdict names."""
CAUSE_TEXTS: Final[dict[Cause, str]] = {
    "startUp": "start-up: pods take time until they take load",
    "target": "target: what a pod carries is not used up",
    "missingMetrics": "missing metrics",
    "tolerance": "tolerance: the metric was near enough to its target",
    "reaction": "reaction: the load moved after it was measured",
    "window": "stabilization window",
    "policy": "scaling policies",
    "minReplicas": "minReplicas",
    "maxReplicas": "maxReplicas",
    "pause": "pause, freeze or override",
    "guard": "a guard: largest step, overflow",
    "otherWriters": "not decided: other writers, writes under way",
}


class Printed(NamedTuple):
    """A regret in the units that are printed: thousandths of replica-hours and of minutes."""

    too_many: Parts
    too_few: Parts
    minutes: Parts

    @property
    def wholes(self) -> tuple[int, int, int]:
        """The three amounts, over all causes."""
        return (self.too_many.whole, self.too_few.whole, self.minutes.whole)

    def of(self, cause: Cause) -> tuple[int, int, int]:
        """The three amounts of a cause."""
        return (self.too_many.parts[cause], self.too_few.parts[cause], self.minutes.parts[cause])


def printed(regret: Regret) -> Printed:
    """Round one HPA's regret so that its causes still add up."""
    return Printed(
        rounded(regret.too_many, MILLI_REPLICA_HOUR_MS),
        rounded(regret.too_few, MILLI_REPLICA_HOUR_MS),
        rounded(regret.too_few_ms, _MILLI_MINUTE_MS),
    )


def fleet(several: Sequence[Printed]) -> Printed:
    """Several HPAs together: the sums of what is printed for each."""
    return Printed(*(added(parts) for parts in zip(*several, strict=True)))


def cost(milli_replica_hours: int, price: Decimal) -> Decimal:
    """Replica-hours at a price per replica-hour."""
    return price * milli_replica_hours / 1000


def report(found: Sequence[Regret], price: Decimal | None) -> QuestionReport:
    """The report of some HPAs, that with most replicas too many first."""
    amounts = [printed(each) for each in found]
    whole = fleet(amounts)
    ran, oracle = (_hours(sum(getattr(each, name) for each in found)) for name in ("ran", "oracle"))
    since, until = min(each.since_ms for each in found), max(each.until_ms for each in found)
    sections = [
        verdict(_in_a_sentence(found, amounts, whole, price)),
        Section(
            str(found[0].hpa) if len(found) == 1 else f"{len(found)} HPAs",
            f"{rfc3339(since)} … {rfc3339(until)}",
            [Sentences([f"{ran} replica-hours ran; an oracle that knew the load would have run {oracle}"])],
        ),
        Section(parts=[_by_cause(whole, price)]),
    ]
    if len(found) > 1:
        sections.append(Section("HPA by HPA", parts=[_by_hpa(found, amounts, price)]))
    document = {
        "pricePerReplicaHour": None if price is None else float(price),
        "total": _amounts(whole, price),
        "items": [_item(each, own, price) for each, own in zip(found, amounts, strict=True)],
    }
    return QuestionReport("Regret", "RegretReport", document, sections, closing=[Notes("What this is:", notes(found))])


def _in_a_sentence(found: Sequence[Regret], amounts: Sequence[Printed], whole: Printed, price: Decimal | None) -> str:
    """How much was too many, what it cost, and whose most of it was."""
    many = whole.too_many.whole
    ran_ms = sum(each.ran for each in found)
    if not many:
        return f"Nothing of {_hours(ran_ms)} replica-hours was too many."
    money = "" if price is None else f", which cost {cost(many, price):,.2f}"
    share = many * MILLI_REPLICA_HOUR_MS / max(1, ran_ms)
    text = f"{_milli(many)} of {_hours(ran_ms)} replica-hours were too many ({share:.0%}){money}"
    order = sorted(zip(found, amounts, strict=True), key=lambda one: -one[1].too_many.whole)
    most = [str(regret.hpa) for regret, own in order[:_NAMED] if own.too_many.whole]
    return f"{text}; the costliest are {', '.join(most)}." if len(found) > 1 else f"{text}."


def _by_cause(whole: Printed, price: Decimal | None) -> Grid:
    """The causes, the largest first, and the total."""
    causes = [cause for cause in CAUSES if any(whole.of(cause))]
    causes.sort(key=lambda cause: -whole.too_many.parts[cause])
    rows = [(CAUSE_TEXTS[cause], *whole.of(cause)) for cause in causes]
    most = max((many for _, many, _, _ in rows), default=0) or 1
    head = ("CAUSE", "REPLICA-HOURS TOO MANY", "SHARE", "REPLICA-HOURS TOO FEW", "MINUTES TOO FEW")
    return Grid(
        [
            _priced(head, "COST", price),
            *(
                _priced((name, _milli(many), _share(many, whole), _milli(few), _milli(minutes)), many, price)
                for name, many, few, minutes in (*rows, ("total", *whole.wholes))
            ),
        ],
        "replica-hours too many by cause, the largest first",
        numbers=True,
        bars=[*(many / most for _, many, _, _ in rows), 0.0],
    )


def _by_hpa(found: Sequence[Regret], amounts: Sequence[Printed], price: Decimal | None) -> Grid:
    head = ("HPA", "RAN", "ORACLE", "TOO MANY", "MAINLY", "MINUTES TOO FEW", "MAINLY")
    rows = [
        _priced(
            (
                str(each.hpa),
                _hours(each.ran),
                _hours(each.oracle),
                _milli(own.too_many.whole),
                _main_cause(own.too_many),
                _milli(own.minutes.whole),
                _main_cause(own.minutes),
            ),
            own.too_many.whole,
            price,
        )
        for each, own in sorted(zip(found, amounts, strict=True), key=lambda pair: -pair[1].too_many.whole)
    ]
    return Grid([_priced(head, "COST", price), *rows], numbers=True)


def _priced(row: tuple[str, ...], last: str | int, price: Decimal | None) -> tuple[str, ...]:
    """A row with its cost behind it (of thousandths of a replica-hour), where there is a price."""
    if price is None:
        return row
    return (*row, last if isinstance(last, str) else f"{cost(last, price):,.2f}")


def _share(many: int, whole: Printed) -> str:
    return f"{many / whole.too_many.whole:.1%}" if whole.too_many.whole else "-"


def _main_cause(parts: Parts) -> str:
    """The cause with the largest part; `-` where there is nothing."""
    return max(parts.parts, key=lambda cause: parts.parts[cause]) if parts.whole else "-"


def _milli(amount: int) -> str:
    return f"{amount // 1000:,}.{amount % 1000:03d}"


def _hours(replica_ms: int) -> str:
    return _milli((2 * replica_ms + MILLI_REPLICA_HOUR_MS) // (2 * MILLI_REPLICA_HOUR_MS))


def notes(found: Sequence[Regret]) -> list[str]:
    """What the report is, how much of the time it judges, and what it cannot know."""
    judged_ms, carried_ms, unknown_ms = (
        sum(getattr(each, name) for each in found) for name in ("known_ms", "carried_ms", "unknown_ms")
    )
    stated = [
        "the oracle knows the load ahead, fills its pods up to what they carry, and starts them with no delay",
        f"judged: {judged_ms / 3_600_000:,.1f} hours of HPAs",
    ]
    if carried_ms:
        stated.append(
            f"for {carried_ms / 60_000:,.1f} minutes of it no load was measured: the last one known is used, "
            f"for {CARRIED_MS // 60_000} minutes at most"
        )
    if unknown_ms:
        stated.append(f"not judged: {unknown_ms / 60_000:,.1f} minutes, as their load is not known")
    stated.append("the log has no latency and no prices: how bad a missing replica was is not known")
    return stated


def _item(regret: Regret, own: Printed, price: Decimal | None) -> dict[str, Any]:
    """One HPA for machine formats: amounts are whole thousandths, and causes add up to totals."""
    return {
        **regret.hpa._asdict(),
        "since": rfc3339(regret.since_ms),
        "until": rfc3339(regret.until_ms),
        "replicaHours": round(regret.ran / MILLI_REPLICA_HOUR_MS / 1000, 6),
        "oracleReplicaHours": round(regret.oracle / MILLI_REPLICA_HOUR_MS / 1000, 6),
        "judgedSeconds": regret.known_ms / 1000,
        "carriedSeconds": regret.carried_ms / 1000,
        "notJudgedSeconds": regret.unknown_ms / 1000,
        "startUp": msgspec.to_builtins(regret.start_up),
        **_amounts(own, price),
    }


def _amounts(own: Printed, price: Decimal | None) -> dict[str, Any]:
    def named(amounts: tuple[int, int, int]) -> dict[str, Any]:
        names = ("tooManyMilliReplicaHours", "tooFewMilliReplicaHours", "tooFewMilliMinutes")
        made: dict[str, Any] = dict(zip(names, amounts, strict=True))
        return made if price is None else made | {"cost": float(cost(amounts[0], price))}

    return named(own.wholes) | {"causes": {cause: named(own.of(cause)) for cause in CAUSES if any(own.of(cause))}}

"""What `regret` found as text, as a document and as one HTML file: the whole, its causes, and HPA by HPA."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fleethpa.show.formats import API_VERSION
from fleethpa.show.html import html_document, items, table
from fleethpa.show.table import layout
from fleethpa.show.times import rfc3339
from streams.analysis.regret import CARRIED_MS, CAUSES, MILLI_REPLICA_HOUR_MS, added, rounded

if TYPE_CHECKING:
    from streams.analysis.regret import Cause, Parts, Regret


_MILLI_MINUTE_MS: Final = 60
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
    "pause": "pause or freeze",
    "guard": "a guard: largest step, overflow",
    "otherWriters": "not decided: other writers, writes under way",
}


class Printed(NamedTuple):
    """A regret in the units that are printed: thousandths of replica-hours and of minutes."""

    too_many: Parts
    too_few: Parts
    minutes: Parts


def printed(regret: Regret) -> Printed:
    """Round one HPA's regret so that its causes still add up."""
    return Printed(
        rounded(regret.too_many, MILLI_REPLICA_HOUR_MS),
        rounded(regret.too_few, MILLI_REPLICA_HOUR_MS),
        rounded(regret.too_few_ms, _MILLI_MINUTE_MS),
    )


def fleet(several: Sequence[Printed]) -> Printed:
    """Several HPAs together: the sums of what is printed for each."""
    return Printed(
        added(each.too_many for each in several),
        added(each.too_few for each in several),
        added(each.minutes for each in several),
    )


def page(found: Sequence[Regret], price: Decimal | None) -> list[str]:
    """The report as text: the HPA with most replicas too many first."""
    amounts = {each.hpa: printed(each) for each in found}
    whole = fleet(list(amounts.values()))
    lines = [*head(found), "", *layout(cause_rows(whole, price))]
    if len(found) > 1:
        lines += ["", *layout(hpa_rows(found, amounts, price))]
    return [*lines, "", "What this is:", *(f"  - {text}" for text in notes(found))]


def head(found: Sequence[Regret]) -> list[str]:
    """Of what and when, what ran and what the oracle would have run."""
    ran, oracle = (_hours(sum(getattr(each, name) for each in found)) for name in ("ran", "oracle"))
    since, until = min(each.since_ms for each in found), max(each.until_ms for each in found)
    return [
        f"{_named(found)}   {rfc3339(since)} … {rfc3339(until)}",
        f"{ran} replica-hours ran; an oracle that knew the load would have run {oracle}",
    ]


def _named(found: Sequence[Regret]) -> str:
    return str(found[0].hpa) if len(found) == 1 else f"{len(found)} HPAs"


def cause_rows(whole: Printed, price: Decimal | None) -> list[tuple[str, ...]]:
    """The table of causes, the largest first, and the total."""
    names = ("CAUSE", "REPLICA-HOURS TOO MANY", "SHARE", "REPLICA-HOURS TOO FEW", "MINUTES TOO FEW")
    rows: list[tuple[str, ...]] = [(*names, "COST") if price is not None else names]
    by_size = sorted(CAUSES, key=lambda cause: -whole.too_many.parts[cause])
    for cause in by_size:
        many, few, minutes = (each.parts[cause] for each in whole)
        if many or few or minutes:
            rows.append(_row(CAUSE_TEXTS[cause], (many, few, minutes), whole.too_many.whole, price))
    totals = (whole.too_many.whole, whole.too_few.whole, whole.minutes.whole)
    return [*rows, _row("total", totals, whole.too_many.whole, price)]


def _row(name: str, amounts: tuple[int, int, int], whole: int, price: Decimal | None) -> tuple[str, ...]:
    many, few, minutes = amounts
    share = f"{many / whole:.1%}" if whole else "-"
    row = (name, _milli(many), share, _milli(few), _milli(minutes))
    return row if price is None else (*row, f"{cost(many, price):,.2f}")


def hpa_rows(found: Sequence[Regret], amounts: dict[Any, Printed], price: Decimal | None) -> list[tuple[str, ...]]:
    """A line per HPA, that with most replicas too many first."""
    names = ("HPA", "RAN", "ORACLE", "TOO MANY", "MAINLY", "MINUTES TOO FEW", "MAINLY")
    rows: list[tuple[str, ...]] = [(*names, "COST") if price is not None else names]
    for each in sorted(found, key=lambda regret: -amounts[regret.hpa].too_many.whole):
        own = amounts[each.hpa]
        row = (
            str(each.hpa),
            _hours(each.ran),
            _hours(each.oracle),
            _milli(own.too_many.whole),
            main_cause(own.too_many),
            _milli(own.minutes.whole),
            main_cause(own.minutes),
        )
        rows.append(row if price is None else (*row, f"{cost(own.too_many.whole, price):,.2f}"))
    return rows


def main_cause(parts: Parts) -> str:
    """The cause with the largest part; `-` where there is nothing."""
    return max(parts.parts, key=lambda cause: parts.parts[cause]) if parts.whole else "-"


def cost(milli_replica_hours: int, price: Decimal) -> Decimal:
    """Replica-hours at a price per replica-hour."""
    return price * milli_replica_hours / 1000


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


def document(found: Sequence[Regret], price: Decimal | None) -> dict[str, Any]:
    """The report for machine formats: amounts are whole thousandths, and causes add up to totals."""
    amounts = [printed(each) for each in found]
    return {
        "apiVersion": API_VERSION,
        "kind": "RegretReport",
        "pricePerReplicaHour": None if price is None else float(price),
        "total": _amounts(fleet(amounts), price),
        "items": [_item(each, own, price) for each, own in zip(found, amounts, strict=True)],
    }


def _item(regret: Regret, own: Printed, price: Decimal | None) -> dict[str, Any]:

    return {
        "cluster": regret.hpa.cluster,
        "namespace": regret.hpa.namespace,
        "name": regret.hpa.name,
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
    def named(many: int, few: int, minutes: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "tooManyMilliReplicaHours": many,
            "tooFewMilliReplicaHours": few,
            "tooFewMilliMinutes": minutes,
        }
        return made if price is None else made | {"cost": float(cost(many, price))}

    causes = {
        cause: named(*(each.parts[cause] for each in own)) for cause in CAUSES if any(each.parts[cause] for each in own)
    }
    return named(*(each.whole for each in own)) | {"causes": causes}


_WIDTH: Final = 960
_LINE: Final = 26
_LEFT: Final = 380


def report(found: Sequence[Regret], price: Decimal | None) -> str:
    """Return the whole page."""
    amounts = {each.hpa: printed(each) for each in found}
    whole = fleet(list(amounts.values()))
    parts = [f"<p>{escape(text)}</p>\n" for text in head(found)]
    parts += [bars(whole), "\n", table(cause_rows(whole, price))]
    if len(found) > 1:
        parts += ["<h2>HPA by HPA</h2>", table(hpa_rows(found, amounts, price))]
    return html_document("Regret", [*parts, "<p>What this is:</p>", items(notes(found))])


def bars(whole: Printed) -> str:
    """Replica-hours too many by cause, the largest first."""
    parts = whole.too_many.parts
    shown = sorted((cause for cause in parts if parts[cause]), key=lambda cause: -parts[cause])
    most = max((parts[cause] for cause in shown), default=1)
    rows = []
    for number, cause in enumerate(shown):
        y = 8 + number * _LINE
        wide = parts[cause] / most * (_WIDTH - _LEFT - 110)
        rows.append(
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(CAUSE_TEXTS[cause])}</text>'
            f'<rect x="{_LEFT}" y="{y}" width="{wide:.1f}" height="{_LINE - 8}"/>'
            f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 13}">{parts[cause] / 1000:,.3f}</text>'
        )
    height = 16 + max(1, len(shown)) * _LINE
    return (
        f'<svg class="bars" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="replica-hours too many by cause">'
        f"{''.join(rows)}</svg>"
    )

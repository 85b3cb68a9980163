"""What `regret` found as one HTML file: the causes as bars, and the tables of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Final

from fleethpa.cli.output.htmlreport import document, items, table
from fleethpa.cli.output.regretpage import CAUSE_TEXTS, Printed, cause_rows, fleet, head, hpa_rows, notes, printed

if TYPE_CHECKING:
    from streams.analysis.regret import Regret

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
    return document("Regret", [*parts, "<p>What this is:</p>", items(notes(found))])


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

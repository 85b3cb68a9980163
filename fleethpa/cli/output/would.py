"""What would have changed an answer, in words: other metric values, one limit less, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleethpa.cli.output import words
from fleethpa.cli.output.table import layout
from fleethpa.cli.output.times import rfc3339
from schemas.kubernetes.quantity import format_milli

if TYPE_CHECKING:
    from streams.analysis.counterfactual import Counterfactuals, Flip, Unmoved


def lines(made: Counterfactuals) -> list[str]:
    """The lines below the table of an explanation."""
    rows = [_flip(flip) for flip in made.flips]
    rows += [_unmoved(each) for each in made.unmoved]
    rows += [(f"  without {words.LIMITS.get(w.limit, w.limit)}", f"→ {w.answer}", w.how) for w in made.without]
    if made.release is not None:
        rows.append(
            (f"  from {rfc3339(made.release.at)} on", f"→ {made.release.answer}", "if all else stays as it was")
        )
    if not rows:
        return []
    return ["Would change the answer (each checked by evaluating it):", *layout(rows)]


def _flip(flip: Flip) -> tuple[str, str, str]:
    sign = "≤" if flip.direction == "lower" else "≥"
    name = words.short(flip.name)
    if flip.percent:
        detail = f"{flip.varied} at {quantity(flip.value, name)}; was {about(flip.now, name)} ({flip.shown_now}%)"
        return f"  {name} {sign} {flip.shown}%", f"→ {flip.answer}", detail
    if flip.shown != flip.value:
        detail = f"{flip.varied} at {quantity(flip.value, name)}; was {about(flip.now, name)}"
        return f"  {name} {sign} {quantity(flip.shown, name)} on average", f"→ {flip.answer}", detail
    detail = f"{flip.varied}; was {about(flip.now, name)}"
    return f"  {name} {sign} {quantity(flip.value, name)}", f"→ {flip.answer}", detail


def _unmoved(each: Unmoved) -> tuple[str, str, str]:
    return f"  {words.short(each.name)}", "-", f"no {each.direction} value changes it"


def about(milli: int, metric: str) -> str:
    """A recorded value as people read it: memory that is no whole number of Ki in Mi, to a tenth."""
    if metric == "memory" and milli % (1000 * 1024):
        return f"{milli / 1000 / 2**20:.1f}Mi"
    return quantity(milli, metric)


def quantity(milli: int, metric: str) -> str:
    """A milli value as Kubernetes writes it: memory in Ki, Mi, …, everything else in decimal."""
    return str(format_milli(milli, "BinarySI" if metric == "memory" else "DecimalSI"))

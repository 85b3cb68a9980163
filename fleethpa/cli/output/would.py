"""What would have changed an answer, in words: other metric values, one limit less, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleethpa.cli.output import words
from fleethpa.cli.output.amounts import threshold
from fleethpa.cli.output.table import layout
from fleethpa.cli.output.times import rfc3339

if TYPE_CHECKING:
    from streams.analysis.counterfactual import Counterfactuals, Flip, Unmoved, Without

_TAKEN_AWAY_HOW: Final = ("MinReplicas", "StabilizationWindow", "Tolerance")
"""Limits of which it must be said how they were taken away; of the others the name says it."""


def lines(made: Counterfactuals) -> list[str]:
    """The lines below the table of an explanation."""
    found = rows(made)
    return ["Would change the answer (each checked by evaluating it):", *layout(found)] if found else []


def rows(made: Counterfactuals) -> list[tuple[str, str, str]]:
    """What would be different, the count then, and how it was found; each line's first text is indented."""
    found = [_flip(flip) for flip in made.flips]
    several = len({flip.metric for flip in made.flips} | {each.metric for each in made.unmoved}) > 1
    found += [_unmoved(each, several) for each in made.unmoved]
    found += [_without(each) for each in made.without]
    if made.release is not None:
        found.append(
            (f"  from {rfc3339(made.release.at)} on", f"→ {made.release.answer}", "if everything else stays the same")
        )
    return found


def _flip(flip: Flip) -> tuple[str, str, str]:
    sign = "≤" if flip.direction == "lower" else "≥"
    name = words.short(flip.name)
    value, now = threshold(flip.value, flip.now, name, lower=flip.direction == "lower")
    if flip.percent:
        detail = f"{flip.varied} at {value}; was {now} ({flip.shown_now}%)"
        return f"  {name} {sign} {flip.shown}%", f"→ {flip.answer}", detail
    if flip.shown != flip.value:
        shown, _ = threshold(flip.shown, flip.shown_now, name, lower=flip.direction == "lower")
        return f"  {name} {sign} {shown} on average", f"→ {flip.answer}", f"{flip.varied} at {value}; was {now}"
    return f"  {name} {sign} {value}", f"→ {flip.answer}", f"{flip.varied}; was {now}"


def _without(each: Without) -> tuple[str, str, str]:
    how = each.how if each.limit in _TAKEN_AWAY_HOW else ""
    return f"  without {words.LIMITS.get(each.limit, each.limit)}", f"→ {each.answer}", how


def _unmoved(each: Unmoved, several: bool) -> tuple[str, str, str]:
    return f"  {words.short(each.name)} {each.direction}", "-", f"changes nothing{_because(each, several)}"


def _because(each: Unmoved, several: bool) -> str:
    """What keeps the answer as it is, whatever the metric's value."""
    if each.limits:
        last = each.limits[-1]
        return f": {words.LIMITS.get(last, last)} holds the replicas"
    if each.failed:
        listed = ", ".join(map(words.short, each.failed))
        have = "have" if len(each.failed) > 1 else "has"
        return f": replicas do not go down while {listed} {have} no value"
    return ": another metric decides" if several else ""

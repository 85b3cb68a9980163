"""`tune --within`: what a proposal must keep to, as people write it."""

from __future__ import annotations

import re
from typing import Final

from fleethpa.cli.common.failures import CommandError, usage
from streams.analysis.tuning.results import Within

_FIELDS: Final = {
    "target": "target",
    "minReplicas": "min_replicas",
    "maxReplicas": "max_replicas",
    "window": "window",
    "tolerance": "tolerance",
    "scaleUpPercent": "scale_up_percent",
}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?|({_NUMBER})", re.ASCII)


def parse_within(text: str | None) -> Within:
    """Read `target=40..80,minReplicas=2..`; an end that is left out is open, a single number is both ends.

    Raises:
        CommandError: an unknown field, or not a range (exit 2).
    """
    found: dict[str, tuple[float | None, float | None]] = {}
    for part in (text or "").split(",") if text else ():
        name, _, value = part.strip().partition("=")
        if name not in _FIELDS:
            raise _wrong(part, f"Fields are {', '.join(_FIELDS)}.")
        if _FIELDS[name] in found:
            raise _wrong(part, f"{name} is given twice.")
        match = _RANGE.fullmatch(value)
        if match is None or value == "..":
            raise _wrong(part, "A range is 40..80, 40.., ..80, or one number.")
        low, high, only = (None if end is None else float(end) for end in match.groups())
        ends = (only, only) if only is not None else (low, high)
        if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
            raise _wrong(part, "The first number is above the second.")
        found[_FIELDS[name]] = ends
    return Within(**found)


def _wrong(part: str, cause: str) -> CommandError:
    return usage(
        f"--within {part.strip()!r} cannot be read",
        cause=cause,
        next_step="--within 'target=40..80,minReplicas=2..,maxReplicas=..30,window=60..600'",
    )

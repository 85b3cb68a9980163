"""Which decisions a question is about: whose, since when, why, held by what, in which direction."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

import click

from fleethpa.fleet.selection import Selection
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import Decorator, gathered, moment
from schemas.decisions import AppliedLimit

if TYPE_CHECKING:
    from streams.history.recorded import Recorded

DIRECTIONS: Final = {"up": "ScaleUp", "down": "ScaleDown", "none": "None"}
LIMITS: Final = get_args(AppliedLimit)


@dataclass(frozen=True)
class Filter:
    """A test of decisions; what is None does not count. Times: from `since_ms` to before `until_ms`."""

    selection: Selection
    since_ms: int | None = None
    until_ms: int | None = None
    changes: bool = False
    reason: str | None = None
    limit: str | None = None
    direction: str | None = None

    def matches(self, recorded: Recorded) -> bool:
        """Whether a decision is asked for."""
        begins, ends = self.since_ms, self.until_ms
        is_in_time = (begins is None or recorded.time_ms >= begins) and (ends is None or recorded.time_ms < ends)
        return self.selection.matches(recorded.hpa) and is_in_time and self._fits(recorded)

    def _fits(self, recorded: Recorded) -> bool:
        if self.changes and recorded.head.kind == "evaluation" and recorded.outline.direction == "None":
            return False
        if self.limit and self.limit not in recorded.outline.constraints_applied:
            return False
        if self.direction and recorded.outline.direction != DIRECTIONS[self.direction]:
            return False
        return not self.reason or any(fnmatchcase(text, self.reason) for text in reasons(recorded))

    def reached(self, decisions: list[Recorded]) -> bool:
        """Whether decisions, oldest first, go back to the start of the time that is asked for."""
        return self.since_ms is not None and (not decisions or decisions[0].time_ms < self.since_ms)


def reasons(recorded: Recorded) -> list[str]:
    """Every reason that a decision bears: its own, its metrics', its conditions' and its events'."""
    decision = recorded.decision
    conditions = (decision.status or {}).get("conditions") or []
    texts = [decision.reason, *(metric.reason for metric in decision.metrics)]
    texts += [str(condition.get("reason", "")) for condition in conditions]
    texts += [event[1] for event in decision.events]
    return [text for text in texts if text]


def window(since: str | None, until: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """Read `--since` and `--until`; None: no end on that side.

    Raises CommandError: one cannot be read, or no time lies between them (exit 2).
    """
    begin, end = moment(since, now_ms, "--since"), moment(until, now_ms, "--until")
    if begin is not None and end is not None and begin >= end:
        raise _empty_window()
    return begin, end


class AskedPeriod(NamedTuple):
    """`--since` and `--until` as they are typed."""

    since: str
    until: str | None

    def window(self, now_ms: int) -> tuple[int, int]:
        """Read them as `window` does; without an end it reaches until now."""
        begin, end = window(self.since, self.until or None, now_ms)
        # A log record of this very millisecond is still in.
        first, last = begin or 0, now_ms + 1 if end is None else end
        if first >= last:
            raise _empty_window()
        return first, last


def period_options(since: str) -> Decorator:
    """`--since`, with this default, and `--until`; the function gets one argument `period`."""
    return gathered(
        "period",
        AskedPeriod,
        click.option("--since", default=since, metavar=f"{since}|TIME", help="Start at this time."),
        click.option("--until", metavar="1h|TIME", help="End at this time [default: now]."),
    )


def _empty_window() -> CommandError:
    return usage("--since is not before --until", cause="The window is empty.")


options: Final = gathered(
    "only",
    dict,
    click.option(
        "--changes", is_flag=True, help="Only decisions that change the replicas, and how their writes ended."
    ),
    click.option(
        "--reason", metavar="GLOB", help="Only decisions whose reason, or a metric's reason, matches: 'FailedGet*'."
    ),
    click.option(
        "--limited-by",
        "--limit",
        "limit",
        type=click.Choice(LIMITS),
        metavar="LIMIT",
        help=f"Only decisions limited by this: {', '.join(LIMITS)}.",
    ),
    click.option(
        "--direction", type=click.Choice(list(DIRECTIONS)), help="Only decisions that scale up, down or not at all."
    ),
)
"""`--changes`, `--reason`, `--limited-by`, `--direction`; the function gets one dict `only`, for `Filter`."""

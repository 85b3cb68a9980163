"""Decisions that a command asks for: by whose, since when, why, held by what, in which direction; lists of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from fleethpa.fleet.decisionfinding import short_id
from fleethpa.fleet.finding import Selection, check_known, places_read
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import Decorator, gathered, moment
from fleethpa.frame.session import Session
from fleethpa.show import words
from fleethpa.show.formats import Listing, render
from fleethpa.show.text import Column, Widths, rfc3339, shown
from schemas.constraints import CONSTRAINTS
from schemas.decisions import Decision, uid_of
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import time_ms
from schemas.partitioning import partition_for
from streams.history.recorded import Recorded
from streams.state.needs import STATES

if TYPE_CHECKING:
    from streams.history.past import Past
    from streams.history.recorded import Recorded

DIRECTIONS: Final = {"up": "ScaleUp", "down": "ScaleDown", "none": "None"}


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
    state: str | None = None

    def matches(self, recorded: Recorded) -> bool:
        """Whether a decision is asked for."""
        begins, ends = self.since_ms, self.until_ms
        is_in_time = (begins is None or recorded.time_ms >= begins) and (ends is None or recorded.time_ms < ends)
        return self.selection.matches(recorded.hpa) and is_in_time and self._fits(recorded)

    def _fits(self, recorded: Recorded) -> bool:
        if self.changes and recorded.decision.kind == "evaluation" and recorded.decision.direction == "None":
            return False
        if self.limit and self.limit not in recorded.decision.constraints_applied:
            return False
        if self.direction and recorded.decision.direction != DIRECTIONS[self.direction]:
            return False
        if self.state and self.state not in recorded.decision.states:
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
        raise _empty_window(begin, end)
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
            raise _empty_window(first, last)
        return first, last


def period_options(since: str) -> Decorator:
    """`--since`, with this default, and `--until`; the function gets one argument `period`."""
    return gathered(
        "period",
        AskedPeriod,
        click.option("--since", default=since, metavar=f"{since}|TIME", help="Start at this time."),
        click.option("--until", metavar="1h|TIME", help="End at this time [default: now]."),
    )


def _empty_window(begin_ms: int, end_ms: int) -> CommandError:
    cause = f"The window is empty: it would begin at {rfc3339(begin_ms)} and end at {rfc3339(end_ms)}."
    return usage("--since is not before --until", cause=cause)


class _Limit(click.Choice[str]):
    """One of the constraints that there are when the option is parsed."""

    def __init__(self) -> None:
        super().__init__(tuple(CONSTRAINTS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        self.choices = tuple(CONSTRAINTS)
        return super().convert(value, param, ctx)


filter_options: Final = gathered(
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
        type=_Limit(),
        metavar="LIMIT",
        help=f"Only decisions limited by this: {', '.join(CONSTRAINTS)}.",
    ),
    click.option(
        "--direction", type=click.Choice(list(DIRECTIONS)), help="Only decisions that scale up, down or not at all."
    ),
    click.option(
        "--state",
        type=click.Choice(STATES),
        help="Only decisions of HPAs at maxReplicas whose metrics ask for more (saturated) or not (content), that pods "
        "without metrics keep from changing (blocked), whose spec disables the direction that they ask for "
        "(disabled), or that go up and down (flapping).",
    ),
)
"""`--changes`, `--reason`, `--limited-by`, `--direction`, `--state`: one dict `only`, for `Filter`."""


# --- lists ------------------------------------------------------------------------------------------------------------

DEFAULT_LAST: Final = 50
RECENT_MS: Final = 15 * 60_000
LAST_DECISIONS: Final = 10
_LOOKED_BACK_MS: Final = 3_600_000
_USUAL_WIDTHS: Final = (24, 28, 4, 4, 11, 18)
"""Of the first columns, for lines of which the later ones are not known yet."""
Test = Callable[[Recorded], bool]


def newest(everything: Iterable[Recorded], matches: Test, limit: int | None) -> list[Recorded]:
    """The newest `limit` (None: all) that match, oldest first."""
    fitting = sorted(filter(matches, everything), key=lambda each: (each.time_ms, each.partition, each.decision.seq))
    return fitting[-limit:] if limit else fitting


async def read_back(past: Past, wanted: Filter, limit: int | None) -> list[Recorded]:
    """Decisions as far back as the newest `limit` that are wanted need it, or the time from which on they are.

    Where an HPA, a namespace or clusters are named, only the partitions of those that exist or existed are read.
    """
    if limit is None and wanted.since_ms is not None:
        return await _read_on(past, wanted, wanted.since_ms)

    def enough(_: int, decisions: list[Recorded]) -> bool:
        return wanted.reached(decisions) or (limit is not None and _count(wanted, decisions) >= limit)

    tails = await past.tail(enough, await _where(past, wanted.selection), wanted.until_ms)
    return [recorded for tail in tails.values() for recorded in tail]


def _count(wanted: Filter, decisions: Sequence[Recorded]) -> int:
    fitting = [each for each in decisions if wanted.matches(each)]
    return len(one_each(fitting) if wanted.changes else fitting)


async def _read_on(past: Past, wanted: Filter, since_ms: int) -> list[Recorded]:
    """Decisions of the selected HPAs from a time on, each decoded once."""
    ends = [end for end in (wanted.until_ms, None if past.at_ms is None else past.at_ms + 1) if end is not None]
    numbers = await _where(past, wanted.selection)
    records: list[Recorded] = []
    for number in range(await past.partitions()) if numbers is None else numbers:
        decisions = past.decisions(number, since_ms, min(ends, default=None), wanted.selection.matches)
        async with aclosing(decisions):
            records += [recorded async for recorded in decisions]
    return records


def endings_of(decisions: Iterable[Recorded]) -> dict[str, Recorded]:
    """The records that completed writes, by the ID of the evaluation that wanted them."""
    return {each.decision.completes: each for each in decisions if each.decision.completes}


def one_each(decisions: Sequence[Recorded]) -> list[Recorded]:
    """Changes without the ends of their writes, each of which is the outcome of its change; one alone has its row."""
    known = {each.decision.id for each in decisions}
    return [each for each in decisions if each.decision.completes not in known]


class ListedDecisions(NamedTuple):
    """Decisions, oldest first, and the records that completed their writes, by the evaluation's ID.

    `has_older`: whether there are older ones that fit, which the limit left out.
    """

    found: list[Recorded]
    endings: dict[str, Recorded]
    has_older: bool


async def listed(past: Past, wanted: Filter, last: int | None) -> ListedDecisions:
    """The decisions that are wanted.

    Without `last` and without a beginning they are the newest 50. With `--changes` each change is there once.

    Raises CommandError: an HPA that is named does not exist (exit 4).
    """
    limit = last or (None if wanted.since_ms is not None else DEFAULT_LAST)
    everything = await read_back(past, wanted, None if limit is None else limit + 1)
    await check_known(past, wanted.selection, (each.hpa for each in everything))
    fitting = newest(everything, wanted.matches, None)
    fitting = one_each(fitting) if wanted.changes else fitting
    has_older = limit is not None and len(fitting) > limit
    return ListedDecisions(fitting[-limit:] if limit else fitting, endings_of(everything), has_older)


async def expired_until(past: Past, wanted: Filter, found: int, last: int | None) -> int | None:
    """Return the log time before which decisions that are asked for may have expired; None: no answer lacks any.

    Args:
        found: how many were found.
        last: how many are asked for; None: as many as `listed` gives without a limit.
    """
    limit = last or (None if wanted.since_ms is not None else DEFAULT_LAST)
    if limit is not None and found >= limit:
        return None
    numbers = await _where(past, wanted.selection)
    begins: dict[int, int] = {}
    for number in range(await past.partitions()) if numbers is None else numbers:
        oldest_ms = await past.decided_from_ms(number)
        if oldest_ms is not None and (wanted.since_ms is None or wanted.since_ms < oldest_ms):
            begins[number] = oldest_ms
    if not begins:
        return None
    state = await read_state(past, begins)
    # Of an HPA that is younger nothing has expired.
    lacking = [
        begins[view.partition]
        for hpa, view in state.hpas.items()
        if wanted.selection.matches(hpa, view.labels) and _created_ms(view) < begins[view.partition]
    ]
    lacking += [begins[number] for number in begins if any(map(wanted.selection.matches, state.forgotten))]
    return max(lacking, default=None)


def _created_ms(view: HpaView) -> int:
    """When an HPA was created; 0: its object does not say."""
    return time_ms((view.hpa.get("metadata") or {}).get("creationTimestamp")) or 0


async def _where(past: Past, selection: Selection) -> list[int] | None:
    """The partitions of what is selected; None: all."""
    if (named := await places_read(past, selection)) is not None:
        return named
    count = await past.partitions()
    if not (selection.refs or selection.namespace or selection.clusters):
        return None
    state = await read_state(past)
    known = filter(selection.matches, (*state.hpas, *state.forgotten))
    return sorted({partition_for(hpa.namespace_key, count) for hpa in known})


async def decided(past: Past, views: Sequence[HpaView]) -> list[HpaView]:
    """The views with their newest evaluations, where one was made in the last quarter of an hour."""
    awaited: dict[int, set[str]] = {}
    for view in views:
        if view.last_decision and view.mode != "off":
            awaited.setdefault(view.partition, set()).add(uid_of(view.last_decision))
    since_ms = min((view.clock_ms for view in views), default=0) - RECENT_MS
    evaluations = await past.newest_evaluations(awaited, since_ms)
    return [replace(v, decision=evaluations.get(uid_of(v.last_decision)) if v.last_decision else None) for v in views]


async def last_of(past: Past, views: Sequence[HpaView]) -> dict[HpaId, list[Recorded]]:
    """The last decisions of some HPAs, oldest first, read once; of a young HPA no more than the last hour is read."""
    of_partition: dict[int, set[HpaId]] = {}
    for view in views:
        of_partition.setdefault(view.partition, set()).add(view.id)
    since_ms = min((view.clock_ms for view in views), default=0) - _LOOKED_BACK_MS

    def enough(number: int, decisions: list[Recorded]) -> bool:
        counts = Counter(recorded.hpa for recorded in decisions)
        reached = bool(decisions) and decisions[0].time_ms < since_ms
        return reached or all(counts[hpa] >= LAST_DECISIONS for hpa in of_partition[number])

    by_hpa: dict[HpaId, list[Recorded]] = {view.id: [] for view in views}
    for number, tail in (await past.tail(enough, of_partition)).items():
        for recorded in tail:
            if recorded.hpa in of_partition[number]:
                by_hpa[recorded.hpa].append(recorded)
    return {hpa: decisions[-LAST_DECISIONS:] for hpa, decisions in by_hpa.items()}


def with_newest(view: HpaView, last: Sequence[Recorded]) -> HpaView:
    """The view with the newest evaluation among its last decisions."""
    evaluations = (each for each in reversed(last) if each.decision.kind == "evaluation")
    return replace(view, decision=next(evaluations, None))


def document(decision: Decision) -> dict[str, Any]:
    """A decision as machine formats show it: the record itself, its headline fields also where they are defaults."""
    body: dict[str, Any] = msgspec.to_builtins(decision)
    # The record's own `kind` says evaluation or completion; an API object's says what type of object it is.
    record = body.pop("kind", "evaluation")
    headline: dict[str, Any] = {
        "mode": decision.mode,
        "origin": decision.origin,
        "currentReplicas": decision.current_replicas,
        "rawDesiredReplicas": decision.raw_desired_replicas,
        "finalDesiredReplicas": decision.final_desired_replicas,
        "direction": decision.direction,
        "constraintsApplied": list(decision.constraints_applied),
    }
    return {"record": record} | body | headline


def positioned(recorded: Recorded, ending: Recorded | None = None) -> dict[str, Any]:
    """A decision as machine formats show it, with its place on the topic, and the outcome of its write if given."""
    outcome = {"outcome": ending.decision.outcome} if ending else {}
    place = {"position": {"partition": recorded.partition, "offset": recorded.offset}}
    return document(recorded.decision) | outcome | place


async def follow(session: Session, past: Past, matches: Test, output: str, *, headers: bool) -> None:
    """Print decisions as they are made: as JSON lines, or as lines of a table, whose columns only grow."""
    listing = decision_listing([], {}, session.time_style, session.now_ms())
    widths = Widths(_USUAL_WIDTHS)
    head = render(listing, output, widths=widths, width=session.folds_at)
    if headers:
        session.out(head)
    async for recorded in past.follow():
        if matches(recorded):
            session.listing(replace(listing, items=[recorded]), output, headers=False, widths=widths)


# --- the table --------------------------------------------------------------------------------------------------------


def decision_listing(
    decisions: Sequence[Recorded],
    endings: Mapping[str, Recorded],
    time_style: str,
    now_ms: int,
    *,
    changes: bool = False,
) -> Listing[Recorded]:
    """Decisions for every format; `endings`: the records that completed their writes, by the evaluation's ID.

    `changes`: each item is a change, so that what became of it is shown in the place of the kind of record.
    """
    return Listing(
        kind="Decision",
        items=decisions,
        columns=decision_columns(endings, time_style, now_ms, changes=changes),
        document=lambda recorded: positioned(recorded, endings.get(recorded.decision.id) if changes else None),
        name=lambda recorded: f"decision/{recorded.decision.id}",
        style=_style,
    )


def decision_columns(
    endings: Mapping[str, Recorded], time_style: str, now_ms: int, *, changes: bool = False
) -> tuple[Column[Recorded], ...]:
    """Return what every list says of a decision; those marked wide only where there is room."""
    applied = Column[Recorded]("APPLIED", lambda r: _applied(r, endings), wide=not changes)
    return (
        Column("TIME", lambda r: shown(r.time_ms, time_style, now_ms)),
        Column("HPA", lambda r: str(r.hpa)),
        Column("FROM", lambda r: _replicas(r, r.decision.current_replicas)),
        Column("TO", lambda r: _replicas(r, r.decision.final_desired_replicas)),
        *([applied] if changes else [Column("KIND", lambda r: r.decision.kind)]),
        Column("REASON", _reason, wide=True),
        Column("WINNER", lambda r: words.short(r.decision.selected_metric) or "-", wide=True),
        Column("LIMITED BY", lambda r: ",".join(r.decision.constraints_applied) or "-", wide=True),
        Column("STATE", lambda r: ",".join(r.decision.states) or "-", wide=True),
        *([] if changes else [applied]),
        Column("MODE", lambda r: r.decision.mode, wide=True),
        Column("GENERATION", lambda r: str(r.decision.generation), wide=True),
        Column("SPEC BY", lambda r: r.decision.author or "-", wide=True),
        Column("ID", lambda r: short_id(r.decision.id)),
        Column("WHY", lambda r: _why(r, endings if changes else {})),
    )


def _replicas(recorded: Recorded, count: int) -> str:
    return str(count) if words.scale_is_known(recorded.decision) else "-"


def _reason(recorded: Recorded) -> str:
    decision = recorded.decision
    if decision.kind == "completion":
        return f"write {decision.outcome.get('result', 'ended')}"
    return words.rescale_reason(decision) if decision.direction != "None" else decision.reason or "-"


def _applied(recorded: Recorded, endings: Mapping[str, Recorded]) -> str:
    """Return what became of the write that a decision wanted, where one was."""
    decision = recorded.decision
    if decision.kind == "completion":
        return str(decision.outcome.get("result", "ended"))
    if decision.wants is None:
        return "-"
    ending = endings.get(decision.id)
    return str(ending.decision.outcome.get("result", "ended")) if ending else "pending"


def _why(recorded: Recorded, endings: Mapping[str, Recorded]) -> str:
    """Why a decision was made, and how its write ended where it was not simply applied."""
    ending = endings.get(recorded.decision.id)
    has_failed = ending is not None and ending.decision.outcome.get("result") != "applied"
    return "; ".join([words.why(recorded.decision), *([words.why(ending.decision)] if ending and has_failed else [])])


def _style(recorded: Recorded) -> str:
    decision = recorded.decision
    if decision.error or decision.refused:
        return "yellow"
    return "green" if decision.final_desired_replicas != decision.current_replicas else ""

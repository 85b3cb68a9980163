"""`fleethpa schedule`: change settings of central HPAs at times of the week, of the month or of the year."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from fleethpa.changes import schedules
from fleethpa.changes.foresight import concerns, read_present
from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.finding import Selection, check_clusters, chosen, selection_options
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import OK, PARTIAL, CommandError, SuggestingGroup, not_found, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing
from fleethpa.show.text import Column, rfc3339, shown
from schemas.kubernetes.shape import Json


@click.group(cls=SuggestingGroup)
def schedule() -> None:
    """Change settings of central HPAs at given times; `fleethpa run scheduler` applies the changes."""


@schedule.command()
@selection_options()
@click.option(
    "--rule",
    "rules",
    multiple=True,
    required=True,
    metavar="RULE",
    help="'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%', 'monthly 1,15,last 08:00-18:00 …', "
    "'2026-12-24..2026-12-26 00:00-24:00 …', '12-24..01-02 00:00-24:00 …' (every year); "
    "repeatable, the last one that applies counts.",
)
@click.option("--time-zone", default="UTC", metavar="ZONE", help="The zone of the times.")
@write_options
@command_options()
async def create(
    session: Session, /, selection: Selection, rules: tuple[str, ...], time_zone: str, options: WriteOptions
) -> int:
    """Give HPAs a schedule, replacing an existing one. When no rule applies, they have the settings of their manifest.

    Rules set minReplicas, maxReplicas and targets; try them first with `fleethpa backtest --schedule`.
    """
    parsed = schedules.parsed_rules(rules, time_zone)  # whether they can be read, before anything else is
    for rule in parsed:
        if schedules.is_over(rule, schedules.parse_zone(time_zone), session.now_ms()):
            session.warn(f"--rule {rule.text!r} never applies again: its dates are past.")

    def write(view: HpaView) -> PlannedRecord:
        before = schedules.schedule_of(view.hpa)
        plain = view.hpa if before is None else view.hpa | {"spec": _otherwise(view, before)}
        new = schedules.made(plain, rules, time_zone)
        spec = schedules.spec_at(plain, new, session.now_ms())
        return _record(session, view, new, spec, "has a schedule", options.reason or "schedule created")

    return await _change(session, selection, write, options)


@schedule.command()
@selection_options()
@write_options
@command_options()
async def delete(session: Session, /, selection: Selection, options: WriteOptions) -> int:
    """Remove the schedule of HPAs; they return to the settings that they have when no rule applies."""

    def write(view: HpaView) -> PlannedRecord | None:
        try:
            before = schedules.schedule_of(view.hpa)
        except CommandError:  # what cannot be read can still be taken away
            return _record(session, view, None, view.spec, "has no schedule any more", options.reason)
        if before is None:
            return None
        reason = options.reason or "schedule deleted"
        return _record(session, view, None, _otherwise(view, before), "has no schedule any more", reason)

    return await _change(session, selection, write, options)


def _otherwise(view: HpaView, before: schedules.ReplicaSchedule) -> Json:
    """The spec that holds when no rule does."""
    without = schedules.ReplicaSchedule(time_zone="UTC", rules=[], otherwise=before.otherwise)
    return schedules.spec_at(view.hpa, without, 0)


def _record(
    session: Session, view: HpaView, new: schedules.ReplicaSchedule | None, spec: Json, words: str, reason: str
) -> PlannedRecord:
    body = schedules.with_schedule(view.hpa, new, spec)
    return central_record(view.id, words, body, session.config.author, reason, over=view)


async def _change(
    session: Session, selection: Selection, write: Callable[[HpaView], PlannedRecord | None], options: WriteOptions
) -> int:
    async with session.past() as past:
        state, present = await read_present(past)
    views = chosen(state, selection)
    code = OK
    writes: list[PlannedRecord] = []
    for view in views:
        if view.origin != "central":
            problem = CommandError(
                f"hpa {view.id} lives in its cluster",
                cause="A schedule changes the spec, and fleethpa changes only HPAs that live in fleethpa.",
                next_step=f"fleethpa adopt {view.id}",
            )
            code = session.report(problem)
            continue
        planned = write(view)
        if planned is None:
            session.out(f"hpa {view.id} unchanged (it has no schedule)")
        else:
            writes.append(planned)
    agreed = concerns("schedule", present.foresee(writes), writes)
    return await change(session, "schedule", writes, agreed, options, code=code, state=state)


@dataclass(frozen=True)
class _Row:
    view: HpaView
    schedule: schedules.ReplicaSchedule | None
    problem: str
    rule: str
    next_ms: int | None


@schedule.command("list")
@selection_options()
@output_option()
@command_options(reads=True)
def list_schedules(session: Session, /, selection: Selection, output: str) -> int:
    """List schedules: which rule applies now, and when that changes. Exit 5: as it was last known."""
    state = session.run(fleet_now(session))
    check_clusters(state, selection)
    views = [view for view in schedules.scheduled(state.hpas.values()) if selection.matches(view.id, view.labels)]
    if missing := selection.missing(view.id for view in views):
        raise not_found(
            f"{missing[0]} has no schedule",
            next_step=f"fleethpa schedule create {missing[0]} --rule {schedules.EXAMPLE}",
        )
    rows = [_row(view, session.now_ms()) for view in sorted(views, key=lambda view: view.id)]
    if rows or output != "table":
        session.listing(
            _listing(rows, lambda time_ms: shown(time_ms, session.time_style, session.now_ms(), "seconds")), output
        )
    elif state.is_last_known:
        session.note("No central HPA had a schedule when that was last known.")
    else:
        session.note(f"No central HPA has a schedule. Next: fleethpa schedule create NAME --rule {schedules.EXAMPLE}")
    return PARTIAL if state.is_last_known else OK


def _row(view: HpaView, now_ms: int) -> _Row:
    try:
        held = schedules.schedule_of(view.hpa)
        if held is None:
            raise usage(f"{view.id} has no schedule")
        schedules.spec_at(view.hpa, held, now_ms)
        rule = schedules.rule_at(held, now_ms)
        return _Row(view, held, "", rule.text if rule is not None else "", schedules.next_change_ms(held, now_ms))
    except CommandError as error:
        return _Row(view, None, f"{error.what}: {error.cause}", "", None)


def _listing(rows: list[_Row], time_text: Callable[[int], str]) -> Listing[_Row]:
    columns: tuple[Column[_Row], ...] = (
        Column("NAMESPACE", lambda row: row.view.id.namespace),
        Column("NAME", lambda row: row.view.id.name),
        Column("CLUSTER", lambda row: row.view.id.cluster),
        Column("RULES", lambda row: "; ".join(row.schedule.rules) if row.schedule else row.problem),
        Column("ZONE", lambda row: row.schedule.time_zone if row.schedule else "-"),
        Column("NOW", lambda row: row.rule or ("no rule holds" if row.schedule else "-")),
        Column("NEXT", lambda row: time_text(row.next_ms) if row.next_ms is not None else "-"),
        Column("OTHERWISE", lambda row: ",".join(row.schedule.otherwise) if row.schedule else "-", wide=True),
    )
    return Listing(
        kind="Schedule",
        items=rows,
        columns=columns,
        document=_document,
        name=lambda row: f"schedule/{row.view.id}",
        style=lambda row: "red" if row.problem else "",
    )


def _document(row: _Row) -> dict[str, Any]:
    return row.view.id._asdict() | {
        "timeZone": row.schedule.time_zone if row.schedule else "",
        "rules": row.schedule.rules if row.schedule else [],
        "otherwise": row.schedule.otherwise if row.schedule else [],
        "inForce": row.rule,
        "nextChange": None if row.next_ms is None else rfc3339(row.next_ms),
        "problem": row.problem,
    }

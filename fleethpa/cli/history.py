"""`fleethpa history`, `rollback` and `schedule`: the spec of an HPA over time, as it was and as it will be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from fleethpa.changes import schedules
from fleethpa.changes.foresight import concerns, read_present
from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.changes.records import PlannedRecord, central_record
from fleethpa.changes.specs import change_text, read_revisions, revision_before, revision_document, revision_of
from fleethpa.changes.writing import WriteOptions, change, write_options
from fleethpa.fleet.finding import Selection, chosen, selection_options
from fleethpa.fleet.state import fleet_now
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import OK, CommandError, SuggestingGroup, not_found, usage
from fleethpa.frame.options import moment, output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing, machine
from fleethpa.show.text import Column, rfc3339, shown
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_API_VERSION, FLEET_KIND
from streams.analysis.revisions import Revision, differences

# --- revisions --------------------------------------------------------------------------------------------------------


@click.command()
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME", required=True, labels=False)
@click.option(
    "--to-revision", "number", type=click.IntRange(min=1), help="The revision [default: the last with another spec]."
)
@write_options
@command_options()
async def rollback(session: Session, /, selection: Selection, number: int | None, options: WriteOptions) -> int:
    """Give a central HPA the spec of an earlier revision again; `fleethpa history NAME` lists them.

    Its mode, labels and pauses stay. It is a change like any other: a new revision, with your name and --reason.
    """
    state, hpa, found = await read_revisions(session, selection)
    view = _central(state, hpa)
    chosen = revision_of(found, number, hpa) if number else revision_before(found, view.spec, hpa)
    write = _write(session, view, chosen[0].generation, chosen[1], options.reason)
    if write is None:
        session.out(f"hpa {hpa} unchanged (its spec is that of revision {chosen[0].generation})")
        return 0
    return await change(session, "rollback", [write], [], options)


def _central(state: FleetState, hpa: HpaId) -> HpaView:
    """The HPA as it is now.

    Raises CommandError: it was deleted (exit 4), or it is its cluster's own (exit 1); with the command that helps.
    """
    view = state.hpas.get(hpa)
    shown = f"fleethpa history {hpa} --revision N -o yaml"
    if view is None:
        step = f"{shown} | fleethpa apply -C {hpa.cluster} -f -"
        raise not_found(f"{hpa} was deleted", cause="A spec of it can be applied anew.", next_step=step)
    if view.origin != "central":
        raise CommandError(
            f"hpa {hpa} lives in its cluster",
            cause="fleethpa changes only HPAs that live in fleethpa.",
            next_step=f"{shown} | kubectl --context {hpa.cluster} apply -f -",
        )
    if view.is_of_fleet:
        whole = view.whole or view.id
        raise CommandError(
            f"{hpa} is {'a FleetHPA' if view.whole is None else f'part of FleetHPA {whole}'}",
            cause="A FleetHPA and the HPAs in its clusters change together.",
            next_step=f"fleethpa history {whole} --revision N -o yaml | fleethpa apply -f -",
        )
    return view


def _write(session: Session, view: HpaView, number: int, spec: dict[str, Any], reason: str) -> PlannedRecord | None:
    """The record that brings a spec back; None: it is the current one."""
    if semantically_equal_spec(view.spec, spec):
        return None
    manifest = manifest_of(view.id._asdict() | {"labels": view.labels, "annotations": view.annotations}, spec)
    body, errors = check_hpa(FileManifest(f"revision {number}", manifest), view.id.namespace)
    if errors:
        raise usage(f"revision {number} of {view.id} is not valid any more", cause="\n".join(errors))
    words = f"rolled back to revision {number} ({'; '.join(differences(view.spec, body['spec']))})"
    why = reason or f"rollback to revision {number}"
    return central_record(view.id, words, body, session.config.author, why, over=view)


@click.command()
@selection_options("[hpa] [CLUSTER/][NAMESPACE/]NAME", required=True, labels=False)
@click.option("--since", metavar="7d|TIME", help="Start at this time [default: the beginning of the log].")
@click.option("--revision", type=click.IntRange(min=1), help="Print the spec of this revision, as a manifest.")
@click.option("--no-headers", is_flag=True, help="Leave out the header.")
@output_option()
@command_options(reads=True)
def history(
    session: Session, selection: Selection, since: str | None, revision: int | None, no_headers: bool, output: str
) -> None:
    """Show every change of an HPA's spec, mode and pauses, oldest first: who made it, why, and what it changed.

    An HPA that was deleted is found by its full name, or by a part that names no other HPA. With --revision it
    prints one of the specs, as `fleethpa apply -f -` takes it; `fleethpa rollback` goes back to it.
    """
    since_ms = moment(since, session.now_ms(), "--since")
    if revision is not None and output in ("name", "jsonl"):
        raise usage(f"--revision prints a manifest, not {output}", cause="Use -o yaml or -o json.")
    _, hpa, found = session.run(read_revisions(session, selection, since_ms))
    if revision is not None:
        session.out(_manifest(session, hpa, found, revision, output))
        return
    if not found:
        when = f" since {since}" if since else ""
        raise not_found(f"the log holds no change of {hpa}{when}", next_step=f"fleethpa describe {hpa}")
    listing = Listing(
        kind="Revision",
        items=found,
        columns=_columns(session),
        document=lambda each: revision_document(hpa, each),
        name=lambda each: f"revision/{hpa}@{each.offset}",
        style=lambda each: "dim" if each.what not in ("created", "spec", "deleted", "adopted", "released") else "",
    )
    session.listing(listing, output, headers=not no_headers)


def _manifest(session: Session, hpa: HpaId, found: list[Revision], number: int, output: str) -> str:
    """A revision's manifest; for people with a line above it that says whose it is."""
    revision, spec = revision_of(found, number, hpa)
    manifest = manifest_of(hpa._asdict(), spec)
    if hpa.cluster == FLEET:
        manifest |= {"apiVersion": FLEET_API_VERSION, "kind": FLEET_KIND}
    if output not in ("table", "wide"):
        return machine(manifest, output)
    by = revision.author or revision.manager
    why = f": {revision.reason}" if revision.reason else ""
    date = shown(revision.time, session.time_style, session.now_ms())
    return f"# {hpa} revision {number}, {date}{f', by {by}' if by else ''}{why}\n{machine(manifest, 'yaml')}"


def _columns(session: Session) -> tuple[Column[Revision], ...]:
    return (
        Column("REVISION", lambda r: str(r.generation) if r.generation else "-"),
        Column("DATE", lambda r: shown(r.time, session.time_style, session.now_ms())),
        Column("CHANGED BY", lambda r: r.author or r.manager or "-"),
        Column("REASON", lambda r: r.reason or "-"),
        Column("LOG OFFSET", lambda r: str(r.offset), wide=True),
        Column("ORIGIN", lambda r: r.origin or "-", wide=True),
        Column("CHANGE", change_text),
    )


# --- schedules --------------------------------------------------------------------------------------------------------


@click.group(cls=SuggestingGroup)
def schedule() -> None:
    """Change settings of central HPAs at times of the week; `fleethpa run scheduler` applies the changes."""


@schedule.command()
@selection_options()
@click.option(
    "--rule",
    "rules",
    multiple=True,
    required=True,
    metavar="RULE",
    help="'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%'; repeatable, the last one that applies counts.",
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
    schedules.parsed_rules(rules, time_zone)  # whether they can be read, before anything else is

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
    return await change(session, "schedule", writes, agreed, options, code=code)


# --- listing ----------------------------------------------------------------------------------------------------------


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
def list_schedules(session: Session, /, selection: Selection, output: str) -> None:
    """List schedules: which rule applies now, and when that changes."""
    state = session.run(fleet_now(session))
    views = [view for view in schedules.scheduled(state.hpas.values()) if selection.matches(view.id, view.labels)]
    if missing := selection.missing(view.id for view in views):
        raise not_found(f"{missing[0]} has no schedule", next_step="fleethpa schedule create")
    rows = [_row(view, session.now_ms()) for view in sorted(views, key=lambda view: view.id)]
    if rows or output != "table":
        session.listing(_listing(rows), output)
    else:
        session.note("No central HPA has a schedule. Next: fleethpa schedule create")


def _row(view: HpaView, now_ms: int) -> _Row:
    try:
        found = schedules.schedule_of(view.hpa)
        if found is None:
            raise usage(f"{view.id} has no schedule")
        schedules.spec_at(view.hpa, found, now_ms)
        rule = schedules.rule_at(found, now_ms)
        return _Row(view, found, "", rule.text if rule is not None else "", schedules.next_change_ms(found, now_ms))
    except CommandError as error:
        return _Row(view, None, f"{error.what}: {error.cause}", "", None)


def _listing(rows: list[_Row]) -> Listing[_Row]:
    columns: tuple[Column[_Row], ...] = (
        Column("NAMESPACE", lambda row: row.view.id.namespace),
        Column("NAME", lambda row: row.view.id.name),
        Column("CLUSTER", lambda row: row.view.id.cluster),
        Column("RULES", lambda row: "; ".join(row.schedule.rules) if row.schedule else row.problem),
        Column("ZONE", lambda row: row.schedule.time_zone if row.schedule else "-"),
        Column("NOW", lambda row: row.rule or ("no rule holds" if row.schedule else "-")),
        Column("NEXT", lambda row: rfc3339(row.next_ms) if row.next_ms is not None else "-"),
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

"""`fleethpa history`: who changed an HPA's spec or mode, when, why and what."""

from __future__ import annotations

import click

from fleethpa.changes.specs import change_text, read_revisions, revision_document, revision_of, with_decisions
from fleethpa.fleet.decisionfinding import short_id
from fleethpa.fleet.finding import Selection, selection_options
from fleethpa.frame.errors import not_found, usage
from fleethpa.frame.options import moment, output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.show.formats import Listing, machine
from fleethpa.show.text import Column, shown
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.observed import FLEET_API_VERSION, FLEET_KIND
from streams.analysis.revisions import Revision


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
    prints one of the specs, as `fleethpa apply -f -` takes it; `fleethpa rollout undo` goes back to it. -o wide, json,
    jsonl and yaml have the ID of the first recorded decision under each change, which `fleethpa explain` takes.
    """
    since_ms = moment(since, session.now_ms(), "--since")
    if revision is not None and output in ("name", "jsonl"):
        raise usage(f"--revision prints a manifest, not {output}", cause="Use -o yaml or -o json.")

    async def read() -> tuple[HpaId, list[Revision]]:
        async with session.past() as past:
            _, hpa, revisions = await read_revisions(session, past, selection, since_ms)
            names_decisions = revision is None and output not in ("table", "name")
            return hpa, await with_decisions(past, hpa, revisions) if names_decisions else revisions

    hpa, revisions = session.run(read())
    if revision is not None:
        session.out(_manifest(session, hpa, revisions, revision, output))
        return
    if not revisions:
        when = f" since {since}" if since else ""
        raise not_found(f"the log holds no change of {hpa}{when}", next_step=f"fleethpa describe {hpa}")
    listing = Listing(
        kind="Revision",
        items=revisions,
        columns=_columns(session),
        document=lambda each: revision_document(hpa, each),
        name=lambda each: f"revision/{hpa}@{each.offset}",
        style=lambda each: "" if each.kind.is_of_spec else "dim",
    )
    session.listing(listing, output, headers=not no_headers)


def _manifest(session: Session, hpa: HpaId, revisions: list[Revision], number: int, output: str) -> str:
    """A revision's manifest; for people with a line above it that says whose it is."""
    revision, spec = revision_of(revisions, number, hpa)
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
        Column("FIRST DECISION", lambda r: short_id(r.first_decision) if r.first_decision else "-", wide=True),
        Column("CHANGE", change_text),
    )

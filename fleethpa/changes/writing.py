"""What the write verbs share: --reason, --dry-run, --wait, the question before much changes, the report."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from fleethpa.changes.overtaken import overtaken
from fleethpa.changes.owners import without_owned
from fleethpa.changes.records import PlannedRecord
from fleethpa.frame.errors import OK, PARTIAL, UNREACHABLE, CommandError, usage
from fleethpa.frame.options import gathered, parse_duration_ms, together
from fleethpa.frame.session import Session
from schemas.limits import Refusal
from streams.ingest.bodies import normalize
from streams.ingest.own import topic_of
from streams.ingest.pieces import SourcePlace

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState
    from fleethpa.frame.writer import Fate, SentRecord, Writer

RECORDED: Final = "30s"
"""How long records may take to be in the log, for a command without `--wait`."""


@dataclass(frozen=True)
class Concern:
    """Something that the user must agree to; `harmful`: shown as a warning also with --yes."""

    text: str
    harmful: bool = False


def _checked_wait(_: click.Context, __: click.Parameter, wait: str) -> str:
    """Check, before anything is read, and in a dry run too, that it is a time."""
    parse_duration_ms(wait, "--wait")
    return wait


class WriteOptions(NamedTuple):
    """The options of a command that writes; `wait`: how long until its records have to be in the log, as `5s`."""

    reason: str
    dry_run: bool
    yes: bool
    wait: str = RECORDED


_REASON: Final = click.option("--reason", default="", show_default=False, help="Why; recorded together with your name.")
_AUTHOR: Final = click.option(
    "--author", metavar="NAME", help="Who is recorded [default: you, or who started the CI job]."
)
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
_YES: Final = click.option("--yes", is_flag=True, help="Skip the confirmation. Required in scripts.")
_WAIT: Final = click.option(
    "--wait", default="5s", callback=_checked_wait, help="How long to wait until it is recorded (0s: do not wait)."
)
_HUB: Final = together(
    click.option(
        "--hub",
        "hub_context",
        metavar="CONTEXT|kafka",
        help="Write objects of the hub's API, with this context of your kubeconfig [default: kafka, which is records].",
    ),
    click.option("--hub-namespace", metavar="NAME", help="Their namespace in the hub [default: that of the HPA]."),
)
change_options = together(_AUTHOR, _HUB, gathered("options", WriteOptions, _REASON, _DRY_RUN, _YES))
write_options = together(_AUTHOR, _HUB, gathered("options", WriteOptions, _REASON, _DRY_RUN, _YES, _WAIT))
"""The function gets one argument `options`; author and hub are part of the session's configuration."""


def confirm(
    session: Session, concerns: Sequence[Concern], options: WriteOptions, verb: str, *, asks: bool = True
) -> None:
    """Show what a command would do, and ask unless it is a dry run. `asks`: whether it needs a confirmation at all.

    Raises CommandError: nobody can be asked (exit 2). Raises click.Abort: the answer is no.
    """
    is_agreed = options.yes or options.dry_run or not asks or not concerns
    if not is_agreed and not sys.stdin.isatty():
        lines = [*(concern.text for concern in concerns), "There is no terminal to ask on; nothing was written."]
        next_step = "add --yes, or --dry-run to see each change"
        raise usage(f"{verb} needs a yes", cause="\n".join(lines), next_step=next_step)
    for concern in concerns:
        (session.warn if concern.harmful else session.note)(concern.text)
    if is_agreed:
        return
    cancel = signal.getsignal(signal.SIGINT)
    # asyncio's handler would only cancel the task, which takes effect once the question is answered.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm("Go on?", abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, cancel)


async def change(
    session: Session,
    verb: str,
    writes: Sequence[PlannedRecord],
    concerns: Sequence[Concern],
    options: WriteOptions,
    *,
    code: int = OK,
    asks: bool = True,
    must_arrive: bool = False,
    state: FleetState | None = None,
) -> int:
    """Carry a change out as the options of `write_options` ask for it; return the exit code.

    A dry run prints what would be written. Otherwise the user is asked, the records are written, and what became of
    each is reported.

    Args:
        code: the exit code so far.
        asks: as of `confirm`.
        must_arrive: as of `write_all`.
        state: what is there now; records that would change what an object of the hub's API states are left out, with
            an error each. None: the command must not wait for it to be read.

    Raises CommandError: as `confirm` and `write_all`.
    """
    if state is not None:
        writes, owned = without_owned(state, writes)
        code = max(code, session.report(*owned))
    if not (writes or options.dry_run):
        return code
    confirm(session, concerns, options, verb, asks=asks)
    if options.dry_run:
        return max(code, dry_run(session, writes))
    async with session.writer() as writer:
        return max(code, await write_all(session, writer, writes, options.wait, must_arrive))


async def write_all(
    session: Session,
    writer: Writer,
    writes: Sequence[PlannedRecord],
    wait: str,
    must_arrive: bool = False,
    *,
    silent: bool = False,
) -> int:
    """Write records, wait until they are in the log, and report what became of each; return the exit code.

    `must_arrive`: what comes next depends on them, so that one that is not in the log in time is an error. `silent`:
    only what went wrong is reported.
    """
    limit_s = parse_duration_ms(wait, "--wait") / 1000
    if must_arrive and not limit_s:
        raise usage("--wait 0s: the next step depends on the record", next_step="leave --wait out")
    if not limit_s and any(getattr(body, "changes", "") for each in writes for body in each.bodies):
        cause = "Whether somebody else has changed the HPA meanwhile shows only when the record is in the log."
        raise usage("--wait 0s: a change of an HPA is waited for", cause=cause, next_step="leave --wait out")
    check_writes(writes)
    pendings = await _sent(session, writer, writes)
    if not limit_s:
        for pending in pendings:
            session.out(f"{pending.subject} (written to {pending})")
        return OK
    try:
        fates = await writer.fates(pendings, limit_s)
    except CommandError:
        _report_open(session, pendings)
        raise
    code = OK
    for fate in fates:
        code = max(code, _report(session, fate, silent))
        if must_arrive and fate.state == "rejected":
            code = max(code, UNREACHABLE)
    if open_ := [fate.pending for fate in fates if fate.state == "unknown"]:
        _report_open(session, open_)
        others = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        session.warn(
            f"not recorded within {wait}, so that it may not be in force: {open_[0]}{others}; ingest records or "
            "rejects it later. Next: fleethpa doctor --only log"
        )
        code = max(code, UNREACHABLE if must_arrive else PARTIAL)
    places = {fate.pending: fate.place for fate in fates}
    past = partial(session.past, remarks=False)
    found = await overtaken(writes, writer, past, limit_s, [places[each] for each in pendings])
    return max(code, session.report(*found))


async def _sent(session: Session, writer: Writer, writes: Sequence[PlannedRecord]) -> list[SentRecord]:
    """Write records, each within the time that brokers may be silent; where one fails, say what of them is written.

    Raises CommandError: the brokers refused a record, or did not confirm it (exit 3).
    """
    from fleethpa.frame.writer import RefusedRecordError

    sent: list[SentRecord] = []
    for each in writes:
        try:
            async with session.waiting():
                sent.append(await writer.send(each.subject, each.cluster, each.namespace, each.bodies))
        except (CommandError, asyncio.CancelledError) as error:
            _report_open(session, sent)
            if not isinstance(error, RefusedRecordError):
                session.warn(f"Kafka has not confirmed this record, which may be written or not: {each.subject}")
            raise
    return sent


def _report_open(session: Session, sent: Iterable[SentRecord]) -> None:
    """Print that records are written and not in the log yet, so that nothing is known of their effect."""
    for each in sent:
        session.out(f"{each.subject} (written, not recorded yet)")


async def rest(seconds: float) -> None:
    """Wait until the next look at what was written."""
    await asyncio.sleep(seconds)


def check_writes(writes: Sequence[PlannedRecord]) -> None:
    """Check records as ingest will. Raises CommandError: one would be rejected (exit 2)."""

    def refuse(refusal: Refusal) -> None:
        raise refusal

    for write in writes:
        place = SourcePlace(topic_of(write.namespace, write.bodies), write.cluster, write.namespace)
        for body in write.bodies:
            try:
                normalize(body, place, refuse)
            except Refusal as refusal:
                raise usage(f"{write.subject}: ingest would reject it", cause=refusal.text) from refusal


def _report(session: Session, fate: Fate, silent: bool) -> int:
    if fate.state == "rejected":
        what = f"{fate.pending.subject}: rejected"
        return session.report(CommandError(what, cause=fate.reason, next_step="fleethpa admin ingest check"))
    if fate.state == "logged" and not silent:
        session.out(fate.pending.subject)
    return OK


def dry_run(session: Session, writes: Sequence[PlannedRecord]) -> int:
    """Return what would be written. Raises CommandError: a record would be rejected (exit 2), as `write_all`."""
    check_writes(writes)
    for write in writes:
        session.out(f"{write.subject} (dry run)")
    return OK

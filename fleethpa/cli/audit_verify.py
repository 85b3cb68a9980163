"""`fleethpa audit verify` and `audit keygen`: the proof that nothing was altered."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from fleethpa.cli.common.auditkey import private_path, public_path
from fleethpa.cli.common.brokerconnection import connecting
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, usage
from fleethpa.cli.common.filters import moment
from fleethpa.cli.common.progressline import progress
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.sources import jobs_for, log_length
from fleethpa.cli.output.formats import one
from fleethpa.cli.output.times import rfc3339
from runtime.jsonlog import clean
from streams.archive.segments import ArchiveError
from streams.archive.signing import make_key, read_public
from streams.history.parallel import ReplayPool
from streams.history.verification import checkpoints_of, verify, verify_partition

if TYPE_CHECKING:
    from streams.archive.signing import Heads
    from streams.history.decisioncheck import Report
    from streams.history.past import Past


@click.command("verify")
@click.option("--since", metavar="24h|TIME", help="Start at this time; an archive is read from the snapshot before it.")
@click.option(
    "--public-key", metavar="FILE", help="Compare the records with the checkpoints that were signed with this key."
)
@click.option("--checkpoints", metavar="DIR", help="The archive with the signed checkpoints [default: --from DIR].")
@click.option("--jobs", type=click.IntRange(1), help="Number of processes [default: one per core].")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def audit_verify(
    session: Session, since: str | None, public_key: str | None, checkpoints: str | None, jobs: int | None, output: str
) -> int:
    """Check the whole record and re-derive every decision from the log; exit 1 if anything differs."""
    past = session.unopened_past(checked=False)
    since_ms = moment(since, session.now_ms(), "--since") if since else None
    if since_ms is not None and since_ms > session.now_ms():
        raise usage("--since is later than the newest record", cause="The window is empty.")
    heads, unsigned = _heads(session, public_key, checkpoints)
    pool = ReplayPool(verify_partition, jobs or jobs_for(past))

    async def work() -> list[Report]:
        async with progress(session, "verifying", pool, await log_length(past, since_ms)):
            return [report async for report in verify(past, since_ms, heads, pool)]

    began = time.monotonic()
    reports, fault = _checked(session, work)
    took_s = time.monotonic() - began
    reports.sort(key=lambda report: report.partition)
    document = _document(past, reports, heads, [each for each in (unsigned, fault) if each], since_ms)
    session.out(_text(document, took_s) if output == "table" else one("AuditReport", document, output))
    return OK if document["ok"] else ANSWER_IS_NO


def _checked(session: Session, work: Any) -> tuple[list[Report], str]:
    async def run() -> tuple[list[Report], str]:
        async with connecting(session.config.servers):
            try:
                return await work(), ""
            except ArchiveError as error:
                return [], str(error)

    return session.run(run())


def _heads(session: Session, public_key: str | None, folder: str | None) -> tuple[list[Heads], str]:
    """The signed checkpoints to hold the records to, and what is wrong with them."""
    root = folder or (session.source if session.source != "kafka" else "")
    if public_key and not root:
        raise usage(
            "--public-key needs signed checkpoints", next_step="name the archive that has them: --checkpoints DIR"
        )
    if not root:
        return [], ""
    if folder and not Path(folder).is_dir():
        raise usage(f"--checkpoints {folder}: no such folder", next_step="name the archive that has them")
    if public_key:
        _check_key(public_key)
    try:
        found = checkpoints_of(Path(root), Path(public_key) if public_key else None)
    except ArchiveError as error:
        return [], f"the signed checkpoints do not hold: {error}"
    if folder and not found:
        raise usage(f"--checkpoints {folder}: contains no signed checkpoint", next_step="fleethpa audit keygen")
    return found, ""


def _check_key(file: str) -> None:
    cause = "It is the file that `fleethpa audit keygen` wrote beside the private key with which the archive is signed."
    if not Path(file).exists():
        raise usage(f"--public-key {file}: no such file", cause=cause)
    try:
        read_public(Path(file))
    except ArchiveError as error:
        raise usage(f"--public-key {error}", cause=cause) from error


def _document(
    past: Past, reports: list[Report], heads: list[Heads], faults: list[str], since_ms: int | None
) -> dict[str, Any]:

    faults = [*faults, *(report.fault for report in reports if report.fault)]
    total = {name: sum(getattr(report, name) for report in reports) for name in ("log_records", "decisions")}
    return {
        "ok": not faults,
        "source": past.name,
        "since": None if since_ms is None else rfc3339(since_ms),
        "decisions": total["decisions"],
        "logRecords": total["log_records"],
        "duplicates": sum(report.duplicates for report in reports),
        "segments": sum(report.segments for report in reports),
        "snapshots": sum(report.snapshots for report in reports),
        "checkpoints": len(heads),
        "signedUntil": rfc3339(heads[-1].time_ms) if heads and heads[-1].time_ms else None,
        "engines": sorted({report.engine for report in reports if report.engine}),
        "engineChanges": [
            {"partition": report.partition, "offset": offset, "engine": engine}
            for report in reports
            for offset, engine in report.engine_changes
        ],
        "faults": faults,
        "partitions": [msgspec.to_builtins(report) for report in reports],
    }


def _text(found: dict[str, Any], took_s: float) -> str:
    speed = f"{found['decisions'] / took_s:,.0f}/s" if took_s > 0 else "-"
    lines = [
        f"verified {found['decisions']:,} decisions of {found['logRecords']:,} log records from {found['source']} "
        f"in {took_s:.1f}s ({speed})"
    ]
    good = [
        f"recomputed    {found['decisions']:,} identical to the byte; numbers, chain, log hashes, ids, keys, headers",
        f"engine        {', '.join(map(str, found['engines'])) or '-'}" + _changes(found["engineChanges"]),
        f"duplicates    {found['duplicates']} copies collapsed",
        f"archive       {found['segments']} closed segments, {found['snapshots']} snapshots"
        if found["segments"]
        else "",
        f"checkpoints   {found['checkpoints']} signed, up to {found['signedUntil'] or '-'}"
        if found["checkpoints"]
        else "",
    ]
    starts = [p for p in found["partitions"] if p["start"] >= 0]
    if starts:
        good.append(f"start         from snapshots in {len(starts)} partitions: nothing older was checked")
    if found["ok"]:
        return "\n".join(lines + [line for line in good if line] + ["OK"])
    return "\n".join([*lines, *(clean(f"FAULT  {fault}") for fault in found["faults"])])


def _changes(changes: list[dict[str, Any]]) -> str:
    if not changes:
        return ", no change"
    places = ", ".join(f"{each['engine']} from log {each['partition']}@{each['offset']} on" for each in changes)
    return f"; {places}"


@click.command("keygen")
@click.option("--key", metavar="FILE", help="Private key file [default: ~/.config/fleethpa/audit.key].")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def audit_keygen(session: Session, key: str | None, output: str) -> None:
    """Create the Ed25519 key with which `fleethpa archive` signs checkpoints; verifiers get the .pub file."""
    private = Path(key) if key else private_path()
    public = public_path(private)
    try:
        text = make_key(private, public)
    except FileExistsError as error:
        raise usage(
            f"{private} exists",
            cause="An existing key is never overwritten.",
            next_step="name another file: --key FILE",
        ) from error
    except OSError as error:
        raise usage(f"{private} cannot be written: {error}") from error
    made = {"private": str(private), "public": str(public), "publicKey": text}
    shown = f"private key  {private}\npublic key   {public}  ({text})"
    session.out(shown if output == "table" else one("AuditKey", made, output))
    session.note("Keep the private key away from anyone who can write to the archive. Next: fleethpa archive --to DIR")

"""`fleethpa audit verify` (or `replay`), `audit keygen`: recorded decisions recomputed from the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson

from fleethpa.fleet.decisionfinding import asked_id
from fleethpa.fleet.decisions import window as window_of
from fleethpa.frame.configuration import private_path
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, not_found, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import jobs_for, log_length, progress, talking, unopened_past
from fleethpa.questions.explaining import derived_again, derived_document, derived_text
from fleethpa.show.formats import one
from fleethpa.show.text import rfc3339
from runtime.log import clean
from schemas.decisions import ENGINE
from schemas.keys import HpaId, parse_hpa_id
from streams.archive.layout import ArchiveError
from streams.archive.signing import Heads, make_key, read_public
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool
from streams.history.past import Past
from streams.history.replay import Report
from streams.history.verify import checkpoints_of, verify_partition
from streams.history.verify import verify as verify_archive

_SHOWN: Final = 10
"""Differences that a terminal shows."""


@click.command("verify")
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--hpa", metavar="CLUSTER/NAMESPACE/NAME", help="Compare only decisions of this HPA.")
@click.option("--since", metavar="24h|TIME", help="Start at this time; an archive is read from the snapshot before it.")
@click.option("--until", metavar="2h|TIME", help="End at this time.")
@click.option(
    "--public-key", metavar="FILE", help="Compare the records with the checkpoints that were signed with this key."
)
@click.option("--checkpoints", metavar="DIR", help="The archive with the signed checkpoints [default: --from DIR].")
@click.option(
    "--engine-diff",
    is_flag=True,
    help="Count the differences by what differs first and by the engine that recorded it.",
)
@click.option("--jobs", type=click.IntRange(1), help="Number of processes [default: one per core].")
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def audit_verify(
    session: Session,
    id_: str | None,
    hpa: str | None,
    since: str | None,
    until: str | None,
    public_key: str | None,
    checkpoints: str | None,
    engine_diff: bool,
    jobs: int | None,
    output: str,
) -> int:
    """Check the record and re-derive every decision from the log; exit 1 if anything differs, and show the first
    differences.

    With the ID of a decision, which may be short as lists print it, only that one is recomputed and compared.
    """
    if id_ is not None:
        if hpa or since or until or public_key or checkpoints:
            raise usage("the ID of a decision excludes --hpa, --since, --until, --public-key and --checkpoints")
        return _verify_one(session, id_, output)
    past, wanted = unopened_past(session.source, session.config, checked=False), _hpa(hpa)
    # Without a window nothing is read before what is to be verified.
    window = window_of(since, until, session.now_ms()) if since or until else (None, None)
    since_ms, until_ms = window
    if since_ms is not None and since_ms > session.now_ms():
        raise usage("--since is later than the newest record", cause="The window is empty.")
    heads, unsigned = _heads(past, public_key, checkpoints)
    pool = ReplayPool(verify_partition, jobs or jobs_for(past))

    async def work() -> tuple[list[Report], str]:
        async with talking(session.config.servers):
            try:
                async with progress(session, "verifying", pool, await log_length(past, since_ms)):
                    found = verify_archive(past, since_ms, heads, pool, until_ms=until_ms, hpa=wanted)
                    return [report async for report in found], ""
            except ArchiveError as error:
                return [], str(error)

    began = time.monotonic()
    reports, fault = session.run(work())
    took_s = time.monotonic() - began
    reports.sort(key=lambda report: report.partition)
    document = _document(past, reports, heads, [each for each in (unsigned, fault) if each], window, hpa)
    if not (document["decisions"] or document["faults"]) and (hpa or until):
        raise _nothing(hpa, window)
    if output == "table":
        session.lines(_text(document, took_s, engine_diff).splitlines())
    else:
        session.out(one("AuditReport", document, output))
    return OK if document["ok"] else ANSWER_IS_NO


def _verify_one(session: Session, id_: str, output: str) -> int:
    """Derive one decision again from the log and compare it byte for byte."""
    asked = asked_id(id_)
    if asked is None:
        raise usage(f"{id_!r} is not the ID of a decision", next_step="fleethpa decisions -A -o wide")
    past = unopened_past(session.source, session.config)
    derived = session.run(derived_again(past, asked, session.config.servers))
    found = derived_document(past, derived)
    if output == "table":
        session.lines(derived_text(found).splitlines())
    else:
        session.out(one("DecisionVerification", found, output))
    return OK if found["identical"] else ANSWER_IS_NO


def _heads(past: Past, public_key: str | None, folder: str | None) -> tuple[list[Heads], str]:
    """The signed checkpoints to hold the records to, and what is wrong with them."""
    root = folder or (str(past.root) if isinstance(past, ArchivePast) else "")
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
    past: Past,
    reports: list[Report],
    heads: list[Heads],
    faults: list[str],
    window: tuple[int | None, int | None],
    hpa: str | None,
) -> dict[str, Any]:
    faults = [*faults, *(report.fault for report in reports if report.fault)]
    divergences = sorted((d for report in reports for d in report.divergences), key=lambda d: (d.time_ms, d.id))
    since, until = (None if at_ms is None else rfc3339(at_ms) for at_ms in window)
    counted = ("decisions", "identical", "diverged", "duplicates", "segments", "snapshots")
    return {
        "ok": not faults and all(not report.diverged for report in reports),
        "source": past.name,
        "hpa": hpa,
        "since": since,
        "until": until,
        **{name: sum(getattr(report, name) for report in reports) for name in counted},
        "logRecords": sum(report.log_records for report in reports),
        "checkpoints": len(heads),
        "signedUntil": rfc3339(heads[-1].time_ms) if heads and heads[-1].time_ms else None,
        "engine": ENGINE,
        "engines": sorted({report.engine for report in reports if report.engine}),
        "engineChanges": [
            {"partition": report.partition, "offset": offset, "engine": engine}
            for report in reports
            for offset, engine in report.engine_changes
        ],
        "recordedBy": _added(report.engines for report in reports),
        "firstDifferences": _added(report.paths for report in reports),
        "divergences": [
            {name: value for name, value in msgspec.to_builtins(each).items() if name != "timeMs"}
            | {"time": rfc3339(each.time_ms)}
            for each in divergences
        ],
        "faults": faults,
        "partitions": [
            {name: value for name, value in msgspec.to_builtins(report).items() if name != "divergences"}
            for report in reports
        ],
    }


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _text(found: dict[str, Any], took_s: float, engine_diff: bool) -> str:
    speed = f"{found['decisions'] / took_s:,.0f}/s" if took_s > 0 else "-"
    lines = [
        f"verified {found['decisions']:,} decisions of {found['logRecords']:,} log records from {found['source']} "
        f"in {took_s:.1f}s ({speed})"
    ]
    if found["ok"]:
        lines += _checked(found)
    else:
        lines.append(f"{found['identical']:,} identical, {found['diverged']:,} DIVERGED")
        for each in found["divergences"][:_SHOWN]:
            lines += _divergence_lines(each, found["engine"])
        if found["diverged"] > _SHOWN:
            lines.append(f"… and {found['diverged'] - _SHOWN:,} more; -o json has the first of each partition")
        lines += [f"FAULT  {fault}" for fault in found["faults"]]
    if engine_diff:
        by = ", ".join(f"engine {engine}: {count:,}" for engine, count in found["recordedBy"].items())
        lines.append(f"recorded by   {by}; recomputed with engine {found['engine']}")
        lines += [f"differs first {path}: {count:,}" for path, count in found["firstDifferences"].items()]
    return "\n".join(map(clean, [*lines, *(["OK"] if found["ok"] else [])]))


def _checked(found: dict[str, Any]) -> Iterator[str]:
    """What was checked, and nothing was wrong with."""
    yield f"recomputed    {found['decisions']:,} identical to the byte; numbers, chain, log hashes, ids, keys, headers"
    changes = found["engineChanges"]
    places = ", ".join(f"{each['engine']} from log {each['partition']}@{each['offset']} on" for each in changes)
    yield f"engine        {', '.join(map(str, found['engines'])) or '-'}{f'; {places}' if places else ', no change'}"
    yield f"duplicates    {found['duplicates']} copies collapsed"
    if found["segments"]:
        yield f"archive       {found['segments']} closed segments, {found['snapshots']} snapshots"
    if found["checkpoints"]:
        yield f"checkpoints   {found['checkpoints']} signed, up to {found['signedUntil'] or '-'}"
    if starts := [each for each in found["partitions"] if each["start"] >= 0]:
        yield f"start         from snapshots in {len(starts)} partitions: nothing older was checked"


def _divergence_lines(each: dict[str, Any], engine: int) -> list[str]:
    more = f" (and {each['fields'] - 1} more fields)" if each["fields"] > 1 else ""
    shown = [orjson.dumps(each[name]).decode() for name in ("recorded", "recomputed")]
    counts = [
        each[name] if each[name] is not None else "nothing" for name in ("recordedReplicas", "recomputedReplicas")
    ]
    lines = [
        f"{each['id']}  {each['hpa']}  {each['time']}  recorded {counts[0]}, recomputed {counts[1]}",
        f"  first difference: {each['path']}: recorded {shown[0]}, recomputed {shown[1]}{more}",
    ]
    if each["engine"] != engine:
        lines.append(f"  recorded by engine {each['engine']}, recomputed with {engine}")
    return lines


def _hpa(text: str | None) -> HpaId | None:
    try:
        return parse_hpa_id(text) if text else None
    except ValueError as error:
        raise usage(f"--hpa {text!r} is not the name of an HPA", cause=str(error)) from error


def _nothing(hpa: str | None, window: tuple[int | None, int | None]) -> CommandError:
    who = f" of {hpa}" if hpa else ""
    if window == (None, None):
        return not_found(f"no decision{who}", next_step="fleethpa get hpa -A")
    span = " to ".join(rfc3339(at) if at is not None else "…" for at in window)
    return not_found(f"no decision{who} in the window {span}", next_step="fleethpa decisions -A")


@click.command("keygen")
@click.option("--key", metavar="FILE", help="Private key file [default: ~/.config/fleethpa/audit.key].")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def audit_keygen(session: Session, key: str | None, output: str) -> None:
    """Create the Ed25519 key with which `fleethpa archive` signs checkpoints; verifiers get the .pub file."""
    private = Path(key) if key else private_path()
    public = private.with_suffix(".pub")
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

"""`fleethpa audit`: the record checked, with every decision recomputed from the log; signed reports; their keys."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import orjson

from fleethpa.frame.auditkeys import private_path
from fleethpa.frame.errors import OK, CommandError, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import unopened_past
from fleethpa.questions.rederiving import AskedSpan, Comparison, compare, span_options
from fleethpa.show.formats import machine, one
from streams.archive.layout import ArchiveError
from streams.archive.signing import Heads, make_key, read_public, read_report
from streams.history.archivepast import ArchivePast
from streams.history.past import Past
from streams.history.verify import checkpoints_of


@click.command("verify", context_settings={"allow_extra_args": True})
@span_options
@click.option(
    "--public-key", metavar="FILE", help="Compare the records with the checkpoints that were signed with this key."
)
@click.option("--checkpoints", metavar="DIR", help="The archive with the signed checkpoints [default: --from DIR].")
@click.option(
    "--engine-diff",
    is_flag=True,
    help="Count the differences by what differs first and by the engine that recorded it.",
)
@output_option(formats=("table", "json", "yaml"))
@command_options(reads=True)
def audit_verify(
    session: Session, span: AskedSpan, public_key: str | None, checkpoints: str | None, engine_diff: bool, output: str
) -> int:
    """Check chain, files and signatures of the record, and derive every decision again from the log; exit 1 if
    anything differs, and show the first differences.

    `fleethpa replay` derives one decision, or those of one HPA, again.
    """
    if names := click.get_current_context().args:
        cause = "It checks all decisions; replay derives one of them, or those of one HPA, again."
        raise usage("audit verify takes no name", cause=cause, next_step=f"fleethpa replay {shlex.quote(names[0])}")
    past = unopened_past(session.source, session.config, checked=False)
    heads, fault = _heads(past, public_key, checkpoints)
    comparison = Comparison(past, span, heads=heads, faults=(fault,) if fault else ())
    return compare(session, comparison, output, engine_diff=engine_diff)


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
        heads = checkpoints_of(Path(root), Path(public_key) if public_key else None)
    except ArchiveError as error:
        return [], f"the signed checkpoints do not hold: {error}"
    if folder and not heads:
        raise usage(f"--checkpoints {folder}: contains no signed checkpoint", next_step="fleethpa audit keygen")
    return heads, ""


def _check_key(file: str) -> None:
    cause = "It is the file that `fleethpa audit keygen` wrote beside the private key with which the archive is signed."
    if not Path(file).exists():
        raise usage(f"--public-key {file}: no such file", cause=cause)
    try:
        read_public(Path(file))
    except ArchiveError as error:
        raise usage(f"--public-key {error}", cause=cause) from error


@click.command("report")
@click.argument("file")
@click.option("--public-key", metavar="FILE", required=True, help="The public key of who signed it.")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def audit_report(session: Session, file: str, public_key: str, output: str) -> int:
    """Check the signature of a report that `savings --signed` wrote; exit 1 if it is not that of the report.

    `-o json` prints the report itself.
    """
    if not Path(file).is_file():
        raise usage(f"{file}: no such file", next_step="fleethpa savings -A --signed FILE")
    _check_key(public_key)
    try:
        document = orjson.loads(read_report(Path(file), read_public(Path(public_key))))
    except (ArchiveError, orjson.JSONDecodeError) as error:
        raise CommandError(f"the report is not as it was signed: {error}") from error
    if output != "table":
        session.out(machine(document, output))
        return OK
    origin = document.get("madeFrom") or {}
    session.lines(
        [
            f"{file} is as it was signed with {public_key}",
            f"made of  {origin.get('source', '?')}, from {origin.get('since', '?')} to {origin.get('until', '?')}",
            f"it says  {document.get('summary', document.get('kind', '?'))}",
        ]
    )
    return OK


@click.command("keygen")
@click.option("--key", metavar="FILE", help="Private key file [default: ~/.config/fleethpa/audit.key].")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def audit_keygen(session: Session, key: str | None, output: str) -> None:
    """Create the Ed25519 key with which `fleethpa admin archive` signs checkpoints; verifiers get the .pub file."""
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
    document = {"private": str(private), "public": str(public), "publicKey": text}
    shown = f"private key  {private}\npublic key   {public}  ({text})"
    session.out(shown if output == "table" else one("AuditKey", document, output))
    session.note(
        "Keep the private key away from anyone who can write to the archive. Next: fleethpa admin archive --to DIR"
    )

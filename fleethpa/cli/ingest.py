"""`fleethpa admin ingest`: try a message, print a sample, start a source anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from msgspec import to_builtins

from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, SuggestingGroup, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import client_settings, connecting
from fleethpa.processes.parts import ingest_mapping
from fleethpa.show.formats import one
from runtime.log import clean

if TYPE_CHECKING:
    from streams.ingest.preflight import CheckReport

FORMATS = ("fleethpa_sample", "otlp_json", "otlp_proto", "fleethpa")
"""Formats of messages that ingest reads; the first is the default."""


@click.group(cls=SuggestingGroup)
def ingest() -> None:
    """Check what ingest reads from a message, print example messages, or reset a source."""


@ingest.command()
@click.argument("message", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A Kafka header of the message.")
@click.option("--mapping", metavar="FILE", help="The mapping (YAML) that ingest runs with.")
@click.option("--topic", help="The topic that it is sent to [default: the one that takes this format].")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def check(
    session: Session, message: BinaryIO, headers: tuple[str, ...], mapping: str | None, topic: str | None, output: str
) -> int:
    """Print what ingest reads from a message in FILE or on stdin; exit 1 if it rejects any of it.

    \b
    Examples:
      fleethpa admin ingest check record.json
      kcat -C -t otlp_metrics -c 1 | fleethpa admin ingest check --header content-type=application/x-protobuf
    """
    from streams.ingest.preflight import check_record

    report = check_record(message.read(), _headers(headers), ingest_mapping(mapping), topic or "")
    session.out(_table(report) if output == "table" else one("IngestCheck", to_builtins(report), output))
    return ANSWER_IS_NO if report.is_rejected else OK


@ingest.command()
@click.argument("format_", type=click.Choice(FORMATS), default=FORMATS[0], metavar=f"[{'|'.join(FORMATS)}]")
@command_options()
def sample(session: Session, format_: str) -> None:
    """Print an example message with the current time.

    \b
    Examples:
      fleethpa admin ingest sample | fleethpa admin ingest check
      fleethpa admin ingest sample otlp_json > message.json
    """
    from streams.ingest.preflight import example

    written = example(format_, session.now_ms())
    stream = click.get_binary_stream("stdout")
    if format_ == "otlp_proto" and sys.stdout.isatty():
        raise usage("otlp_proto is binary", next_step="fleethpa admin ingest sample otlp_proto > message.bin")
    stream.write(written)


@ingest.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--reason", default="", show_default=False, help="Why; recorded in the log.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@command_options()
def reset(session: Session, topic: str, partition: int, reason: str, yes: bool) -> None:
    """Read PARTITION of a public TOPIC from its beginning: for a topic that was deleted and created again.

    Stop ingest first. The reset is recorded in the log, so that records of the new topic are not mistaken for
    duplicates.
    """
    from streams.ingest.preflight import IngestError, reset_source

    if not yes and not sys.stdin.isatty():
        raise usage("ingest reset asks first", cause="There is no terminal on which to ask.", next_step="add --yes")
    if not yes and not click.confirm(f"Read {topic} partition {partition} again from its beginning?", err=True):
        raise click.Abort
    settings = client_settings(session.config)

    async def work() -> int:
        async with connecting(settings.bootstrap_servers):
            return await reset_source(settings, topic, partition, author=session.config.author, reason=reason)

    try:
        offset = session.run(work())
    except IngestError as error:
        raise CommandError(error.what, next_step=error.next_step) from error
    session.note(f"{topic} partition {partition}: its recorded offsets are dropped; ingest continues from {offset}")


def _headers(texts: tuple[str, ...]) -> list[tuple[str, bytes]]:
    headers = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise usage(f"--header {text!r} is not NAME=VALUE")
        headers.append((name, value.encode()))
    return headers


def _table(report: CheckReport) -> str:
    lines = [("format", report.format), ("result", report.result), ("topic", report.topic)]
    lines += [("samples", str(report.samples))] if report.samples else []
    lines += [("entries", _counts(report.entries)), ("key", _counts(report.keys)), ("metrics", _counts(report.metrics))]
    lines += [("left out", f"{count}  {text}") for text, count in report.left_out.items()]
    lines += [("reason", text) for text in report.reasons]
    return "\n".join(clean(f"{name:10}{value}") for name, value in lines if value)


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in counts.items())

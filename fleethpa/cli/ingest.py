"""`ingest check`, `ingest sample`, `ingest reset`: what would be read from a message, and starting a source anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from msgspec import to_builtins

from fleethpa.cli.common.brokerconnection import client_settings, connecting
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, CommandError, usage
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.suggesting import SuggestingGroup
from fleethpa.cli.output.formats import one
from runtime.jsonlog import clean
from streams.ingest.mapping import MappingError, load_mapping

if TYPE_CHECKING:
    from streams.ingest.mapping import Mapping
    from streams.ingest.preview import CheckReport

FORMATS = ("fleethpa_sample", "otlp_json", "otlp_proto", "prometheus", "fleethpa")


@click.group(cls=SuggestingGroup)
def ingest() -> None:
    """Check what ingest reads from a message, print example messages, or reset a source."""


@ingest.command()
@click.argument("message", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A Kafka header of the message.")
@click.option("--mapping", metavar="FILE", help="The mapping (YAML) that ingest runs with.")
@click.option("--topic", default="", help="The topic that it is sent to [default: the one that takes this format].")
@output_option(formats=("table", "json", "yaml"))
@command_options()
def check(
    session: Session, message: BinaryIO, headers: tuple[str, ...], mapping: str | None, topic: str, output: str
) -> int:
    """Print what ingest reads from a message in FILE or on stdin; exit 1 if it rejects any of it.

    \b
    Examples:
      fleethpa ingest check record.json
      kcat -C -t otlp_metrics -c 1 | fleethpa ingest check --header content-type=application/x-protobuf
    """
    from streams.ingest.preview import check_record

    report = check_record(message.read(), _headers(headers), _mapping(mapping), topic)
    session.out(_table(report) if output == "table" else one("IngestCheck", to_builtins(report), output))
    return ANSWER_IS_NO if report.is_rejected else OK


@ingest.command()
@click.argument("format_", type=click.Choice(FORMATS), default="fleethpa_sample", metavar="[FORMAT]")
@command_options()
def sample(session: Session, format_: str) -> None:
    """Print an example message with the current time.

    Formats: fleethpa_sample, otlp_json, otlp_proto, prometheus, fleethpa.

    \b
    Examples:
      fleethpa ingest sample | fleethpa ingest check
      fleethpa ingest sample otlp_json > message.json
    """
    from streams.ingest.examples import example

    written = example(format_, session.now_ms())
    stream = click.get_binary_stream("stdout")
    if format_ == "otlp_proto" and sys.stdout.isatty():
        raise usage("otlp_proto is binary", next_step="fleethpa ingest sample otlp_proto > message.bin")
    stream.write(written)


@ingest.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--reason", default="", help="Why; recorded in the log.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@command_options()
def reset(session: Session, topic: str, partition: int, reason: str, yes: bool) -> None:
    """Read PARTITION of a public TOPIC from its beginning: for a topic that was deleted and created again.

    Stop ingest first. The reset is recorded in the log, so that records of the new topic are not mistaken for
    duplicates.
    """
    from streams.ingest.ingesterrors import IngestError
    from streams.ingest.reset import reset_source

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
        raise CommandError(str(error)) from error
    session.note(f"{topic} partition {partition}: its recorded offsets are dropped; ingest continues from {offset}")


def _headers(texts: tuple[str, ...]) -> list[tuple[str, bytes]]:
    found = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise usage(f"--header {text!r} is not NAME=VALUE")
        found.append((name, value.encode()))
    return found


def _mapping(path: str | None) -> Mapping | None:
    if path is None:
        return None
    try:
        return load_mapping(Path(path).read_text(encoding="utf-8"), path)
    except (MappingError, OSError, UnicodeDecodeError) as error:
        raise usage(f"the mapping cannot be used: {error}") from error


def _table(report: CheckReport) -> str:
    lines = [("format", report.format), ("result", report.result), ("topic", report.topic)]
    lines += [("samples", str(report.samples))] if report.samples else []
    lines += [("entries", _counts(report.entries)), ("key", _counts(report.keys)), ("metrics", _counts(report.metrics))]
    lines += [("left out", f"{count}  {text}") for text, count in report.left_out.items()]
    lines += [("reason", text) for text in report.reasons]
    return "\n".join(clean(f"{name:10}{value}") for name, value in lines if value)


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in counts.items())

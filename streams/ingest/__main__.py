"""`python -m streams.ingest`: one ingest worker as a process. Exit 0 after a signal, 1 on errors, 2 on wrong usage."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from schemas.connection import KafkaSettings, SettingsError, gather
from streams.ingest.ingestconfig import IngestConfig
from streams.ingest.ingesterrors import IngestError
from streams.ingest.ingestworker import run_ingest
from streams.ingest.mapping import Mapping, MappingError, load_mapping


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal; gives the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = _config(options)
    except (MappingError, SettingsError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(config))
    except (IngestError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(config: IngestConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_ingest(config, stop, lambda port: print(f"ingest runs, web port {port}", flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streams.ingest", description="Turn public topics into the log.")
    parser.add_argument("--brokers", help="bootstrap servers, host:port[,host:port]")
    parser.add_argument("--kafka-config", type=Path, help="a Java client.properties")
    parser.add_argument("--mapping", type=Path, help="YAML: how foreign series become metrics")
    parser.add_argument("--sample-topic", action="append", default=[], help="a further topic of samples; repeatable")
    parser.add_argument("--timestamp", choices=["append", "source"], default="append", help="who stamps the log")
    parser.add_argument("--member", default="", help="a name that stays over restarts")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="when others take over")
    parser.add_argument("--web-host", default="127.0.0.1")
    parser.add_argument("--web-port", type=int, default=0, help="health and metrics; 0: a free port")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _config(options: argparse.Namespace) -> IngestConfig:
    mapping = Mapping()
    if options.mapping:
        mapping = load_mapping(options.mapping.read_text(encoding="utf-8"), str(options.mapping))
    return IngestConfig(
        kafka=_kafka(options),
        mapping=mapping,
        sample_topics=tuple(options.sample_topic),
        timestamp=options.timestamp,
        member=options.member,
        session_timeout_ms=options.session_timeout_ms,
        web_host=options.web_host,
        web_port=options.web_port,
    )


def _kafka(options: argparse.Namespace) -> KafkaSettings:
    properties = options.kafka_config.read_text(encoding="utf-8") if options.kafka_config else ""
    return gather(os.environ, properties=properties, brokers=options.brokers or "")


if __name__ == "__main__":
    sys.exit(main())

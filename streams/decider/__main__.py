"""`python -m streams.decider`: the decider as a process of its own."""

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from schemas.connection import KafkaSettings, SettingsError, gather
from streams.decider.app import run_decider, run_rebuild
from streams.decider.deciderconfig import DeciderConfig
from streams.decider.exits import Exit, die


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, check, run."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        kafka = _kafka(options.brokers, options.client_properties)
    except (SettingsError, OSError) as error:
        die(Exit.NEEDS_OPERATOR, str(error))
    config = DeciderConfig(
        kafka=kafka,
        instance_id=options.instance_id,
        web_host=options.web_host,
        web_port=options.web_port,
        ticks=options.ticks and not options.playback,
        playback=options.playback,
        session_timeout_s=options.session_timeout,
        stall_s=options.stall_seconds,
        recovery_s=options.recovery_seconds,
    )
    if options.rebuild:
        run_rebuild(config, options.archive)
    else:
        run_decider(config)


def _kafka(brokers: str | None, properties: Path | None) -> KafkaSettings:
    text = properties.read_text(encoding="utf-8") if properties else ""
    return gather(os.environ, properties=text, brokers=brokers or "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streams.decider", description=__doc__)
    parser.add_argument("--brokers", help="host:port, comma-separated")
    parser.add_argument("--client-properties", type=Path, help="a Java client.properties file")
    parser.add_argument("--instance-id", help="static member name: this worker's partitions wait for its restart")
    parser.add_argument("--web-host", default="127.0.0.1")
    parser.add_argument("--web-port", type=int, help="port of /healthz, /readyz, /metrics; 0 takes a free one")
    parser.add_argument("--playback", action="store_true", help="log time is source time; no ticks are appended")
    parser.add_argument("--no-ticks", dest="ticks", action="store_false", help="append no ticks to the log")
    parser.add_argument(
        "--rebuild", action="store_true", help="make lost state anew from what the log still holds, and end"
    )
    parser.add_argument("--archive", type=Path, help="with --rebuild: take what the log has lost from this archive")
    parser.add_argument("--session-timeout", type=float, default=15.0, help="seconds")
    parser.add_argument(
        "--stall-seconds", type=float, default=90.0, help="end the process when nothing comes for so long"
    )
    parser.add_argument("--recovery-seconds", type=float, default=300.0, help="end it when recovery takes longer")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


if __name__ == "__main__":
    main()

"""`python -m reconciler observe|reconcile`: one part as a process of its own, without the `fleethpa` command."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aiokafka.errors import KafkaError

from reconciler.apply.publish import TopicMissingError
from reconciler.apply.reconcilerconfig import ObserverConfig, ReconcilerConfig
from reconciler.apply.reconcilerprocess import run_reconciler
from reconciler.clusters.client import ClusterConfig, clusters_of
from reconciler.clusters.clustererrors import ConfigError
from reconciler.observer.observerprocess import run_observer
from schemas.connection import KafkaSettings, SettingsError, gather

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per line: a constant message, its data beside it."""

    def format(self, record: logging.LogRecord) -> str:
        told = {key: value for key, value in vars(record).items() if key not in _OWN}
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | told, default=str)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; 1 for what Kafka does not do, 2 for settings that cannot be used."""
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler])
    try:
        asyncio.run(_run(options))
    except (ConfigError, SettingsError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except (KafkaError, TopicMissingError) as error:
        print(f"Error: {options.part} cannot go on: {error}. Next: fleethpa topics check", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reconciler", description=__doc__)
    parser.add_argument("part", choices=["observe", "reconcile"])
    parser.add_argument("--brokers", default="", help="bootstrap servers, host:port,host:port")
    parser.add_argument("--kafka-config", default="", help="a Java-style client.properties")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""))
    parser.add_argument("--context", default="", help="contexts, separated by commas; none: all of them")
    parser.add_argument("--cluster-name", action="append", default=[], metavar="CONTEXT=NAME")
    parser.add_argument("--in-cluster", default="", metavar="NAME", help="the cluster that this runs in")
    parser.add_argument("--namespace", action="append", default=[], help="observe only this namespace; repeatable")
    parser.add_argument("--prove-native-absent", action="store_true", help="observe: run the canary HPA")
    parser.add_argument("--group", default="", help="reconcile: consumer group")
    parser.add_argument("--web-port", type=int, default=0)
    parser.add_argument("--web-host", default="127.0.0.1")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    kafka, clusters = _kafka(options), _clusters(options)
    web = {"web_port": options.web_port, "web_host": options.web_host}
    if options.part == "observe":
        observer = ObserverConfig(
            kafka=kafka,
            clusters=clusters,
            namespaces=tuple(options.namespace),
            prove_native_absent=options.prove_native_absent,
            **web,
        )
        await run_observer(observer, stop, _announce)
    else:
        group = {"group": options.group} if options.group else {}
        await run_reconciler(ReconcilerConfig(kafka=kafka, clusters=clusters, **web, **group), stop, _announce)


def _announce(port: int) -> None:
    logging.getLogger("reconciler").info("ready", extra={"webPort": port})


def _kafka(options: argparse.Namespace) -> KafkaSettings:
    properties = Path(options.kafka_config).read_text(encoding="utf-8") if options.kafka_config else ""
    return gather(os.environ, properties=properties, brokers=options.brokers)


def _clusters(options: argparse.Namespace) -> tuple[ClusterConfig, ...]:
    if options.in_cluster:
        return (ClusterConfig(options.in_cluster),)
    if not options.kubeconfig:
        raise ConfigError("no clusters: give --kubeconfig FILE, or --in-cluster NAME inside a cluster")
    names = dict(pair.split("=", 1) for pair in options.cluster_name if "=" in pair)
    contexts = tuple(part for part in options.context.split(",") if part)
    return tuple(clusters_of(options.kubeconfig, contexts, names))


if __name__ == "__main__":
    sys.exit(main())

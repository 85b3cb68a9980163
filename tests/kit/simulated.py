"""A simulated cluster, or the embedded broker, as a process of its own: `python -m tests.kit.simulated cluster|broker`.

It prints one JSON line when it is up, then serves until SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from pathlib import Path

import orjson

from fleethpa.lab.simulator.broker import EmbeddedBroker
from fleethpa.lab.simulator.cluster import SimulatedCluster, write_kubeconfig


async def cluster(options: argparse.Namespace) -> None:
    """Serve one cluster and write its kubeconfig."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    simulated = SimulatedCluster("east", sample_ms=1_000)
    if options.manifests:
        simulated.apply_yaml(options.manifests.read_text())
    async with simulated:
        write_kubeconfig(options.kubeconfig, [simulated])
        print(orjson.dumps({"server": simulated.url, "kubeconfig": str(options.kubeconfig)}).decode(), flush=True)
        await ended.wait()


def broker(options: argparse.Namespace) -> None:
    """Serve the embedded broker with these topics."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with EmbeddedBroker() as embedded:
        embedded.ensure_topics(name for name in options.topics.split(",") if name)
        print(orjson.dumps({"bootstrap": embedded.bootstrap}).decode(), flush=True)
        ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.simulated", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("cluster")
    one.add_argument("--kubeconfig", type=Path, required=True, help="file to write")
    one.add_argument("--manifests", type=Path, help="YAML to apply at the start")
    other = kinds.add_parser("broker")
    other.add_argument("--topics", default="", help="comma-separated topics to create at the start")
    options = parser.parse_args()
    if options.kind == "cluster":
        asyncio.run(cluster(options))
    else:
        broker(options)


if __name__ == "__main__":
    main()

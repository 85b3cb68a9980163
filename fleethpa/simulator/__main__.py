"""Simulated clusters as a process of their own: prints one JSON line when it is up, then serves until a signal."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import orjson

from fleethpa.simulator.cluster import SimulatedCluster
from fleethpa.simulator.store import SimClock
from fleethpa.simulator.switches import Fleet, default_fleet, default_manifests


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fleethpa.simulator", description=__doc__)
    parser.add_argument("--name", help="one cluster of this name; without it: the default fleet of three")
    parser.add_argument("--port", type=int, default=0, help="port of that one cluster (0 = a free one)")
    parser.add_argument("--manifests", type=Path, action="append", default=[], help="YAML files to apply at start")
    parser.add_argument("--empty", action="store_true", help="start without the default manifests")
    parser.add_argument("--control-port", type=int, default=0, help="port of the control endpoint (0 = a free one)")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for the clusters to this file")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second")
    parser.add_argument("--sample-seconds", type=float, default=5.0, help="how often metrics are sampled")
    return parser.parse_args(arguments)


def _fleet(options: argparse.Namespace) -> Fleet:
    clock, sample_ms = SimClock(speed=options.speed), int(options.sample_seconds * 1000)
    if options.name is None:
        return default_fleet(clock=clock, sample_ms=sample_ms, control_port=options.control_port)
    cluster = SimulatedCluster(options.name, clock=clock, port=options.port, sample_ms=sample_ms)
    if not options.empty:
        cluster.apply_yaml(default_manifests(options.name))
    return Fleet([cluster], control_port=options.control_port)


async def serve(options: argparse.Namespace) -> None:
    """Start, announce, and wait for SIGINT or SIGTERM."""
    fleet, ended = _fleet(options), asyncio.Event()
    for file in options.manifests:
        for cluster in fleet.clusters.values():
            cluster.apply_yaml(file.read_text())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with fleet:
        if options.kubeconfig is not None:
            fleet.write_kubeconfig(options.kubeconfig)
        servers = {name: {"server": c.url, "token": c.token} for name, c in fleet.clusters.items()}
        line = {"clusters": servers, "control": fleet.control.url, "kubeconfig": str(options.kubeconfig or "")}
        print(orjson.dumps(line).decode(), flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(_options(None)))

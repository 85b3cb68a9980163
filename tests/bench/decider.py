"""Deciders alone, each on an Apache Kafka of its own, fed with a generated log as time passes: CPU time per evaluation.

`python -m tests.bench.decider --hpas 6000 . ../other`: several working trees side by side get the same log at the same
moments, so that what else runs on the machine is the same for all. The loads hardly change, as in a fleet at rest:
evaluations give what the one before gave. There is no observer, ingest or reconciler.
"""

import argparse
import asyncio
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaProducer

from runtime.kafkaclients import running_producer
from schemas import topics
from schemas.connection import KafkaSettings
from tests.bench.fleet import ROOT, usage
from tests.kafka.broker import KafkaBroker, free_ports
from tests.kit.closedloop import ENFORCED
from tests.kit.generated_log import Fleet, GeneratedRecord, GeneratedWorkload, LogGenerator

START_S = 15.0
"""From the begin of a run to the first record of the log."""


class Resting(LogGenerator):
    """A fleet whose loads stay near their targets. Ticks are the decider's own."""

    def _load(self, workload: GeneratedWorkload) -> float:
        return 0.5 + 0.02 * math.sin(workload.phase + (self.now_ms - self.fleet.start_ms) / 60_000)

    def _ticks(self) -> Iterator[GeneratedRecord]:
        return iter(())


@dataclass(frozen=True)
class Look:
    """What a decider and its broker have used until now, what the decider has counted, and the bytes of its topics."""

    decider_s: float
    broker_s: float
    counts: dict[str, float]
    decision_bytes: int
    row_bytes: int


class Rig:
    """A decider of one working tree with its broker."""

    def __init__(self, tree: Path, folder: Path, port: int, stack: AsyncExitStack) -> None:
        self.tree, self.folder, self._port = tree, folder, port
        self.kafka = stack.enter_context(KafkaBroker(folder))
        made = (
            "admin",
            "topics",
            "init",
            "--partitions",
            "24",
            "--replication-factor",
            "1",
            "--brokers",
            self.kafka.bootstrap,
        )
        subprocess.run([*self._fleethpa(), *made], cwd=tree, check=True, stdout=subprocess.DEVNULL)
        run = ("run", "decider", "--brokers", self.kafka.bootstrap, "--log-level", "error", "--web-port", str(port))
        self.process = subprocess.Popen([*self._fleethpa(), *run], cwd=tree, stdout=subprocess.DEVNULL)
        stack.callback(self.process.kill)

    def _fleethpa(self) -> tuple[str, ...]:
        own = self.tree / ".venv" / "bin" / "python"
        return (str(own if own.exists() else sys.executable), "-m", "fleethpa")

    async def look(self, *, at_begin: bool) -> Look:
        """Look at both. The decider's metrics take CPU time themselves, which is not in the measured stretch."""
        counts = await self._counts() if at_begin else {}
        used = usage(self.process.pid).cpu_s, usage(self.kafka._running().pid).cpu_s
        counts = counts or await self._counts()
        return Look(*used, counts, self._bytes(topics.DECISIONS), self._bytes(topics.CHANGELOG))

    async def _counts(self) -> dict[str, float]:
        url = f"http://127.0.0.1:{self._port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            pairs = [line.rpartition(" ") for line in (await got.text()).splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs if "fleethpa_hpa_" not in name}

    def _bytes(self, topic: str) -> int:
        return sum(segment.stat().st_size for segment in (self.folder / "data").glob(f"{topic}-*/*.log"))


def line(rig: Rig, before: Look, after: Look, took_s: float) -> str:
    """Put what was used in relation to the evaluations."""

    def grown(name: str) -> float:
        return after.counts.get(name, 0.0) - before.counts.get(name, 0.0)

    evaluations = grown("fleethpa_evaluations_total") or 1.0
    decider_us = 1e6 * (after.decider_s - before.decider_s) / evaluations
    broker_us = 1e6 * (after.broker_s - before.broker_s) / evaluations
    return (
        f"{rig.tree}: {evaluations / took_s:.0f} evaluations/s; per evaluation "
        f"decider {decider_us:.1f} us, broker {broker_us:.1f} us, "
        f"decisions {(after.decision_bytes - before.decision_bytes) / evaluations:.0f} B, "
        f"rows {(after.row_bytes - before.row_bytes) / evaluations:.0f} B"
    )


async def measure(hpas: int, warm_s: float, seconds: float, trees: list[Path]) -> list[str]:
    """Feed the deciders; `warm_s`: how long before the measured stretch begins."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleethpa-decider-")))
        ports = free_ports(len(trees))
        rigs = [
            Rig(tree, folder / str(at), port, stack) for at, (tree, port) in enumerate(zip(trees, ports, strict=True))
        ]
        brokers = [KafkaSettings(bootstrap_servers=rig.kafka.bootstrap) for rig in rigs]
        producers = [await stack.enter_async_context(running_producer(each)) for each in brokers]
        start_s = time.time() + START_S
        fleet = Fleet(
            hpas=hpas,
            namespaces=hpas // 10,
            minutes=(warm_s + seconds) / 60 + 1,
            partitions=24,
            clusters=6,
            churn=0.002,
            noise=0.03,
            settings=ENFORCED,
            start_ms=round(start_s * 1000),
        )
        records = Resting(fleet).run()
        await _feed(records, producers, start_s + warm_s)
        before, began = [await rig.look(at_begin=True) for rig in rigs], time.time()
        await _feed(records, producers, began + seconds)
        after = [await rig.look(at_begin=False) for rig in rigs]
    return [line(*each, seconds) for each in zip(rigs, before, after, strict=True)]


async def _feed(records: Iterator[GeneratedRecord], producers: list[AIOKafkaProducer], until_s: float) -> None:
    """Append records when they are due, until this time (Unix seconds)."""
    for record in records:
        await asyncio.sleep(record.timestamp_ms / 1000 - time.time())
        for producer in producers:
            await producer.send(topics.LOG, record.value, partition=record.partition)
        if time.time() >= until_s:
            return


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.decider", description=__doc__)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="working trees, each with its .venv")
    parser.add_argument("--hpas", type=int, default=6_000)
    parser.add_argument("--warm-seconds", type=float, default=60.0, help="before the measured stretch")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured stretch")
    given = parser.parse_args(arguments)
    trees = [tree.resolve() for tree in given.trees]
    for found in asyncio.run(measure(given.hpas, given.warm_seconds, given.seconds, trees)):
        sys.stdout.write(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

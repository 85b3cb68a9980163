"""The whole way with a large fleet: observer, ingest, decider and reconciler processes on a broker, `make bench-fleet`.

Figures of CPU time are those of fleethpa's own processes, per 1,000 evaluations: the fleet and the broker are others'.
On a machine with fewer cores than this needs, the share of HPAs evaluated per period and all latencies suffer, CPU time
per evaluation hardly does.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import aiohttp
import orjson
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from msgspec import structs

from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.kafkaclients import reader, running_producer
from schemas import topics
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import ENGINE
from schemas.entries import VERSION, Body, PublicRecord
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from schemas.topicconfigs import TOPICS
from tests.bench.fleetreport import document, evaluations_of, growth_table, table, unchanged_share, worse_than_stored
from tests.kafka.broker import KafkaBroker, free_ports
from tests.kit import fleetmetrics
from tests.kit.fleetworld import kubeconfig

ROOT = Path(__file__).parents[2]
PERIOD_S = 15
STEADY_SHARE = 0.85
"""Short decisions of a period from which on a fleet counts as one that has run for a while."""
STORED = Path(__file__).with_name("fleet-baseline.json")
MOST_RESTARTS = 3
JAVA = (
    "-Xms256m",
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""A broker with memory for a large fleet. The optimizing compiler would cost more CPU time in a few minutes than it
saves.
"""
LEAST_START_S, START_S_PER_HPA = 240.0, 0.0072
"""How long the first evaluations of all HPAs may take, unless given: ten minutes for 50,000."""
ROWS: Mapping[str, tuple[int, ...]] = {
    "hpas": (1_000, 5_000, 20_000),
    "pods": (5, 50, 500),
    "clusters": (1, 20, 200),
    "deciders": (1, 2, 4),
}
"""How the cost of an evaluation grows: values of each table, the first of which is the yardstick."""
START_S = 60.0
PROGRESS_S = 15.0
LAST_LINES = 6


@dataclass(frozen=True)
class Plan:
    """What to run."""

    hpas: int
    clusters: int
    pods: int
    broker: str
    partitions: int
    deciders: int
    seconds: float
    start_s: float
    step: int
    push_s: float = 0.0
    """Metrics are pushed so often, and a sample may bring an evaluation; 0: they come from metrics APIs."""
    steady: bool = False
    """Measure once nearly all evaluations want no write."""
    metrics_from: fleetmetrics.MetricsFrom = "resource"
    together: bool = False
    """Ingest, observer and reconciler are one process, as on a machine that runs `fleethpa run all`."""


@dataclass(frozen=True)
class Usage:
    """CPU seconds and resident MiB of a process."""

    cpu_s: float
    memory_mib: float


def usage(pid: int) -> Usage:
    """Look at a process; one that has ended used nothing."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return Usage(cpu_s, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


@contextmanager
def running(folder: Path, name: str, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process with its output in a file of its name, and end it."""
    with (folder / name).open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def brokers(plan: Plan, folder: Path) -> Iterator[tuple[str, int | None]]:
    """Run the broker; gives its address, and its process if it is one of its own."""
    if plan.broker == "embedded":
        with EmbeddedBroker() as embedded:
            embedded.ensure_topics([topic.name for topic in TOPICS])
            yield embedded.bootstrap, None
        return
    with KafkaBroker(folder / "kafka", java=JAVA) as kafka:
        make = ("admin", "topics", "init", "--partitions", str(plan.partitions), "--replication-factor", "1")
        command = [sys.executable, "-m", "fleethpa", *make, "--brokers", kafka.bootstrap]
        subprocess.run(command, cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
        yield kafka.bootstrap, kafka._running().pid


class FleetRun:
    """The processes of a run, and what the fleet saw of them."""

    def __init__(self, plan: Plan, folder: Path, stack: ExitStack) -> None:
        self.plan, self.folder, self.stack = plan, folder, stack
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.commands: dict[str, tuple[str, ...]] = {}
        self.restarts: Counter[str] = Counter()
        self.last_words: list[str] = []
        """The last output of each process that ended too early."""
        self.decider_ports: dict[str, int] = {}
        """Where each decider serves its metrics."""

    async def start(self) -> None:
        """Start everything; the fleet is not yet evaluated."""
        plan = self.plan
        self.address, broker = self.stack.enter_context(brokers(plan, self.folder))
        self.broker_pid = broker
        if broker is not None:
            await self._until_led()
        config = await self.clusters()
        await self._enforce()
        reach = ("--brokers", self.address, "--log-level", "warning")
        clusters = ("--kubeconfig", str(config))
        for number, port in enumerate(free_ports(plan.deciders)):
            name = "decider" + str(number or "")
            self.decider_ports[name] = port
            self._run(name, "fleethpa", "run", "decider", *reach, "--web-port", str(port))
        if plan.together:
            others = ("--without", "decider", "--without", "router", "--web-port", "0")
            self._run("all", "fleethpa", "run", "all", *others, *reach, *clusters, *self._prometheus())
            return
        self._run("ingest", "fleethpa", "run", "ingest", *reach)
        self._run("reconciler", "fleethpa", "run", "reconciler", *reach, *clusters)
        self._run("observer", "fleethpa", "run", "observer", *reach, *clusters, *self._prometheus())

    async def clusters(self) -> Path:
        """Start what serves the clusters, and give their kubeconfig."""
        plan = self.plan
        partitions = plan.partitions if self.broker_pid is not None else 4
        fleet = ["--hpas", str(plan.hpas), "--clusters", str(plan.clusters), "--pods", str(plan.pods)]
        fleet += ["--push-seconds", str(plan.push_s), "--metrics-from", plan.metrics_from]
        self._run("fleet", "tests.kit.fleetworld", *fleet, "--brokers", self.address, "--partitions", str(partitions))
        self.port = int(await self._line("fleet"))
        config = self.folder / "kubeconfig"
        config.write_text("\n".join(kubeconfig(self.port, plan.clusters)))
        return config

    def _prometheus(self) -> tuple[str, ...]:
        if self.plan.metrics_from != "prometheus":
            return ()
        (self.folder / "rules.yaml").write_text(fleetmetrics.RULES)
        file = self.folder / "prometheus.yaml"
        file.write_text("\n".join(fleetmetrics.prometheus_file(self.port, self.plan.clusters, "rules.yaml")))
        return ("--prometheus", str(file))

    async def _until_led(self) -> None:
        """Wait until every partition of a fresh broker has a leader that answers: producers give up after a while."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            described = await admin.describe_topics([topic.name for topic in TOPICS])
        finally:
            await admin.close()
        found = [TopicPartition(each["topic"], part["partition"]) for each in described for part in each["partitions"]]
        async with asyncio.timeout(self.plan.start_s), reader(KafkaSettings(bootstrap_servers=self.address)) as asking:
            await asking.end_offsets(found)

    async def _enforce(self) -> None:
        settings = ClusterSettings(default_mode="enforce", native_controller="absent")
        if self.plan.push_s:
            settings = structs.replace(settings, sources={"Resource": "samples"}, evaluate_on="sample")
        bodies: list[Body] = [EngineSet(engine=ENGINE), SettingsSet(cluster="*", settings=settings)]
        record = encode(PublicRecord(v=VERSION, time=int(time.time() * 1000), entries=bodies))
        async with running_producer(KafkaSettings(bootstrap_servers=self.address)) as producer:
            await producer.send_and_wait(topics.SETTINGS, record, key=b"*", partition=0)

    def _run(self, name: str, *command: str) -> None:
        self.commands[name] = command
        self.processes[name] = self.stack.enter_context(running(self.folder, name, *command))

    async def _line(self, name: str) -> str:
        async with asyncio.timeout(120):
            while not (text := (self.folder / name).read_text()).endswith("\n"):
                self.check()
                await asyncio.sleep(0.1)
        return text.strip()

    def check(self) -> None:
        """Start a process again that has ended, as a supervisor does.

        Raises:
            RuntimeError: it has ended too often, or it is the fleet.
        """
        for name, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            self.restarts[name] += 1
            stated = (self.folder / name).read_text(errors="replace")
            if name == "fleet" or self.restarts[name] > MOST_RESTARTS:
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{stated[-2_000:]}")
            last = " | ".join(stated.strip().splitlines()[-LAST_LINES:])[-2_000:]
            words = f"{name} ended with {process.returncode}: {last or 'it stated nothing'}"
            sys.stderr.write(f"  {words}\n")
            self.last_words.append(words)
            self._run(name, *self.commands[name])

    async def ask(self, what: str) -> dict[str, Any]:
        """Ask the fleet."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/_bench/{what}") as got,
        ):
            found: dict[str, Any] = orjson.loads(await got.read())
            return found

    async def evaluations_published(self) -> float:
        """Return how many evaluations all deciders have published since they started."""
        found = 0.0
        async with aiohttp.ClientSession() as session:
            for port in self.decider_ports.values():
                async with session.get(f"http://127.0.0.1:{port}/metrics") as got:
                    lines = [line.partition(" ") for line in (await got.text()).splitlines()]
                found += float({metric: value for metric, _, value in lines}["fleethpa_evaluations_total"])
        return found

    async def until_evaluated(self) -> tuple[float, int]:
        """Wait until every HPA was evaluated once, or for as long as the start may take; gives the time in seconds, and
        how many HPAs were.
        """
        began = stated = time.monotonic()
        while True:
            self.check()
            known, now = int((await self.ask("known"))["known"]), time.monotonic()
            if now - stated >= PROGRESS_S:
                stated = now
                sys.stderr.write(f"  {now - began:5.0f} s: {known:,} of {self.plan.hpas:,} HPAs evaluated once\n")
            if known >= self.plan.hpas or now - began >= self.plan.start_s:
                return now - began, known
            await asyncio.sleep(1)

    async def until_steady(self) -> tuple[float, float]:
        """Wait until nearly all evaluations of a period want no write, as in a fleet that has run for a while.

        Gives the time that it took in seconds, and the share of the last period; the bound of the start holds here too.
        """
        began = time.monotonic()
        while True:
            await self.ask("reset")
            await asyncio.sleep(PERIOD_S)
            self.check()
            share, took_s = unchanged_share((await self.ask("stats"))["decisions"]), time.monotonic() - began
            if share >= STEADY_SHARE or took_s >= self.plan.start_s:
                return took_s, share
            sys.stderr.write(f"  {took_s:5.0f} s: {share:.0%} of the evaluations want no write\n")

    def look(self) -> dict[str, Usage]:
        """CPU time and memory of every process until now."""
        pids = {name: process.pid for name, process in self.processes.items()}
        if self.broker_pid is not None:
            pids["broker"] = self.broker_pid
        return {name: usage(pid) for name, pid in pids.items()}

    def topic_bytes(self) -> dict[str, int]:
        """What is on the disk of an Apache Kafka of each topic, compacted or not; nothing of the embedded broker."""
        sizes: dict[str, int] = {}
        for segment in (self.folder / "kafka" / "data").glob("fleethpa*/*.log"):
            topic = segment.parent.name.rpartition("-")[0]
            sizes[topic] = sizes.get(topic, 0) + segment.stat().st_size
        return sizes


async def measure(plan: Plan) -> dict[str, Any]:
    """Run the fleet and give what was measured."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleethpa-fleet-")))
        run = FleetRun(plan, folder, stack)
        await run.start()
        started_s, known = await run.until_evaluated()
        start = run.look()
        steady = await run.until_steady() if plan.steady else None
        if steady is None:
            await asyncio.sleep(PERIOD_S if plan.hpas else START_S)  # without an HPA nothing shows that all have begun
        await run.ask("reset")
        before, stored, began = run.look(), run.topic_bytes(), time.monotonic()
        await asyncio.sleep(plan.seconds)
        seen, after, took_s = await run.ask("stats"), run.look(), time.monotonic() - began
        grown = {topic: size - stored.get(topic, 0) for topic, size in run.topic_bytes().items()}
        run.check()
        stepped: dict[str, Any] = {}
        if plan.step:
            await run.ask(f"step/{plan.step}")
            await asyncio.sleep(3 * PERIOD_S)
            stepped = await run.ask("stepped")
    more: dict[str, Any] = {"started_s": round(started_s, 1), "start_bound_s": plan.start_s, "evaluated_once": known}
    more["start_cpu_s"] = {name: round(each.cpu_s, 1) for name, each in sorted(start.items())}
    more |= {"step": stepped, "restarts": dict(run.restarts), "steady_s": steady and round(steady[0], 1)}
    more["mb_per_1000_hpas_and_day"] = {
        topic: round(size * 86_400 / took_s * 1_000 / max(plan.hpas, 1) / 1e6, 1)
        for topic, size in sorted(grown.items())
        if size
    }
    more["last_words"] = run.last_words
    return report(plan, before, after, seen, took_s) | more


def report(
    plan: Plan, before: Mapping[str, Usage], after: Mapping[str, Usage], seen: Mapping[str, Any], took_s: float
) -> dict[str, Any]:
    """Put what was measured in relation to the evaluations."""
    evaluations = evaluations_of(seen["decisions"])
    thousands = max(evaluations, 1) / 1000
    return {
        "hpas": plan.hpas,
        "clusters": plan.clusters,
        "broker": plan.broker,
        "deciders": plan.deciders,
        "evaluations": evaluations,
        "evaluations_per_s": round(evaluations / took_s, 1),
        "share_evaluated": round(evaluations / (max(plan.hpas, 1) * took_s / PERIOD_S), 3),
        "share_unchanged": round(unchanged_share(seen["decisions"]), 3),
        "cpu_s_per_1000": {
            name: round((now.cpu_s - before[name].cpu_s) / thousands, 3) for name, now in sorted(after.items())
        },
        "cores": {name: round((now.cpu_s - before[name].cpu_s) / took_s, 4) for name, now in sorted(after.items())},
        "memory_mib": {name: round(now.memory_mib) for name, now in sorted(after.items())},
        "decision_bytes": round(seen["decision_bytes"] / max(evaluations, 1)),
        "api_bytes_per_evaluation": round(sum(seen["bytes_out"].values()) / max(evaluations, 1)),
        "api_requests": seen["requests"],
        "sample_to_log_ms": seen["logged_ms"],
        "sample_to_decision_ms": seen["decided_ms"],
        "sample_to_write_ms": seen["written_ms"],
        "first_want_to_write_ms": seen["first_want_ms"],
    }


def plan_of(arguments: list[str]) -> tuple[Plan, argparse.Namespace]:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--hpas", type=int, default=2_000, help="0: what is always used, without evaluations")
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--pods", type=int, default=5, help="pods per HPA")
    parser.add_argument("--broker", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--partitions", type=int, default=24, help="of the log on Apache Kafka")
    parser.add_argument("--deciders", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured stretch")
    parser.add_argument("--start-seconds", type=float, help="how long the first evaluations of all HPAs may take")
    parser.add_argument("--step", type=int, default=1_000, help="HPAs whose load rises at once; 0: no step")
    parser.add_argument(
        "--push-seconds", type=float, default=0.0, help="push metrics so often, with evaluate-on=sample"
    )
    parser.add_argument("--metrics-from", choices=get_args(fleetmetrics.MetricsFrom), default="resource")
    parser.add_argument("--steady", action="store_true", help="measure once nearly all evaluations want no write")
    parser.add_argument("--together", action="store_true", help="ingest, observer and reconciler in one process")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the figures as JSON to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report to this file")
    parser.add_argument("--compare", action="store_true", help=f"with {STORED.name}; differences never fail the run")
    parser.add_argument(
        "--growth",
        action="append",
        choices=["all", *ROWS],
        help="instead: a table of how the cost of an evaluation grows with it; may be given several times",
    )
    parser.add_argument("--most", type=int, default=max(ROWS["hpas"]), help="leave out rows with more HPAs")
    given = parser.parse_args(arguments)
    plan = Plan(
        given.hpas,
        given.clusters,
        given.pods,
        given.broker,
        given.partitions,
        given.deciders,
        given.seconds,
        given.start_seconds or max(LEAST_START_S, given.hpas * START_S_PER_HPA),
        min(given.step, given.hpas // 2),
        given.push_seconds,
        given.steady,
        given.metrics_from,
        given.together,
    )
    return plan, given


# --- growth -----------------------------------------------------------------------------------------------------------


def plan_of_row(axis: str, value: int, seconds: float, broker: str) -> Plan:
    """What to run for one row of a table."""
    hpas = {"hpas": value, "pods": 200}.get(axis, 2_000)
    return Plan(
        hpas=hpas,
        clusters=value if axis == "clusters" else 20,
        pods=value if axis == "pods" else 5,
        broker=broker,
        partitions=24,
        deciders=value if axis == "deciders" else 1,
        seconds=seconds,
        start_s=max(LEAST_START_S, hpas * START_S_PER_HPA),
        step=0,
    )


def growth(given: argparse.Namespace) -> Iterator[str]:
    """Run one fleet per row and yield each table as soon as it is whole; its reports go to `given.json`, if asked for.

    A row of many pods has fewer HPAs, so that all rows of that table run in about the same time.
    """
    reports: dict[str, list[Any]] = {}
    for axis in ROWS if "all" in given.growth else given.growth:
        rows = []
        for value in ROWS[axis]:
            plan = plan_of_row(axis, value, given.seconds, given.broker)
            if plan.hpas <= given.most:
                sys.stderr.write(f"{axis} {value:,}, load average {os.getloadavg()[0]:.1f}\n")
                rows.append((value, asyncio.run(measure(plan))))
        reports[axis] = [report for _, report in rows]
        yield from growth_table(axis, rows) if rows else ()
    if given.json:
        given.json.write_bytes(orjson.dumps(reports, option=orjson.OPT_INDENT_2))


def main(arguments: list[str]) -> int:
    """Run and print."""
    plan, given = plan_of(arguments)
    if given.growth:
        for line in growth(given):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        return 0
    found = asyncio.run(measure(plan))
    for line in table(found):
        sys.stdout.write(line + "\n")
    if given.output:
        given.output.write_bytes(orjson.dumps(document(found), option=orjson.OPT_INDENT_2))
    if given.json:
        given.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    if given.compare and STORED.exists():
        for line in worse_than_stored(found, orjson.loads(STORED.read_bytes())):
            sys.stdout.write(f"!!! MUCH WORSE THAN STORED: {line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

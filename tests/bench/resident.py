"""What observer and reconciler keep of an HPA: `python -m tests.bench.resident observer|behind|statuses [--hpas N]`.

The measured part runs in this process without Kafka clients, against the servers of the fleet bench in another one.
`observer`: the observers of all clusters, when everything was listed and asked for once, and a while later. `behind`:
the reconciler's queues when no request was answered yet: of each HPA a full decision and two short ones wait; then,
with `--write`, all is written. Figures are resident memory above that of the idle process, and with `--trace` what
Python objects of which lines hold it (that makes the run several times as slow, and its resident memory another).
`statuses`: the processor time of a status in the steady state, from the bytes of a decision to the answer of the
API server, over TLS: all HPAs in `--rounds` rounds, the lowest and the middle one.
"""

import argparse
import asyncio
import base64
import gc
import multiprocessing
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import orjson
from aiokafka import ConsumerRecord
from msgspec import structs
from prometheus_client import CollectorRegistry

from fleethpa.lab.simulator.cluster import local_identity
from reconciler.apply.clusterwriters import ClusterWriters, WriterLimits
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.core.inbox import Position
from reconciler.core.writeplan import WriteGuards
from reconciler.observer.clusterobserver import ClusterObserver
from reconciler.observer.clusterview import ObserverConfig, ObserverMetrics
from reconciler.observer.metricpolls import Phases
from reconciler.observer.observertopics import RecordPublisher
from runtime.log import look_for_cycles_seldom, wall_clock_ms
from runtime.records import Publisher
from schemas.connection import KafkaSettings
from schemas.decisions import DECISION_TYPE, Decision, source_header
from schemas.keys import SessionName
from streams.partition import Partition
from tests.kit.archive import ENFORCING
from tests.kit.fleetworld import Server, Workload, World, managed_fields
from tests.kit.generated_log import Fleet, partition_log

PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 0.5
NEVER_LATE = "2100-01-01T00:00:00.000Z"
"""The time of decisions that are never late: of those that are, no status waits."""
SELDOM_MS, SETTLE_S = 600_000, 35.0
"""Metrics are asked for so seldom that, so much later, only what observers keep is left: answers have gone out."""


# --- the fleet --------------------------------------------------------------------------------------------------------


async def _serve(world: World, pipe: Connection, *, tls: bool) -> None:
    context = local_identity().context if tls else None
    server = await asyncio.get_running_loop().create_server(lambda: Server(world), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    pipe.send(
        (f"https://127.0.0.1:{port}", local_identity().certificate_pem) if tls else (f"http://127.0.0.1:{port}", b"")
    )
    await asyncio.Event().wait()


def _fleet(given: argparse.Namespace, pipe: Connection) -> None:
    world = World(given.hpas, given.clusters, given.pods)
    status = orjson.dumps(_template().status)
    managers = managed_fields("fleethpa", "2026-11-22T00:00:00Z")
    for one in world.all:
        one.hpa_status, one.hpa_managers = status, managers
    asyncio.run(_serve(world, pipe, tls=given.part == "statuses"))


@contextmanager
def _served(given: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    """The servers of a fleet in a process of its own; gives their address, and the certificate where they have one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_fleet, args=(given, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _client(place: tuple[str, bytes], cluster: str) -> ClusterClient:
    address, certificate = place
    server = {"server": f"{address}/{cluster}"}
    if certificate:
        server["certificate-authority-data"] = base64.b64encode(certificate).decode()
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": server if certificate else server | {"certificate-authority-data": ""}}
        ],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "bench"}}],
        "current-context": cluster,
    }
    return ClusterClient(ClusterConfig(cluster, context=cluster, document=document))


# --- what is measured -------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


class Measured:
    """Memory and CPU time since it was made."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        gc.collect()
        if given.trace:
            tracemalloc.start(3)
        self._bytes, self._cpu_s = resident_bytes(), time.process_time()

    def report(self, what: str) -> None:
        """Print both."""
        cpu_s = time.process_time() - self._cpu_s
        each = (resident_bytes() - self._bytes) / self._given.hpas
        sys.stdout.write(f"{what:<40} {each:>8,.0f} B per HPA, resident   {cpu_s:>8.2f} s of CPU\n")
        if self._given.trace:
            gc.collect()
            found = tracemalloc.take_snapshot()
            total = sum(each.size for each in found.traces)
            sys.stdout.write(f"{'':<40} {total / self._given.hpas:>8,.0f} B per HPA, of Python\n")
            for line in found.statistics(self._given.group)[:25]:
                sys.stdout.write(
                    f"{line.size / self._given.hpas:>8,.0f} B {line.count / self._given.hpas:>6.1f} objects"
                )
                sys.stdout.write("".join(f"  {frame}" for frame in line.traceback) + "\n")
        sys.stdout.flush()


# --- observer ---------------------------------------------------------------------------------------------------------


class _NoBrokers:
    """A producer of which the brokers have each record at once."""

    def __init__(self) -> None:
        self.samples = 0

    async def partitions_for(self, topic: str) -> list[int]:
        return [0]

    async def send(self, topic: str, **record: Any) -> "asyncio.Future[None]":
        self.samples += topic.endswith("samples")
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def observer(place: tuple[str, bytes], given: argparse.Namespace) -> None:
    """Observe until everything was listed and every namespace was asked for its metrics once, and a while longer."""
    measured = Measured(given)
    producer, metrics = _NoBrokers(), ObserverMetrics(CollectorRegistry())
    names = [f"c{number}" for number in range(given.clusters)]
    config = ObserverConfig(kafka=KafkaSettings(bootstrap_servers="-"), clusters=())
    reports = RecordPublisher(Publisher(producer, waits_for_room=True), metrics, wall_clock_ms)
    clients = [_client(place, name) for name in names]
    namespaces, phases = (given.hpas + 9) // 10, Phases("bench")
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reports.run())]
            for client in clients:
                observer = ClusterObserver(
                    client,
                    config,
                    reports,
                    metrics,
                    session=SessionName("bench", time.time_ns()),
                    phases=phases,
                    sync_period_ms=lambda stated: SELDOM_MS,
                    note=lambda *_: None,
                    native_absent_since_ms=lambda: None,
                    may_be_preceded=lambda: False,
                )
                tasks.append(group.create_task(observer.run()))
            while producer.samples < namespaces:
                await asyncio.sleep(LOOK_S)
            measured.report("metrics of all namespaces were asked for")
            await asyncio.sleep(SETTLE_S)
            measured.report(f"{SETTLE_S:g} s later")
            for task in tasks:
                task.cancel()
    finally:
        for client in clients:
            await client.close()


# --- reconciler -------------------------------------------------------------------------------------------------------


class _NoOffsets:
    def begin(self, position: Position) -> None: ...

    def done(self, position: Position) -> None: ...

    def is_ours(self, position: Position) -> bool:
        return True

    async def publish(self, decision: Decision, ended: object) -> None: ...


def _template() -> Decision:
    """A decision that wants nothing."""
    partition = Partition.empty(0)
    for record in partition_log(Fleet(hpas=20, namespaces=2, minutes=3, settings=ENFORCING)):
        for made in partition.apply(*record):
            decision = msgspec.json.decode(made.value, type=Decision)
            if decision.status is not None and decision.kind == "evaluation":
                return decision
    raise ValueError("the log brings no decision that shows a status")


def _records(one: Workload, number: int, template: Decision, turn: int = 0) -> Iterator[bytes]:
    """The values of an HPA's records: one, and two that differ from it in the values of metrics."""
    for more in (1, 2, 3):
        seq = 3 * number + more
        decision = structs.replace(
            template,
            id=f"0-{seq}-{one.uid}",
            seq=seq,
            cluster=one.cluster,
            namespace=one.namespace,
            name=one.name,
            uid=one.uid,
            scale_target_ref={**template.scale_target_ref, "name": one.name},
            target=None if template.target is None else structs.replace(template.target, name=one.name),
            status=_moved(template.status or {}, 3 * turn + more),
        )
        yield msgspec.json.encode(decision)


def _moved(status: dict[str, Any], turn: int) -> dict[str, Any]:
    current = {"averageValue": f"{100 + turn}m", "averageUtilization": turn}
    return {**status, "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]}


@asynccontextmanager
async def _writing(place: tuple[str, bytes], given: argparse.Namespace) -> AsyncIterator[ClusterWriters]:
    limits = WriterLimits(workers=8, queue=given.hpas, request_timeout_s=30.0)
    clients = [_client(place, f"c{number}") for number in range(given.clusters)]
    writers = ClusterWriters(
        _NoOffsets(),
        ReconcilerMetrics(CollectorRegistry()),
        limits=limits,
        clock=wall_clock_ms,
        guards=lambda cluster: WriteGuards(),
        status_every_ms=lambda cluster: 0,
    )
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [task for client in clients for task in writers.open(client, group)]
            yield writers
            for task in tasks:
                task.cancel()
    finally:
        for client in clients:
            await client.close()


def _take(writers: ClusterWriters, cluster: str, number: int, value: bytes) -> None:
    headers = (("ce_type", DECISION_TYPE.encode()), source_header(cluster))
    record = ConsumerRecord("", 0, number, 0, 0, None, value, None, 0, len(value), headers)
    decision = writers.decode(record)
    assert decision is not None
    writers.add(decision, Position(0, number))


async def _all_written(writers: ClusterWriters, look_s: float) -> None:
    while any(len(worker.status_writes) for worker in writers._workers.values()):
        await asyncio.sleep(look_s)


async def behind(place: tuple[str, bytes], given: argparse.Namespace) -> None:
    """Take three decisions of each HPA in before any is written; then write them, if asked to."""
    template = _template()
    status = {**(template.status or {}), "currentReplicas": 99}  # another than the fleet shows
    template = structs.replace(template, status=status, time=NEVER_LATE)
    measured = Measured(given)
    async with _writing(place, given) as writers:
        for number, one in enumerate(World(given.hpas, given.clusters, 0).all):
            for value in _records(one, number, template):
                _take(writers, one.cluster, number, value)
        measured.report("three decisions of each HPA wait")
        if given.write:
            await asyncio.sleep(LOOK_S)
            await _all_written(writers, LOOK_S)
            measured.report("all statuses are written")


async def statuses(place: tuple[str, bytes], given: argparse.Namespace) -> None:
    """Write the status of each HPA in which only values change, round by round."""
    template = structs.replace(_template(), time=NEVER_LATE)
    fleet = World(given.hpas, given.clusters, 0).all
    found = []
    async with _writing(place, given) as writers:
        for turn in range(given.rounds + 1):
            records = [(one.cluster, next(_records(one, n, template, turn))) for n, one in enumerate(fleet)]
            began_s = time.process_time()
            for number, (cluster, value) in enumerate(records):
                _take(writers, cluster, number, value)
            await _all_written(writers, 0.02)
            found.append((time.process_time() - began_s) / given.hpas * 1e6)
    lowest, middle = min(found[1:]), statistics.median(found[1:])
    sys.stdout.write(f"{lowest:.1f} / {middle:.1f} µs of CPU per status, lowest / middle round\n")


def options(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.resident", description=__doc__)
    parser.add_argument("part", choices=("observer", "behind", "statuses"))
    parser.add_argument("--hpas", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--pods", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="behind: write what waits")
    parser.add_argument("--rounds", type=int, default=8, help="statuses: how often each HPA is shown")
    parser.add_argument("--trace", action="store_true", help="which lines made what is held")
    parser.add_argument("--group", default="lineno", help="with --trace: lineno or traceback")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Measure one part."""
    given = options(arguments)
    parts = {"observer": observer, "behind": behind, "statuses": statuses}
    with _served(given) as place:
        look_for_cycles_seldom()
        asyncio.run(parts[given.part](place, given))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What FleetHPAs and CapacityGroups cost in the core: HPAs that are members, against as many that are by themselves.

All logs have the same clusters, workloads and loads, made in closed loop; those with members have the reports and
allotments, too, which are delivered within a second. `python -m tests.bench.across [--hpas N] [--kind ceilings]` takes
about seven minutes with 5,000; one log partition takes at most 1,400 HPAs of CapacityGroups (`limits.ALL_MEMBERS`).

`--latency STEPS`: how long a FleetHPA takes from a change of load to the writes, under all parts of fleethpa on two
simulated clusters and the embedded broker. The load of one of them rises at a random moment of the sync period, so that
both get replicas; samples are 1 s old at most.
"""

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from fleethpa.lab.demo.stack import Stack, StackPlan
from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacitySpec
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.keys import FLEET, namespace_key
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, FleetCluster, FleetSpec
from schemas.topics import AUTOSCALERS, REPORTS, SPECS
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from streams.state.partitionstate import Message
from tests.kit.closedloop import ENFORCED, ClosedLoop, Record
from tests.kit.generated_log import Fleet, GeneratedRecord, GeneratedWorkload, hpa
from tests.kit.region import FLEET_MANIFEST, SETTINGS, Region, ask

HPAS: Final = 5_000
MEMBERS: Final = 10
"""Of each FleetHPA, one in each cluster."""
UNDER_CEILING: Final = 100
"""HPAs of each CapacityGroup, which leaves room for what all of them want."""
ALONE: Final = "alone"
KINDS: Final = ("fleets", "fleets-above-minimum", "ceilings")
"""An HPA of `fleets` has less than the minimum of the whole, so that no metric decides in its cluster."""
WARM_MINUTES: Final = 3.0
MINUTES: Final = 2.0
RUNS: Final = 3
LOW, HIGH = (150.0, 150.0), (600.0, 150.0)
"""Load of both clusters: 4 pods are right for the first, 10 for the second."""
LOOK_S = 0.02
LONGEST_S = 60.0


class Grouped(ClosedLoop):
    """HPAs of the same name in MEMBERS clusters: by themselves, of FleetHPAs or of CapacityGroups."""

    def __init__(self, fleet: Fleet, kind: str) -> None:
        self.kind = kind
        self.waiting: list[Message] = []
        super().__init__(fleet)

    def _workload(self, index: int) -> GeneratedWorkload:
        group, cluster = divmod(index, MEMBERS)
        made = super()._workload(index)
        made.cluster, made.name = f"c{cluster}", f"app{group}"
        made.namespace = f"ns{group % self.fleet.namespaces}"
        return made

    def _inventory(self) -> Iterator[GeneratedRecord]:
        yield from super()._inventory()
        if self.kind == "ceilings":
            names = sorted({_ceiling_of(each) for each in self.workloads})
            groups = [self._entry(WHOLE, SPECS, _ceiling(name, self.fleet), 0) for name in names]
            yield self._record(0, groups)
        if self.kind.startswith("fleets"):
            for at in range(0, len(self.workloads), MEMBERS):
                yield from self._applied(self.workloads[at : at + MEMBERS])

    def _hpa(self, workload: GeneratedWorkload) -> dict[str, Any]:
        made = super()._hpa(workload)
        made["metadata"]["labels"] = {"ceiling": _ceiling_of(workload)}
        return made

    def _applied(self, members: list[GeneratedWorkload]) -> Iterator[GeneratedRecord]:
        """What `fleethpa apply` writes for a FleetHPA: the whole, and in each cluster an HPA in place of its own."""
        first = members[0]
        manifest: dict[str, Any] = hpa(first, self.fleet)
        each_most, spec = manifest["spec"]["maxReplicas"], manifest["spec"]
        least = 2 * MEMBERS if self.kind == "fleets" else 2
        whole = manifest | {"spec": spec | {"maxReplicas": each_most * MEMBERS, "minReplicas": least}}
        clusters = [FleetCluster(name=each.cluster, max_replicas=each_most * MEMBERS) for each in members]
        switch = Command(command="mode", name=first.name, mode="enforce")
        made = AutoscalerSet(hpa=whole, origin="central", fleet=FleetSpec(clusters=clusters), revision=1)
        yield self._batch(namespace_key(FLEET, first.namespace), [(SPECS, made), (SPECS, switch)])
        for each in members:
            body = AutoscalerSet(hpa=whole, origin="central", mode="enforce", revision=1)
            own = AutoscalerDeleted(name=each.name, origin="cluster", session="generated")
            yield self._batch(each.key, [(SPECS, body), (AUTOSCALERS, own)])

    def decided(self) -> Iterator[tuple[Record, list[DecisionRecord]]]:
        """Make the log; messages to other partitions wait for the next tick."""
        for each in super().decided():
            self.waiting += self.partition.pop_messages()
            yield each

    def _ticks(self) -> Iterator[GeneratedRecord]:
        if self.waiting:
            entries = [self._entry(f"{m.cluster}/{m.namespace}", REPORTS, m.body, 0) for m in self.waiting]
            self.waiting = []
            yield self._record(0, entries)
        yield from super()._ticks()


def _ceiling_of(workload: GeneratedWorkload) -> str:
    return f"group{int(workload.name.removeprefix('app')) // (UNDER_CEILING // MEMBERS)}"


def _ceiling(name: str, fleet: Fleet) -> CapacityGroupSet:
    limit = CapacityLimit(count=UNDER_CEILING * (2 * fleet.pods + 2))
    return CapacityGroupSet(
        name=name,
        revision=1,
        spec=CapacitySpec(selector={"matchLabels": {"ceiling": name}}, limit=limit, namespaces=["*"]),
    )


def grouped_log(hpas: int, kind: str) -> list[Record]:
    """The log of a fleet that is measured."""
    fleet = Fleet(
        hpas=hpas,
        namespaces=max(1, hpas // MEMBERS // 10),
        minutes=WARM_MINUTES + MINUTES,
        churn=0.002,
        noise=0.03,
        settings=ENFORCED,
        clusters=MEMBERS,
    )
    return Grouped(fleet, kind).log()


def measured(log: list[Record]) -> tuple[list[int], Counter[str]]:
    """Fold a log; CPU time (ns) of each record after the start, checkpoints included, and what was done in them."""
    partition, begin_ms = Partition.empty(0), log[0][1] + round(WARM_MINUTES * 60_000)
    took, done = [], Counter[str]()
    for record in log:
        began = time.thread_time_ns()
        decisions = partition.apply(*record)
        messages = [encode(each.body) for each in partition.pop_messages()]
        if partition.due_checkpoint:
            partition.checkpoint()
        if record[1] < begin_ms:
            continue
        took.append(time.thread_time_ns() - began)
        done["messages"] += len(messages)
        for decision in decisions:
            if not decision.id.endswith("-c"):
                done["of wholes" if decision.key.startswith(FLEET) else "of HPAs"] += 1
    return took, done


def lowest(runs: list[list[int]]) -> float:
    """CPU seconds, of each record the lowest of the runs: other work only ever makes a record slower."""
    total: int = sum(map(min, zip(*runs, strict=True)))
    return total / 1e9


def across_clusters(hpas: int, kind: str) -> Iterator[tuple[str, float, str]]:
    """CPU per evaluation of HPAs that are members, relative to as many by themselves; runs by turns."""
    logs = {name: grouped_log(hpas, name) for name in (ALONE, kind)}
    runs: dict[str, list[list[int]]] = {name: [] for name in logs}
    counts: dict[str, Counter[str]] = {}
    for _ in range(RUNS):
        for name, log in logs.items():
            took, counts[name] = measured(log)
            runs[name].append(took)
    each, per_hpa = {}, {}
    for name, done in counts.items():
        cpu_s, evaluations = lowest(runs[name]), done["of HPAs"] + done["of wholes"]
        each[name], per_hpa[name] = cpu_s / evaluations, cpu_s / done["of HPAs"]
        text = f"{hpas:,} HPAs, {name}"
        yield f"{text}: per evaluation", 1e6 * each[name], "CPU µs"
        yield f"{text}: per evaluation of an HPA", 1e6 * per_hpa[name], "CPU µs"
        yield f"{text}: evaluations of HPAs", done["of HPAs"], ""
        yield f"{text}: evaluations of wholes", done["of wholes"], ""
        yield f"{text}: messages", done["messages"], ""
    yield f"{kind} to alone, per evaluation", 100 * each[kind] / each[ALONE], "%"
    yield f"{kind} to alone, per evaluation of an HPA", 100 * per_hpa[kind] / per_hpa[ALONE], "%"


# --- latency ----------------------------------------------------------------------------------------------------------


async def latencies(steps: int, period_s: float, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds from each step of the load to the first write, and to the last one that it needs."""
    region, rng = Region(), random.Random(1)
    settings = structs.replace(SETTINGS, sync_period_ms=round(period_s * 1000))
    first, last = [], []
    async with Stack(StackPlan(folder, fleet=region.fleet, settings=settings)) as stack:
        await ask(stack, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=FLEET_MANIFEST)
        region.load(*LOW)
        await region.until(lambda found: sum(found) == 4, "settled")
        for number in range(steps):
            # All is at rest, at any moment of the period: new pods are ready, windows are over.
            await asyncio.sleep(2 * period_s + rng.uniform(0, period_s))
            before, begun = region.replicas, time.monotonic()
            region.load(*HIGH)
            while region.replicas == before and time.monotonic() < begun + LONGEST_S:
                await asyncio.sleep(LOOK_S)
            first.append(time.monotonic() - begun)
            await region.until(lambda found: sum(found) >= 9, "the step is written")
            last.append(time.monotonic() - begun)
            sys.stdout.write(f"step {number + 1}: first write {first[-1]:.2f} s, last {last[-1]:.2f} s\n")
            sys.stdout.flush()
            region.load(*LOW)
            await region.until(lambda found: sum(found) <= 5, "settled again", 90)
    return first, last


def latency_line(what: str, values: Sequence[float]) -> str:
    """Median and highest."""
    found = sorted(values)
    return f"{what:<40} p50 {found[len(found) // 2]:.2f} s, highest {found[-1]:.2f} s"


def latency(steps: int, period_s: float) -> int:
    """Print the latencies; 1 where a first write came later than one sync period and 2 s."""
    with tempfile.TemporaryDirectory() as folder:
        first, last = asyncio.run(latencies(steps, period_s, Path(folder)))
    sys.stdout.write(
        f"{latency_line('load to the first write', first)}\n{latency_line('load to the last write', last)}\n"
    )
    late: int = sum(each > period_s + 2 for each in first)
    sys.stdout.write(f"{late} of {len(first)} later than one sync period and 2 s\n")
    return min(late, 1)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.across", description=__doc__)
    parser.add_argument("--hpas", type=int, default=HPAS)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--latency", type=int, metavar="STEPS", help="instead: so many changes of load, to the writes")
    parser.add_argument("--period", type=float, default=5.0, help="sync period of --latency, seconds")
    given = parser.parse_args()
    if given.latency:
        return latency(given.latency, given.period)
    # As a worker runs: what was loaded is not walked again and again.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    for what, value, unit in across_clusters(given.hpas, given.kind):
        sys.stdout.write(f"{what:<58} {value:>12,.0f} {unit}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

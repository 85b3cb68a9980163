"""Crash equivalence of the whole pipeline, in real time: `python -m tests.kafka.chaos --pipeline --faults 20`.

A simulated fleet on Apache Kafka under seeded faults in every part. Afterwards: the decisions (by the readers' rule)
are what an offline fold of this run's log decides, byte for byte; every public record is in the log or rejected; no
scale-down came before its window was over; every wanted write has ended; the clusters are where the last decisions say;
and no FleetHPA ever had more than its maxReplicas, nor the HPAs of a CapacityGroup more than its limit.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from fleethpa.show import words
from reconciler.apply.process import reconciler_group
from schemas import topics
from schemas.keys import HpaId
from streams.decider.tail import Exit
from streams.history.recorded import Recorded
from tests.kafka.broker import KafkaBroker
from tests.kafka.chaos.ceiling import Ceiling
from tests.kafka.chaos.fleetfaults import FAULTS, SHORT
from tests.kafka.chaos.harness import Tally, deal, run_all
from tests.kafka.chaos.wholes import Wholes
from tests.kafka.clock import missing_compiler
from tests.kafka.fleet import MAX_REPLICAS, SYNC_MS, WINDOWS_S, Rig, World
from tests.kafka.run_reading import Run, count, first_difference
from tests.kit.decider_process import Decider, wait_for_decisions

RUN_FAULTS = 20
RUN_MINUTES = 5.0
RECOVER_S = 150.0
SETTLE_S = 180.0
HEAL_S = 5.0
"""How often a supervisor looks while nothing is injected."""
READY_S = 120.0
REREAD = re.compile(r"folded (\d+) records again; (\d+) decisions were there")
HARMLESS = (-9, -15, 143, 0, 3, Exit.FENCED, Exit.STALLED, Exit.NEEDS_OPERATOR)
"""Ways to end that a supervisor answers with a restart; 3: Kafka could not be reached."""


class PipelineRun:
    """One fleet, one broker, one list of faults."""

    def __init__(self, rig: Rig, rng: random.Random, tally: Tally) -> None:
        self._rig, self._rng, self._tally = rig, rng, tally
        self._wholes, self._ceiling = Wholes(rig.world), Ceiling(rig.world)

    async def run(self, names: Sequence[str], minutes: float) -> None:
        """Inject the faults over at least this time, let the fleet settle, and compare.

        Raises:
            AssertionError: something does not recover, is lost or differs.
        """
        rig, begun = self._rig, time.monotonic()
        rig.add_all()
        await self._recovered(READY_S)
        await self._apply()
        for number, name in enumerate(names, start=1):
            await self._inject(name)
            due = begun + minutes * 60 * number / len(names)
            while (left_s := due - time.monotonic()) > 0:
                await asyncio.sleep(min(left_s, HEAL_S))
                self._heal()
        await self._settle()
        await self._end()
        await self._compare()

    async def _inject(self, name: str) -> None:
        print(f"  {name}", flush=True)
        before = _refolded(self._rig)
        self._rig.harmed_until = 0.0
        # Where the log was cut, partitions may have lost the group with their state; until it is applied again, their
        # HPAs are not bounded.
        if loses_state := name.startswith("changelog"):
            self._ceiling.is_in_force = False
        await FAULTS[name][1](self._rig, self._rng)
        begun = self._rig.harmed_until or time.monotonic()
        self._heal()
        await self._recovered(RECOVER_S)
        self._tally.rows[name].add(time.monotonic() - begun, before, _refolded(self._rig))
        if loses_state:
            await self._apply()

    async def _apply(self) -> None:
        """Apply the FleetHPAs and the CapacityGroup, as an operator does at the beginning and after a loss of state."""
        await self._wholes.apply(self._rig)
        await self._ceiling.apply(self._rig)

    def _heal(self) -> None:
        rig = self._rig
        for part in rig.parts.values():
            if part.ended and part.running.returncode not in HARMLESS:
                raise AssertionError(f"{part.name} ended with {part.running.returncode}\n{part.tail()}")
        rig.heal()
        self._wholes.check()
        self._ceiling.check()

    async def _recovered(self, limit_s: float) -> None:
        """Wait until every part has gone on with what came after now.

        While the broker's clock is behind the newest log time, log time does not advance, and nothing becomes due.
        """
        begun, marks = time.monotonic(), None
        while True:
            self._heal()
            try:
                async with asyncio.timeout(20):
                    now = await _progress(self._rig)
            except (KafkaError, TimeoutError):
                now = None
            marks = (marks or now) if time.monotonic() > self._rig.log_time_stands_until else None
            if marks and now and now.is_past(marks):
                return
            if time.monotonic() - begun > limit_s:
                raise AssertionError(f"not recovered in {limit_s:.0f} s: {marks} → {now}\n{self._rig.tails()}")
            await asyncio.sleep(0.2)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Constant loads: after the longest window the clusters stand where the decisions say."""
        rig, begun = self._rig, time.monotonic()
        rig.world.settle()
        self._wholes.settle()
        while time.monotonic() - begun < SETTLE_S:
            await asyncio.sleep(3.0)
            self._heal()
            if time.monotonic() - begun > max(WINDOWS_S) + 10 and not await self._unsettled():
                return
        raise AssertionError(f"clusters and decisions differ: {await self._unsettled()}\n{rig.tails()}")

    async def _unsettled(self) -> list[str]:
        run = await self._read()
        pending = [f"{hpa} waits for a write" for hpa, one in run.last().items() if one.decision.wants is not None]
        return [*self._not_as_decided(run), *pending]

    def _not_as_decided(self, run: Run, last: Mapping[HpaId, Recorded] | None = None) -> list[str]:
        """HPAs whose cluster has another count than was decided last; with that decision.

        `last`: the decisions that count; None: the newest ones.
        """
        last, found = last or run.last(), []
        for hpa in self._rig.world.hpas:
            replicas, one = self._rig.world.replicas(hpa), last.get(hpa)
            if one is None:
                found.append(f"{hpa} has {replicas}, nothing was decided")
            elif one.decision.final_desired_replicas != replicas:
                made = one.decision
                decided = f"{made.final_desired_replicas} at {made.time} by {made.id}: {made.reason}"
                found.append(f"{hpa} has {replicas}, decided were {decided}")
        for hpa in self._wholes.members():
            replicas, one = self._rig.world.replicas(hpa), last.get(hpa)
            # A log that was cut may have lost what `apply` wrote: then nothing scales it any more.
            if one is not None and one.decision.final_desired_replicas != replicas:
                found.append(f"{hpa} has {replicas}, its share is {one.decision.final_desired_replicas}")
        return found

    async def _end(self) -> None:
        """SIGTERM to all; what they appended while ending is decided by a last decider.

        Ingest comes last: deciders, too, append to public topics, what HPAs of FleetHPAs report.
        """
        for name in ("observer-0", "reconciler-0", "decider-0", "ingest-0"):
            if name == "ingest-0":
                await self._drained()
            self._tally.terminations_s[name.split("-")[0]].append(await self._rig.stop(name))
        for kind, code in self._rig.exits.elements():
            self._tally.ended(kind, code)

    async def _drained(self) -> None:
        """Wait until ingest has read all that there is; nothing is added any more."""
        deadline = time.monotonic() + RECOVER_S
        while (now := await _progress(self._rig)).ingested < now.public:
            if time.monotonic() > deadline:
                raise AssertionError(f"ingest is not through: {now}\n{self._rig.tails()}")
            await asyncio.sleep(0.2)

    async def _read(self) -> Run:
        return await Run.read(self._rig.settings, self._rig.cut_log)

    async def _compare(self) -> None:
        rig, tally = self._rig, self._tally
        run = await self._read()
        if lost := run.lost_inputs():
            raise AssertionError(f"{len(lost)} public records are neither in the log nor rejected: {lost[:10]}")
        want = await asyncio.to_thread(run.replayed)
        output = rig.parts_folder / "last-decider.txt"
        with Decider(rig.broker.bootstrap, output, "--no-ticks", instance_id="decider-0") as last:
            await wait_for_decisions(rig.settings, want, [last])
        run = await self._read()
        if difference := first_difference(want, run.decisions):
            raise AssertionError(f"decisions differ: {difference}")
        if early := run.early_scale_downs(rig.world.hpas, MAX_REPLICAS, SYNC_MS):
            raise AssertionError(f"{len(early)} early scale-downs: {early[:5]}")
        newest_ms = max(records[-1].timestamp for records in run.log.values() if records)
        if unended := run.unended_writes(newest_ms - 60_000):
            raise AssertionError(f"{len(unended)} wanted writes never ended: {unended[:5]}")
        if phantoms := run.phantom_ends():
            raise AssertionError(f"{len(phantoms)} completions of decisions that are nowhere: {phantoms[:5]}")
        # Once the observer has ended, no scale can be read: an evaluation after that says nothing of replicas.
        last_seen = {
            one.hpa: one
            for one in run.recorded()
            if one.decision.kind == "evaluation" and words.scale_is_known(one.decision)
        }
        if moved := self._not_as_decided(run, last_seen):
            raise AssertionError(f"clusters are not where the last decisions say: {moved}")
        tally.totals.update(_totals(run))
        tally.totals["allotments to clusters of FleetHPAs"] += _allotments(run)
        tally.totals["moves of FleetHPAs' replicas"] += self._wholes.moves
        tally.totals["additions that the CapacityGroup cut"] += _cut(run)


def _totals(run: Run) -> dict[str, int]:
    scaled = sum(one.decision.wants is not None for one in run.recorded())
    return {
        "log records": sum(map(len, run.log.values())),
        "public records": sum(len(records) for parts in run.public.values() for records in parts.values()),
        "rejected": sum(map(len, run.rejected.values())),
        "decisions": sum(map(len, run.decisions.values())),
        "wanted writes": scaled,
        "second copies of decisions (equal)": run.copies,
        "log entries dropped as duplicates": run.repeated_entries,
        "partitions rebuilt from a cut log, visibly": sum(map(len, run.restarts.values())),
        "writes whose end was lost with the state": len(run.forgotten_writes()),
    }


def _allotments(run: Run) -> int:
    found = [record for records in run.public[topics.REPORTS].values() for record in records]
    return sum(b'"allotment"' in record.value for record in found)


def _cut(run: Run) -> int:
    return sum("CapacityGroup" in one.decision.constraints_applied for one in run.recorded())


@dataclass(frozen=True)
class Progress:
    """How far each part is: public records, decisions, and what the groups have committed of them."""

    public: int
    decisions: int
    ingested: int
    reconciled: int

    def is_past(self, mark: "Progress") -> bool:
        """Whether new input was observed, all input of then ingested, more decided, all decisions of then read."""
        return (
            self.public > mark.public
            and self.decisions > mark.decisions
            and self.ingested >= mark.public
            and self.reconciled >= mark.decisions
        )


async def _progress(rig: Rig) -> Progress:
    settings, reconcilers = rig.settings, reconciler_group(rig.world.fleet.clusters)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    try:
        await admin.start()
        ingested = await admin.list_consumer_group_offsets(topics.INGEST_GROUP)
        reconciled = await admin.list_consumer_group_offsets(reconcilers)
    finally:
        await admin.close()
    public = sum([await count(settings, topic) for topic in topics.PUBLIC_TOPICS])
    decisions = await count(settings, topics.DECISIONS)
    return Progress(public, decisions, *(sum(at.offset for at in one.values()) for one in (ingested, reconciled)))


def _refolded(rig: Rig) -> tuple[int, int]:
    texts = [path.read_text(errors="replace") for path in rig.parts_folder.glob("decider-*.txt")]
    found = [(int(records), int(stood)) for text in texts for records, stood in REREAD.findall(text)]
    return sum(records for records, _ in found), sum(stood for _, stood in found)


async def run_once(*, seed: int, names: Sequence[str], minutes: float, tally: Tally, folder: Path) -> None:
    """One run on a broker of its own.

    Raises:
        AssertionError: as `PipelineRun.run`.
    """
    rng = random.Random(seed)
    with KafkaBroker(folder / "kafka", with_clock=not missing_compiler()) as broker:
        async with Rig(broker, folder / "rig", World(), static=rng.random() < 0.5) as rig:
            await PipelineRun(rig, rng, tally).run(names, minutes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until so many faults have been injected; 0 when nothing diverged."""
    options = _parser().parse_args(arguments)
    tally = Tally()

    async def run(seed: int, names: Sequence[str], folder: Path) -> None:
        minutes = options.minutes or RUN_MINUTES * min(1.0, len(names) / RUN_FAULTS)
        await run_once(seed=seed, names=names, minutes=minutes, tally=tally, folder=folder)

    drawn = deal(weights(options.faults), options.seed, options.faults, RUN_FAULTS)
    deals = [options.only] if options.only else drawn
    return run_all("pipeline", tally, run, deals, options.seed)


def weights(faults: int) -> dict[str, int]:
    """Which faults come in a run of so many, and how often."""
    found = {name: weight for name, (weight, _) in FAULTS.items() if faults > len(SHORT) or name in SHORT}
    if missing := missing_compiler():
        print(f"BROKER CLOCK NOT TESTED: {missing}", file=sys.stderr)
        found.pop("broker clock jumps", None)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos --pipeline", description=__doc__)
    parser.add_argument("--faults", type=int, default=RUN_FAULTS)
    parser.add_argument("--only", choices=list(FAULTS), action="append", help="one run of these; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="a run's least length [default: 5 for a run of 20 faults]")
    return parser

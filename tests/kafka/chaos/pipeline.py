"""Crash equivalence of the whole pipeline, in real time: `python -m tests.kafka.chaos --pipeline --faults 20`.

A simulated fleet on Apache Kafka under seeded faults in every part. Afterwards: the decisions (by the readers' rule)
are what an offline fold of this run's log decides, byte for byte; every public record is in the log or rejected; no
scale-down came before its window was over; every wanted write has ended; the clusters are where the last decisions say.
"""

import argparse
import asyncio
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from schemas import topics
from schemas.connection import KafkaSettings
from streams.decider.exits import Exit
from tests.decider_process import Decider, wait_for_decisions
from tests.kafka.broker import KafkaBroker, missing_tools
from tests.kafka.chaos.fleetfaults import FAULTS, choose
from tests.kafka.chaos.table import Row, table
from tests.kafka.fleet import MAX_REPLICAS, WINDOWS_S, Rig, World
from tests.kafka.run_reading import Run, count, first_difference

RUN_FAULTS = 20
RUN_MINUTES = 5.0
RECOVER_S = 150.0
SETTLE_S = 180.0
READY_S = 120.0
END_S = 5.0
REREAD = re.compile(r"folded (\d+) records again; (\d+) decisions stood")
HARMLESS = (-9, -15, 0, 3, Exit.FENCED, Exit.STALLED, Exit.NEEDS_OPERATOR)
"""Ways to end that a supervisor answers with a restart; 3: Kafka could not be reached."""


@dataclass
class Tally:
    """What is counted over all runs."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    exits: Counter[tuple[str, int]] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    slow_exits: list[str] = field(default_factory=list)


class PipelineRun:
    """One fleet, one broker, one list of faults."""

    def __init__(self, rig: Rig, rng: random.Random, tally: Tally) -> None:
        self._rig, self._rng, self._tally = rig, rng, tally

    async def run(self, names: Sequence[str], minutes: float) -> None:
        """Inject the faults over at least this time, let the fleet settle, and compare.

        Raises:
            AssertionError: something does not recover, is lost or differs.
        """
        rig, begun = self._rig, time.monotonic()
        rig.add_all()
        await self._recovered(READY_S)
        for number, name in enumerate(names, start=1):
            await self._inject(name)
            due = begun + minutes * 60 * number / len(names)
            await asyncio.sleep(max(0.0, min(due - time.monotonic(), 30.0)))
            self._heal()
        await self._settle()
        await self._end()
        await self._compare()

    async def _inject(self, name: str) -> None:
        row = self._tally.rows[name]
        print(f"  {name}", flush=True)
        before = _refolded(self._rig)
        await FAULTS[name][1](self._rig, self._rng)
        self._heal()
        row.recovery_s.append(await self._recovered(RECOVER_S))
        after = _refolded(self._rig)
        row.reread += after[0] - before[0]
        row.suppressed += after[1] - before[1]
        row.count += 1

    def _heal(self) -> None:
        rig = self._rig
        for part in rig.parts.values():
            if part.ended and part.running.returncode not in HARMLESS:
                raise AssertionError(f"{part.name} ended with {part.running.returncode}\n{part.tail()}")
        rig.heal()

    async def _recovered(self, limit_s: float) -> float:
        """Wait until every part has gone on with what came after now; seconds that took."""
        begun, marks = time.monotonic(), None
        while True:
            self._heal()
            try:
                async with asyncio.timeout(20):
                    now = await _progress(self._rig.settings)
            except (KafkaError, TimeoutError):
                now = None
            marks = marks or now
            if marks and now and now.is_past(marks):
                return time.monotonic() - begun
            if time.monotonic() - begun > limit_s:
                raise AssertionError(f"not recovered in {limit_s:.0f} s: {marks} → {now}\n{self._rig.tails()}")
            await asyncio.sleep(0.2)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Constant loads: after the longest window the clusters stand where the decisions say."""
        rig, begun = self._rig, time.monotonic()
        rig.world.settle()
        while time.monotonic() - begun < SETTLE_S:
            await asyncio.sleep(3.0)
            self._heal()
            if time.monotonic() - begun > max(WINDOWS_S) + 10 and not await self._unsettled():
                return
        raise AssertionError(f"clusters and decisions differ: {await self._unsettled()}\n{rig.tails()}")

    async def _unsettled(self) -> list[str]:
        last = (await Run.read(self._rig.settings)).last()
        found = []
        for hpa in self._rig.world.hpas:
            replicas, one = self._rig.world.replicas(hpa), last.get(hpa)
            if one is None or one.decision.wants is not None or one.decision.final_desired_replicas != replicas:
                decided = one and (one.decision.id, one.decision.wants, one.decision.final_desired_replicas)
                found.append(f"{hpa} has {replicas}, decided {decided}")
        return found

    async def _end(self) -> None:
        """SIGTERM to all, in the order of the flow; what they appended while ending is decided by a last decider."""
        for name in ("observer-0", "reconciler-0", "ingest-0", "decider-0"):
            if name == "ingest-0":
                await self._drained()
            took_s = await self._rig.stop(name)
            if took_s > END_S:
                self._tally.slow_exits.append(f"{name.split('-')[0]} {took_s:.1f} s")
        self._tally.exits.update(self._rig.exits)

    async def _drained(self) -> None:
        """Wait until ingest has read all that there is; nothing is added any more."""
        deadline = time.monotonic() + RECOVER_S
        while (now := await _progress(self._rig.settings)).ingested < now.public:
            if time.monotonic() > deadline:
                raise AssertionError(f"ingest is not through: {now}\n{self._rig.tails()}")
            await asyncio.sleep(0.2)

    async def _compare(self) -> None:
        rig, tally = self._rig, self._tally
        run = await Run.read(rig.settings)
        want = await asyncio.to_thread(run.replayed)
        output = rig.parts_folder / "last-decider.txt"
        with Decider(rig.broker.bootstrap, output, "--no-ticks", instance_id="decider-0") as last:
            await wait_for_decisions(rig.settings, want, [last])
        run = await Run.read(rig.settings)
        if difference := first_difference(want, run.decisions):
            raise AssertionError(f"decisions differ: {difference}")
        if lost := run.lost_inputs():
            raise AssertionError(f"{len(lost)} public records are neither in the log nor rejected: {lost[:10]}")
        if early := run.early_scale_downs(rig.world.hpas, MAX_REPLICAS):
            raise AssertionError(f"{len(early)} early scale-downs: {early[:5]}")
        newest_ms = max(records[-1].timestamp for records in run.log.values() if records)
        if unended := run.unended_writes(newest_ms - 60_000):
            raise AssertionError(f"{len(unended)} wanted writes never ended: {unended[:5]}")
        decided = {hpa: one.decision.final_desired_replicas for hpa, one in run.last().items()}
        if moved := [f"{hpa}" for hpa, replicas in decided.items() if rig.world.replicas(hpa) != replicas]:
            raise AssertionError(f"clusters are not where the last decisions say: {moved}")
        tally.totals.update(_totals(run))


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
    }


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


async def _progress(settings: KafkaSettings) -> Progress:
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    try:
        await admin.start()
        ingested = await admin.list_consumer_group_offsets(topics.INGEST_GROUP)
        reconciled = await admin.list_consumer_group_offsets(topics.RECONCILER_GROUP)
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
    with KafkaBroker(folder / "kafka") as broker:
        async with Rig(broker, folder / "rig", World(), static=rng.random() < 0.5) as rig:
            await PipelineRun(rig, rng, tally).run(names, minutes)


def report(tally: Tally) -> str:
    """The table, and the totals."""
    exits = ", ".join(f"{kind} {code}: {number}" for (kind, code), number in sorted(tally.exits.items()))
    totals = [f"{number} {name}" for name, number in tally.totals.items()]
    slow = ", ".join(tally.slow_exits) or "never"
    return "\n".join([table(tally.rows), *totals, f"exit codes: {exits}", f"SIGTERM took longer than 5 s: {slow}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until so many faults have been injected; 0 when nothing diverged."""
    options = _parser().parse_args(arguments)
    if missing := missing_tools():
        print(f"APACHE KAFKA NOT TESTED: {missing}", file=sys.stderr)
        return 1
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a broker that is away fills the screen
    tally, left, number = Tally(), options.faults, 0
    try:
        while left > 0:
            faults, number = min(RUN_FAULTS, left), number + 1
            minutes = options.minutes or RUN_MINUTES * min(1.0, faults / RUN_FAULTS)
            seed = options.seed * 1000 + number
            names = choose(random.Random(seed), faults)
            print(f"pipeline run {number}: {faults} faults over {minutes:g} minutes, seed {seed}", flush=True)
            with tempfile.TemporaryDirectory(prefix="fleethpa-chaos-") as folder:
                run = run_once(seed=seed, names=names, minutes=minutes, tally=tally, folder=Path(folder))
                asyncio.run(run)
            left -= faults
    except AssertionError as error:
        print(f"{report(tally)}\nFAILED: {error}")
        return 1
    print(f"{report(tally)}\n0 divergences")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos --pipeline", description=__doc__)
    parser.add_argument("--faults", type=int, default=RUN_FAULTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="a run's least length [default: 5 for a run of 20 faults]")
    return parser

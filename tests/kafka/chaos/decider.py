"""Crash equivalence of the decider: `python -m tests.kafka.chaos.decider --faults 200 --seed 1`.

A log with its times is folded once undisturbed and then by decider processes on Apache Kafka under seeded faults, at
full speed. After the readers' rule the decisions must be the same bytes. In half of the logs time jumps ahead and back.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.kafkaclients import strict_producer
from tests.kafka.broker import KafkaBroker
from tests.kafka.chaos.faults import FAULTS
from tests.kafka.chaos.group import Group
from tests.kafka.chaos.harness import Tally, deal, run_all
from tests.kafka.chaos.jumps import count_steps, with_jumps
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kit.decider_process import Read, append_log, count_decisions, first_difference, read_decisions, read_log
from tests.kit.hostilefleet import hostile_run
from tests.kit.playback import Log, TimedRecord, fold, make_log

RUN_FAULTS = 20
RECOVER_S = 240.0
FAULT_S = 12.0
"""The log is appended at a pace that leaves this time for each fault to come; longer than most take."""
FEED_S = 0.1
NUMBERS = range(PARTITIONS)


class ChaosRun:
    """One log, one broker, one list of faults."""

    def __init__(self, group: Group, log: Log, rng: random.Random, tally: Tally) -> None:
        self._group = group
        self._log = log
        self._rng = rng
        self._tally = tally
        self._left = 0
        self._hurry = asyncio.Event()

    async def run(self, names: Sequence[str]) -> None:
        """Inject the faults, each with a slice of the log before it, and compare the end.

        Raises:
            AssertionError: a decision differs, is missing or comes too late, or a worker ends in a wrong way.
        """
        self._left = len(names)
        self._group.start("decider-0")
        feeding = asyncio.create_task(self._feed())
        try:
            for name in names:
                await self._inject(name)
                self._left -= 1
                if feeding.done():
                    feeding.result()
            self._hurry.set()
            await feeding
        finally:
            feeding.cancel()
        # The log is what the brokers hold. One that is killed at an append can hold a batch of the feeder twice.
        log = await read_log(self._group.settings, NUMBERS)
        repeated = sum(_repeated(log[number], records, number) for number, records in self._log.items())
        want = fold(log)
        got = await self._finish({number: len(values) for number, values in want.items()})
        if difference := first_difference(want, got):
            raise AssertionError(f"decisions differ: {difference}")
        copies = sum(len(read.records) - len(read.decisions) for read in got.values())
        self._tally.totals["log records that the feeder appended twice"] += repeated
        self._tally.totals["log records"] += sum(map(len, self._log.values()))
        self._tally.totals["backward or restarting steps of log time"] += count_steps(self._log)
        self._tally.totals["decisions"] += sum(len(read.decisions) for read in got.values())
        self._tally.totals["second copies of decisions (equal)"] += copies

    async def _finish(self, counts: Mapping[int, int]) -> dict[int, Read]:
        """Wait, as a supervisor of the group, until so many decisions stand."""
        begun = time.monotonic()
        while True:
            self._group.heal()
            if await count_decisions(self._group.settings, NUMBERS) >= sum(counts.values()):
                got = await read_decisions(self._group.settings, NUMBERS)
                if all(len(got[number].decisions) >= count for number, count in counts.items()):
                    return got
            if time.monotonic() - begun > RECOVER_S:
                raise AssertionError(f"decisions are missing {RECOVER_S:.0f} s after the last fault\n{self._tails()}")
            await asyncio.sleep(0.3)

    def _tails(self) -> str:
        return "\n".join(worker.tail() for worker in self._group.workers.values())

    async def _feed(self) -> None:
        """Append the log so that some of it is left for every fault, however long one takes; at the end all at once."""
        fed = 0.0
        async with strict_producer(self._group.settings) as producer:
            while fed < 1:
                pace = FEED_S / (FAULT_S * (self._left + 1))
                upto = 1.0 if self._hurry.is_set() else fed + (1 - fed) * pace
                await append_log(producer, {number: _part(records, fed, upto) for number, records in self._log.items()})
                fed = upto
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), FEED_S)

    async def _inject(self, name: str) -> None:
        print(f"  {name}", flush=True)
        before = self._group.reread()
        await FAULTS[name][1](self._group, self._rng)
        recovery_s = await self._recover()
        self._tally.rows[name].add(recovery_s, before, self._group.reread())

    async def _recover(self) -> float:
        """Make the group whole; seconds until a decision is new."""
        begun = time.monotonic()
        self._group.heal()
        before = await count_decisions(self._group.settings, NUMBERS)
        while await count_decisions(self._group.settings, NUMBERS) == before:
            self._group.heal()
            if time.monotonic() - begun > RECOVER_S:
                raise AssertionError(f"no new decision {RECOVER_S:.0f} s after the fault\n{self._tails()}")
            await asyncio.sleep(0.05)
        return time.monotonic() - begun


def _part(records: Sequence[TimedRecord], first: float, upto: float) -> Sequence[TimedRecord]:
    return records[int(len(records) * first) : int(len(records) * upto)]


def _repeated(stored: Sequence[TimedRecord], fed: Sequence[TimedRecord], number: int) -> int:
    """How many records of a partition stand twice.

    Raises:
        AssertionError: a record is missing, or one is there that was never fed.
    """
    left = iter(fed)
    expected = next(left, None)
    seen: set[bytes] = set()
    for offset, record in enumerate(stored):
        if record == expected:
            seen.add(record.value)
            expected = next(left, None)
        else:
            assert record.value in seen, f"log partition {number} holds at offset {offset} what was never fed"
    assert expected is None, f"log partition {number} lacks {expected}"
    return len(stored) - len(fed)


def made_log(seed: int, minutes: float, hpas: int) -> Log:
    """The log of a run: of HPAs by themselves, and behind it, at the end of each partition, that of a FleetHPA one of
    whose clusters lies, cannot write, goes away and has settings of its own.
    """
    log = make_log(partitions=PARTITIONS, minutes=minutes, hpas=hpas, seed=seed)
    whole = {number: made.records for number, made in enumerate(hostile_run(seed).logs.values())}
    later_ms = max(records[-1].timestamp_ms for records in log.values()) - min(made[0][1] for made in whole.values())
    return {
        number: [*records, *(TimedRecord(time_ms + later_ms, value) for _, time_ms, value in whole.get(number, ()))]
        for number, records in log.items()
    }


async def run_once(
    *, seed: int, names: Sequence[str], minutes: float, hpas: int, tally: Tally, module: str, folder: Path
) -> None:
    """One run on a broker of its own.

    Raises:
        AssertionError: as `ChaosRun.run`.
    """
    rng = random.Random(seed)
    log = made_log(seed, minutes, hpas)
    if seed % 4 in (1, 2):
        log = with_jumps(log, rng)
    with KafkaBroker(folder / "kafka") as broker:
        group = Group(broker, folder, static=rng.random() < 0.5, module=module)
        await make_topics(group.settings, playback_topics())
        try:
            await ChaosRun(group, log, rng, tally).run(names)
        finally:
            group.stop()
            tally.terminations_s["decider"] += group.terminations_s
            for code in group.exits.elements():
                tally.ended("decider", code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until so many faults have been injected; 0 when every decision came out the same."""
    options = _parser().parse_args(arguments)
    tally, module = Tally(), "tests.kit.stock_decider" if options.stock else "fleethpa"

    async def run(seed: int, names: Sequence[str], folder: Path) -> None:
        shape = {"minutes": options.minutes, "hpas": options.hpas}
        await run_once(seed=seed, names=names, tally=tally, module=module, folder=folder, **shape)

    weights = {name: weight for name, (weight, _) in FAULTS.items()}
    return run_all("decider", tally, run, deal(weights, options.seed, options.faults, RUN_FAULTS), options.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos.decider", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="log time of a run")
    parser.add_argument("--hpas", type=int, default=200)
    parser.add_argument("--stock", action="store_true", help="use Faust's own consumer: must fail")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.kafka.soak --minutes 30`: the simulated fleet on Apache Kafka with a fault every minute.

At the end memory must be flat, lag back at zero, and everything hold that the chaos harness asks of a run.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.broker import KafkaBroker, missing_tools
from tests.kafka.chaos.fleetfaults import FAULTS
from tests.kafka.chaos.pipeline import PipelineRun, Tally, report
from tests.kafka.fleet import Rig, World

LONG = ("broker paused for 60 s", "ingest away")
"""Faults that take longer than their minute."""
GROWTH_MB = 120
"""How much more than after its first minute a part may hold; what has just started holds less."""


class Soak(PipelineRun):
    """A run that looks at memory after each fault."""

    def __init__(self, rig: Rig, rng: random.Random, tally: Tally) -> None:
        super().__init__(rig, rng, tally)
        self.memory_mb: dict[str, list[int]] = defaultdict(list)

    async def _inject(self, name: str) -> None:
        await super()._inject(name)
        for part in self._rig.parts.values():
            self.memory_mb[part.name].append(resident_mb(part.running.pid))
        print("    " + ", ".join(f"{part} {values[-1]} MB" for part, values in self.memory_mb.items()), flush=True)

    def growing(self) -> list[str]:
        """Parts whose memory is not flat."""
        return [
            f"{part}: {values} MB"
            for part, values in self.memory_mb.items()
            if values[-1] > max(values[0], 150) + GROWTH_MB
        ]


def resident_mb(pid: int) -> int:
    """Resident memory of a process; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:")), 0)


async def soak(minutes: int, seed: int, tally: Tally, folder: Path) -> None:
    """One run.

    Raises:
        AssertionError: as `PipelineRun.run`, or memory grows.
    """
    rng = random.Random(seed)
    names = rng.choices([name for name in FAULTS if name not in LONG], k=minutes)
    with KafkaBroker(folder / "kafka") as broker:
        async with Rig(broker, folder / "rig", World()) as rig:
            run = Soak(rig, rng, tally)
            await run.run(names, minutes)
            assert not run.growing(), f"memory grows: {run.growing()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when nothing was lost, diverged or grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if missing := missing_tools():
        print(f"APACHE KAFKA NOT TESTED: {missing}", file=sys.stderr)
        return 1
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    tally = Tally()
    try:
        with tempfile.TemporaryDirectory(prefix="fleethpa-soak-") as folder:
            asyncio.run(soak(options.minutes, options.seed, tally, Path(folder)))
    except AssertionError as error:
        print(f"{report(tally)}\nFAILED: {error}")
        return 1
    print(f"{report(tally)}\nmemory flat, lag zero, 0 divergences")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.kafka.soak --minutes 30`: the simulated fleet on Apache Kafka with a fault every minute.

At the end memory must be flat, lag back at zero, and everything hold that the chaos harness asks of a run.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.broker import KafkaBroker
from tests.kafka.chaos.fleetfaults import FAULTS
from tests.kafka.chaos.harness import Tally, run_all
from tests.kafka.chaos.pipeline import PipelineRun
from tests.kafka.fleet import Rig, World

LEFT_OUT = (
    *("broker paused for 60 s", "ingest away", "broker clock jumps"),
    *("changelog lost", "changelog truncated", "changelog lost, log cut"),
)
"""Faults that take longer than their minute, and those that take an operator."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when nothing was lost, diverged or grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    tally = Tally()

    async def soak(seed: int, names: Sequence[str], folder: Path) -> None:
        with KafkaBroker(folder / "kafka") as broker:
            async with Rig(broker, folder / "rig", World()) as rig:
                run = Soak(rig, random.Random(seed), tally)
                await run.run(names, options.minutes)
                assert not run.growing(), f"memory grows: {run.growing()}"

    kinds = [name for name in FAULTS if name not in LEFT_OUT]
    names = random.Random(options.seed).choices(kinds, k=options.minutes)
    code = run_all("soak", tally, soak, [names], options.seed)
    if code == 0:
        print("memory flat, lag zero")
    return code


if __name__ == "__main__":
    sys.exit(main())

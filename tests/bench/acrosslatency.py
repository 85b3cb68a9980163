"""How long a FleetHPA takes from a change of load to the writes, under all parts of fleethpa on simulated clusters.

`python -m tests.bench.acrosslatency [--steps N] [--period SECONDS]`: two clusters; the load of one of them rises at a
random moment of the sync period, so that both get replicas. Embedded broker; samples are 1 s old at most.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from fleethpa.lab.demo.stack import Stack, StackPlan
from tests.slow.test_region_lost import SETTINGS, WHOLE, Region, ask

LOW, HIGH = (150.0, 150.0), (600.0, 150.0)
"""Load of both clusters: 4 pods are right for the first, 10 for the second."""
LOOK_S = 0.02
LONGEST_S = 60.0


async def measured(steps: int, period_s: float, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds from each step of the load to the first write, and to the last one that it needs."""
    region, rng = Region(), random.Random(1)
    settings = structs.replace(SETTINGS, sync_period_ms=round(period_s * 1000))
    first, last = [], []
    async with Stack(StackPlan(folder, fleet=region.fleet, settings=settings)) as stack:
        await ask(stack, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=WHOLE)
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


def line(what: str, values: Sequence[float]) -> str:
    """Median and highest."""
    found = sorted(values)
    return f"{what:<40} p50 {found[len(found) // 2]:.2f} s, highest {found[-1]:.2f} s"


def main() -> int:
    """Print the figures; 1 where a first write came later than one sync period and 2 s."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.acrosslatency", description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--period", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, last = asyncio.run(measured(given.steps, given.period, Path(folder)))
    sys.stdout.write(f"{line('load to the first write', first)}\n{line('load to the last write', last)}\n")
    late: int = sum(each > given.period + 2 for each in first)
    sys.stdout.write(f"{late} of {len(first)} later than one sync period and 2 s\n")
    return min(late, 1)


if __name__ == "__main__":
    sys.exit(main())

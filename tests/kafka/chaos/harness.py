"""What both parts of the harness share: how faults are dealt out to runs, what is counted, the table, the loop."""

import asyncio
import logging
import math
import random
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from tests.kafka.broker import missing_tools

EXIT_S = 5.0
"""SIGTERM is to take no longer."""


@dataclass
class Row:
    """What is counted for a kind of fault: log records that deciders folded again, decisions that stood already."""

    count: int = 0
    reread: int = 0
    suppressed: int = 0
    recovery_s: list[float] = field(default_factory=list)

    def add(self, recovery_s: float, before: tuple[int, int], after: tuple[int, int]) -> None:
        """One fault more; `before` and `after`: what had been folded again and stood already in all."""
        self.count += 1
        self.recovery_s.append(recovery_s)
        self.reread += after[0] - before[0]
        self.suppressed += after[1] - before[1]


@dataclass
class Tally:
    """What is counted over the runs of a part."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    exits: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    terminations_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """How long processes of a kind took to end on SIGTERM."""
    runs: int = 0

    def ended(self, kind: str, code: int) -> None:
        """A process has ended with this code."""
        self.exits[f"{kind} {code}"] += 1

    @property
    def faults(self) -> int:
        """How many there were."""
        return sum(row.count for row in self.rows.values())

    def report(self) -> str:
        """Fault, count, re-read records, recovery p50 and max, duplicates suppressed; and the totals."""
        lines = [f"{'fault':28}{'count':>6}{'re-read':>9}{'recovery p50':>14}{'max':>8}{'suppressed':>12}"]
        for name, row in sorted((name, row) for name, row in self.rows.items() if row.count):
            p50, longest = statistics.median(row.recovery_s), max(row.recovery_s)
            lines.append(f"{name:28}{row.count:6}{row.reread:9}{p50:12.1f} s{longest:6.1f} s{row.suppressed:12}")
        lines.append(f"{self.faults} faults in {self.runs} runs")
        lines += [f"{number} {name}" for name, number in self.totals.items()]
        lines.append(f"exit codes: {', '.join(f'{what}: {n}' for what, n in sorted(self.exits.items())) or 'none'}")
        for kind, took_s in sorted((kind, times) for kind, times in self.terminations_s.items() if times):
            slow = sum(one > EXIT_S for one in took_s)
            lines.append(
                f"SIGTERM to {kind}: {len(took_s)} times, at most {max(took_s):.1f} s, {slow} over {EXIT_S:.0f} s"
            )
        return "\n".join(lines)


def deal(weights: Mapping[str, int], seed: int, faults: int, a_run: int) -> list[list[str]]:
    """A seeded list of faults for each run, of `a_run` at most and of about the same length.

    With as many faults as kinds each kind comes, in whichever run; what is left is drawn by weight.
    """
    rng = random.Random(seed)
    kinds = list(weights)
    weighted = [name for name, weight in weights.items() for _ in range(weight)]
    further = rng.choices(weighted, k=max(0, faults - len(kinds)))
    dealt = rng.sample([*rng.sample(kinds, min(faults, len(kinds))), *further], faults)
    runs = math.ceil(faults / a_run)
    return [dealt[number::runs] for number in range(runs)]


Run = Callable[[int, Sequence[str], Path], Coroutine[Any, Any, None]]
"""One run: its seed, its faults, a folder that is its own."""


def run_all(title: str, tally: Tally, run: Run, deals: Sequence[Sequence[str]], seed: int) -> int:
    """Run each deal on a broker of its own, and print the table; 0 when nothing diverged.

    A broker that gives the harness itself no answer in time ends it too: the machine stood still, nothing is proved.
    """
    if missing := missing_tools():
        print(f"APACHE KAFKA NOT TESTED: {missing}", file=sys.stderr)
        return 1
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a broker that is away fills the screen
    try:
        for number, names in enumerate(deals, start=1):
            run_seed = seed * 1000 + number
            print(f"{title} run {number} of {len(deals)}: {len(names)} faults, seed {run_seed}", flush=True)
            # A broker that ends late may still write while its folder is removed.
            with tempfile.TemporaryDirectory(prefix="fleethpa-chaos-", ignore_cleanup_errors=True) as folder:
                asyncio.run(run(run_seed, names, Path(folder)))
            tally.runs += 1
    except (AssertionError, KafkaError) as error:
        print(f"{title}\n{tally.report()}\nFAILED: {type(error).__name__}: {error}", flush=True)
        return 1
    print(f"{title}\n{tally.report()}\n0 divergences", flush=True)
    return 0

"""A year of churn in log time, through a real partition with checkpoints: `python -m tests.bench.year`.

The log is that of `tests.kit.churn`. After each month: rows and bytes of the compacted changelog, the largest row,
memory, and how long a restore takes. Nothing may grow: each is compared with the first month.
"""

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import NamedTuple

from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from tests.kit.churn import MONTH_DAYS, Churn, churned


class Month(NamedTuple):
    """What the state takes at the end of a month."""

    rows: int
    changelog_bytes: int
    largest_row: int
    memory_bytes: int
    restore_s: float

    def within(self, share: float, first: "Month") -> list[str]:
        """Name the figures that have grown by more than a share."""
        return [name for name, now, then in zip(self._fields, self, first, strict=True) if now > then * (1 + share)]


def months(churn: Churn, days: int = MONTH_DAYS) -> Iterator[Month]:
    """Fold the log, and measure after every so many days."""
    partition, rows = Partition.empty(0), dict[bytes, bytes]()
    for record in churned(churn):
        partition.apply(*record)
        merge_rows(rows, partition.checkpoint())
        if (record.offset + 1) % (24 * days) == 0:
            yield _measured(rows)


def _measured(rows: dict[bytes, bytes]) -> Month:
    restore_s = min(_restored_in(rows) for _ in range(9))
    gc.collect()
    for cache in [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]:
        cache.cache_clear()  # each is bounded; they fill for months, which is no growth of the state
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    sizes = [len(key) + len(value) for key, value in rows.items()]
    return Month(len(rows), sum(sizes), max(sizes), resident, restore_s)


def _restored_in(rows: dict[bytes, bytes]) -> float:
    started = time.perf_counter()
    Partition.restore(0, rows)
    return time.perf_counter() - started


def main(arguments: list[str]) -> int:
    """Print a line for each month; fails where the last one exceeds the first by more than 10 %."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.year", description=__doc__)
    parser.add_argument("--months", type=int, default=12)
    given = parser.parse_args(arguments)
    found: list[Month] = []
    sys.stdout.write(f"{'month':>5} {'rows':>7} {'changelog':>12} {'largest row':>12} {'memory':>12} {'restore':>9}\n")
    for month in months(Churn(days=given.months * MONTH_DAYS)):
        found.append(month)
        sys.stdout.write(
            f"{len(found):>5} {month.rows:>7,} {month.changelog_bytes:>10,} B {month.largest_row:>10,} B "
            f"{month.memory_bytes / 1e6:>9.1f} MB {month.restore_s * 1000:>6.0f} ms\n"
        )
        sys.stdout.flush()
    grown = found[-1].within(0.1, found[0])
    sys.stdout.write(f"grown by more than 10 % since the first month: {', '.join(grown) or 'nothing'}\n")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

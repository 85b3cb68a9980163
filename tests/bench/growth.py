"""How the cost of an evaluation grows with the fleet: `python -m tests.bench.growth`.

Runs the fleet bench once per row and prints what each process needs per 1,000 evaluations, in relation to the first row
of its table. A row of many pods has fewer HPAs, so that all rows of that table run in about the same time.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.bench.fleet import LEAST_START_S, START_S_PER_HPA, Plan, measure
from tests.bench.fleetreport import PARTS

ROWS: Mapping[str, tuple[int, ...]] = {
    "hpas": (1_000, 5_000, 20_000),
    "pods": (5, 50, 500),
    "clusters": (1, 20, 200),
    "deciders": (1, 2, 4),
}
TITLES = {
    "hpas": "HPAs, of 5 pods each, in 20 clusters",
    "pods": "pods of each HPA, 200 HPAs in 20 clusters",
    "clusters": "clusters, 2,000 HPAs of 5 pods",
    "deciders": "deciders, 2,000 HPAs of 5 pods in 20 clusters",
}
GOAL = 1.3
"""A cost that grows by no more than this over a table is reached."""


def plan_of(axis: str, value: int, seconds: float, broker: str) -> Plan:
    """What to run for one row of a table."""
    hpas = {"hpas": value, "pods": 200}.get(axis, 2_000)
    return Plan(
        hpas=hpas,
        clusters=value if axis == "clusters" else 20,
        pods=value if axis == "pods" else 5,
        broker=broker,
        partitions=24,
        deciders=value if axis == "deciders" else 1,
        seconds=seconds,
        start_s=max(LEAST_START_S, hpas * START_S_PER_HPA),
        step=0,
    )


def costs(found: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds per 1,000 evaluations of each kind of process, of all together, and of the broker."""
    by_name: Mapping[str, float] = found["cpu_s_per_1000"]
    parts = {part: sum(cpu_s for name, cpu_s in by_name.items() if name.startswith(part)) for part in PARTS}
    return parts | {"fleethpa": sum(parts.values()), "broker": by_name.get("broker", 0.0)}


def table(axis: str, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """Print the rows of one table; each cost is followed by its ratio to the first row."""
    first = costs(rows[0][1])
    yield f"{TITLES[axis]}: CPU s per 1,000 evaluations (times the first row)"
    yield f"  {axis:>9} {'evaluated':>10}" + "".join(f"{name:>18}" for name in first)
    for value, found in rows:
        cells = "".join(
            f"{cost:>10.3f} ({cost / first[name] if first[name] else 1:>4.2f}x)" for name, cost in costs(found).items()
        )
        yield f"  {value:>9,} {found['share_evaluated']:>10.0%}{cells}"
    ratio = costs(rows[-1][1])["fleethpa"] / first["fleethpa"] if first["fleethpa"] else 1.0
    yield f"  over the table {ratio:.2f}x (goal: at most {GOAL}x)"


def main(arguments: list[str]) -> int:
    """Run and print each table as soon as it is whole."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--axis", action="append", choices=[*ROWS], help="only this table; may be given several times")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured stretch of each row")
    parser.add_argument("--most", type=int, default=max(ROWS["hpas"]), help="leave out rows with more HPAs")
    parser.add_argument("--broker", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all reports to this file")
    given = parser.parse_args(arguments)
    reports: dict[str, list[Any]] = {}
    for axis in given.axis or ROWS:
        rows = []
        for value in ROWS[axis]:
            plan = plan_of(axis, value, given.seconds, given.broker)
            if plan.hpas > given.most:
                continue
            sys.stderr.write(f"{axis} {value:,}, load average {os.getloadavg()[0]:.1f}\n")
            rows.append((value, asyncio.run(measure(plan))))
        reports[axis] = [found for _, found in rows]
        for line in table(axis, rows) if rows else ():
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    if given.json:
        given.json.write_bytes(orjson.dumps(reports, option=orjson.OPT_INDENT_2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

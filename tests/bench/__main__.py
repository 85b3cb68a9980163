"""Print what an evaluation costs: `python -m tests.bench [--compare | --store] [measure …]`.

A measure is a function without arguments that yields (what, value, unit); `MEASURES` lists them as printed. Figures are
the best of several runs: other processes only ever make a run slower. `--compare` names what has become much dearer
than stored, and never fails; `--store` stores the figures of this run.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson

from tests.bench import core, pipeline, reading

STORED: Final = Path(__file__).with_name("bench-baseline.json")
YARDSTICK: Final = "decide, 5 pods, 1 metric(s)"
"""The speed that the others of a run are compared with: upstream's calculation alone."""
SPEEDS: Final = ("evaluations/s", "decisions/s", "evaluations/CPU s", "decisions/s/core")
"""Units by CPU time, or the best of many short runs; what is by wall-clock time depends on what else runs."""
NOISE: Final = {"times": 1.5, "bytes": 1.1}
"""Speeds of one run differ by that much where other processes come and go; bytes by rounding and versions of Python."""

Measure = Callable[[], Iterator[tuple[str, float, str]]]

MEASURES: dict[str, Measure] = {
    "decide": core.decide_alone,
    "fold": core.fold_samples,
    "partition": core.partition_decisions,
    "steady": core.steady_state,
    "bytes": core.decision_bytes,
    "memory": core.memory_of_state,
    "disk": core.disk_of_topics,
    "pipeline": pipeline.pipeline,
    "replay": reading.replay_slice,
    "present": reading.present,
}
"""Add a measure here; one that cannot run on this machine yields nothing and says why on stderr."""


def relative_costs(figures: Iterable[tuple[str, float, str]]) -> dict[str, tuple[float, str]]:
    """What each measure costs: in times of one evaluation of the yardstick, or in bytes. Others are left out, and so
    are speeds in a run without the yardstick.
    """
    known = list(figures)
    yardstick = next((value for what, value, _ in known if what == YARDSTICK), 0.0)
    costs: dict[str, tuple[float, str]] = {}
    for what, value, unit in known:
        if unit in SPEEDS and yardstick and value:
            costs[what] = (round(yardstick / value, 2), "times")
        elif unit == "bytes":
            costs[what] = (round(value), "bytes")
    return costs


def much_dearer(now: Mapping[str, tuple[float, str]], then: Mapping[str, tuple[float, str]]) -> Iterator[str]:
    """Name what costs much more than stored."""
    for what, (cost, unit) in now.items():
        if what in then and cost > NOISE[unit] * then[what][0]:
            yield f"{what}: {cost:,g} {unit}, {then[what][0]:,g} stored"


def main(names: list[str]) -> int:
    """Run the measures named (all of them, if none is)."""
    wanted = {name for name in names if name in ("--compare", "--store")}
    names = [name for name in names if name not in wanted]
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        sys.stderr.write(f"no measure {unknown[0]!r}: one of {', '.join(MEASURES)}\n")
        return 2
    # As a worker runs: what was loaded is not walked again and again.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    figures = []
    for name in names or MEASURES:
        for what, value, unit in MEASURES[name]():
            figures.append((what, value, unit))
            sys.stdout.write(f"{what:<58} {value:>12,.0f} {unit}\n")
            sys.stdout.flush()
    costs = relative_costs(figures)
    if "--compare" in wanted:
        for line in much_dearer(costs, orjson.loads(STORED.read_bytes())):
            sys.stdout.write(f"!!! MUCH WORSE THAN STORED: {line}\n")
    if "--store" in wanted:
        STORED.write_bytes(orjson.dumps(costs, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

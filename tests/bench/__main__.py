"""Print what an evaluation costs: `python -m tests.bench [--compare | --store] [measure …]`.

A measure is a function without arguments that yields (what, value, unit); `MEASURES` lists them as printed. Figures are
the best of several runs: other processes only ever make a run slower. `--compare` names what has become much dearer
than stored, and never fails; `--store` stores the figures of this run.
"""

import gc
import sys
from collections.abc import Callable, Iterator

import orjson

from tests.bench import core, pipeline, present, replay, steady, stored

Measure = Callable[[], Iterator[tuple[str, float, str]]]

MEASURES: dict[str, Measure] = {
    "decide": core.decide_alone,
    "fold": core.fold_samples,
    "partition": core.partition_decisions,
    "steady": steady.steady_state,
    "bytes": core.decision_bytes,
    "memory": core.memory_of_state,
    "disk": core.disk_of_topics,
    "pipeline": pipeline.pipeline,
    "replay": replay.replay_slice,
    "present": present.present,
}
"""Add a measure here; one that cannot run on this machine yields nothing and says why on stderr."""


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
    costs = stored.relative_costs(figures)
    if "--compare" in wanted:
        for line in stored.much_dearer(costs, orjson.loads(stored.STORED.read_bytes())):
            sys.stdout.write(f"!!! MUCH WORSE THAN STORED: {line}\n")
    if "--store" in wanted:
        stored.STORED.write_bytes(orjson.dumps(costs, option=orjson.OPT_INDENT_2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Print what an evaluation costs: `python -m tests.bench [measure …]`.

A measure is a function without arguments that yields (what, value, unit); `MEASURES` lists them as printed. Figures are
the best of several runs: other processes only ever make a run slower.
"""

import gc
import sys
from collections.abc import Callable, Iterator

from tests.bench import core, pipeline, present, replay

Measure = Callable[[], Iterator[tuple[str, float, str]]]

MEASURES: dict[str, Measure] = {
    "decide": core.decide_alone,
    "fold": core.fold_samples,
    "partition": core.partition_decisions,
    "bytes": core.decision_bytes,
    "memory": core.memory_of_state,
    "pipeline": pipeline.pipeline,
    "replay": replay.replay_slice,
    "present": present.present,
}
"""Add a measure here; one that cannot run on this machine yields nothing and says why on stderr."""


def main(names: list[str]) -> int:
    """Run the measures named (all of them, if none is)."""
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        sys.stderr.write(f"no measure {unknown[0]!r}: one of {', '.join(MEASURES)}\n")
        return 2
    # As a worker runs: what was loaded is not walked again and again.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    for name in names or MEASURES:
        for what, value, unit in MEASURES[name]():
            sys.stdout.write(f"{what:<58} {value:>12,.0f} {unit}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

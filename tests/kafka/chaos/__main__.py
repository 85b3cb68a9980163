"""`python -m tests.kafka.chaos`: the crash-equivalence harness.

`--decider` and `--pipeline` run one part with all faults; without them the decider gets four fifths of the faults.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from tests.kafka.chaos import decider, pipeline

Part = Callable[[Sequence[str]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; 0 when nothing diverged."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--decider", action="store_true", help="only the decider, on a log that is loaded beforehand")
    parser.add_argument("--pipeline", action="store_true", help="only the whole pipeline, in real time")
    options, others = parser.parse_known_args(arguments)
    shares: list[tuple[Part, int]]
    if options.decider or options.pipeline:
        shares = [(decider.main if options.decider else pipeline.main, options.faults)]
    else:
        shares = [(decider.main, options.faults - options.faults // 5), (pipeline.main, options.faults // 5)]
    codes = [part([*others, "--faults", str(faults)]) for part, faults in shares if faults]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())

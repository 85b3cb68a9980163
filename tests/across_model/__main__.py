"""`python -m tests.across_model --changes 2 --faults 1`: explore report and allotment, and print what was looked at."""

import argparse
import gc
import sys
import time

from tests.across_model.world import BEGINNINGS, MUTATIONS, Rules, world
from tests.exploring import Found, explore, walk


def main() -> int:
    """Explore; the exit code is 1 where an invariant does not hold (with `--without`: where all still hold)."""
    parser = argparse.ArgumentParser(prog="python -m tests.across_model", description=__doc__)
    parser.add_argument("--begin", choices=sorted(BEGINNINGS), default="full", help="what the members have at first")
    parser.add_argument("--changes", type=int, default=2, help="of total, maximum and who is away (default 2)")
    parser.add_argument("--faults", type=int, default=1, help="writes that fail (default 1)")
    parser.add_argument("--most", type=int, help="end after so many states")
    parser.add_argument("--without", choices=sorted(MUTATIONS), help="switch a mechanism off")
    parser.add_argument("--walks", type=int, metavar="STATES", help="random walks, until so many states were met")
    parser.add_argument("--seed", type=int, default=1, help="of the random walks (default 1)")
    arguments = parser.parse_args()
    gc.disable()  # millions of tuples, none of which is part of a cycle
    begun = time.monotonic()

    def progress(found: Found) -> None:
        taken = time.monotonic() - begun
        print(f"depth {found.depth}: {found.states:,} states, {taken:.0f} s", file=sys.stderr, flush=True)

    rules = MUTATIONS[arguments.without] if arguments.without else Rules()
    model = world(BEGINNINGS[arguments.begin](arguments.changes, arguments.faults), rules)
    if arguments.walks:
        found = walk(model, seed=arguments.seed, most=arguments.walks, progress=progress)
    else:
        found = explore(model, most=arguments.most, progress=progress)
    whole = "all" if found.is_whole else "not all"
    print(
        f"{arguments.changes} changes, {arguments.faults} faults: {found.states:,} states ({whole} of them), "
        f"{found.steps:,} steps, depth {found.depth}, {time.monotonic() - begun:.0f} s"
    )
    if found.broken:
        print(f"BROKEN: {found.broken}", *(f"  {step}" for step in found.path), sep="\n")
    else:
        print("every invariant holds")
    return int(bool(found.broken) is not bool(arguments.without))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.standin_model --faults 4`: explore the protocol of the stand-in, and print what was looked at."""

import argparse
import gc
import sys
import time
from collections.abc import Callable

from tests.exploring import Found
from tests.standin_model.explore import explore, walk
from tests.standin_model.mutations import MUTATIONS
from tests.standin_model.world import ALONE, Rules, State, first, stood_in, switched_off

BEGINNINGS: dict[str, Callable[[int], State]] = {"hub": first, "stand-in": stood_in, "switched-off": switched_off}


def main() -> int:
    """Explore; the exit code is 1 where an invariant does not hold (with `--without`: where all still hold)."""
    parser = argparse.ArgumentParser(prog="python -m tests.standin_model", description=__doc__)
    parser.add_argument("--faults", type=int, default=3, help="at most so many faults (default 3)")
    parser.add_argument("--begin", choices=sorted(BEGINNINGS), default="hub", help="who is in charge at first")
    parser.add_argument("--alone", action="store_true", help="no native controller runs, and the settings say so")
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

    rules, begin = ALONE if arguments.alone else Rules(), BEGINNINGS[arguments.begin]
    if arguments.without:
        rules, arguments.faults, begin = MUTATIONS[arguments.without]
    if arguments.walks:
        found = walk(arguments.faults, rules, begin=begin, seed=arguments.seed, most=arguments.walks, progress=progress)
    else:
        found = explore(
            arguments.faults, rules, begin=begin, most=arguments.most, is_traced=arguments.faults < 3, progress=progress
        )
    whole = "all" if found.is_whole else "not all"
    print(
        f"{arguments.faults} faults: {found.states:,} states ({whole} that can be reached), {found.steps:,} steps, "
        f"depth {found.depth}, {time.monotonic() - begun:.0f} s"
    )
    if found.broken:
        print(f"BROKEN: {found.broken}", *(f"  {step}" for step in found.path), sep="\n")
    else:
        print("every invariant holds")
    return int(bool(found.broken) is not bool(arguments.without))


if __name__ == "__main__":
    sys.exit(main())

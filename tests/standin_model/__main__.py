"""`python -m tests.standin_model --faults 4`: explore the protocol of the stand-in, and print what was looked at."""

import sys
from collections.abc import Callable

from tests.kit import exploring
from tests.standin_model.explore import world
from tests.standin_model.mutations import MUTATIONS
from tests.standin_model.world import ALONE, Rules, State, first, stood_in, switched_off

BEGINNINGS: dict[str, Callable[[int], State]] = {"hub": first, "stand-in": stood_in, "switched-off": switched_off}


def main() -> int:
    """Explore; the exit code is that of `exploring.run`."""
    parser = exploring.options("python -m tests.standin_model", __doc__, MUTATIONS)
    parser.add_argument("--faults", type=int, default=3, help="at most so many faults (default 3)")
    parser.add_argument("--begin", choices=sorted(BEGINNINGS), default="hub", help="who is in charge at first")
    parser.add_argument("--alone", action="store_true", help="no native controller runs, and the settings say so")
    given = parser.parse_args()
    faults, rules, begin = given.faults, ALONE if given.alone else Rules(), BEGINNINGS[given.begin]
    if given.without:
        rules, faults, begin = MUTATIONS[given.without]
    return exploring.run(world(faults, rules, begin), given, f"{faults} faults", is_traced=faults < 3)


if __name__ == "__main__":
    sys.exit(main())

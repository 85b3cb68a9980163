"""`python -m tests.across_model --changes 2 --faults 1`: explore report and allotment, and print what was looked at.

`--model capacity`: of a CapacityGroup in place of a FleetHPA. `--model hostile --runs 100`: random runs of the fold of
a FleetHPA one of whose clusters lies, cannot write, goes away and has settings of its own.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from tests.across_model.ceiling import CAPACITY_BEGINNINGS, CAPACITY_MUTATIONS, CapacityRules, capacity_world
from tests.across_model.world import BEGINNINGS, MUTATIONS, Rules, world
from tests.kit import exploring
from tests.kit.exploring import ViolationError
from tests.kit.hostilefleet import hostile_run


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore; the exit code is that of `exploring.run`."""
    parser = exploring.options("python -m tests.across_model", __doc__, [*MUTATIONS, *CAPACITY_MUTATIONS])
    parser.add_argument(
        "--model", choices=["fleet", "capacity", "hostile"], default="fleet", help="of which kind (default fleet)"
    )
    begin = sorted([*BEGINNINGS, *CAPACITY_BEGINNINGS])
    parser.add_argument("--begin", choices=begin, help="what the members have at first (default full, or scarce)")
    parser.add_argument("--changes", type=int, default=2, help="of total, maximum and who is away (default 2)")
    parser.add_argument("--faults", type=int, default=1, help="writes that fail (default 1)")
    parser.add_argument("--runs", type=int, default=100, help="of the model hostile (default 100)")
    given = parser.parse_args(arguments)
    if given.model == "hostile":
        return _hostile(range(given.seed, given.seed + given.runs))
    what = f"{given.changes} changes, {given.faults} faults"
    if given.model == "capacity":
        its = CAPACITY_MUTATIONS[given.without] if given.without else CapacityRules()
        begun = CAPACITY_BEGINNINGS[given.begin or "scarce"](given.changes, given.faults)
        return exploring.run(capacity_world(begun, its), given, what)
    rules = MUTATIONS[given.without] if given.without else Rules()
    model = world(BEGINNINGS[given.begin or "full"](given.changes, given.faults), rules)
    return exploring.run(model, given, what)


def _hostile(seeds: range) -> int:
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened += hostile_run(seed).happened
        except ViolationError as error:
            print(f"BROKEN: {error}")
            return 1
    print(f"{len(seeds)} runs: {', '.join(f'{count} times {what}' for what, count in sorted(happened.items()))}")
    print("every invariant holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.across_model --changes 2 --faults 1`: explore report and allotment, and print what was looked at."""

import sys

from tests import exploring
from tests.across_model.world import BEGINNINGS, MUTATIONS, Rules, world


def main() -> int:
    """Explore; the exit code is that of `exploring.run`."""
    parser = exploring.options("python -m tests.across_model", __doc__, MUTATIONS)
    parser.add_argument("--begin", choices=sorted(BEGINNINGS), default="full", help="what the members have at first")
    parser.add_argument("--changes", type=int, default=2, help="of total, maximum and who is away (default 2)")
    parser.add_argument("--faults", type=int, default=1, help="writes that fail (default 1)")
    given = parser.parse_args()
    rules = MUTATIONS[given.without] if given.without else Rules()
    model = world(BEGINNINGS[given.begin](given.changes, given.faults), rules)
    return exploring.run(model, given, f"{given.changes} changes, {given.faults} faults")


if __name__ == "__main__":
    sys.exit(main())

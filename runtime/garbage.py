"""How often a long-running process looks for reference cycles."""

import gc

THRESHOLDS = (20_000, 50, 100)
"""A hundred thousand pods or decisions live long: walking them at every 700 new objects can take half of the time."""


def look_for_cycles_seldom() -> None:
    """Leave out what has been loaded so far, and look for cycles seldom, from now on."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

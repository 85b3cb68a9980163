"""A few names in a tuple, used as a set: there is nearly always one, for which a `set` takes 216 bytes, a tuple 48.

A partition has several of these for each of its HPAs. Adding and removing is linear in the number of names.
"""

from typing import TypeVar

Name = TypeVar("Name")


def with_name(names: tuple[Name, ...], name: Name) -> tuple[Name, ...]:
    """Add a name, unless it is there."""
    return names if name in names else (*names, name)


def without_name(names: tuple[Name, ...], name: Name) -> tuple[Name, ...]:
    """Remove a name, if it is there."""
    return tuple([each for each in names if each != name])

"""A few names, used as a set: there is nearly always one, for which a `set` takes 216 bytes, a tuple 48.

A partition has several of these for each of its HPAs. Many names are the keys of a dictionary, so that adding and
removing each of them is linear in all. The order is that in which they were added.
"""

from typing import Final, TypeVar

Name = TypeVar("Name")
Names = tuple[Name, ...] | dict[Name, None]

MANY: Final = 16
"""More names than this are kept in a dictionary, until there are no more than half as many."""


def with_name(names: Names[Name], name: Name) -> Names[Name]:
    """Add a name, unless it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names[name] = None
        return names
    if name in names:
        return names
    added = (*names, name)
    return added if len(added) <= MANY else dict.fromkeys(added)


def without_name(names: Names[Name], name: Name) -> Names[Name]:
    """Remove a name, if it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names.pop(name, None)
        return names if len(names) > MANY // 2 else tuple(names)
    return tuple([each for each in names if each != name])

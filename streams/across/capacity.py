"""A ceiling that many HPAs share: which additions it leaves to each.

A ceiling bounds additions only: nothing is ever scaled down for it.
"""

from collections.abc import Sequence

from msgspec import Struct

from streams.across.division import largest_remainder


class CapacityClaim(Struct, frozen=True):
    """An HPA that has some replicas and wants more (or not). The higher `priority` comes first."""

    name: str
    has: int
    wants: int
    priority: int = 0

    @property
    def missing(self) -> int:
        """Replicas that it wants beyond what it has."""
        return max(0, self.wants - self.has)


def granted(limit: int, claims: Sequence[CapacityClaim]) -> dict[str, int]:
    """Give the additions of each claim that the limit has room for; the sum of what they have may be above it.

    Higher priorities come first; among equal ones, additions are in proportion to what is missing (largest remainder,
    then by name).
    """
    room = max(0, limit - sum([each.has for each in claims]))
    given = {each.name: 0 for each in claims}
    for priority in sorted({each.priority for each in claims if each.missing}, reverse=True):
        missing = {each.name: each.missing for each in claims if each.priority == priority}
        more = largest_remainder(min(room, sum(missing.values())), missing)
        given |= more
        room -= sum(more.values())
    return given

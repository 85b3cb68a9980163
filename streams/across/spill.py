"""Spilling: a member whose pods find no node is capped at those that did, and the others get what it cannot run.

Ten minutes after a cap was set, one more replica is tried there; once that has a node, the cap ends. So a cluster that
stays full is tried with one replica at a time, at most once per ten minutes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from schemas.observed import FleetCluster
from streams.across.division import Shares

RETRY_MS: Final = 600_000
"""A cap is raised at most once in this time."""
NO_CAP: Final = -1


class MemberRoom(Struct, array_like=True, frozen=True, gc=False):
    """What is known of the room in a member.

    `waits_since_ms`: since when each report has shown pods that wait for a node (0: the newest shows none). `cap`: the
    most that it is given (-1: as its bounds say). `capped_ms`: when the cap was set or raised. `is_tried`: it was
    raised, to see whether there is room again.
    """

    waits_since_ms: int = 0
    cap: int = NO_CAP
    capped_ms: int = 0
    is_tried: bool = False


ROOM: Final = MemberRoom()
"""Nothing is known against a member."""


def next_room(room: MemberRoom, replicas: int, waiting: int, after_ms: int, now_ms: int) -> MemberRoom:
    """Give what is known of a member's room after a report.

    Args:
        replicas: of its scale.
        waiting: how many of them wait for a node.
        after_ms: pods that wait for as long as this cap the member at the others.
    """
    if not waiting:
        return _freer(room, replicas, now_ms)
    since_ms = room.waits_since_ms or now_ms
    if now_ms - since_ms < after_ms:
        return structs.replace(room, waits_since_ms=since_ms)
    return MemberRoom(since_ms, max(0, replicas - waiting), now_ms)


def _freer(room: MemberRoom, replicas: int, now_ms: int) -> MemberRoom:
    """Give it while all pods have nodes."""
    if room.cap == NO_CAP or now_ms - room.capped_ms < RETRY_MS:
        return structs.replace(room, waits_since_ms=0)
    if not room.is_tried:
        return MemberRoom(0, room.cap + 1, now_ms, is_tried=True)
    return ROOM if replicas >= room.cap else structs.replace(room, waits_since_ms=0)


def capped(total: int, members: Sequence[FleetCluster], caps: Shares) -> list[FleetCluster]:
    """Give the members with bounds that leave each what it has room for.

    What no member has room for is divided as if there were no caps, on top of what each has room for: its pods wait,
    which is what makes a cluster grow that adds nodes by itself.
    """
    roomy = {
        each.name: max(each.min_replicas, min(each.max_replicas, caps.get(each.name, each.max_replicas)))
        for each in members
    }
    if sum(roomy.values()) >= total:
        return [structs.replace(each, max_replicas=roomy[each.name]) for each in members]
    return [structs.replace(each, min_replicas=roomy[each.name]) for each in members]


def caps_of(rooms: Mapping[str, MemberRoom]) -> dict[str, int]:
    """Give the caps that there are."""
    return {name: room.cap for name, room in rooms.items() if room.cap != NO_CAP}

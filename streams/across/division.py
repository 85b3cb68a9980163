"""The division of a total among the members of a group, and spilling: what a member cannot run, the others get.

Bounds come first, then weights, and moves only where it pays. All of it is whole numbers and deterministic: ties go by
name.

A member whose pods find no node is capped at those that did. Ten minutes after a cap was set, one more replica is tried
there; once that has a node, the cap ends. So a cluster that stays full is tried with one replica at a time, at most
once per ten minutes.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, structs

from schemas.observed import FleetCluster, FleetSpec
from streams.state.acrossrows import NO_CAP, MemberRoom

Strategy = Literal["Weighted", "Ordered"]
Shares = Mapping[str, int]
"""Replicas of each member, by name."""

UNLIMITED: Final = 2**31 - 1
NO_SHARES: Final[Shares] = {}


def divide(total: int, members: Sequence[FleetCluster], strategy: Strategy = "Weighted") -> dict[str, int]:
    """Divide `total` as the spec asks for, without regard to what the members have now.

    Each member has its minimum and at most its maximum; within these bounds, shares are proportional to the weights
    (largest remainder), or fill the members in order. The sum is the total, or the nearest that the bounds allow.
    """
    shares = {each.name: each.min_replicas for each in members}
    rest = total - sum(shares.values())
    if strategy == "Ordered":
        for each in members:
            given = max(0, min(rest, each.max_replicas - each.min_replicas))
            shares[each.name] += given
            rest -= given
        return shares
    return _weighted(total, members) if rest > 0 else shares


def _keeping(total: int, members: Sequence[FleetCluster], keeps: Shares) -> Sequence[FleetCluster]:
    """Return the members with minimums that leave each what it keeps, as far as the total suffices for all."""
    least = {each.name: max(each.min_replicas, min(keeps.get(each.name, 0), each.max_replicas)) for each in members}
    if not keeps or sum(least.values()) > total:
        return members
    return [structs.replace(each, min_replicas=least[each.name]) for each in members]


def _weighted(total: int, members: Sequence[FleetCluster]) -> dict[str, int]:
    """Divide what is at least the sum of the minimums: members whose quota is out of bounds get the bound first."""
    shares: dict[str, int] = {}
    free, rest = list(members), min(total, sum([each.max_replicas for each in members]))
    while free:
        weights = sum([each.weight for each in free])
        low = [each for each in free if rest * each.weight < each.min_replicas * weights]
        high = [each for each in free if rest * each.weight > each.max_replicas * weights]
        # Both bounds are missed by so many replicas in all (times the weights); the side that misses more is settled.
        short = sum([each.min_replicas * weights - rest * each.weight for each in low])
        over = sum([rest * each.weight - each.max_replicas * weights for each in high])
        if not low and not high:
            return shares | largest_remainder(rest, {each.name: each.weight for each in free})
        bound = {each.name: each.min_replicas for each in low} if short >= over else {}
        bound |= {each.name: each.max_replicas for each in high} if over >= short else {}
        shares |= bound
        rest -= sum(bound.values())
        free = [each for each in free if each.name not in bound]
    return shares


def largest_remainder(total: int, weights: Shares) -> dict[str, int]:
    """Divide `total` in proportion to the weights; what whole numbers leave goes to the largest remainders.

    Equal remainders go by name. Without any weight no member gets anything.
    """
    weight_sum = sum(weights.values())
    if not weight_sum:
        return dict.fromkeys(weights, 0)
    given = {name: total * weight // weight_sum for name, weight in weights.items()}
    order = sorted(weights, key=lambda name: (-(total * weights[name] % weight_sum), name))
    for name in order[: total - sum(given.values())]:
        given[name] += 1
    return given


def settle(
    total: int, members: Sequence[FleetCluster], present: Shares, strategy: Strategy = "Weighted"
) -> dict[str, int]:
    """Divide `total` with the fewest moves: what is added goes to members below the division, what is taken comes from
    members above it, each in proportion to its distance, and nothing else moves.

    `present`: shares of now; one that is missing is 0, one out of bounds is brought within them first.
    """
    wanted = divide(total, members, strategy)
    shares = {each.name: min(max(present.get(each.name, 0), each.min_replicas), each.max_replicas) for each in members}
    change = sum(wanted.values()) - sum(shares.values())
    if change >= 0:
        more = largest_remainder(change, {name: max(0, wanted[name] - shares[name]) for name in shares})
        return {name: shares[name] + more[name] for name in shares}
    less = largest_remainder(-change, {name: max(0, shares[name] - wanted[name]) for name in shares})
    return {name: shares[name] - less[name] for name in shares}


class Divided(Struct, frozen=True):
    """A division. `differs_since_ms`: since when it has not been the one that the spec asks for; None: it is."""

    shares: dict[str, int]
    differs_since_ms: int | None = None


def next_division(
    total: int,
    members: Sequence[FleetCluster],
    spec: FleetSpec,
    before: Divided,
    now_ms: int,
    keeps: Shares = NO_SHARES,
) -> Divided:
    """Divide `total` after `before`, at `now_ms`: a change of the total is settled, and a division that has differed
    from the spec's for `rebalance_after_ms` becomes that one.

    Args:
        members: those clusters of the spec that take part.
        keeps: what is not taken from a cluster where the total falls; where the division is made as the spec asks for,
            the weights alone say what each has.
    """
    wanted = divide(total, members, spec.strategy)
    falls = total < sum([before.shares.get(each.name, 0) for each in members])
    keeping = _keeping(total, members, keeps) if falls else members
    shares = settle(total, keeping, before.shares, spec.strategy)
    if shares == wanted:
        return Divided(shares)
    since_ms = now_ms if before.differs_since_ms is None else before.differs_since_ms
    if now_ms - since_ms >= spec.rebalance_after_ms:
        return Divided(wanted)
    return Divided(shares, since_ms)


RETRY_MS: Final = 600_000
"""A cap is raised at most once in this time."""


ROOM: Final = MemberRoom()
"""Nothing is known against a member."""


def next_room(room: MemberRoom, replicas: int, waiting: int, after_ms: int, now_ms: int) -> MemberRoom:
    """Return what is known of a member's room after a report.

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
    """Return it while all pods have nodes."""
    if room.cap == NO_CAP or now_ms - room.capped_ms < RETRY_MS:
        return structs.replace(room, waits_since_ms=0)
    if not room.is_tried:
        return MemberRoom(0, room.cap + 1, now_ms, is_tried=True)
    return ROOM if replicas >= room.cap else structs.replace(room, waits_since_ms=0)


def capped(total: int, members: Sequence[FleetCluster], caps: Shares) -> list[FleetCluster]:
    """Return the members with bounds that leave each what it has room for.

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
    """Return the caps that there are."""
    return {name: room.cap for name, room in rooms.items() if room.cap != NO_CAP}

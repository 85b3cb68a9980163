"""The division of a total among the members of a group: bounds first, then weights, and moves only where it pays.

All of it is whole numbers and deterministic: ties go by name.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from schemas.observed import FleetCluster, FleetSpec

Strategy = Literal["Weighted", "Ordered"]
Shares = Mapping[str, int]
"""Replicas of each member, by name."""

UNLIMITED: Final = 2**31 - 1


def contradiction(members: Sequence[FleetCluster], least: int, most: int) -> str:
    """Say how the clusters' bounds contradict each other or those of the whole; empty: they do not."""
    names = [each.name for each in members]
    if not names:
        return "spec.clusters names no cluster"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"spec.clusters names {twice[0]} twice"
    for each in members:
        if each.min_replicas > each.max_replicas:
            return (
                f"spec.clusters: {each.name} has minReplicas {each.min_replicas} above its maximum {each.max_replicas}"
            )
    floor, roof = sum([each.min_replicas for each in members]), sum([each.max_replicas for each in members])
    if floor > most:
        return f"the clusters' minReplicas add up to {floor}, above spec.maxReplicas {most}"
    if roof < least:
        return f"the clusters' maxReplicas add up to {roof}, below spec.minReplicas {least}"
    return ""


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
    whole = sum(weights.values())
    if not whole:
        return dict.fromkeys(weights, 0)
    given = {name: total * weight // whole for name, weight in weights.items()}
    order = sorted(weights, key=lambda name: (-(total * weights[name] % whole), name))
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
    total: int, members: Sequence[FleetCluster], spec: FleetSpec, before: Divided, now_ms: int
) -> Divided:
    """Divide `total` after `before`, at `now_ms`: a change of the total is settled, and a division that has differed
    from the spec's for `rebalance_after_ms` becomes that one. `members`: those clusters of the spec that take part.
    """
    wanted = divide(total, members, spec.strategy)
    shares = settle(total, members, before.shares, spec.strategy)
    if shares == wanted:
        return Divided(shares)
    since_ms = now_ms if before.differs_since_ms is None else before.differs_since_ms
    if now_ms - since_ms >= spec.rebalance_after_ms:
        return Divided(wanted)
    return Divided(shares, since_ms)

"""What the other clusters of a FleetHPA could have if one were away now and its load went to them."""

from collections.abc import Mapping

from msgspec import Struct

from schemas.observed import FleetSpec
from streams.across.division import capped, settle


class WithoutCluster(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer. `needed`: what the load of all clusters takes. `may_have`: the most that the others may have.

    `shares`: of each of them. `missing`: what no share is left for.
    """

    needed: int
    may_have: int
    shares: dict[str, int]
    missing: int


def without_cluster(
    spec: FleetSpec,
    away: str,
    maximum: int,
    needed: int,
    had: Mapping[str, int],
    *,
    is_spilled: bool,
    caps: Mapping[str, int],
    gone: Mapping[str, int],
) -> WithoutCluster:
    """Say what the others get once `away` does not answer any more.

    Args:
        maximum: of the whole.
        needed: replicas that the load of all clusters takes.
        had: replicas of each cluster now.
        is_spilled: what the cluster has counts no longer.
        caps: what clusters have nodes for, where that is less than their share.
        gone: what counts of clusters that are away already.
    """
    members = [each for each in spec.clusters if each.name != away and each.name not in gone]
    held = sum(gone.values()) + (0 if is_spilled else had.get(away, 0))
    least, most = sum([each.min_replicas for each in members]), sum([each.max_replicas for each in members])
    may_have = min(most, max(maximum - held, least))
    total = min(needed, may_have)
    now = {each.name: had.get(each.name, 0) for each in members}
    shares = settle(total, capped(total, members, caps), now, spec.strategy)
    return WithoutCluster(
        needed=needed, may_have=may_have, shares=shares, missing=max(0, needed - sum(shares.values()))
    )

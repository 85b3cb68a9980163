"""What replicas cost: the prices that the settings of clusters have, of one replica per hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from fleethpa.fleet.views import FleetState
from fleethpa.frame.session import Session
from fleethpa.show.words import listed
from schemas.settings import ClusterSettings, parse_price, settings_of


def price_of(settings: Mapping[str, ClusterSettings], cluster: str) -> Decimal | None:
    """The price of a replica-hour in a cluster: its own, else that of `*`; None: there is none."""
    text = settings_of(settings, cluster).price
    return None if text is None else parse_price(text)


def price_for(
    session: Session, given: Decimal | None, settings: Mapping[str, ClusterSettings], clusters: Iterable[str]
) -> Decimal | None:
    """The price of a replica-hour in a report over some clusters: the given one, else the one that all of them have.

    None: they have none, or different ones, which a remark on stderr names.
    """
    if given is not None:
        return given
    found = {cluster: price_of(settings, cluster) for cluster in sorted(clusters)}
    prices = set(found.values())
    if len(prices) > 1:
        named = [f"{cluster} {'none' if price is None else price}" for cluster, price in found.items()]
        session.note(
            f"no costs are shown, for the clusters have different prices: {listed(named)}; "
            "--price sets one for all of them"
        )
    return prices.pop() if len(prices) == 1 else None


def cost_per_hour(state: FleetState) -> Decimal | None:
    """What the present replicas of all HPAs cost per hour, in the clusters that have a price; None: none has one."""
    prices = {cluster: price_of(state.settings, cluster) for cluster in {hpa.cluster for hpa in state.hpas}}
    costs = [
        price * (view.status.get("currentReplicas") or 0)
        for hpa, view in state.hpas.items()
        if (price := prices[hpa.cluster]) is not None and view.fleet is None  # its clusters have the replicas
    ]
    return sum(costs, Decimal(0)) if costs else None

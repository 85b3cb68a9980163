"""What replicas cost: the prices that the settings of clusters have, of one replica per hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from schemas.settings import ClusterSettings, parse_price, settings_of

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState, HpaView


def price_of(settings: Mapping[str, ClusterSettings], cluster: str) -> Decimal | None:
    """The price of a replica-hour in a cluster: its own, else that of `*`; None: there is none."""
    text = settings_of(settings, cluster).price
    return None if text is None else parse_price(text)


def common_price(state: FleetState, views: Iterable[HpaView]) -> Decimal | None:
    """The price of a replica-hour of some HPAs; None: there is none, or their clusters have different ones."""
    found = {price_of(state.settings, cluster) for cluster in {view.id.cluster for view in views}}
    return found.pop() if len(found) == 1 else None


def cost_per_hour(state: FleetState) -> Decimal | None:
    """What the present replicas of all HPAs cost per hour, in the clusters that have a price; None: none has one."""
    prices = {cluster: price_of(state.settings, cluster) for cluster in {hpa.cluster for hpa in state.hpas}}
    costs = [
        price * (view.status.get("currentReplicas") or 0)
        for hpa, view in state.hpas.items()
        if (price := prices[hpa.cluster]) is not None
    ]
    return sum(costs, Decimal(0)) if costs else None

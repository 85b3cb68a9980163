"""What replicas cost, by the prices that the settings of clusters have."""

from decimal import Decimal
from typing import Any

import pytest

from fleethpa.fleet.prices import common_price, cost_per_hour
from fleethpa.fleet.views import FleetState, HpaView
from schemas.keys import HpaId
from schemas.settings import ClusterSettings, parse_price


def _state(**prices: str) -> FleetState:
    """Three HPAs in two clusters; `every`: the price of `*`."""
    names = {"every": "*"}
    state = FleetState(settings={names.get(name, name): ClusterSettings(price=text) for name, text in prices.items()})
    for cluster, name, replicas in (("east", "web", 3), ("east", "api", None), ("west", "web", 5)):
        hpa: dict[str, Any] = {"spec": {}, "status": {} if replicas is None else {"currentReplicas": replicas}}
        state.hpas[HpaId(cluster, "shop", name)] = HpaView(HpaId(cluster, "shop", name), hpa, "enforce", "central", 0)
    return state


@pytest.mark.parametrize(
    ("state", "price", "per_hour"),
    [
        pytest.param(_state(), None, None, id="no price is known"),
        pytest.param(_state(every="0.04"), Decimal("0.04"), Decimal("0.32"), id="one for all"),
        pytest.param(_state(every="0.04", west="1"), None, Decimal("5.12"), id="a cluster has its own"),
        pytest.param(_state(west="1"), None, Decimal(5), id="one cluster has none"),
        pytest.param(_state(every="0"), Decimal(0), Decimal(0), id="free is a price"),
    ],
)
def test_what_the_present_replicas_cost(state: FleetState, price: Decimal | None, per_hour: Decimal | None) -> None:
    assert common_price(state, state.hpas.values()) == price
    assert cost_per_hour(state) == per_hour


@pytest.mark.parametrize("text", ["", "-1", "1e3", "NaN", "0.04/h", "40m", "1" * 10, "٣"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, match="is not a price per replica-hour"):
        parse_price(text)

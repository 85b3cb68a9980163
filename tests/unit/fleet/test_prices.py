"""What replicas cost, by the prices that the settings of clusters have."""

from decimal import Decimal
from typing import Any

import pytest

from fleethpa.fleet.views import FleetState, HpaView, cost_per_hour, price_for
from fleethpa.frame.session import Session
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
    ("state", "price", "remark", "per_hour"),
    [
        pytest.param(_state(), None, "", None, id="no price is known"),
        pytest.param(_state(every="0.04"), Decimal("0.04"), "", Decimal("0.32"), id="one for all"),
        pytest.param(
            _state(every="0.04", west="1"), None, "east 0.04, west 1;", Decimal("5.12"), id="a cluster has its own"
        ),
        pytest.param(_state(west="1"), None, "east none, west 1;", Decimal(5), id="one cluster has none"),
        pytest.param(_state(every="0"), Decimal(0), "", Decimal(0), id="free is a price"),
    ],
)
def test_what_the_present_replicas_cost(
    state: FleetState, price: Decimal | None, remark: str, per_hour: Decimal | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert price_for(None, state.settings, {"west", "east"}, Session().note) == price
    written = capsys.readouterr().err
    assert remark in written if remark else not written
    assert cost_per_hour(state) == per_hour


def test_a_price_that_is_given_counts_for_clusters_with_different_ones(capsys: pytest.CaptureFixture[str]) -> None:
    settings = _state(every="0.04", west="1").settings
    assert price_for(Decimal(0), settings, {"west", "east"}, Session().note) == 0
    assert not capsys.readouterr().err


def test_an_hpa_that_is_gone_keeps_the_price_of_its_cluster() -> None:
    state = FleetState(settings={"east": ClusterSettings(price="0.04")})
    assert price_for(None, state.settings, {"east"}, Session().note) == Decimal("0.04")


def test_a_remark_names_some_clusters_only(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {f"c{number}": ClusterSettings(price=str(number)) for number in range(8)}
    assert price_for(None, settings, settings, Session().note) is None
    assert "c4 4 and 3 more; --price" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "-1", "1e3", "NaN", "0.04/h", "40m", "1" * 10, "٣"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, match="is not a price per replica-hour"):
        parse_price(text)

"""fleethpa's own annotations of an HPA are shown as they were last seen, though its spec is older."""

from __future__ import annotations

import pytest

from fleethpa.fleet.state import read_state
from schemas.keys import HpaId
from schemas.observed import AutoscalerList
from tests.kit.cli import Fleet, hpa

OTHER = {"example.com/owner": "shop"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"fleethpa.io/units": "gpu=2"}, id="set"),
        pytest.param({"fleethpa.io/units": "gpu=2"}, {"fleethpa.io/units": "gpu=4"}, id="changed"),
        pytest.param({"fleethpa.io/budget": "2/10m"}, {}, id="removed"),
    ],
)
async def test_a_change_of_an_annotation_alone_is_shown(before: dict[str, str], after: dict[str, str]) -> None:
    fleet = Fleet()
    fleet.settle()
    for number, own in enumerate((before, after)):
        manifest = hpa()
        manifest["metadata"]["annotations"] = OTHER | own
        # The second one has the same spec, and changes the annotation alone.
        manifest["metadata"]["generation"] = 2
        manifest["spec"]["maxReplicas"] = 21
        fleet.append(AutoscalerList(list_id=str(number), hpas=[manifest], session="s"))
    fleet.checkpoint()
    shown = (await read_state(fleet.past())).hpas[HpaId("east", "shop", "checkout")].hpa["metadata"]["annotations"]
    assert shown == OTHER | after

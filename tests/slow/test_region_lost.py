"""A FleetHPA over two simulated clusters under all parts of fleethpa: load moves, a region is lost and comes back."""

import time
from pathlib import Path

import pytest

from fleethpa.lab.demo.stack import Stack, StackPlan
from tests.kit.region import FLEET_MANIFEST, MOST, SETTINGS, Region, ask, until_clusters_are_known, until_shown
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LOST = r"\n  west .* away, has (\d)(?:, allotted (\d))?\n"


async def until_east_has_the_rest(stack: Stack, region: Region) -> None:
    """Wait until east has all that the maximum leaves beside what west has, or may have.

    A share that was on its way when the API was lost counts as well; and until its scales were not seen for 30 s, west
    may report between two evaluations, with pods without metrics, and get another one.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        lost = await until_shown(stack, LOST)
        left = MOST - max(int(each) for each in lost.groups() if each is not None)
        why = await ask(stack, "explain", "@fleet/shop/cart")
        if region.replicas[0] == left and f"… {left}: maxReplicas limits" in why:
            return
        assert time.monotonic() < deadline, why


async def test_a_region_is_lost_and_the_other_takes_over_within_the_maximum(tmp_path: Path) -> None:
    region = Region()
    async with Stack(StackPlan(tmp_path, fleet=region.fleet, settings=SETTINGS)) as stack:
        await until_clusters_are_known(stack)
        await ask(stack, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=FLEET_MANIFEST)

        region.load(600, 150)  # 750 units need 10 pods: the load of one cluster makes replicas in both
        await region.until(lambda found: sum(found) >= 10 and abs(found[0] - found[1]) <= 1, "divided by the weights")
        await until_shown(stack, r"\n  east .* has \d\n  west .* has \d\n.*\n.*\n.* within tolerance")

        await region.fleet["west"].stop_api(abort=True)
        await until_shown(stack, LOST)
        region.load(1_000, 0)  # needs 14 pods
        await until_east_has_the_rest(stack, region)

        await region.fleet["west"].start_api()
        region.load(350, 350)  # 700 units need 10 pods
        await region.until(lambda found: sum(found) == 10 and abs(found[0] - found[1]) <= 1, "divided again")
        east = await ask(stack, "explain", "east/shop/cart")
        assert "share of FleetHPA" in east
        assert "Would change the answer" not in east, "its own metrics would change nothing"
    assert region.highest <= MOST

"""A CapacityGroup over two simulated clusters under all parts of fleethpa: what both add stays within its limit, as two
HPAs and as one FleetHPA.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import orjson
import pytest

from fleethpa.lab.demo.stack import Stack, StackPlan
from tests.kit.region import FLEET_MANIFEST, SETTINGS, Region, ask, until_clusters_are_known, until_shown
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LIMIT: Final = 7
WANTED: Final = 6
"""Replicas that each of the two HPAs wants of the load."""
HPA: Final = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cart, namespace: shop, labels: {team: search}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  minReplicas: 1
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
"""
GROUP: Final = f"""
apiVersion: fleethpa.io/v1alpha1
kind: CapacityGroup
metadata: {{name: search}}
spec:
  selector: {{matchLabels: {{team: search}}}}
  namespaces: ['*']
  limit: {{replicas: {LIMIT}}}
"""


async def until_both_are_held(stack: Stack) -> None:
    """Wait until the group has cut the newest decision of each HPA because its limit is used up."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        items = orjson.loads(await ask(stack, "get", "hpa", "-n", "shop", "-o", "json"))["items"]
        texts = [" ".join(each["problems"]) for each in items]
        held = [text for text in texts if "CapacityGroup search" in text]
        if len(held) == 2:
            return
        assert time.monotonic() < deadline, texts
        await asyncio.sleep(0.2)


async def test_what_two_hpas_add_stays_within_the_limit_until_the_group_is_deleted(tmp_path: Path) -> None:
    region = Region()
    async with Stack(StackPlan(tmp_path, fleet=region.fleet, settings=SETTINGS)) as stack:
        await until_clusters_are_known(stack)
        await ask(stack, "apply", "-f", "-", "-C", "east,west", "--mode", "enforce", "--yes", stdin=f"{HPA}---{GROUP}")

        region.load(420, 420)
        # A new group allots nothing for its first 75 s.
        await region.until(lambda found: sum(found) == LIMIT, "the limit is used")
        assert min(region.replicas) >= LIMIT // 2, "equal HPAs get equal parts"
        await until_both_are_held(stack)
        for cluster in ("east", "west"):
            why = await ask(stack, "explain", f"{cluster}/shop/cart")
            assert f"CapacityGroup search leaves no more: its limit is {LIMIT} replicas" in why, why
        page = await ask(stack, "capacity", "describe", "search")
        assert f"{LIMIT} replicas  {LIMIT} replicas" in page, page
        await region.until(lambda found: sum(found) == LIMIT, "still within the limit")
        assert region.highest == LIMIT

        await ask(stack, "capacity", "delete", "search", "--yes")
        await region.until(lambda found: found == (WANTED, WANTED), "both have what they want")


async def test_the_clusters_of_a_fleet_hpa_share_what_the_limit_leaves(tmp_path: Path) -> None:
    region = Region()
    manifest = FLEET_MANIFEST.replace("namespace: shop}", "namespace: shop, labels: {team: search}}")
    async with Stack(StackPlan(tmp_path, fleet=region.fleet, settings=SETTINGS)) as stack:
        await until_clusters_are_known(stack)
        await ask(stack, "apply", "-f", "-", "--mode", "enforce", "--yes", stdin=f"{manifest}---{GROUP}")

        region.load(600, 150)  # 750 units need 10 replicas, 5 in each cluster
        await region.until(lambda found: sum(found) == LIMIT, "the limit is used")
        assert min(region.replicas) >= LIMIT // 2, "both clusters have their part of it"
        await until_both_are_held(stack)
        await until_shown(stack, "(?s)has 3.*has 4|has 4.*has 3", "explain")
        assert region.highest == LIMIT

        region.load(140, 140)  # 280 units need 4 replicas
        await region.until(lambda found: found == (2, 2), "divided by the weights")
        region.load(700, 0)  # 9.4 replicas
        await region.until(lambda found: sum(found) == LIMIT, "the limit is used again")
        assert min(region.replicas) >= LIMIT // 2, "additions are divided although the load is in one cluster"
        assert region.highest == LIMIT

        await ask(stack, "capacity", "delete", "search", "--yes")
        await region.until(lambda found: found == (5, 5), "both have their share")

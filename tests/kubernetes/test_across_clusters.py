"""A FleetHPA over two real clusters: an agent in one, a kubeconfig for the other, whose API server is killed."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.clusters.manifests import AGENT, AgentPlace, agent_manifests
from schemas.agents import AgentSet
from tests.kubernetes.agents import AgentReplicas, register
from tests.kubernetes.backend import Demand
from tests.kubernetes.hub import HOME, SAME_SETTINGS, USER, Hub, admit, write_kubeconfig
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, deployment, namespace
from tests.patience import PATIENCE_S

Json = dict[str, Any]

MOST: Final = 12
FIRST: Final = 2
"""Replicas in each cluster at the beginning."""
KILLED_S: Final = 120.0
EAST: Final = AgentSet(cluster="east", incarnation=3)
AGENT_USER: Final = f"system:serviceaccount:{HOME}:{AGENT}"
WHOLE: Final = f"@fleet/{NAMESPACE}/web"
FLEET: Final = {
    "apiVersion": "fleethpa.io/v1alpha1",
    "kind": "FleetHPA",
    "metadata": {"name": "web", "namespace": NAMESPACE},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": MOST,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        "clusters": [{"name": "east", "minReplicas": 1}, {"name": "west", "minReplicas": 1}],
        "placement": {"rebalanceAfter": "10s"},
    },
}


class Across:
    """Both clusters, and the hub, which has access to west only."""

    def __init__(self, sites: dict[str, Site], hub: Hub) -> None:
        self.sites, self.hub = sites, hub

    def demand(self, east: int, west: int) -> None:
        """CPU (millicores) that all pods of a cluster use together; 100 is right for a pod."""
        for name, milli in (("east", east), ("west", west)):
            self.sites[name].backend.demands[NAMESPACE, "web"] = Demand(cpu_milli=milli)

    def replicas(self, *names: str) -> tuple[int, ...]:
        return tuple(self.sites[name].replicas(NAMESPACE, "deployment", "web") for name in names)

    def until(self, found: Any, what: str, timeout_s: float = PATIENCE_S) -> None:
        try:
            until(found, what, timeout_s)
        except AssertionError as error:
            page = self.hub.run("describe", WHOLE, codes=(0, 5))
            raise AssertionError(f"{error}\n{page}\n{self.hub.tails()}") from error

    def totals(self) -> list[int]:
        """The replicas of both clusters after each write that the audit logs have, in the order of their times."""
        writes = [
            (event["stageTimestamp"], name, event["requestObject"]["spec"]["replicas"])
            for name, user in (("east", AGENT_USER), ("west", USER))
            for event in self.sites[name].plane.audit(user)
            if event.get("objectRef", {}).get("subresource") == "scale"
            and event["verb"] == "update"
            and event.get("responseStatus", {}).get("code") == 200
        ]
        now, found = {"east": FIRST, "west": FIRST}, []
        for _, name, replicas in sorted(writes):
            now[name] = replicas
            found.append(sum(now.values()))
        return found


@pytest.fixture(scope="module")
def across(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Across]:
    folder = tmp_path_factory.mktemp("across")
    with ExitStack() as stack:
        sites = {
            name: stack.enter_context(Site(name, folder / name, binaries, native=False)) for name in ("east", "west")
        }
        with ThreadPoolExecutor() as together:
            list(together.map(_furnish, sites.values()))
        token = folder / "west.token"
        hub = stack.enter_context(Hub(folder / "hub", write_kubeconfig(folder / "kubeconfig", {token: sites["west"]})))
        made = Across(sites, hub)
        made.demand(200, 200)
        admit(sites["west"], hub.run("admin", "clusters", "rbac", "--enforce"), token)
        sites["east"].plane.apply(agent_manifests(AgentPlace(topics=EAST.topics, image="fleethpa:0")))
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.run("settings", "*", *SAME_SETTINGS, "native-controller=absent", "--yes", "--wait", "30s")
        register(hub, EAST)
        for name, site in sites.items():
            hub.run("settings", name, f"cluster-uid={uid_of(site)}", "--yes", "--wait", "30s")
        for part in ("decider --session-timeout 10", "router", "observer", "reconciler"):
            hub.start(*part.split())
        of_agent = folder / "east.token"
        of_agent.write_text(sites["east"].plane.kubectl("create", "token", AGENT, "-n", HOME))
        AgentReplicas(hub, EAST, write_kubeconfig(folder / "of-agent", {of_agent: sites["east"]})).start()
        until(
            lambda: [each["state"] for each in hub.items("get", "clusters")] == ["up"] * 2, "both clusters are up", 90.0
        )
        (folder / "fleet.json").write_text(json.dumps(FLEET))
        hub.run("apply", "-f", str(folder / "fleet.json"), "--mode", "enforce", "--yes", "--wait", "30s")
        yield made


TOO_OLD: Final = "the API server has not shown that it is this cluster's for more than 30s"


def uid_of(site: Site) -> str:
    return site.plane.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")


def _furnish(site: Site) -> None:
    site.plane.apply([namespace(), deployment("web", FIRST)])


def test_an_api_server_is_killed_and_the_total_stays_within_the_maximum(across: Across) -> None:
    across.demand(700, 200)
    across.until(lambda: across.replicas("east", "west") in ((5, 4), (4, 5)), "9 replicas, divided by the weights")
    (share_of_west,) = across.replicas("west")

    across.sites["west"].plane.kill_api_server()
    killed = time.monotonic()
    # Before west is away, it is allotted its part of what is added, which counts from then on.
    across.until(
        lambda: f"away, has {share_of_west}" in across.hub.run("describe", WHOLE, codes=(0, 5)), "west is away"
    )
    across.demand(2_000, 200)  # east alone asks for more than the maximum
    across.until(lambda: across.replicas("east") == (MOST - share_of_west,), "east has what the maximum leaves")
    until(lambda: time.monotonic() - killed > KILLED_S, "two minutes are over", KILLED_S + 10, every_s=2.0)
    assert across.replicas("east") == (MOST - share_of_west,)

    across.sites["west"].plane.start_api_server()
    assert across.replicas("west") == (share_of_west,)
    across.demand(600, 600)
    across.until(lambda: across.replicas("east", "west") == (6, 6), "12 replicas, divided again", 180.0)
    totals = across.totals()
    assert max(totals) == MOST, "the maximum was reached, and never exceeded"
    assert totals[-1] == 12


def test_the_share_of_each_cluster_is_explained(across: Across) -> None:
    assert "share of FleetHPA" in across.hub.run("explain", f"west/{NAMESPACE}/web")
    whole = across.hub.run("explain", WHOLE)
    assert whole.count("has 6") == 2


def test_a_cluster_that_is_not_the_one_that_was_stated_is_neither_observed_nor_written(across: Across) -> None:
    hub, sites = across.hub, across.sites
    before = across.replicas("east", "west")
    for name, other in (("east", "west"), ("west", "east")):
        hub.run("settings", name, f"cluster-uid={uid_of(sites[other])}", "--yes", "--wait", "30s")
    refused = [f"its namespace kube-system has UID {uid_of(sites[name])}" for name in ("east", "west")]
    across.until(
        lambda: all(text in hub.run("doctor", codes=(0, 1)) for text in refused), "both are refused, with their UIDs"
    )
    across.demand(1_000, 100)
    across.until(lambda: TOO_OLD in hub.run("explain", f"west/{NAMESPACE}/web"), "what was seen before is too old")
    assert across.replicas("east", "west") == before
    for name, site in sites.items():
        hub.run("settings", name, f"cluster-uid={uid_of(site)}", "--yes", "--wait", "30s")
    across.until(lambda: across.replicas("east", "west") != before, "both are scaled again", 180.0)

"""An agent in a real cluster: two replicas with the access that `admin clusters add` prints, one of them killed."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from reconciler.clusters.manifests import AGENT, AgentPlace, agent_manifests
from schemas.agents import AgentSet
from tests.kubernetes.access import granted, refused, used
from tests.kubernetes.agents import REPLICAS, AgentReplicas, register
from tests.kubernetes.backend import Demand
from tests.kubernetes.containers import missing_tools
from tests.kubernetes.controlplane import SYNC_PERIOD_S
from tests.kubernetes.hub import HOME, SAME_SETTINGS, Hub, write_kubeconfig
from tests.kubernetes.manifests import RELEASE, render
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import (
    NAMESPACE,
    WIDGETS,
    definition,
    deployment,
    external,
    hpa,
    namespace,
    resource,
    widget,
)

Json = dict[str, Any]

CLUSTER: Final = "prod-eu"
AGENT_SET: Final = AgentSet(cluster=CLUSTER, incarnation=7)
USER: Final = f"system:serviceaccount:{HOME}:{AGENT}"
CHART_HOME: Final = "fleethpa-by-chart"
CHART_USER: Final = f"system:serviceaccount:{CHART_HOME}:{RELEASE}"
_AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}
WEB, SORTER, API = "deployment/web", f"{WIDGETS}/sorter", "deployment/api"


class Member:
    """The cluster, the hub without any credentials of it, and the agent's two replicas."""

    def __init__(self, site: Site, hub: Hub, manifests: list[Json], agents: AgentReplicas) -> None:
        self.site, self.hub, self.manifests, self.agents = site, hub, manifests, agents

    def demand(self, percent: int) -> None:
        """At 100 two replicas are right for each HPA, at 200 four, and so on."""
        self.site.backend.demands[NAMESPACE, "web"] = Demand(cpu_milli=max(0, 2 * percent - 10))
        self.site.backend.demands[NAMESPACE, "api"] = Demand(cpu_milli=max(0, 2 * percent - 10))
        self.site.backend.external[NAMESPACE, "queue"] = 2 * percent

    def settle(self, percent: int) -> None:
        self.demand(percent)
        right = {0: 1, 100: 2, 200: 4, 400: 8}[percent]
        for target in (WEB, SORTER, API):
            try:
                until(partial(self._has, target, right), f"{target} has {right} replicas", 120.0)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.hub.tails()}") from error

    def reasons(self) -> set[str]:
        """Reasons of the Events of the HPAs."""
        return {event["reason"] for event in self.site.plane.objects("events", NAMESPACE)}

    def _has(self, target: str, replicas: int) -> bool:
        kind, _, name = target.partition("/")
        return self.site.replicas(NAMESPACE, kind, name) == replicas


@pytest.fixture(scope="module")
def member(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    folder = tmp_path_factory.mktemp("agent")
    with ExitStack() as stack:
        site = stack.enter_context(Site(CLUSTER, folder / CLUSTER, binaries, native=False, runs_fleethpa=True))
        # The hub's kubeconfig has no cluster at all.
        (folder / "none").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": []}))
        hub = stack.enter_context(Hub(folder / "hub", folder / "none"))
        token = folder / "token"
        place = AgentPlace(topics=AGENT_SET.topics, image="fleethpa:0", custom=(WIDGETS,))
        agents = AgentReplicas(hub, AGENT_SET, write_kubeconfig(folder / "kubeconfig", {token: site}))
        made = Member(site, hub, agent_manifests(place), agents)
        made.demand(100)
        _furnish(site)
        site.plane.apply(made.manifests)
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.run("settings", "*", *SAME_SETTINGS, "--yes", "--wait", "30s")
        register(hub, AGENT_SET)
        hub.run("settings", CLUSTER, "default-mode=enforce", "--yes", "--wait", "30s")
        hub.start("decider", "--session-timeout", "10")
        hub.start("router")
        token.write_text(site.plane.kubectl("create", "token", AGENT, "-n", HOME))
        agents.start()
        yield made


def _furnish(site: Site) -> None:
    site.plane.apply([namespace(), definition(WIDGETS, "Widget"), definition("scaledobjects.keda.sh", "ScaledObject")])
    site.plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    site.plane.apply([deployment("web"), deployment("api"), widget("sorter")])
    cpu, queue = resource("cpu", averageUtilization=50), external("queue", averageValue="100")
    site.plane.apply(
        [
            hpa("web", cpu, behavior=_AT_ONCE),
            hpa("sorter", queue, target=("example.com/v1", "Widget"), behavior=_AT_ONCE),
        ]
    )


def test_the_agent_scales_what_the_hub_decides(member: Member, tmp_path: Path) -> None:
    central = hpa("api", resource("cpu", averageUtilization=50), behavior=_AT_ONCE)
    (tmp_path / "api.json").write_text(json.dumps(central))
    until(lambda: member.agents.leader(), "one replica leads", 60.0)
    until(lambda: {each["state"] for each in member.hub.items("get", "clusters")} == {"up"}, "the cluster is up", 60.0)
    by_admin = ("--kubeconfig", str(member.site.plane.kubeconfig), "--canary-wait", f"{2 * SYNC_PERIOD_S}s")
    member.hub.run("admin", "clusters", "prove-native-absent", CLUSTER, *by_admin, "--yes", "--wait", "30s")
    member.hub.run("apply", "-f", str(tmp_path / "api.json"), "-C", CLUSTER, "--mode", "enforce", "--yes")
    member.settle(200)
    # Status and Event are written after the scale.
    until(lambda: member.site.hpas(NAMESPACE)["web"]["status"].get("desiredReplicas") == 4, "the status has the scale")
    until(lambda: "SuccessfulRescale" in member.reasons(), "an Event has the scale")
    (shown,) = member.hub.items("get", "clusters")
    assert shown["agent"] == AGENT_SET.incarnation


def test_the_other_replica_goes_on_when_the_leader_is_killed(member: Member) -> None:
    first = member.agents.leader()
    member.hub.parts[first].kill()
    until(lambda: member.agents.leader() not in ("", first), "the other replica leads", 60.0)
    member.settle(400)
    member.settle(0)


def test_nothing_is_refused_and_it_asks_for_nothing_that_is_not_granted(member: Member) -> None:
    events = list(member.site.plane.audit(USER))
    assert refused(events) == []
    roles = [each for each in member.manifests if each["kind"] in ("Role", "ClusterRole")]
    assert used(events) - granted(roles) == set()
    assert ("coordination.k8s.io", "leases", "update") in used(events)


def test_the_api_server_takes_the_manifests_as_they_are_printed(member: Member) -> None:
    (found,) = member.site.plane.objects("deployments", HOME)
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:4] == ["run", "agent", "--in-cluster", CLUSTER]


@pytest.mark.skipif(bool(missing_tools()), reason=f"CHART NOT TESTED: {missing_tools()}")
def test_the_chart_installs_an_agent_that_works_with_what_the_chart_grants(member: Member, helm: str) -> None:
    """Its pods run with the rendered arguments, variables, files and service account, and nothing else."""
    plane, parts = member.site.plane, member.hub.parts
    for name in REPLICAS:
        parts.pop(name).kill()
    plane.kubectl("delete", "namespace", HOME, "--wait=false")
    values = [f"clusters.inCluster={CLUSTER}", f"agent.incarnation={AGENT_SET.incarnation}"]
    values += [f"clusters.customResources={{{WIDGETS}}}", "kafka.securityProtocol=PLAINTEXT", "kafka.caSecret="]
    values += ["clusters.enforce=true"]
    values += [f"kafka.bootstrapServers={member.hub.environ['FLEETHPA_BROKERS']}", "agent.extraArgs={--local-clock}"]
    rendered = render(helm, "mode=agent", *values, namespace=CHART_HOME)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CHART_HOME, "labels": restricted}}])
    plane.apply([each | {"metadata": {"namespace": CHART_HOME} | each["metadata"]} for each in rendered])
    try:
        member.settle(200)
    except AssertionError as error:
        assert member.site.containers is not None
        raise AssertionError(f"{error}\n{member.site.containers.log_of(RELEASE)}") from error
    events = list(plane.audit(CHART_USER))
    assert refused(events) == []
    roles = [each for each in rendered if each["kind"] in ("Role", "ClusterRole")]
    assert used(events) - granted(roles) == set()
    assert ("apps", "deployments/scale", "update") in used(events)

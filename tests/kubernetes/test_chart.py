"""The Helm chart on a real API server: every object is accepted there, and an uninstall leaves nothing."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from reconciler.clusters.manifests import AgentPlace, agent_manifests, inventory_manifests, manifests
from schemas.agents import AgentTopics
from tests.kubernetes.manifests import CHART, NAMESPACE, PLAIN, PLAIN_VALUES, RELEASE, render, sets
from tests.kubernetes.site import Site, until

Json = dict[str, Any]

EVERYTHING: Final = (
    "clusters.kubeconfigSecret=members",
    "clusters.contexts={east,west}",
    "clusters.enforce=true",
    "kafka.clientCertificateSecret=client",
    "strimzi.topics=true",
    "strimzi.users=true",
    "scheduler.enabled=true",
    "hubApi.enabled=true",
    "clusters.prometheusSecret=prometheus",
    "archive.claim=archive",
    "archive.keySecret=audit",
    "page.allowedHosts={fleet.example.com}",
    "monitoring.kind=PodMonitor",
    "monitoring.rules=true",
    "monitoring.kubeStateMetrics=true",
    "monitoring.dashboard=true",
    "networkPolicy.egress=true",
    "networkPolicy.from[0].namespaceSelector.matchLabels.team=platform",
    "image.pullSecrets={registry}",
    "pods.annotations.example\\.com/team=platform",
    "pods.labels.team=platform",
    "pods.nodeSelector.disk=ssd",
    "pods.priorityClassName=system-cluster-critical",
    "pods.tolerations[0].operator=Exists",
)
WRITES: Final = "clusters.enforce=true"
AGENT: Final = ("mode=agent", "agent.incarnation=3")
PROXY: Final = Path(__file__).parents[2] / "examples" / "oauth2-proxy"
VARIANTS: Final = {
    "hub": ("clusters.inCluster=home",),
    "hub that writes": ("clusters.inCluster=home", WRITES, "kafka.principals=shared"),
    "hub without clusters": (),
    "hub with everything": EVERYTHING,
    "hub behind oauth2-proxy": ("clusters.inCluster=home", str(PROXY / "values.yaml")),
    "hub with a ServiceMonitor": ("monitoring.kind=ServiceMonitor",),
    "hub that finds clusters": (
        "clusters.found.kubeconfigSecrets=kafka",
        "clusters.found.argocdClusters=shop",
        "clusters.found.clusterProfiles=shop",
        "clusters.found.providersConfigMap=providers",
        "clusters.found.execPlugins={argocd-k8s-auth}",
        "clusters.found.execEnv={AWS_PROFILE}",
        "clusters.found.insecureTLS=true",
    ),
    "agent": (*AGENT, "clusters.inCluster=east", WRITES, "networkPolicy.egress=true"),
    "agent without a stand-in": (*AGENT, "clusters.inCluster=east", WRITES, "agent.standIn=false"),
    "agent in shadow": (*AGENT, "clusters.inCluster=east"),
    "agent in one namespace": (*AGENT, "clusters.inCluster=east", WRITES, "clusters.namespaces={shop,office}"),
    "mutual TLS": ("kafka.securityProtocol=SSL", "kafka.clientCertificateSecret=client", "kafka.caSecret="),
}
_FOREIGN: Final = {
    "kafkatopics.kafka.strimzi.io": ("KafkaTopic", "v1"),
    "kafkausers.kafka.strimzi.io": ("KafkaUser", "v1"),
    "podmonitors.monitoring.coreos.com": ("PodMonitor", "v1"),
    "servicemonitors.monitoring.coreos.com": ("ServiceMonitor", "v1"),
    "prometheusrules.monitoring.coreos.com": ("PrometheusRule", "v1"),
}
"""Kinds of other projects: their names count here, their fields are taken as they come."""
_LABEL: Final = f"app.kubernetes.io/instance={RELEASE}"


@dataclass(frozen=True)
class Cluster:
    """A cluster to install in, and helm with its administrator's credentials."""

    site: Site
    helm_path: str
    folder: Path

    def helm(self, *arguments: str) -> str:
        """Run helm; what it printed.

        Raises:
            AssertionError: it failed; has what it printed.
        """
        environ = os.environ | {"KUBECONFIG": str(self.site.plane.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            [self.helm_path, *arguments], capture_output=True, text=True, env=environ, timeout=300, check=False
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def released(self) -> dict[tuple[str, str], Json]:
        """Every object of the release, by kind and name, pods and what helm itself stores included."""
        plane = self.site.plane
        kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        shown = [each for each in kinds if "metrics.k8s.io" not in each and not each.startswith("events")]
        ours = json.loads(plane.kubectl("get", ",".join(shown), "-A", "-l", _LABEL, "-o", "json"))["items"]
        stored = plane.objects("secrets", NAMESPACE)
        ours += [each for each in stored if each["metadata"].get("labels", {}).get("owner") == "helm"]
        return {(each["kind"], each["metadata"]["name"]): each for each in ours}


@pytest.fixture(scope="module")
def cluster(binaries: Path, helm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with namespaces that admit restricted pods only."""
    folder = tmp_path_factory.mktemp("chart")
    with Site("home", folder / "home", binaries, native=False) as site:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        site.plane.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": restricted}}
                for name in (NAMESPACE, "kafka", "shop", "office")
            ]
        )
        site.plane.apply([_open_definition(name, kind, version) for name, (kind, version) in _FOREIGN.items()])
        site.plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        yield Cluster(site, helm, folder)


def _open_definition(name: str, kind: str, version: str) -> Json:
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_helm_finds_nothing_wrong(cluster: Cluster, values: tuple[str, ...]) -> None:
    cluster.helm("lint", "--strict", str(CHART), *sets(values))


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_the_api_server_accepts_every_object(cluster: Cluster, values: tuple[str, ...]) -> None:
    documents = render(cluster.helm_path, *values)
    text = yaml.safe_dump_all(documents)
    done = cluster.site.plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert len(done.splitlines()) == len(documents)


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_the_api_server_accepts_the_plain_manifests(cluster: Cluster, name: str) -> None:
    cluster.site.plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(PLAIN / name))


@pytest.mark.parametrize(
    ("values", "enforce", "namespaces", "custom"),
    [
        pytest.param(("clusters.inCluster=home", WRITES), True, (), (), id="hub"),
        pytest.param(("clusters.inCluster=home",), False, (), (), id="shadow"),
        pytest.param(
            (*AGENT, WRITES, "agent.standIn=false", "clusters.inCluster=e", "clusters.namespaces={shop,office}"),
            True,
            ("shop", "office"),
            (),
            id="roles",
        ),
        pytest.param(
            ("clusters.inCluster=home", WRITES, "clusters.customResources={widgets.example.com,sets.a.b.io}"),
            True,
            (),
            ("widgets.example.com", "sets.a.b.io"),
            id="custom resources",
        ),
    ],
)
def test_the_permissions_are_those_that_the_command_prints(
    helm: str, values: tuple[str, ...], enforce: bool, namespaces: tuple[str, ...], custom: tuple[str, ...]
) -> None:
    granted = [document for document in render(helm, *values) if "Role" in document["kind"]]
    for document in granted:
        document["metadata"]["labels"] = {"app.kubernetes.io/name": "fleethpa"}
    granted = [document for document in granted if not document["metadata"]["name"].endswith("-lease")]
    granted.sort(key=_order)
    printed = manifests(enforce=enforce, namespaces=namespaces, custom=custom)
    assert granted == sorted(printed, key=_order)


def test_the_permissions_for_finding_clusters_are_those_that_the_command_prints(helm: str) -> None:
    documents = render(helm, *VARIANTS["hub that finds clusters"])
    granted = [document for document in documents if "Role" in document["kind"]]
    for document in granted:
        document["metadata"]["labels"] = {"app.kubernetes.io/name": "fleethpa"}
    printed = inventory_manifests(
        secrets=("kafka", "shop"), profiles=("shop",), service_account=RELEASE, home=NAMESPACE
    )
    assert sorted(granted, key=_order) == sorted(printed, key=_order)


def test_the_example_with_oauth2_proxy_is_accepted_and_the_page_believes_it_alone(cluster: Cluster, helm: str) -> None:
    plane = cluster.site.plane
    plane.kubectl("apply", "--dry-run=server", "-n", NAMESPACE, "-f", str(PROXY / "proxy.yaml"))
    rendered = render(helm, "clusters.inCluster=home", str(PROXY / "values.yaml"))
    found = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    (container,) = found["Deployment", "fleethpa-page"]["spec"]["template"]["spec"]["containers"]
    arguments = " ".join(container["args"])

    assert "--behind-proxy X-Forwarded-User --proxy-groups X-Forwarded-Groups" in arguments
    assert "--api in-cluster" in arguments
    assert "--token-file /etc/fleethpa/page/token" in arguments
    assert "--allowed-host fleethpa.example.com" in arguments
    (port,) = found["Service", "fleethpa-page"]["spec"]["ports"]
    assert port["port"] == 7080


def _order(document: Json) -> tuple[str, str]:
    """Helm sorts by kind and name."""
    return document["kind"], document["metadata"].get("namespace", "")


@pytest.mark.parametrize("namespaces", [(), ("shop", "office")])
def test_an_agent_is_installed_as_by_the_command(helm: str, namespaces: tuple[str, ...]) -> None:
    topics = AgentTopics("east", 3)
    printed = agent_manifests(AgentPlace(topics, "fleethpa:1", NAMESPACE, namespaces))
    listed = f"clusters.namespaces={{{','.join(namespaces)}}}" if namespaces else "rbac.create=true"
    rendered = render(helm, *AGENT, WRITES, "clusters.inCluster=east", listed)
    ours, theirs = (_by_kind(documents) for documents in (rendered, printed))
    assert ours["Deployment"][0]["spec"]["replicas"] == theirs["Deployment"][0]["spec"]["replicas"]
    pods = [each["Deployment"][0]["spec"]["template"]["spec"]["containers"][0] for each in (ours, theirs)]
    assert sorted(pods[0]["args"]) == sorted(pods[1]["args"])
    assert _permissions(ours) == _permissions(theirs)


def _permissions(found: dict[str, list[Json]]) -> set[tuple[str, ...]]:
    """What the roles allow, however they group it: namespace, API group, resource, verb, and the one name, if any."""
    return {
        (role["metadata"].get("namespace", ""), group, resource, verb, name)
        for role in (*found.get("Role", ()), *found.get("ClusterRole", ()))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_the_number_of_an_agents_topics_is_whole_also_from_a_file(helm: str, tmp_path: Path) -> None:
    """Helm reads numbers of a file as floating point: this one would become 1.795339151e+09."""
    values = {"mode": "agent", "clusters": {"inCluster": "east"}, "agent": {"incarnation": 1_795_339_151}}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    [deployment] = _by_kind(render(helm, str(path)))["Deployment"]
    assert "1795339151" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def _by_kind(documents: list[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for document in documents:
        found.setdefault(document["kind"], []).append(document)
    return found


def test_installed_changed_and_gone(cluster: Cluster) -> None:
    chart = ("--namespace", NAMESPACE, "--wait", "--timeout", "2m")
    before = cluster.released()
    assert before == {}
    cluster.helm("install", RELEASE, str(CHART), *chart, "--set", f"clusters.inCluster=home,{WRITES}")
    first = cluster.released()
    # The pods were admitted: they keep to the restricted Pod Security Standard.
    assert _pods(first) == {
        "decider": 2,
        "ingest": 2,
        "observer": 2,
        "page": 1,
        "reconciler": 2,
        "router": 2,
        "topics": 1,
    }
    [job] = [name for kind, name in first if kind == "Job"]

    changed = ("ingest.replicas=3", "page.enabled=false", "topics.partitions=48", "kafka.bootstrapServers=other:9093")
    sets = [word for value in changed for word in ("--set", value)]
    cluster.helm("upgrade", RELEASE, str(CHART), *chart, "--reuse-values", *sets)
    until(lambda: _pods(cluster.released()).get("ingest") == 3, "the third ingest", 60.0)
    second = cluster.released()
    assert ("Deployment", "fleethpa-page") not in second
    assert ("Service", "fleethpa-page") not in second
    assert [name for kind, name in second if kind == "Job"] != [job]
    servers = second["ConfigMap", "fleethpa-kafka"]["data"]["FLEETHPA_KAFKA_BOOTSTRAP_SERVERS"]
    assert servers == "other:9093"
    until(lambda: not _pod_names(first) & _pod_names(cluster.released()), "pods with the new connection", 60.0)

    cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "2m")
    until(lambda: cluster.released() == {}, "nothing is left", 60.0)


def _pods(released: dict[tuple[str, str], Json]) -> dict[str, int]:
    """Pods by component."""
    found: dict[str, int] = {}
    for (kind, _), each in sorted(released.items()):
        if kind == "Pod" and not each["metadata"].get("deletionTimestamp"):
            component = each["metadata"]["labels"]["app.kubernetes.io/component"]
            found[component] = found.get(component, 0) + 1
    return found


def _pod_names(released: dict[tuple[str, str], Json]) -> set[str]:
    """Identities of the pods: one of a StatefulSet keeps its name."""
    return {each["metadata"]["uid"] for (kind, _), each in released.items() if kind == "Pod"}

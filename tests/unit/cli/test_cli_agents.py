"""`admin clusters add|remove`: names, incarnations, permissions, and the manifests of an agent."""

import time
from typing import Any

import pytest
from msgspec import structs

from fleethpa.cli.clusters import agent_present, new_agent, permission_lines
from fleethpa.frame.errors import CommandError
from reconciler.clusters.manifests import AGENT, SECRET, AgentPlace, agent_manifests
from runtime.topicneeds import ACLS, agent_acls
from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet, AgentTopics


def registry(*names: str, incarnation: int = 7, left: bool = False) -> AgentRegistry:
    made = AgentRegistry()
    for name in names:
        made.apply(AgentSet(cluster=name, incarnation=incarnation, left=left))
    return made


def added(known: AgentRegistry, name: str) -> AgentSet:
    return new_agent(known, name, 10, 20)


def test_an_incarnation_is_never_used_again() -> None:
    now = int(time.time())
    first = added(registry(), "east")
    assert now <= first.incarnation <= now + 60
    assert (first.max_namespaces, first.max_hpas, first.left) == (10, 20, False)
    assert added(registry("east", left=True), "east").incarnation >= now
    later = registry("east", incarnation=now + 10_000, left=True)
    assert added(later, "east").incarnation == now + 10_001, "also where the clock was put back"


@pytest.mark.parametrize(
    ("known", "name", "says"),
    [
        pytest.param(("east",), "east", "cluster east has an agent already", id="one agent a cluster"),
        pytest.param(("a.b",), "a_b", "a_b cannot be distinguished from a.b", id="names that Kafka confuses"),
        pytest.param((), "a/b", "'a/b' cannot be a cluster's name", id="a slash"),
        pytest.param((), "*", "'*' cannot be a cluster's name", id="all clusters"),
        pytest.param((), "x" * 240, "is too long", id="longer than a topic's name"),
    ],
)
def test_names_that_cannot_be_added(known: tuple[str, ...], name: str, says: str) -> None:
    with pytest.raises(CommandError, match=says.replace("*", r"\*")):
        added(registry(*known), name)


def test_a_cluster_that_left_frees_its_name_and_those_like_it() -> None:
    assert added(registry("a.b", left=True), "a_b").cluster == "a_b"
    with pytest.raises(CommandError, match="has no agent"):
        agent_present(registry("east", left=True), "east")
    with pytest.raises(CommandError) as error:
        agent_present(registry("west"), "east")
    assert "Clusters with an agent: west" in error.value.text()


def test_permissions_name_whole_topics_and_nothing_else() -> None:
    topics = AgentTopics("prod", 7)
    acls = agent_acls(topics)
    assert [(acl.resource, acl.name, acl.operations, acl.pattern) for acl in acls] == [
        ("topic", "fleethpa.from.prod.7", ("WRITE",), "literal"),
        ("topic", "fleethpa.to.prod.7", ("READ",), "literal"),
    ]
    lines = permission_lines(topics, "User:fleethpa-agent-prod")
    assert all("--resource-pattern-type literal" in line for line in lines[:2])
    assert "--entity-name fleethpa-agent-prod --add-config 'producer_byte_rate=" in lines[2]


def test_only_ingest_and_the_router_may_touch_the_topics_of_all_agents() -> None:
    prefixed = {
        component: [
            (acl.name, acl.operations)
            for acl in acls
            if (acl.resource, acl.pattern) == ("topic", "prefixed") and {"READ", "WRITE"} & {*acl.operations}
        ]
        for component, acls in ACLS.items()
    }
    assert {name: found for name, found in prefixed.items() if found} == {
        "ingest": [("fleethpa.from.", ("READ",))],
        "router": [("fleethpa.to.", ("WRITE",))],
    }


def manifests(**changes: Any) -> dict[str, Any]:
    place = AgentPlace(topics=AgentTopics("prod", 7), image="fleethpa:1")._replace(**changes)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in agent_manifests(place)}


def test_the_manifests_run_two_replicas_that_lead_by_a_lease() -> None:
    found = manifests()
    pod = found[f"Deployment/{AGENT}"]["spec"]["template"]["spec"]
    assert found[f"Deployment/{AGENT}"]["spec"]["replicas"] == 2
    arguments = pod["containers"][0]["args"]
    assert arguments[:6] == ["run", "agent", "--in-cluster", "prod", "--incarnation", "7"]
    assert pod["volumes"] == [{"name": "kafka", "secret": {"secretName": SECRET}}]
    assert "ClusterRole/fleethpa" in found
    lease = found[f"Role/{AGENT}"]["rules"]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in lease] == [
        (["create"], None),
        (["get", "update"], [AGENT]),
    ]
    subjects = [each["subjects"] for each in found.values() if "subjects" in each]
    assert {each[0]["name"] for each in subjects} == {AGENT}


def test_an_agent_of_some_namespaces_gets_roles_there() -> None:
    found = agent_manifests(
        AgentPlace(topics=AgentTopics("prod", 7), image="i", namespaces=("shop", "bank"), custom=("widgets.x.io",))
    )
    roles = [each["metadata"].get("namespace") for each in found if each["kind"] == "Role"]
    assert set(roles) == {"shop", "bank", "fleethpa-system"}
    assert [each["metadata"]["name"] for each in found if each["kind"] == "ClusterRole"] == ["fleethpa-identity"]
    arguments = found[-1]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-4:] == ["--namespace", "shop", "--namespace", "bank"]


def test_the_registration_is_what_the_log_takes() -> None:
    made = structs.replace(added(registry(), "east"), author="ada")
    assert AgentTopics("east", made.incarnation) == made.topics

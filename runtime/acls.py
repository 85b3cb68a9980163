"""Permissions on a real Kafka: the least that each component needs, and the `kafka-acls.sh` commands for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from schemas import agents, topics

Component = Literal["observer", "ingest", "decider", "reconciler", "router", "breaker", "reader", "operator"]


@dataclass(frozen=True)
class Acl:
    """What a component needs: operations on a resource, by its name (`literal`) or the beginning of it (`prefixed`)."""

    resource: Literal["topic", "group"]
    name: str
    operations: tuple[str, ...]
    pattern: Literal["literal", "prefixed"] = "literal"


def _topics(names: Iterable[str], *operations: str) -> tuple[Acl, ...]:
    return tuple(Acl("topic", name, operations) for name in names)


ACLS: Mapping[Component, tuple[Acl, ...]] = {
    "observer": (
        *_topics((topics.SAMPLES, topics.PODS), "WRITE"),
        *_topics((topics.AUTOSCALERS, topics.SCALES, topics.SETTINGS), "READ", "WRITE"),
        Acl("group", topics.OBSERVER_GROUPS, ("READ",), "prefixed"),
    ),
    "ingest": (
        *_topics(topics.PUBLIC_TOPICS, "READ"),
        *_topics((topics.LOG,), "READ", "WRITE", "DESCRIBE_CONFIGS"),
        *_topics((topics.REJECTED,), "WRITE"),
        Acl("group", topics.INGEST_GROUP, ("READ",)),
        Acl("topic", agents.FROM_PREFIX, ("READ",), "prefixed"),
        Acl("group", topics.AGENT_INGEST_GROUP, ("READ",)),
    ),
    "decider": (
        *_topics((topics.LOG, topics.DECISIONS, topics.CHANGELOG), "READ", "WRITE"),
        *_topics((topics.LOG,), "DESCRIBE_CONFIGS"),
        Acl("group", topics.DECIDER_APP_ID, ("READ",)),
    ),
    "reconciler": (
        *_topics((topics.DECISIONS, topics.SETTINGS), "READ"),
        *_topics((topics.OUTCOMES, topics.SCALES), "WRITE"),
        Acl("group", topics.RECONCILER_GROUPS, ("READ",), "prefixed"),
    ),
    "router": (
        *_topics((topics.DECISIONS, topics.BREAKER, topics.SETTINGS), "READ"),
        *_topics((topics.AUTOSCALERS,), "READ", "WRITE"),
        Acl("topic", agents.TO_PREFIX, ("WRITE",), "prefixed"),
        Acl("group", topics.ROUTER_GROUP, ("READ",)),
        Acl("group", f"{topics.OBSERVER_GROUPS}router", ("READ",)),
    ),
    "breaker": (
        *_topics((topics.DECISIONS, topics.SETTINGS), "READ"),
        *_topics((topics.LOG, topics.CHANGELOG), "DESCRIBE"),
        *_topics((topics.BREAKER,), "READ", "WRITE"),
    ),
    "reader": _topics((topics.LOG, topics.DECISIONS, topics.CHANGELOG, topics.REJECTED), "READ"),
    "operator": (
        *_topics((topics.AUTOSCALERS, topics.SETTINGS), "READ", "WRITE"),
        *_topics((topics.SAMPLES, topics.PODS, topics.SCALES, topics.OUTCOMES, topics.BREAKER), "READ"),
        *_topics((topics.LOG,), "READ", "WRITE"),
        *_topics((topics.DECISIONS, topics.CHANGELOG, topics.REJECTED), "READ"),
        Acl("group", topics.INGEST_GROUP, ("READ",)),
        Acl("group", topics.ROUTER_GROUP, ("DESCRIBE",)),
    ),
}
"""The least that each component needs.

`reader`: the verbs that only look, the page and the archive. `operator`: those and the verbs that change, `fleethpa
ingest reset` included.

READ and WRITE imply DESCRIBE; idempotent producers need no right on the cluster.
"""


def agent_acls(found: agents.AgentTopics) -> tuple[Acl, ...]:
    """The least that the agent of one cluster needs: its own two topics, by their whole names, and no group."""
    return (*_topics((found.reports,), "WRITE"), *_topics((found.orders,), "READ"))


def acl_commands(acls: Iterable[Acl], principal: str) -> list[str]:
    """Permissions as arguments of `kafka-acls.sh`."""
    return [
        f"--add --allow-principal {principal} --{acl.resource} {acl.name} --resource-pattern-type {acl.pattern}"
        + "".join(f" --operation {operation}" for operation in acl.operations)
        for acl in acls
    ]

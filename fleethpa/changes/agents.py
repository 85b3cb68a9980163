"""Registering agents: names, topics, permissions, quotas, and what runs the agent in its cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.sources import TOPICS_REFUSED, connecting
from runtime.records import read_in_force
from runtime.topicadmin import TopicAdmin, TopicError, acl_commands, agent_acls, agent_topics, wanted_beside
from schemas.agents import MAX_TOPIC_NAME, AgentRegistry, AgentSet, AgentTopics, metric_name
from schemas.connection import KafkaSettings
from schemas.limits import Refusal
from schemas.topics import LOG
from streams.ingest.checks import check_cluster

QUOTAS = "producer_byte_rate=2097152,consumer_byte_rate=4194304,request_percentage=25"
"""What one agent may use of each broker: 2 MiB/s of reports, 4 MiB/s of orders, a quarter of a thread's time. An agent
of 1,000 HPAs reports some 100 KB/s.
"""


async def read_registry(settings: KafkaSettings) -> AgentRegistry:
    """Which clusters have an agent, by the topic of settings."""
    return (await read_in_force(settings)).agents


def new_agent(registry: AgentRegistry, cluster: str, max_namespaces: int, max_hpas: int) -> AgentSet:
    """The registration of a cluster's next agent.

    Its incarnation is higher than any before, and at least the time in seconds: also where the record of earlier ones
    is lost, no topic is used twice.

    Raises CommandError: the cluster has an agent, or its name cannot be used (exit 2).
    """
    try:
        check_cluster(cluster)
    except Refusal as refusal:
        raise usage(f"{cluster!r} cannot be a cluster's name", cause=refusal.text) from refusal
    if (present := registry.present(cluster)) is not None:
        raise usage(
            f"cluster {cluster} has an agent already",
            cause=f"It reports on {present.topics.reports}.",
            next_step=f"fleethpa clusters remove {cluster}, if it is to begin anew",
        )
    for other in registry.agents():
        if metric_name(other.cluster) == metric_name(cluster):
            raise usage(
                f"{cluster} cannot be distinguished from {other.cluster}",
                cause="Kafka's metrics write '.' as '_', so topics whose names differ only in these collide.",
                next_step="give the cluster another name",
            )
    before = registry.newest(cluster)
    incarnation = max(int(time.time()), before.incarnation + 1 if before is not None else 1)
    made = AgentSet(cluster=cluster, incarnation=incarnation, max_namespaces=max_namespaces, max_hpas=max_hpas)
    if len(made.topics.reports) > MAX_TOPIC_NAME:
        longest = MAX_TOPIC_NAME - (len(made.topics.reports) - len(cluster))
        raise usage(
            f"the name of cluster {cluster[:40]}… is too long",
            cause=f"It is part of a topic's name, so that it may have {longest} characters.",
        )
    return made


def agent_present(registry: AgentRegistry, cluster: str) -> AgentSet:
    """The agent of a cluster. Raises CommandError: it has none (exit 4)."""
    found = registry.present(cluster)
    if found is None:
        known = ", ".join(agent.cluster for agent in registry.agents()) or "none"
        raise not_found(f"cluster {cluster} has no agent", cause=f"Clusters with an agent: {known}.")
    return found


@asynccontextmanager
async def administering(settings: KafkaSettings, topics: AgentTopics) -> AsyncIterator[TopicAdmin]:
    """The brokers' administration of an agent's topics.

    Raises CommandError: the brokers cannot be reached (exit 3), or refuse something.
    """
    async with connecting(settings.bootstrap_servers), TopicAdmin(settings) as admin:
        try:
            yield admin
        except TopicError as error:
            step = (
                f"run this as an administrator of Kafka, or create {topics.reports} and {topics.orders} by other means"
            )
            raise CommandError(str(error), cause=TOPICS_REFUSED, next_step=step) from error


async def create_topics(admin: TopicAdmin, topics: AgentTopics, replication: int | None) -> list[str]:
    """Create an agent's topics; gives the names of those created. Without a `replication` it is the log's."""
    shape = wanted_beside(await admin.found([LOG]), replication=replication)
    return await admin.create(agent_topics(topics, shape[0].replication))


def permission_lines(topics: AgentTopics, principal: str) -> list[str]:
    """Permissions and quotas as arguments of Kafka's own tools."""
    user = principal.partition(":")[2]
    quota = f"kafka-configs.sh --alter --entity-type users --entity-name {user} --add-config '{QUOTAS}'"
    return [*(f"kafka-acls.sh {line}" for line in acl_commands(agent_acls(topics), principal)), quota]

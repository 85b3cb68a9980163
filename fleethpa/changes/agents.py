"""Registering agents: names, topics, permissions, quotas, and what runs the agent in its cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import Session
from runtime.records import read_in_force
from runtime.topicadmin import Acl, TopicAdmin, TopicError, acl_commands, agent_acls, agent_topics, wanted_beside
from schemas.agents import MAX_TOPIC_NAME, AgentRegistry, AgentSet, AgentTopics, metric_name
from schemas.connection import KafkaSettings
from schemas.topics import LOG
from streams.ingest.pieces import Refusal
from streams.ingest.values import check_cluster

QUOTAS = "producer_byte_rate=2097152,consumer_byte_rate=4194304,request_percentage=25"
"""What one agent may use of each broker: 2 MiB/s of reports, 4 MiB/s of orders, a quarter of a thread's time. An agent
of 1,000 HPAs reports some 100 KB/s.
"""


@dataclass(frozen=True)
class AgentUser:
    """Who an agent is to Kafka."""

    principal: str

    @property
    def name(self) -> str:
        """The name without its type, as quotas name it."""
        return self.principal.partition(":")[2]


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


async def create_topics(settings: KafkaSettings, topics: AgentTopics, replication: int | None) -> list[str]:
    """Create an agent's topics; gives the names of those created. Without a `replication` it is the log's."""
    async with TopicAdmin(settings) as admin:
        shape = wanted_beside(await admin.found([LOG]), replication=replication)
        try:
            return await admin.create(agent_topics(topics, shape[0].replication))
        except TopicError as error:
            raise _refused(error, topics) from error


async def delete_topics(settings: KafkaSettings, topics: AgentTopics) -> None:
    """Delete an agent's topics."""
    async with TopicAdmin(settings) as admin:
        try:
            await admin.delete([topics.reports, topics.orders])
        except TopicError as error:
            raise _refused(error, topics) from error


async def allow(settings: KafkaSettings, topics: AgentTopics, user: AgentUser) -> bool:
    """Give an agent its permissions; False: the brokers enforce none."""
    async with TopicAdmin(settings) as admin:
        try:
            return await admin.allow(agent_acls(topics), user.principal)
        except TopicError as error:
            raise _refused(error, topics) from error


async def disallow(settings: KafkaSettings, topics: AgentTopics, user: AgentUser) -> bool:
    """Take an agent's permissions; False: the brokers enforce none."""
    async with TopicAdmin(settings) as admin:
        try:
            return await admin.disallow(agent_acls(topics), user.principal)
        except TopicError as error:
            raise _refused(error, topics) from error


def _refused(error: TopicError, topics: AgentTopics) -> CommandError:
    cause = "The broker says no: too few brokers for the replication factor, or no permission."
    step = f"run this as an administrator of Kafka, or create {topics.reports} and {topics.orders} by other means"
    return CommandError(str(error), cause=cause, next_step=step)


def permission_lines(topics: AgentTopics, user: AgentUser) -> list[str]:
    """Permissions and quotas as arguments of Kafka's own tools."""
    acls: tuple[Acl, ...] = agent_acls(topics)
    quota = f"kafka-configs.sh --alter --entity-type users --entity-name {user.name} --add-config '{QUOTAS}'"
    return [*(f"kafka-acls.sh {line}" for line in acl_commands(acls, user.principal)), quota]


def say(session: Session, lines: list[str]) -> None:
    """Notes for the person at the terminal, one a line."""
    for line in lines:
        session.note(line)

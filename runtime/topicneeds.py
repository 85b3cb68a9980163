"""Topics and permissions that fleethpa needs on Kafka, how what is there differs from them, and both as manifests and
arguments of other tools. No I/O.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.errors import NextStepError
from schemas import agents, topics
from schemas.agents import AgentTopics
from schemas.topicconfigs import AGENT_ORDERS_CONFIG, AGENT_REPORTS_CONFIG, TOPICS
from schemas.topics import DEFAULT_PARTITIONS, LOG

Component = Literal["observer", "ingest", "decider", "reconciler", "router", "reader", "operator"]


@dataclass(frozen=True)
class Acl:
    """What a component needs: operations on a resource, by its name (`literal`) or the beginning of it (`prefixed`)."""

    resource: Literal["topic", "group"]
    name: str
    operations: tuple[str, ...]
    pattern: Literal["literal", "prefixed"] = "literal"


def _topics(names: Iterable[str], *operations: str) -> tuple[Acl, ...]:
    return tuple(Acl("topic", name, operations) for name in names)


_COMPARED = Acl("topic", topics.PREFIX.rstrip("."), ("DESCRIBE", "DESCRIBE_CONFIGS"), "prefixed")
"""For `admin topics check` and `doctor`; the topics of agents and the changelog included, whose name has no dot."""
ACLS: Mapping[Component, tuple[Acl, ...]] = {
    "observer": (
        *_topics((topics.SAMPLES, topics.PODS, topics.AUTOSCALERS), "WRITE"),
        *_topics((topics.SCALES, topics.SETTINGS), "READ", "WRITE"),
        *_topics((topics.SPECS,), "READ"),
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
        *_topics((topics.REPORTS,), "WRITE"),
        *_topics((topics.LOG,), "DESCRIBE_CONFIGS"),
        Acl("group", topics.DECIDER_APP_ID, ("READ",)),
    ),
    "reconciler": (
        *_topics((topics.DECISIONS, topics.SETTINGS), "READ"),
        *_topics((topics.OUTCOMES, topics.SCALES), "WRITE"),
        Acl("group", topics.RECONCILER_GROUPS, ("READ",), "prefixed"),
    ),
    "router": (
        *_topics((topics.DECISIONS, topics.SETTINGS, topics.SPECS), "READ"),
        Acl("topic", agents.TO_PREFIX, ("WRITE",), "prefixed"),
        Acl("group", topics.ROUTER_GROUP, ("READ",)),
        Acl("group", f"{topics.ALIVE_GROUPS}router", ("READ",)),
    ),
    "reader": (
        *_topics((topics.LOG, topics.DECISIONS, topics.CHANGELOG, topics.REJECTED, topics.SETTINGS), "READ"),
        _COMPARED,
        Acl("group", topics.ALIVE_GROUPS, ("DESCRIBE",), "prefixed"),
        Acl("group", f"{topics.ALIVE_GROUPS}archiver", ("READ",)),
    ),
    "operator": (
        *_topics((topics.AUTOSCALERS, topics.SETTINGS, topics.SPECS), "READ", "WRITE"),
        *_topics((topics.SAMPLES, topics.PODS, topics.SCALES, topics.OUTCOMES), "READ"),
        *_topics((topics.LOG,), "READ", "WRITE"),
        *_topics((topics.DECISIONS, topics.CHANGELOG, topics.REJECTED), "READ"),
        _COMPARED,
        Acl("group", topics.INGEST_GROUP, ("READ",)),
        Acl("group", topics.AGENT_INGEST_GROUP, ("DESCRIBE",)),
        Acl("group", topics.ROUTER_GROUP, ("DESCRIBE",)),
        Acl("group", topics.ALIVE_GROUPS, ("DESCRIBE",), "prefixed"),
        *[Acl("group", f"{topics.ALIVE_GROUPS}{name}", ("READ",)) for name in ("scheduler", "archiver", "hub")],
    ),
}
"""The least that each component needs.

`reader`: the verbs that only look, the page and the archive. `operator`: those, the verbs that change, `fleethpa
admin ingest reset` included, the scheduler and the process of the hub's API.

READ and WRITE imply DESCRIBE; idempotent producers need no right on the cluster.
"""


def agent_acls(topics: agents.AgentTopics) -> tuple[Acl, ...]:
    """The least that the agent of one cluster needs: its own two topics, by their whole names, and no group."""
    return (*_topics((topics.reports,), "WRITE"), *_topics((topics.commands,), "READ"))


def acl_commands(acls: Iterable[Acl], principal: str) -> list[str]:
    """Permissions as arguments of `kafka-acls.sh`."""
    return [
        f"--add --allow-principal {principal} --{acl.resource} {acl.name} --resource-pattern-type {acl.pattern}"
        + "".join(f" --operation {operation}" for operation in acl.operations)
        for acl in acls
    ]


STRIMZI_API = "kafka.strimzi.io/v1"
DEFAULT_REPLICATION = 3


@dataclass(frozen=True)
class WantedTopic:
    """A topic as it should be."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class FoundTopic:
    """A topic as it is. `config`: the values in force; `own`: those set on the topic itself."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicDifference:
    """One way in which a topic is not as it should be. `fixable`: without making the topic anew."""

    topic: str
    what: str
    wanted: str
    found: str
    fixable: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.found}, wanted {self.wanted}"


def wanted(partitions: int, replication: int) -> list[WantedTopic]:
    """Every topic of fleethpa for this partition count and replication factor.

    `rejected` needs no order and has the same count for simplicity. Writes need two in-sync replicas where there are.
    """
    durable = {"min.insync.replicas": str(min(2, replication))}
    return [WantedTopic(topic.name, partitions, replication, topic.config | durable) for topic in TOPICS]


def agent_topics(topics: AgentTopics, replication: int) -> list[WantedTopic]:
    """The two topics of an agent: one partition each, so that their order is kept."""
    durable = {"min.insync.replicas": str(min(2, replication))}
    return [
        WantedTopic(topics.reports, 1, replication, AGENT_REPORTS_CONFIG | durable),
        WantedTopic(topics.commands, 1, replication, AGENT_ORDERS_CONFIG | durable),
    ]


def wanted_beside(
    present: Mapping[str, FoundTopic], partitions: int | None = None, replication: int | None = None
) -> list[WantedTopic]:
    """Every topic of fleethpa, shaped like the topics that exist, unless a shape is given.

    The log decides: its partition count is fixed for life, and its replication factor was chosen when the topics were
    created. Without a log any other topic decides; without any topic the defaults hold.
    """
    like = present.get(LOG) or next((present[topic.name] for topic in TOPICS if topic.name in present), None)
    if like is not None:
        partitions, replication = partitions or like.partitions, replication or like.replication
    return wanted(partitions or DEFAULT_PARTITIONS, replication or DEFAULT_REPLICATION)


def differences(want: WantedTopic, present: FoundTopic | None) -> list[TopicDifference]:
    """How the topic differs from what it should be; more replicas and more in-sync replicas than wanted are fine."""
    if present is None:
        return [TopicDifference(want.name, "topic", "present", "missing", fixable=True)]
    listed = [
        TopicDifference(want.name, name, value, present.config.get(name, "not known"), fixable=True)
        for name, value in want.config.items()
        if not _satisfied(name, value, present.config.get(name))
    ]
    shapes = []
    if present.partitions != want.partitions:
        shapes.append(("partition count", want.partitions, present.partitions))
    if present.replication < want.replication:
        shapes.append(("replication factor", want.replication, present.replication))
    listed += [TopicDifference(want.name, what, str(due), str(there), fixable=False) for what, due, there in shapes]
    return listed


def _satisfied(name: str, wanted_value: str, found_value: str | None) -> bool:
    if name == "min.insync.replicas" and found_value is not None:
        return int(found_value) >= int(wanted_value)
    return found_value == wanted_value


def strimzi(want: Sequence[WantedTopic], cluster: str) -> list[dict[str, Any]]:
    """The topics as manifests of Strimzi's topic operator, for the Kafka cluster of that name."""
    return [
        {
            "apiVersion": STRIMZI_API,
            "kind": "KafkaTopic",
            "metadata": {"name": one.name, "labels": {"strimzi.io/cluster": cluster}},
            "spec": {
                "partitions": one.partitions,
                "replicas": one.replication,
                "config": {name: _yaml_value(value) for name, value in one.config.items()},
            },
        }
        for one in want
    ]


def _yaml_value(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() else text


_STAMP = "message.timestamp.type"


def stamp_problem(settings: Mapping[str, str], *, is_playback: bool, option: str) -> NextStepError | None:
    """Return what is wrong with who stamps the records of the log; None: nothing, or its settings are not reported.

    Args:
        settings: of the topic of the log.
        option: the one that makes a process play a recording, which takes log time from its sources.
    """
    if is_playback and settings.get(_STAMP) == "LogAppendTime":
        return NextStepError(
            f"playback stamps the log with source times, but {LOG} has {_STAMP}=LogAppendTime, which overwrites them",
            next_step=f"leave out {option}, or use brokers of its own for playback",
        )
    if not is_playback and settings.get(_STAMP) == "CreateTime":
        return NextStepError(
            f"{LOG} has {_STAMP}=CreateTime, but decisions take their time from the broker",
            next_step=f"fleethpa admin topics check --fix (sets LogAppendTime), or play a recording with {option}",
        )
    return None

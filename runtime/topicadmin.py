"""Topics and permissions on a real Kafka: what each needs, what is there, and how to make the one like the other."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from runtime.kafkaclients import aiokafka_kwargs
from runtime.records import read_in_force
from schemas import agents, topics
from schemas.agents import AgentTopics
from schemas.connection import KafkaSettings
from schemas.topics import AGENT_ORDERS_CONFIG, AGENT_REPORTS_CONFIG, DEFAULT_PARTITIONS, LOG, TOPICS

log = logging.getLogger(__name__)

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


_COMPARED = Acl("topic", topics.PREFIX.rstrip("."), ("DESCRIBE", "DESCRIBE_CONFIGS"), "prefixed")
"""For `topics check` and `doctor`; the topics of agents and the changelog included, whose name has no dot."""
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
        *_topics((topics.DECISIONS, topics.BREAKER, topics.SETTINGS, topics.SPECS), "READ"),
        Acl("topic", agents.TO_PREFIX, ("WRITE",), "prefixed"),
        Acl("group", topics.ROUTER_GROUP, ("READ",)),
        Acl("group", f"{topics.ALIVE_GROUPS}router", ("READ",)),
    ),
    "breaker": (
        *_topics((topics.DECISIONS, topics.SETTINGS), "READ"),
        *_topics((topics.LOG, topics.CHANGELOG), "DESCRIBE"),
        *_topics((topics.BREAKER,), "READ", "WRITE"),
        Acl("group", topics.ALIVE_GROUPS, ("DESCRIBE",), "prefixed"),
        Acl("group", f"{topics.ALIVE_GROUPS}breaker", ("READ",)),
    ),
    "reader": (
        *_topics((topics.LOG, topics.DECISIONS, topics.CHANGELOG, topics.REJECTED, topics.SETTINGS), "READ"),
        _COMPARED,
        Acl("group", topics.ALIVE_GROUPS, ("DESCRIBE",), "prefixed"),
        Acl("group", f"{topics.ALIVE_GROUPS}archiver", ("READ",)),
    ),
    "operator": (
        *_topics((topics.AUTOSCALERS, topics.SETTINGS, topics.SPECS), "READ", "WRITE"),
        *_topics((topics.SAMPLES, topics.PODS, topics.SCALES, topics.OUTCOMES, topics.BREAKER), "READ"),
        *_topics((topics.LOG,), "READ", "WRITE"),
        *_topics((topics.DECISIONS, topics.CHANGELOG, topics.REJECTED), "READ"),
        _COMPARED,
        Acl("group", topics.INGEST_GROUP, ("READ",)),
        Acl("group", topics.ROUTER_GROUP, ("DESCRIBE",)),
        Acl("group", topics.ALIVE_GROUPS, ("DESCRIBE",), "prefixed"),
        *[Acl("group", f"{topics.ALIVE_GROUPS}{name}", ("READ",)) for name in ("scheduler", "archiver")],
    ),
}
"""The least that each component needs.

`reader`: the verbs that only look, the page and the archive. `operator`: those, the verbs that change, `fleethpa
ingest reset` included, and the scheduler.

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


STRIMZI_API = "kafka.strimzi.io/v1"
DEFAULT_REPLICATION = 3
_NO_SUCH_TOPIC = 3
_TOPIC_EXISTS = 36
_NO_AUTHORIZER = 54
_RESOURCES = {"topic": 2, "group": 3}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10}
_ANY, _ALLOW = 1, 3
"""Numbers of Kafka's protocol."""

_CONFIG_NAME, _CONFIG_VALUE, _CONFIG_SOURCE = 0, 1, 3
_SET_ON_TOPIC = 1
"""Where a setting's name, value and source are in an answer to DescribeConfigs; the source "set on the topic"."""


class TopicError(Exception):
    """Kafka refused a change; the text names the topic and the reason."""


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
        WantedTopic(topics.orders, 1, replication, AGENT_ORDERS_CONFIG | durable),
    ]


def wanted_beside(
    found: Mapping[str, FoundTopic], partitions: int | None = None, replication: int | None = None
) -> list[WantedTopic]:
    """Every topic of fleethpa, shaped like the topics that exist, unless a shape is given.

    The log decides: its partition count is fixed for life, and its replication factor was chosen when the topics were
    created. Without a log any other topic decides; without any topic the defaults hold.
    """
    like = found.get(LOG) or next((found[topic.name] for topic in TOPICS if topic.name in found), None)
    if like is not None:
        partitions, replication = partitions or like.partitions, replication or like.replication
    return wanted(partitions or DEFAULT_PARTITIONS, replication or DEFAULT_REPLICATION)


def differences(want: WantedTopic, found: FoundTopic | None) -> list[TopicDifference]:
    """How the topic differs from what it should be; more replicas and more in-sync replicas than wanted are fine."""
    if found is None:
        return [TopicDifference(want.name, "topic", "present", "missing", fixable=True)]
    listed = [
        TopicDifference(want.name, name, value, found.config.get(name, "not known"), fixable=True)
        for name, value in want.config.items()
        if not _satisfied(name, value, found.config.get(name))
    ]
    shapes = []
    if found.partitions != want.partitions:
        shapes.append(("partition count", want.partitions, found.partitions))
    if found.replication < want.replication:
        shapes.append(("replication factor", want.replication, found.replication))
    listed += [TopicDifference(want.name, what, str(due), str(there), fixable=False) for what, due, there in shapes]
    return listed


def _satisfied(name: str, wanted_value: str, found_value: str | None) -> bool:
    if name == "min.insync.replicas" and found_value is not None:
        return int(found_value) >= int(wanted_value)
    return found_value == wanted_value


class TopicAdmin:
    """Creates, reads and changes topics; use as an async context."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._client = AIOKafkaAdminClient(**aiokafka_kwargs(settings))

    async def __aenter__(self) -> "TopicAdmin":
        try:
            await self._client.start()
        except BaseException:  # raised again; a start that failed leaves no connection behind, either
            await self._client.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def found(self, names: Sequence[str]) -> dict[str, FoundTopic]:
        """Those of the named topics that exist. Raises TopicAuthorizationFailedError: one may not be described."""
        described = await self._described(names)
        configs = await self._configs([one["topic"] for one in described])
        return {one["topic"]: _found(one, configs[one["topic"]]) for one in described}

    async def partitions(self, names: Sequence[str]) -> dict[str, int]:
        """How many partitions each of these topics has, as far as they exist.

        Raises TopicAuthorizationFailedError: one of them may not be described.
        """
        return {one["topic"]: len(one["partitions"]) for one in await self._described(names)}

    async def _described(self, names: Sequence[str]) -> list[dict[str, Any]]:
        described = await self._client.describe_topics(list(names))
        for one in described:
            if for_code(one["error_code"]) is TopicAuthorizationFailedError:
                raise TopicAuthorizationFailedError(one["topic"])
        return [one for one in described if not one["error_code"]]

    async def config(self, name: str) -> dict[str, str]:
        """The settings of a topic; empty where they are not reported: by the embedded broker, or without permission."""
        try:
            entries = (await self._configs([name])).get(name, [])
        except (KafkaError, TopicError) as error:
            log.info("settings of a topic cannot be checked", extra={"topic": name, "reason": repr(error)})
            return {}
        return {str(entry[_CONFIG_NAME]): str(entry[_CONFIG_VALUE]) for entry in entries}

    async def create(self, wanted_topics: Iterable[WantedTopic]) -> list[str]:
        """Create what is missing; the names of those created. Raises TopicError: Kafka refused one."""
        new = [
            NewTopic(one.name, one.partitions, one.replication, topic_configs=dict(one.config)) for one in wanted_topics
        ]
        if not new:
            return []
        answer = await self._client.create_topics(new)
        codes = {name: (code, text) for name, code, *text in answer.topic_errors}
        for name, (code, text) in codes.items():
            if code not in (0, _TOPIC_EXISTS):
                raise TopicError(f"cannot create {name}: {for_code(code).__name__} {' '.join(map(str, text))}")
        return [name for name, (code, _) in codes.items() if code == 0]

    async def delete(self, names: Sequence[str]) -> None:
        """Delete topics; one that does not exist is no error. Raises TopicError: Kafka refused one."""
        answer = await self._client.delete_topics(list(names))
        for name, code in answer.topic_error_codes:
            if code not in (0, _NO_SUCH_TOPIC):
                raise TopicError(f"cannot delete {name}: {for_code(code).__name__}")

    async def allow(self, acls: Iterable[Acl], principal: str) -> bool:
        """Give a principal (`User:name`) permissions; False: these brokers enforce none.

        Raises TopicError: Kafka refused one.
        """
        asked = [(acl, operation) for acl in acls for operation in acl.operations]
        for acl, operation in asked:
            request = CreateAclsRequest(
                *(_RESOURCES[acl.resource], acl.name, _PATTERNS[acl.pattern], principal, "*"),
                *(_OPERATIONS[operation], _ALLOW),
            )
            answer = await self._ask(request)
            for code, text in answer.creation_responses:
                if code == _NO_AUTHORIZER:
                    return False
                if code:
                    why = f"{for_code(code).__name__} {text or ''}"
                    raise TopicError(f"cannot allow {principal} to {operation} {acl.name}: {why}")
        return True

    async def disallow(self, acls: Iterable[Acl], principal: str) -> bool:
        """Take permissions from a principal; False: these brokers enforce none. Raises TopicError: Kafka refused."""
        for acl in acls:
            request = DeleteAclsRequest(
                *(_RESOURCES[acl.resource], acl.name, _PATTERNS[acl.pattern], principal, "*"), *(_ANY, _ALLOW)
            )
            answer = await self._ask(request)
            for code, text, *_ in answer.filter_responses:
                if code == _NO_AUTHORIZER:
                    return False
                if code:
                    raise TopicError(f"cannot take {acl.name} from {principal}: {for_code(code).__name__} {text or ''}")
        return True

    async def _ask(self, request: Any) -> Any:
        # Private, as the driver has no method for ACLs; its version is pinned.
        client = self._client._client
        return await client.send(client.get_random_node(), request)

    async def configure(self, want: WantedTopic, found: FoundTopic) -> None:
        """Give a topic its settings; settings of its own that fleethpa has no word on stay.

        The request replaces all settings of a topic: one that it does not name falls back to the broker's default.

        Raises TopicError: Kafka refused.
        """
        config = dict(found.own) | dict(want.config)
        answers = await self._client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, want.name, config)])
        for code, text, *_ in (resource for answer in answers for resource in answer.resources):
            if code:
                raise TopicError(f"cannot configure {want.name}: {for_code(code).__name__} {text or ''}")

    async def _configs(self, names: Sequence[str]) -> dict[str, list[Any]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        found: dict[str, list[Any]] = {}
        for answer in await self._client.describe_configs(resources):
            for code, text, _, name, entries in answer.resources:
                if code:
                    raise TopicError(f"cannot read the settings of {name}: {for_code(code).__name__} {text or ''}")
                found[name] = entries
        return found


def _found(described: Mapping[str, Any], entries: Sequence[Any]) -> FoundTopic:
    partitions = described["partitions"]
    return FoundTopic(
        described["topic"],
        len(partitions),
        min((len(one["replicas"]) for one in partitions), default=0),
        {entry[_CONFIG_NAME]: entry[_CONFIG_VALUE] for entry in entries},
        {entry[_CONFIG_NAME]: entry[_CONFIG_VALUE] for entry in entries if int(entry[_CONFIG_SOURCE]) == _SET_ON_TOPIC},
    )


async def check_topics(
    settings: KafkaSettings, partitions: int | None = None, replication: int | None = None
) -> tuple[list[WantedTopic], list[TopicDifference]]:
    """Compare the topics of these brokers, those of agents included, with what fleethpa needs: (as they should be, how
    they differ). A partition count or replication factor that is not given is taken from the topics (`wanted_beside`).
    """
    async with TopicAdmin(settings) as admin:
        found = await admin.found([topic.name for topic in TOPICS])
        want = wanted_beside(found, partitions, replication)
        registered = (await read_in_force(settings)).agents.agents() if topics.SETTINGS in found else []
        ours = [topic for agent in registered for topic in agent_topics(agent.topics, want[0].replication)]
        found |= await admin.found([topic.name for topic in ours]) if ours else {}
    want += ours
    return want, [difference for one in want for difference in differences(one, found.get(one.name))]


async def fix(settings: KafkaSettings, want: Sequence[WantedTopic]) -> list[TopicDifference]:
    """Create what is missing and set what differs; what is left, as it takes more than that.

    Raises TopicError: Kafka refused.
    """
    left: list[TopicDifference] = []
    async with TopicAdmin(settings) as admin:
        found = await admin.found([one.name for one in want])
        await admin.create(one for one in want if one.name not in found)
        for one in want:
            there = found.get(one.name)
            listed = differences(one, there)
            if there is not None and any(difference.fixable for difference in listed):
                await admin.configure(one, there)
            left += [difference for difference in listed if not difference.fixable]
    return left


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


def stamp_problem(settings: Mapping[str, str], *, is_playback: bool, option: str) -> str:
    """Say what is wrong with who stamps the records of the log; empty: nothing, or its settings are not reported.

    Args:
        settings: of the topic of the log.
        option: the one that makes a process play a recording, which takes log time from its sources.
    """
    if is_playback and settings.get(_STAMP) == "LogAppendTime":
        return (
            f"playback stamps the log with source times, but {LOG} has {_STAMP}=LogAppendTime, which overwrites them. "
            f"Next: leave out {option}, or use brokers of its own for playback"
        )
    if not is_playback and settings.get(_STAMP) == "CreateTime":
        return (
            f"{LOG} has {_STAMP}=CreateTime, but decisions take their time from the broker. Next: fleethpa topics "
            f"check --fix (sets LogAppendTime), or play a recording with {option}"
        )
    return ""

"""Topics and permissions on a real Kafka: reads what is there, and makes it as `topicneeds` says."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from runtime.kafkaclients import aiokafka_kwargs
from runtime.records import read_in_force
from runtime.topicneeds import Acl, FoundTopic, TopicDifference, WantedTopic, agent_topics, differences, wanted_beside
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.topicconfigs import TOPICS

log = logging.getLogger(__name__)

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

    async def existing(self, names: Sequence[str]) -> dict[str, FoundTopic]:
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
        """Return a principal (`User:name`) permissions; False: these brokers enforce none.

        Raises TopicError: Kafka refused one.
        """
        pairs = [(acl, operation) for acl in acls for operation in acl.operations]
        for acl, operation in pairs:
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
        """Remove permissions of a principal; False: these brokers enforce none. Raises TopicError: Kafka refused."""
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

    async def configure(self, want: WantedTopic, topic: FoundTopic) -> None:
        """Give a topic its settings; settings of its own that fleethpa has no word on stay.

        The request replaces all settings of a topic: one that it does not name falls back to the broker's default.

        Raises TopicError: Kafka refused.
        """
        config = dict(topic.own) | dict(want.config)
        answers = await self._client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, want.name, config)])
        for code, text, *_ in (resource for answer in answers for resource in answer.resources):
            if code:
                raise TopicError(f"cannot configure {want.name}: {for_code(code).__name__} {text or ''}")

    async def _configs(self, names: Sequence[str]) -> dict[str, list[Any]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        configs: dict[str, list[Any]] = {}
        for answer in await self._client.describe_configs(resources):
            for code, text, _, name, entries in answer.resources:
                if code:
                    raise TopicError(f"cannot read the settings of {name}: {for_code(code).__name__} {text or ''}")
                configs[name] = entries
        return configs


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
        existing = await admin.existing([topic.name for topic in TOPICS])
        want = wanted_beside(existing, partitions, replication)
        registered = (await read_in_force(settings)).agents.agents() if topics.SETTINGS in existing else []
        ours = [topic for agent in registered for topic in agent_topics(agent.topics, want[0].replication)]
        existing |= await admin.existing([topic.name for topic in ours]) if ours else {}
    want += ours
    return want, [difference for one in want for difference in differences(one, existing.get(one.name))]


async def fix(settings: KafkaSettings, want: Sequence[WantedTopic]) -> list[TopicDifference]:
    """Create what is missing and set what differs; what is left, as it takes more than that.

    Raises TopicError: Kafka refused.
    """
    left: list[TopicDifference] = []
    async with TopicAdmin(settings) as admin:
        existing = await admin.existing([one.name for one in want])
        await admin.create(one for one in want if one.name not in existing)
        for one in want:
            there = existing.get(one.name)
            listed = differences(one, there)
            if there is not None and any(difference.fixable for difference in listed):
                await admin.configure(one, there)
            left += [difference for difference in listed if not difference.fixable]
    return left

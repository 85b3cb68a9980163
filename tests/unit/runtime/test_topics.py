"""Topics as they should be, as they are, and the manifests and permissions printed from them."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fleethpa.frame.errors import UNREACHABLE
from runtime.topicadmin import TopicError
from runtime.topicneeds import (
    ACLS,
    Component,
    FoundTopic,
    WantedTopic,
    acl_commands,
    agent_topics,
    differences,
    stamp_problem,
    strimzi,
    wanted,
    wanted_beside,
)
from schemas import topics as names
from schemas.agents import TO_PREFIX, AgentSet, AgentTopics
from schemas.inforce import InForce
from schemas.topicconfigs import TOPICS
from tests.kit.cli import Cli

LOG = WantedTopic(names.LOG, 24, 3, {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"})
AS_WANTED = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2", "segment.ms": "1"}


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        pytest.param(None, ["fleethpa.log: topic is missing, wanted present"], id="a missing topic"),
        pytest.param(FoundTopic(names.LOG, 24, 3, AS_WANTED), [], id="as wanted, other settings are free"),
        pytest.param(
            FoundTopic(names.LOG, 24, 5, AS_WANTED | {"min.insync.replicas": "3"}), [], id="safer than wanted is fine"
        ),
        pytest.param(
            FoundTopic(names.LOG, 24, 3, AS_WANTED | {"message.timestamp.type": "CreateTime"}),
            ["fleethpa.log: message.timestamp.type is CreateTime, wanted LogAppendTime"],
            id="producers' times instead of append time",
        ),
        pytest.param(
            FoundTopic(names.LOG, 12, 1, AS_WANTED),
            ["fleethpa.log: partition count is 12, wanted 24", "fleethpa.log: replication factor is 1, wanted 3"],
            id="fewer partitions and replicas",
        ),
    ],
)
def test_differences_are_named(found: FoundTopic | None, texts: list[str]) -> None:
    assert [str(one) for one in differences(LOG, found)] == texts


def test_one_replica_asks_for_one_in_sync_replica() -> None:
    assert {one.config["min.insync.replicas"] for one in wanted(4, 1)} == {"1"}
    assert {one.config["min.insync.replicas"] for one in wanted(24, 3)} == {"2"}


def test_only_what_has_keys_for_it_is_compacted_and_only_log_and_what_reconcilers_write_has_append_time() -> None:
    every = wanted(24, 3)
    compacted = [one.name for one in every if one.config["cleanup.policy"] == "compact"]
    assert compacted == [names.SETTINGS, names.SPECS, names.CHANGELOG]
    stamped = [one.name for one in every if one.config.get("message.timestamp.type") == "LogAppendTime"]
    assert stamped == [names.SCALES, names.OUTCOMES, names.LOG]


def test_a_strimzi_manifest_holds_numbers_as_numbers() -> None:
    assert strimzi([LOG], "main") == [
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaTopic",
            "metadata": {"name": "fleethpa.log", "labels": {"strimzi.io/cluster": "main"}},
            "spec": {
                "partitions": 24,
                "replicas": 3,
                "config": {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": 2},
            },
        }
    ]


def test_only_the_decider_may_write_decisions() -> None:
    writers = [
        component
        for component, acls in ACLS.items()
        if any(acl.name == names.DECISIONS and "WRITE" in acl.operations for acl in acls)
    ]
    assert writers == ["decider"]


@pytest.mark.parametrize(
    ("component", "topics"),
    [
        ("observer", [names.AUTOSCALERS, names.PODS, names.SAMPLES, names.SCALES, names.SETTINGS]),
        ("ingest", [names.LOG, names.REJECTED]),
        ("decider", [names.CHANGELOG, names.DECISIONS, names.LOG, names.REPORTS]),
        ("reconciler", [names.OUTCOMES, names.SCALES]),
        ("router", [TO_PREFIX]),
        ("reader", []),
        ("operator", [names.AUTOSCALERS, names.LOG, names.SETTINGS, names.SPECS]),
    ],
)
def test_each_component_may_write_these_topics_and_no_other(component: Component, topics: list[str]) -> None:
    assert sorted(acl.name for acl in ACLS[component] if "WRITE" in acl.operations) == sorted(topics)


def test_the_page_and_the_verbs_that_read_may_write_no_topic() -> None:
    allowed = {operation for acl in ACLS["reader"] for operation in acl.operations}
    assert allowed == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}


def test_permissions_print_as_arguments_of_kafka_acls() -> None:
    assert acl_commands(ACLS["reconciler"], "User:r") == [
        "--add --allow-principal User:r --topic fleethpa.decisions --resource-pattern-type literal --operation READ",
        "--add --allow-principal User:r --topic fleethpa.settings --resource-pattern-type literal --operation READ",
        "--add --allow-principal User:r --topic fleethpa.outcomes --resource-pattern-type literal --operation WRITE",
        "--add --allow-principal User:r --topic fleethpa.scales --resource-pattern-type literal --operation WRITE",
        "--add --allow-principal User:r --group fleethpa-reconciler- --resource-pattern-type prefixed --operation READ",
    ]


def _found(name: str, partitions: int, replication: int) -> FoundTopic:
    config = {one.name: one.config for one in wanted(partitions, replication)}[name]
    return FoundTopic(name, partitions, replication, config)


@pytest.mark.parametrize(
    ("found", "given", "shape"),
    [
        pytest.param((), (None, None), (24, 3), id="no topics: the defaults"),
        pytest.param(((names.LOG, 4, 1),), (None, None), (4, 1), id="as the log"),
        pytest.param(((names.PODS, 8, 1), (names.LOG, 4, 2)), (None, None), (4, 2), id="the log before any other"),
        pytest.param(((names.PODS, 8, 1),), (None, None), (8, 1), id="another topic where there is no log"),
        pytest.param(((names.LOG, 4, 1),), (12, 3), (12, 3), id="what is asked for"),
        pytest.param(((names.LOG, 4, 1),), (None, 3), (4, 3), id="a factor that is asked for"),
    ],
)
def test_topics_are_wanted_in_the_shape_that_the_log_has(
    found: tuple[tuple[str, int, int], ...], given: tuple[int | None, int | None], shape: tuple[int, int]
) -> None:
    there = {name: _found(name, partitions, replication) for name, partitions, replication in found}
    assert wanted_beside(there, *given) == wanted(*shape)


class Brokers:
    """Stands in for the topics of a real Kafka: what is created is there, in the shape that was asked for."""

    def __init__(self, topics: list[WantedTopic]) -> None:
        self.topics = {one.name: FoundTopic(one.name, one.partitions, one.replication, one.config) for one in topics}

    def __call__(self, _settings: object) -> "Brokers":
        return self

    async def __aenter__(self) -> "Brokers":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def existing(self, asked: list[str]) -> dict[str, FoundTopic]:
        return {name: self.topics[name] for name in asked if name in self.topics}

    async def create(self, new: Iterable[WantedTopic]) -> list[str]:
        made = Brokers(list(new)).topics
        self.topics |= made
        return list(made)

    async def configure(self, want: WantedTopic, found: FoundTopic) -> None:
        self.topics[want.name] = replace(found, config={**found.config, **want.config})


async def _two_agents(_: object) -> InForce:
    in_force = InForce()
    for agent in (AgentSet(cluster="eu", incarnation=7), AgentSet(cluster="us", incarnation=8, left=True)):
        in_force.agents.apply(agent)
    return in_force


async def _no_agents(_: object) -> InForce:
    return InForce()


def test_what_init_creates_is_what_check_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.topicadmin.TopicAdmin", Brokers([]))
    monkeypatch.setattr("runtime.topicadmin.read_in_force", _no_agents)
    run = Cli(monkeypatch)
    made = run("admin", "topics", "init", "--partitions", "4", "--replication-factor", "1", "--brokers", "127.0.0.1:1")
    assert (made.exit_code, made.stdout.count("created")) == (0, len(TOPICS)), made.output
    checked = run("admin", "topics", "check", "--brokers", "127.0.0.1:1")
    assert (checked.exit_code, checked.stdout) == (0, "all topics are as they should be\n"), checked.output
    again = run("admin", "topics", "init", "--brokers", "127.0.0.1:1")
    assert (again.exit_code, again.output) == (0, "all topics exist\n")
    asked = run("admin", "topics", "check", "--partitions", "24", "--brokers", "127.0.0.1:1")
    assert asked.exit_code == 1
    assert "partition count is 4, wanted 24 (cannot be changed: create the topic again)" in asked.stdout


def test_topics_of_agents_are_checked_and_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that compresses anew unpacks onto its heap first, whatever comes of it."""
    (reports, orders) = agent_topics(AgentTopics("eu", 7), 1)
    brokers = Brokers([*wanted(4, 1), replace(reports, config={**reports.config, "compression.type": "uncompressed"})])
    monkeypatch.setattr("runtime.topicadmin.TopicAdmin", brokers)
    monkeypatch.setattr("runtime.topicadmin.read_in_force", _two_agents)
    run = Cli(monkeypatch)
    found = run("admin", "topics", "check", "--brokers", "127.0.0.1:1")
    assert found.exit_code == 1
    assert found.stdout.splitlines() == [
        f"{reports.name}: compression.type is uncompressed, wanted producer",
        f"{orders.name}: topic is missing, wanted present",
    ]
    mended = run("admin", "topics", "check", "--fix", "--brokers", "127.0.0.1:1")
    assert (mended.exit_code, mended.stdout.splitlines()[-1]) == (0, "2 fixed, 0 left"), mended.output
    assert run("admin", "topics", "check", "--brokers", "127.0.0.1:1").exit_code == 0


@pytest.mark.parametrize("verb", ["init", "check"])
def test_topics_whose_settings_may_not_be_read_are_an_error_with_the_permission_that_lacks(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    class Refusing(Brokers):
        async def existing(self, asked: list[str]) -> dict[str, FoundTopic]:
            raise TopicError(f"cannot read the settings of {asked[0]}: TopicAuthorizationFailedError")

    monkeypatch.setattr("runtime.topicadmin.TopicAdmin", Refusing([]))
    done = Cli(monkeypatch)("admin", "topics", verb, "--brokers", "127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (UNREACHABLE, ""), done.output
    assert "cannot read the settings of" in done.stderr
    assert "Next: fleethpa admin topics acls operator" in done.stderr


@pytest.mark.parametrize(
    ("stamp", "is_playback", "expected"),
    [
        pytest.param("LogAppendTime", True, "which overwrites them", id="playback on a log of the broker"),
        pytest.param("CreateTime", False, "fleethpa admin topics check --fix", id="a log of the producers' times"),
        pytest.param("LogAppendTime", False, "", id="as it should be"),
        pytest.param("CreateTime", True, "", id="playback"),
        pytest.param("", False, "", id="not reported"),
    ],
)
def test_who_stamps_the_log_is_checked(stamp: str, is_playback: bool, expected: str) -> None:
    found = stamp_problem({"message.timestamp.type": stamp}, is_playback=is_playback, option="--playback")
    assert expected in str(found or "")
    assert (found is None) == (not expected)

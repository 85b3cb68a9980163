"""Topics as they should be, as they are, and the manifests and permissions printed from them."""

import pytest

from runtime.acls import ACLS, acl_commands
from runtime.topicadmin import FoundTopic, WantedTopic, differences, strimzi, wanted
from schemas import topics as names

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
            [
                "fleethpa.log: partition count is 12, wanted 24",
                "fleethpa.log: replication factor is 1, wanted 3",
            ],
            id="fewer partitions and replicas",
        ),
    ],
)
def test_differences_are_named(found: FoundTopic | None, texts: list[str]) -> None:
    assert [str(one) for one in differences(LOG, found)] == texts


def test_one_replica_asks_for_one_in_sync_replica() -> None:
    assert {one.config["min.insync.replicas"] for one in wanted(4, 1)} == {"1"}
    assert {one.config["min.insync.replicas"] for one in wanted(24, 3)} == {"2"}


def test_only_the_changelog_is_compacted_and_only_the_log_has_append_time() -> None:
    every = wanted(24, 3)
    assert [one.name for one in every if one.config["cleanup.policy"] == "compact"] == [names.CHANGELOG]
    assert [one.name for one in every if one.config.get("message.timestamp.type") == "LogAppendTime"] == [names.LOG]


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


def test_permissions_print_as_arguments_of_kafka_acls() -> None:
    assert acl_commands("reconciler", "User:r") == [
        "--add --allow-principal User:r --topic fleethpa.decisions --resource-pattern-type literal --operation READ",
        "--add --allow-principal User:r --topic fleethpa.settings --resource-pattern-type literal --operation READ",
        "--add --allow-principal User:r --topic fleethpa.outcomes --resource-pattern-type literal --operation WRITE",
        "--add --allow-principal User:r --group fleethpa-reconciler --resource-pattern-type literal --operation READ",
    ]

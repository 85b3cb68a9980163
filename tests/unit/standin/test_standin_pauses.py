"""Pauses on their way to an agent: the stand-in keeps to them while the hub is away."""

import pytest

from reconciler.core.knowledge import FleetKnowledge, KnowledgeFold
from reconciler.core.writeplan import guards_of
from runtime.records import hand_over
from schemas import topics
from schemas.agentknowledge import AgentKnowledge, KnownPause
from schemas.codec import encode
from schemas.entries import VERSION, Body, PublicRecord
from schemas.inforce import InForce
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from schemas.settingskeys import settings_records
from schemas.topicconfigs import TOPICS
from streams.ingest.own import topic_of

NOW_MS = 1_000_000
PAUSE = Command(command="pause", name="web", pause_kind="scaleDown", until=NOW_MS + 60_000)
KNOWN = KnownPause(kind="scaleDown", namespace="shop", name="web", until=NOW_MS + 60_000)


def test_an_agent_learns_pauses_with_the_snapshot_and_with_each_change() -> None:
    knowledge, fold = FleetKnowledge(), KnowledgeFold()

    def learn(records: list[AgentKnowledge]) -> list[KnownPause]:
        for record in records:
            fold.add(record)
        return fold.pauses

    assert learn(knowledge.snapshot("east", "s1", NOW_MS)) == []
    knowledge.in_force.apply(PAUSE, NOW_MS, "east", "shop")
    assert learn(knowledge.changes("east", [], NOW_MS, with_settings=False)) == [KNOWN]
    assert learn(knowledge.snapshot("east", "s2", NOW_MS)) == [KNOWN]
    knowledge.in_force.apply(Command(command="resume", name="web"), NOW_MS, "east", "shop")
    assert learn(knowledge.changes("east", [], NOW_MS, with_settings=False)) == []


# --- years later ------------------------------------------------------------------------------------------------------

DAY_MS = 86_400_000
MADE: list[tuple[str, str, Body]] = [
    ("", "", SettingsSet(cluster="*", settings=ClusterSettings(sync_period_ms=5_000, max_step=3))),
    ("", "", SettingsSet(cluster="east", settings=ClusterSettings(frozen=True, native_controller="absent"))),
    ("", "", SettingsSet(cluster="east", settings=ClusterSettings(partial_view=True), unset=["maxStep"])),
    ("", "", Command(command="pause", cluster="east", pause_kind="scaleUp")),
    ("east", "shop", Command(command="pause", name="web")),
    ("east", "shop", Command(command="pause", pause_kind="scaleDown")),
    ("east", "shop", Command(command="pause", name="api")),
    ("east", "shop", Command(command="resume", name="api")),
]
"""What persons wrote, with the cluster and namespace of its record."""


def _written() -> list[tuple[str, int, bytes]]:
    """The key, time and value of each record."""
    return [
        (
            key,
            NOW_MS + number,
            encode(PublicRecord(v=VERSION, entries=list(entries), cluster=cluster, namespace=namespace)),
        )
        for number, (cluster, namespace, body) in enumerate(MADE)
        for key, entries in settings_records(cluster, namespace, [body])
    ]


def _retained() -> list[tuple[str, int, bytes]]:
    """What the topic of settings still holds years later, as `admin topics init` sets it up: the newest of each key."""
    config = {topic.name: topic.config for topic in TOPICS}
    assert {topic_of(namespace, [body]) for _, namespace, body in MADE} == {topics.SETTINGS}
    assert config[topics.SETTINGS]["cleanup.policy"] == "compact"
    found: dict[str, tuple[str, int, bytes]] = {}
    for record in _written():
        found.pop(record[0], None)
        found[record[0]] = record
    return list(found.values())


class _Readers:
    """What router, agent, reconciler and observer know once they have read the topics again."""

    def __init__(self, records: list[tuple[str, int, bytes]]) -> None:
        self.router, self.agent, self.in_force = FleetKnowledge(), KnowledgeFold(), InForce()
        for _, time_ms, value in records:
            for in_force in (self.router.in_force, self.in_force):
                hand_over(value, time_ms, in_force.apply)
        for part in self.router.snapshot("east", "s1", NOW_MS + DAY_MS):
            self.agent.add(part)

    def knowledge(self) -> list[object]:
        now_ms = NOW_MS + DAY_MS
        return [
            self.router.settings_of("east"),
            (self.agent.settings, self.agent.pauses),
            guards_of(self.in_force, "east", now_ms),
            (self.in_force.sync_period_ms("east", 15_000), self.in_force.native_absent_since_ms("east")),
        ]


def test_who_reads_the_topic_again_years_later_knows_the_same_settings_and_pauses() -> None:
    later = _Readers(_retained())
    assert later.knowledge() == _Readers(_written()).knowledge()
    assert later.agent.pauses == [
        KnownPause(kind="scaleUp"),
        KnownPause(kind="scaleDown", namespace="shop"),
        KnownPause(namespace="shop", name="web"),
    ]
    assert (bool(later.in_force.of("east").frozen), later.in_force.sync_period_ms("east", 15_000)) == (True, 5_000)
    assert later.in_force.native_absent_since_ms("east") == NOW_MS + 1


@pytest.mark.parametrize("value", [None, b"", b"null", b"\xff"])
def test_a_deletion_and_a_record_of_something_else_are_passed_over(value: bytes | None) -> None:
    """A compacted topic may hold deletions; they must not end whoever follows it."""
    taken: list[object] = []
    hand_over(value, NOW_MS, lambda *each: taken.append(each))
    assert taken == []

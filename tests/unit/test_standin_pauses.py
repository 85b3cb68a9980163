"""Pauses on their way to an agent: the stand-in keeps to them while the hub is away."""

import pytest

from reconciler.core.agentknowledge import KnowledgeFold
from reconciler.core.routing import FleetKnowledge
from reconciler.observer.centralhpas import CentralHpas
from schemas.agents import AgentKnowledge, KnownPause
from schemas.autoscalers import Command

NOW_MS = 1_000_000
PAUSE = Command(command="pause", name="web", pause_kind="scaleDown", until=NOW_MS + 60_000)
KNOWN = KnownPause(kind="scaleDown", namespace="shop", name="web", until=NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("commands", "known"),
    [
        ([("east", "shop", PAUSE)], [KNOWN]),
        ([("west", "shop", PAUSE)], []),
        ([("east", "shop", Command(command="pause"))], [KnownPause(namespace="shop")]),
        ([("*", "", Command(command="pause"))], [KnownPause()]),
        ([("", "", Command(command="pause", pause_kind="scaleUp"))], [KnownPause(kind="scaleUp")]),
        ([("east", "shop", PAUSE), ("east", "shop", Command(command="resume", name="web"))], []),
        (
            [("east", "shop", PAUSE), ("east", "shop", Command(command="resume", name="web", pause_kind="scaleUp"))],
            [KNOWN],
        ),
        ([("east", "shop", Command(command="mode", mode="off"))], []),
        ([("east", "shop", Command(command="pause", name="web", until=NOW_MS))], []),
    ],
)
def test_the_pauses_in_force_in_a_cluster(commands: list[tuple[str, str, Command]], known: list[KnownPause]) -> None:
    knowledge = FleetKnowledge()
    for cluster, namespace, command in commands:
        knowledge.set_pause(cluster, namespace, command)
    assert knowledge.pauses_of("east", NOW_MS) == known


def test_an_agent_learns_pauses_with_the_snapshot_and_with_each_change() -> None:
    knowledge, fold = FleetKnowledge(), KnowledgeFold()

    def learn(records: list[AgentKnowledge]) -> list[KnownPause]:
        for record in records:
            fold.take(record)
        return fold.pauses

    assert learn(knowledge.snapshot("east", "s1", NOW_MS)) == []
    knowledge.set_pause("east", "shop", PAUSE)
    assert learn(knowledge.changes("east", [], NOW_MS, with_settings=False)) == [KNOWN]
    assert learn(knowledge.snapshot("east", "s2", NOW_MS)) == [KNOWN]
    knowledge.set_pause("east", "shop", Command(command="resume", name="web"))
    assert learn(knowledge.changes("east", [], NOW_MS, with_settings=False)) == []


def test_a_pause_is_read_again_after_a_restart_until_it_is_resumed() -> None:
    known, where = CentralHpas("east".__eq__), ("east", "shop", "web")
    known.take_command(where, PAUSE, 1, 40)
    known.take_command(where, PAUSE, 1, 70)
    assert known.marks({0: 500, 1: 500}) == {0: 500, 1: 40}
    known.take_command(where, Command(command="resume", name="web", pause_kind="scaleUp"), 1, 80)
    assert known.marks({1: 500}) == {1: 40}
    known.take_command(where, Command(command="resume", name="web"), 1, 90)
    assert known.marks({1: 500}) == {1: 500}

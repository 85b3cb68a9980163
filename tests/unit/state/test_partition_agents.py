"""Agents in the fold: whose reports count, and what goes when a cluster leaves."""

from typing import Any

from msgspec import structs

from schemas.agents import AgentSet, AgentTopics
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, Source
from schemas.observed import ClusterReport, Heartbeat, Pod, PodList, Serving
from streams.partition import Partition
from tests.kit.partition import LogBuilder, fold

EAST = AgentSet(cluster="east", incarnation=7)
KEY = "east/shop"


def reported(body: Body, offset: int, incarnation: int = 7, key: str = KEY) -> Entry:
    source = Source(topic=AgentTopics("east", incarnation).reports, partition=0, offset=offset, index=0, time=0)
    return Entry(key=key, body=body, source=source)


def whole(body: Body) -> Entry:
    return Entry(key=WHOLE_PARTITION_KEY, body=body)


def pods(session: str, *names: str) -> PodList:
    listed: list[Any] = [Pod(name=name, phase="Running") for name in names]
    return PodList(list_id=f"{session}-{len(names)}", pods=listed, session=session)


def known_pods(partition: Partition) -> set[str]:
    return set(partition.state.namespace("east", "shop").pods)


def test_an_agent_is_followed_at_once_whoever_observed_the_cluster_before() -> None:
    log = LogBuilder()
    log.add(
        Entry(key=KEY, body=pods("node-1@5", "a"), source=Source(topic="t", partition=0, offset=1, index=0, time=0))
    )
    log.add(reported(pods("agent-east@1", "b"), 0))
    assert known_pods(log.partition) == {"a"}, "an observer that lives is not replaced without a registration"
    log.add(whole(EAST))
    log.add(reported(pods("agent-east@1", "b"), 1))
    assert known_pods(log.partition) == {"b"}
    log.add(reported(pods("agent-east@2", "c"), 2))
    assert known_pods(log.partition) == {"c"}, "a new leader carries the next generation"
    log.add(reported(pods("agent-east@1", "d"), 3))
    assert known_pods(log.partition) == {"c"}, "and the one before it counts no more"


def test_earlier_incarnations_and_agents_that_left_count_no_more() -> None:
    log = LogBuilder()
    log.add(whole(EAST), reported(pods("agent-east@1", "a"), 0))
    log.add(reported(pods("agent-east@9", "z"), 5, incarnation=6))
    assert known_pods(log.partition) == {"a"}
    log.add(whole(structs.replace(EAST, left=True)))
    log.add(reported(pods("agent-east@2", "b"), 6))
    assert known_pods(log.partition) == {"a"}
    log.add(whole(structs.replace(EAST, incarnation=8)), reported(pods("agent-east@1", "c"), 0, incarnation=8))
    assert known_pods(log.partition) == {"c"}


def test_a_cluster_that_leaves_takes_its_watermarks_and_sessions_along() -> None:
    log = LogBuilder()
    row = log.partition.state.row
    for cluster in ("east", "east-2"):
        agent = structs.replace(EAST, cluster=cluster)
        source = Source(topic=agent.topics.reports, partition=0, offset=1, index=0, time=0)
        beat = Heartbeat(session=f"agent-{cluster}@1", watches=["pods"])
        log.add(
            whole(agent),
            Entry(key=f"{cluster}/shop", body=pods(f"agent-{cluster}@1", "a"), source=source),
            Entry(key=f"{cluster}/shop", body=beat, source=structs.replace(source, offset=2)),
            Entry(
                key=WHOLE_PARTITION_KEY,
                body=ClusterReport(cluster=cluster, session=f"agent-{cluster}@1", instance=f"agent-{cluster}"),
                source=structs.replace(source, offset=3),
            ),
            Entry(
                key=WHOLE_PARTITION_KEY,
                body=Serving(session="s", clusters=[cluster]),
                source=structs.replace(source, offset=4),
            ),
        )
    assert {key.partition("/")[0] for key in row.sessions} == {"east", "east-2"}
    log.add(whole(structs.replace(EAST, left=True)))
    assert list(row.watermarks) == ["fleethpa.from.east-2.7-0"]
    assert {key.partition("/")[0] for key in row.sessions} == {"east-2"}
    assert [report.cluster for report in row.reports.values()] == ["east-2"]
    assert list(row.served) == ["east-2"]
    assert known_pods(log.partition) == {"a"}, "what was observed stays, and grows old"


def test_what_is_registered_again_unchanged_changes_nothing() -> None:
    log = LogBuilder()
    log.add(whole(EAST), reported(pods("agent-east@1", "a"), 0))
    before = dict(log.partition.state.row.sessions)
    log.add(whole(EAST), whole(structs.replace(EAST, incarnation=3)))
    assert log.partition.state.row.sessions == before


def test_replayed_reports_are_dropped_and_the_rows_come_back_the_same() -> None:
    log = LogBuilder()
    log.add(whole(EAST), reported(pods("agent-east@1", "a"), 4))
    log.add(reported(pods("agent-east@1", "b"), 4))
    assert known_pods(log.partition) == {"a"}
    stored = dict(fold(log.records)[0].checkpoint())
    restored = Partition.restore(0, stored)
    assert restored.state.row.agents == log.partition.state.row.agents
    assert restored.state.row.watermarks == log.partition.state.row.watermarks

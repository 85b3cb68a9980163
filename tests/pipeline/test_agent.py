"""Agents against a simulated cluster and the embedded broker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from fleethpa.lab.simulator.requests import FieldWriter
from fleethpa.lab.simulator.resources import by_kind
from reconciler.agents.agent import agenttopics
from reconciler.agents.agent.election import now_text
from reconciler.agents.agent.process import HOME
from reconciler.agents.standin.objects import lease_body
from reconciler.core.fence import LEASE
from runtime import kafkaclients
from runtime.log import wall_clock_ms
from schemas.agentknowledge import CentralHpa
from schemas.answers import Answers
from schemas.entries import Outcome
from schemas.keys import supersedes
from schemas.observed import ClusterReport, Heartbeat, PodList, ScaleSet, Serving
from schemas.settings import ClusterSettings, SettingsSet
from tests.patience import PATIENCE_S
from tests.pipeline.agent_kit import EAST, Reports, agent_topics, replica
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, rig


def replicas(made: Rig, name: str = "web") -> int:
    found = made.sims["east"].store.get(("deployments.apps", NAMESPACE, name))
    assert found is not None
    return int(found["spec"]["replicas"])


def outcomes(reports: Reports, decision: str) -> list[Outcome]:
    return [each for each in reports.of(Outcome) if each.decision == decision]


async def until(found: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not found():
            await asyncio.sleep(0.02)


async def test_an_agent_observes_its_cluster_and_carries_decisions_out_over_two_topics(tmp_path: Path) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with replica(made):
            for kind in (PodList, ScaleSet, Answers, Heartbeat, Serving):
                await reports.until(lambda kind=kind: reports.of(kind), kind.__name__)  # type: ignore[misc]
            first = await made.decider.decision(sim, "web", wants=5, seq=3)
            await orders.knowledge()
            await orders.decision(first, log_partition=2)
            ended = (await reports.until(lambda: outcomes(reports, first.id), "the outcome"))[0]
            assert (ended.result, ended.spec_replicas, replicas(made)) == ("applied", 5, 5)

            # The same number in another partition of the log is another decision; in the same one it is a repeat.
            await orders.decision(first, log_partition=2)
            other = await made.decider.decision(sim, "web", wants=6, seq=3)
            await orders.decision(other, log_partition=1)
            assert (await reports.until(lambda: outcomes(reports, other.id), "the other"))[0].result == "applied"
            assert len(outcomes(reports, first.id)) == 1
        assert {record.cluster for record in reports.records} == {"east", ""}


async def test_nothing_is_written_before_the_settings_are_known_and_a_frozen_cluster_stays_as_it_is(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with replica(made):
            early = await orders.decision(await made.decider.decision(sim, "web", wants=5, seq=1))
            ended = (await reports.until(lambda: outcomes(reports, early.id), "the outcome"))[0]
            assert (ended.result, "settings of this cluster" in ended.error) == ("refused", True)
            stated = await reports.until(lambda: [s for s in reports.of(Serving) if s.problems], "the problem")
            assert "is a router running?" in stated[0].problems["east"].error

            frozen = SettingsSet(cluster="east", settings=ClusterSettings(frozen=True))
            await orders.knowledge(settings=(frozen,))
            late = await orders.decision(await made.decider.decision(sim, "web", wants=5, seq=2))
            ended = (await reports.until(lambda: outcomes(reports, late.id), "the outcome"))[0]
            assert (ended.result, ended.error) == ("refused", "cluster east is frozen")
        assert replicas(made) == 2


async def test_an_agent_that_may_not_read_its_topic_any_more_reports_that_and_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied, check = True, kafkaclients.check_topic

    async def checked(consumer: Any, topic: str) -> None:
        if denied and topic == EAST.commands:
            raise TopicAuthorizationFailedError(topic)
        await check(consumer, topic)

    monkeypatch.setattr(kafkaclients, "check_topic", checked)
    monkeypatch.setattr(agenttopics, "RECONNECT_S", 0.1)
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports), replica(made) as part:
        stated = await reports.until(lambda: reports.of(Serving), "its report")
        problem = f"{EAST.commands} cannot be read: [Error 29] TopicAuthorizationFailedError: {EAST.commands}"
        assert stated[0].problems["east"].error.startswith(f"{problem}; its Kafka user needs READ on it")
        await until(lambda: any(problem in note for note in part.health.notes()))
        await orders.knowledge()
        denied = False
        await reports.until(lambda: not reports.of(Serving)[-1].problems, "a report without a problem")
        assert not any("cannot be read" in note for note in part.health.notes())


async def test_readyz_of_an_agent_says_that_the_stand_in_is_in_charge_and_why_it_took_over(tmp_path: Path) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, _):
        await orders.knowledge()
        lease = lease_body(HOME, "stand-in", 3, now_text(), proof_ms=60_000, grace_ms=30_000, reason="no decisions")
        key = ("leases.coordination.k8s.io", HOME, LEASE)
        async with replica(made, stand_in=True) as part:
            await until(lambda: made.sims["east"].store.get(key))
            made.sims["east"].store.put(key, (made.sims["east"].store.get(key) or {}) | lease)
            await until(lambda: any("generation 3" in note for note in part.health.notes()))
            (shown,) = [note for note in part.health.notes() if "generation 3" in note]
    assert shown == (
        "[!] in charge: the cluster is in the hands of its stand-in (generation 3, holder stand-in), "
        "which took over because of this: no decisions"
    )


async def test_a_replica_that_leads_no_longer_says_nothing_of_what_it_does_not_look_at_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(_: Any, topic: str) -> None:
        raise TopicAuthorizationFailedError(topic)

    monkeypatch.setattr(kafkaclients, "check_topic", denied)
    async with rig(tmp_path) as made, agent_topics(made), replica(made) as part:
        await until(lambda: any("cannot be read" in note for note in part.health.notes()))
        key = ("leases.coordination.k8s.io", HOME, "fleethpa-agent")
        lease = made.sims["east"].store.get(key) or {}
        taken = {"holderIdentity": "other", "renewTime": now_text(), "leaseTransitions": 9}
        made.sims["east"].store.put(key, lease | {"spec": lease["spec"] | taken})
        await until(lambda: part.term is None)
        await until(lambda: any("other, generation 9" in note for note in part.health.notes()))
        assert [note for note in part.health.notes() if "leader" not in note] == []


async def test_central_hpas_are_observed_once_they_are_known(tmp_path: Path) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        made.sims["east"].apply(deployment("api", 3))
        async with replica(made) as part:
            manifest = hpa("api")
            await orders.knowledge(CentralHpa(namespace=NAMESPACE, name="api", hpa=manifest))
            seen = await reports.until(lambda: reports.of(ScaleSet), "its scale")
            assert (seen[0].target.name, seen[0].spec_replicas) == ("api", 3)
            await reports.until(lambda: reports.of(Answers), "answers for it")
            gone = CentralHpa(namespace=NAMESPACE, name="api", deleted=True)
            await orders.knowledge(gone, snapshot="")
            assert part.term is not None
            observer = part.term.observer
            await until(lambda: not observer._state.active())


@pytest.mark.slow
async def test_a_second_replica_takes_over_with_a_session_that_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        await orders.knowledge()
        async with replica(made, identity="a") as first, replica(made, identity="b") as second:
            await until(lambda: first.term or second.term)
            leader, other = (first, second) if first.term else (second, first)
            assert other.term is None
            before = (await reports.until(lambda: reports.of(Heartbeat), "a heartbeat"))[-1].session
            # The leader's connection to the API server breaks: it can no longer renew, and stops before the other
            # may begin.
            client = leader.term.client if leader.term else None
            assert client is not None
            monkeypatch.setattr(client, "request", cut_off)
            await until(lambda: other.term is not None)
            assert leader.term is None or not leader.term.election.leads
            after = await reports.until(
                lambda: next((b.session for b in reports.of(Heartbeat) if b.session != before), None), "its successor"
            )
            assert supersedes(after, before)
            decision = await orders.decision(await made.decider.decision(sim, "web", wants=4, seq=9, ttl_ms=30_000))
            ended = (await reports.until(lambda: outcomes(reports, decision.id), "the outcome"))[0]
            assert ended.result == "applied"
            monkeypatch.undo()
    assert replicas(made) == 4


async def cut_off(*_: object, **__: object) -> None:
    from reconciler.clusters.answers import UnreachableError

    raise UnreachableError("cut off")


async def test_a_decision_left_by_a_dead_leader_is_ended_by_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        await orders.knowledge()
        decision = await orders.decision(await made.decider.decision(sim, "web", wants=4, seq=9, ttl_ms=30_000))
        async with replica(made):
            ended = (await reports.until(lambda: outcomes(reports, decision.id), "the outcome"))[0]
            assert ended.result == "applied"


async def test_what_somebody_wrote_in_the_native_controllers_name_does_not_stop_an_agent(tmp_path: Path) -> None:
    async with rig(tmp_path) as made, agent_topics(made) as (orders, reports):
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with replica(made, canary_wait_s=0.5):
            absent = SettingsSet(cluster="east", settings=ClusterSettings(native_controller="absent"))
            await orders.knowledge(settings=(absent,))
            await reports.until(
                lambda: [s for s in reports.of(Serving) if not s.problems], "that the settings are known"
            )
            # Managed fields tell seconds: what was written in the second of the settings came before them.
            await asyncio.sleep(1.1 - wall_clock_ms() % 1_000 / 1_000)
            live = sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, "web"))
            assert live is not None
            forger = FieldWriter("kube-controller-manager", subresource="status")
            kind = by_kind("autoscaling/v2", "HorizontalPodAutoscaler")
            sim.writes.update(kind, NAMESPACE, "web", live | {"status": {"currentReplicas": 9}}, forger)
            [trouble, *_] = await reports.until(
                lambda: [
                    each
                    for report in reports.of(ClusterReport)
                    for each in report.troubles
                    if "canary showed" in each.error
                ],
                "the trouble",
            )
            assert trouble.error.startswith("it wrote the status of HPA shop/web at 20")
            wanted = await orders.decision(await made.decider.decision(sim, "web", wants=5, seq=1))
            ended = (await reports.until(lambda: outcomes(reports, wanted.id), "the outcome"))[0]
            assert (ended.result, replicas(made)) == ("applied", 5)

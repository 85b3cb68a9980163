"""The reconciler against simulated clusters and the embedded broker."""

import asyncio
import itertools
import math
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition

from fleethpa.simulator.resources import by_kind
from reconciler.apply.clusterwriters import WriterLimits
from reconciler.apply.process import Reconciler, ReconcilerConfig
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.standin.evidence import is_for_want_of_rights
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition, MetricDecision
from schemas.entries import Outcome, PublicRecord
from schemas.observed import Command, Serving, Target
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import DECISIONS, SETTINGS
from tests.kit.clusters import Denial, Fault, FaultyCluster
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, rig, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

_NUMBERS = itertools.count(1)


def config(made: Rig, **changes: Any) -> ReconcilerConfig:
    given: dict[str, Any] = {"kafka": made.kafka, "clusters": made.clusters}
    return ReconcilerConfig(**given | {"limits": WriterLimits(request_timeout_s=2.0)} | changes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """Two clusters with one running reconciler for all tests; each test has a workload of its own."""
    async with rig(tmp_path_factory.mktemp("fleet"), ("east", "west")) as made:
        made.part = Reconciler(config(made, limits=WriterLimits(workers=4, request_timeout_s=2.0)))
        async with running(made.part, asyncio.Event()):
            yield made


@dataclass
class App:
    """A workload with its HPA in cluster east."""

    made: Rig
    name: str

    @property
    def sim(self) -> FaultyCluster:
        return self.made.sims["east"]

    @property
    def scale(self) -> str:
        return f"deployments/{self.name}/scale"

    @property
    def replicas(self) -> int:
        found = self.sim.store.get(("deployments.apps", NAMESPACE, self.name))
        assert found is not None
        return int(found["spec"]["replicas"])

    async def decided(self, **changes: Any) -> Decision:
        return await self.made.decider.decision(self.sim, self.name, **{"wants": 5, **changes})

    async def ends(self, decision: Decision | None = None, **changes: Any) -> Outcome:
        published = await self.made.decider.publish(decision or await self.decided(**changes))
        return await outcome(self.made, published)

    def delete(self, api_version: str, kind: str) -> None:
        self.sim.writes.delete(by_kind(api_version, kind), NAMESPACE, self.name, {})


@pytest.fixture(autouse=True)
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions are of a fixed day."""
    monkeypatch.setattr("reconciler.apply.clusterwriters.LATE_MS", math.inf)


@pytest.fixture
def app(fleet: Rig) -> Any:
    name = f"web-{next(_NUMBERS)}"
    fleet.sims["east"].apply(deployment(name))
    fleet.sims["east"].apply(hpa(name))
    yield App(fleet, name)
    fleet.sims["east"].clear_faults()
    fleet.sims["east"].deny([])


async def outcome(made: Rig, decision: Decision, timeout_s: float = 60.0) -> Outcome:
    def found() -> Any:
        return next((each for each in made.topics.of(Outcome) if each.decision == decision.id), None)

    result: Outcome = await made.topics.until(found, f"outcome of {decision.id}", timeout_s)
    return result


def asked(sim: FaultyCluster, verb: str, path: str) -> list[Any]:
    return [each for each in sim.api.audit if each.verb == verb and path in each.path and each.code == 200]


def taken(made: Rig) -> float:
    """How many wanted writes the reconciler has read."""
    found = made.part.health.registry.get_sample_value("fleethpa_reconciler_decisions_total", {"asks": "write"})
    return found or 0.0


# --- one write -------------------------------------------------------------------------------------------------------


async def test_a_wanted_write_is_written_and_reported(app: App) -> None:
    reported = await app.ends()
    assert (reported.result, reported.spec_replicas, reported.attempts, reported.error) == ("applied", 5, 1, "")
    assert reported.resource_version
    assert app.replicas == 5
    assert asked(app.sim, "update", app.scale)[0].manager == "fleethpa"


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        pytest.param({"method": "PUT", "status": 409, "remaining": 2}, 3, id="two conflicts, then it goes through"),
        pytest.param({"status": 429, "retry_after_s": 1, "remaining": 1}, 2, id="429 waits as long as it asks for"),
        pytest.param({"status": 500, "remaining": 2}, 3, id="an error on the server passes"),
        pytest.param({"status": 503, "remaining": 1}, 2, id="an unavailable server comes back"),
        # The HTTP client itself repeats a GET once on a connection that it had kept.
        pytest.param({"action": "drop", "remaining": 2}, 2, id="a dropped connection is tried again"),
        pytest.param({"action": "hang", "remaining": 1}, 2, id="a hung request is given up and tried again"),
        pytest.param(
            {"method": "PUT", "action": "drop", "after": True, "remaining": 1},
            2,
            id="a write whose answer was lost is found applied",
        ),
    ],
)
async def test_trouble_that_passes_ends_as_applied(app: App, fault: dict[str, Any], attempts: int) -> None:
    app.sim.add_fault(Fault(path=app.scale, **fault))
    reported = await app.ends()
    assert reported.result == "applied"
    assert reported.attempts <= attempts if fault.get("action") == "drop" else reported.attempts == attempts
    assert app.replicas == 5


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param({"method": "PUT", "status": 409, "message": "modified"}, "modified", id="conflicts without end"),
        pytest.param({"status": 503, "message": "down"}, "down", id="unavailable longer than the time to live"),
        pytest.param({"action": "hang"}, "no answer within", id="hangs longer than the time to live"),
        pytest.param({"method": "PUT", "status": 422, "message": "bad"}, "bad", id="a write that is invalid"),
    ],
)
async def test_trouble_that_stays_ends_as_failed_with_its_text(app: App, fault: dict[str, Any], says: str) -> None:
    app.sim.add_fault(Fault(path=app.scale, **fault))
    reported = await app.ends(
        ttl_ms=3_000
    )  # long enough for a first attempt on a busy machine: without one it is `stale`
    assert reported.result == "failed"
    assert says in reported.error
    assert app.replicas == 2


async def test_a_proxy_that_answers_in_the_servers_place_is_trouble_and_no_end(app: App) -> None:
    app.sim.add_fault(Fault(path=app.scale, status=200, message="please log in"))
    ended = await app.ends(ttl_ms=3_000)
    assert ended.result == "failed"
    assert "not an object of Kubernetes" in ended.error
    assert "please log in" in ended.error
    app.sim.clear_faults()
    assert (await app.ends()).result == "applied"


async def test_a_forbidden_write_fails_with_the_servers_words(app: App) -> None:
    app.sim.deny([Denial(resource="deployments/scale", verb="update")])
    reported = await app.ends()
    assert reported.result == "failed"
    assert 'cannot update resource "deployments/scale"' in reported.error
    assert is_for_want_of_rights(reported.error)
    app.sim.deny([])
    assert (await app.ends()).result == "applied", "a permission that is back is used at once"


async def test_a_server_that_comes_back_with_older_resource_versions_is_read_anew_and_written_to(app: App) -> None:
    first = await app.ends(wants=5)
    # The server goes away between a read and its write, and its versions begin anew.
    number = app.sim.add_fault(Fault(path=app.scale, method="PUT", action="hang"))
    reads = len(asked(app.sim, "get", app.scale))
    decision = await app.made.decider.publish(await app.decided(wants=6, ttl_ms=30_000))
    await app.made.topics.until(lambda: len(asked(app.sim, "get", app.scale)) > reads, "the scale was read")
    await app.sim.restart_from_backup()
    app.sim.clear_faults(number)
    reported = await outcome(app.made, decision, timeout_s=60)
    assert reported.result == "applied", reported.error
    assert int(reported.resource_version) < int(first.resource_version)
    assert app.replicas == 6


async def test_a_deleted_target_fails_with_the_servers_words(app: App) -> None:
    decision = await app.decided()
    app.delete("apps/v1", "Deployment")
    reported = await app.ends(decision)
    assert (reported.result, reported.error) == ("failed", f'deployments.apps "{app.name}" not found')


async def test_replicas_changed_by_another_hand_are_left_alone(app: App) -> None:
    decision = await app.decided()
    app.sim.apply(deployment(app.name, 4), manager="kubectl")
    reported = await app.ends(decision)
    assert reported.result == "refused"
    assert "from 2 to 4" in reported.error
    assert app.replicas == 4


async def test_a_write_behind_a_read_is_a_conflict_and_ends_as_refused(app: App) -> None:
    # The replicas move between the read and the write: the resource version catches it, the second read sees it.
    number = app.sim.add_fault(Fault(path=app.scale, method="PUT", action="hang", after=False))
    decision = await app.made.decider.publish(await app.decided())
    await app.made.topics.until(lambda: asked(app.sim, "get", app.scale), "the scale was read")
    app.sim.apply(deployment(app.name, 3), manager="kubectl")
    app.sim.clear_faults(number)
    reported = await outcome(app.made, decision)
    assert reported.result == "refused"
    assert "from 2 to 3" in reported.error
    assert app.replicas == 3


async def test_a_deleted_hpa_is_not_acted_for(app: App) -> None:
    decision = await app.decided()
    app.delete("autoscaling/v2", "HorizontalPodAutoscaler")
    reported = await app.ends(decision)
    assert (reported.result, reported.error) == ("refused", "the HPA was deleted")


async def test_limits_are_the_live_ones(app: App) -> None:
    decision = await app.decided(wants=9)
    app.sim.apply(hpa(app.name, high=6))
    reported = await app.ends(decision)
    assert reported.result == "refused"
    assert "1 to 6" in reported.error


async def test_a_newer_decision_takes_an_older_ones_place(app: App) -> None:
    number = app.sim.add_fault(Fault(path=app.scale, method="GET", action="hang"))
    before = taken(app.made)
    older = await app.made.decider.publish(await app.decided(wants=5))
    newer = await app.made.decider.publish(await app.decided(wants=6))
    await app.made.topics.until(lambda: taken(app.made) == before + 2, "the newer decision was read")
    app.sim.clear_faults(number)
    assert (await outcome(app.made, newer)).result == "applied"
    assert (await outcome(app.made, older)).result == "superseded"
    assert app.replicas == 6


async def test_a_newer_decisions_write_is_no_other_hand_to_an_older_one_that_was_slow(app: App) -> None:
    hangs = Fault(path=app.scale, method="GET", action="hang", remaining=1)
    app.sim.add_fault(hangs)
    older = await app.made.decider.publish(await app.decided(wants=5))
    await app.made.topics.until(lambda: hangs.remaining == 0, "the older one's read hangs")
    newer = await app.made.decider.publish(await app.decided(wants=6))
    assert (await outcome(app.made, newer)).result == "applied"
    app.sim.clear_faults(hangs.number)
    reported = await outcome(app.made, older)
    assert (reported.result, reported.error) == ("superseded", "a newer decision took its place")
    assert app.replicas == 6


async def test_a_wish_past_its_time_to_live_is_stale(app: App) -> None:
    assert (await app.ends(ttl_ms=-1)).result == "stale"
    assert app.replicas == 2


# --- settings ---------------------------------------------------------------------------------------------------------


async def until_ends_as(app: App, result: str) -> Outcome:
    """Decide again until a write ends as `result`: settings are followed beside decisions."""
    while (reported := await app.ends(wants=3 if app.replicas != 3 else 4)).result != result:
        await app.made.topics.read()
    return reported


async def test_a_frozen_cluster_is_not_written_to_until_it_thaws(app: App) -> None:
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)))
    reported = await until_ends_as(app, "refused")
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(frozen=False)))
    assert reported.error == "cluster east is frozen"
    await until_ends_as(app, "applied")


async def test_a_pause_that_comes_after_the_decision_stops_its_write(app: App) -> None:
    pause = Command(command="pause", cluster="*", pause_kind="scaleUp" if app.replicas == 3 else "all")
    await _set(app.made, pause)
    reported = await until_ends_as(app, "refused")
    await _set(app.made, Command(command="resume", cluster="*"))
    assert "cluster east was paused after the decision" in reported.error
    await until_ends_as(app, "applied")


async def test_a_cluster_with_an_agent_is_the_agents_to_write(app: App) -> None:
    await _set(app.made, AgentSet(cluster="east", incarnation=1))
    reported = await until_ends_as(app, "refused")
    await _set(app.made, AgentSet(cluster="east", incarnation=1, left=True))
    assert reported.error == "cluster east has an agent, which alone writes there"
    await until_ends_as(app, "applied")


async def _set(made: Rig, entry: SettingsSet | AgentSet | Command) -> None:
    record = PublicRecord(v=1, entries=[entry], time=1)
    producer = AIOKafkaProducer(bootstrap_servers=made.kafka.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait(SETTINGS, encode(record), key=b"*", partition=0)
    await producer.stop()


# --- status and events ------------------------------------------------------------------------------------------------

CONDITION = {
    "type": "AbleToScale",
    "status": "True",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
    "reason": "SucceededRescale",
    "message": "the HPA controller was able to update the target scale to 5",
}
STATUS = {"currentReplicas": 2, "desiredReplicas": 5, "currentMetrics": None, "conditions": [CONDITION]}
RESCALE = [("Normal", "SuccessfulRescale", "New size: 5; reason: cpu resource above target")]


def events(app: App, about: str) -> list[Any]:
    found = app.sim.store.listing("events", NAMESPACE)
    return [
        each for each in found if each["involvedObject"]["name"] == app.name and each["involvedObject"]["kind"] == about
    ]


async def test_status_and_events_of_enforced_hpas_are_written_once(app: App) -> None:
    about = "HorizontalPodAutoscaler"
    for time in ("2026-11-21T12:00:00.500Z", "2026-11-21T12:01:00.500Z"):
        shown = await app.decided(wants=None, kind="completion", status=STATUS, events=RESCALE, time=time)
        await app.made.decider.publish(shown)
    await app.made.topics.until(
        lambda: events(app, about) and events(app, about)[0]["count"] == 2, "the event, counted twice"
    )
    live = app.sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, app.name))
    assert live is not None
    assert live["status"]["desiredReplicas"] == 5
    assert live["status"]["conditions"] == [CONDITION]
    assert len(asked(app.sim, "update", f"{app.name}/status")) == 1
    (event,) = events(app, about)
    assert event["involvedObject"]["uid"] == live["metadata"]["uid"]
    assert event["source"] == {"component": "horizontal-pod-autoscaler"}
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-11-21T12:00:00Z", "2026-11-21T12:01:00Z")


CPU = MetricDecision(type="Resource", name="cpu", value=100, utilization=50)
FAILED = [("Warning", "FailedGetResourceMetric", "no metrics returned")]


def shown(app: App) -> Any:
    """The utilization that the HPA's status shows in the cluster."""
    live = app.sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, app.name))
    assert live is not None
    metrics = (live.get("status") or {}).get("currentMetrics") or [{}]
    return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")


def shows(app: App, percent: int) -> bool:
    return bool(shown(app) == percent)


async def steady(app: App, **changes: Any) -> Decision:
    """A full record of an evaluation that changes nothing."""
    current = {"averageUtilization": 50, "averageValue": "100m"}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    status = STATUS | {"desiredReplicas": 2, "currentMetrics": metrics}
    return await app.decided(wants=None, status=status, metrics=[CPU], **changes)


async def test_the_status_is_as_fresh_as_the_evaluations_that_repeat_the_last_full_record(app: App) -> None:
    full = await app.made.decider.publish(await steady(app, events=FAILED))
    for number, percent in enumerate((60, 70, 70, 121)):
        await app.made.decider.repeat(
            full, f"2026-11-21T12:01:{15 * number:02}.000Z", (2 * percent, percent, 2, "1.0", "")
        )
        await app.made.topics.until(partial(shows, app, percent), f"{percent} % in the status")

    def counted() -> Any:
        return [(each["count"], each["lastTimestamp"]) for each in events(app, "HorizontalPodAutoscaler")]

    await app.made.topics.until(lambda: counted() == [(5, "2026-11-21T12:01:45Z")], "an event per evaluation")
    writes = asked(app.sim, "update", f"{app.name}/status")
    assert len(writes) == 4, "one each time the status differs"
    assert len(asked(app.sim, "get", f"/{app.name}")) == 1, "and nothing is read in between"


async def test_a_reconciler_that_begins_learns_the_full_records_that_short_ones_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.groups.LOOK_BACK", 0)
    async with rig(tmp_path) as made:
        app = App(made, "web")
        app.sim.apply(deployment("web"))
        app.sim.apply(hpa("web"))
        full = await made.decider.publish(await steady(app))
        async with running(Reconciler(config(made)), asyncio.Event()):
            for percent in range(60, 90):
                await made.decider.repeat(full, "2026-11-21T12:00:15.000Z", (2 * percent, percent, 2, "1.0", ""))
                await made.topics.read()
                if shown(app):
                    break
            await made.topics.until(lambda: (shown(app) or 0) >= 60, "a short record's status")


async def test_shadow_decisions_write_nothing(app: App) -> None:
    shadow = await app.decided(wants=7, mode="shadow", status={"desiredReplicas": 7}, events=[("Normal", "A", "b")])
    await app.made.decider.publish(shadow)
    assert (await app.ends()).result == "applied"
    assert shadow.id not in {each.decision for each in app.made.topics.of(Outcome)}
    assert not events(app, "HorizontalPodAutoscaler")
    assert not asked(app.sim, "update", f"{app.name}/status")


async def test_events_of_a_central_hpa_are_about_its_target(app: App) -> None:
    decision = await app.made.decider.decision(
        app.sim,
        "central",
        uid="central-1",
        origin="central",
        wants=5,
        current_replicas=2,
        events=[("Normal", "Ok", "fine")],
        scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
        target=Target(group="apps", kind="Deployment", name=app.name),
    )
    assert (await app.ends(decision)).result == "applied"
    await app.made.topics.until(lambda: events(app, "Deployment"), "the event")
    target = app.sim.store.get(("deployments.apps", NAMESPACE, app.name))
    assert target is not None
    assert events(app, "Deployment")[0]["involvedObject"]["uid"] == target["metadata"]["uid"]


# --- several ----------------------------------------------------------------------------------------------------------


async def test_a_dead_cluster_delays_no_other(fleet: Rig) -> None:
    for sim in fleet.sims.values():
        for i in range(20):
            sim.apply(deployment(f"app-{i}"))
            sim.apply(hpa(f"app-{i}"))
    fleet.sims["west"].add_fault(Fault(action="hang"))
    dead = [await fleet.decider.wants(fleet.sims["west"], f"app-{i}", 5, ttl_ms=6_000) for i in range(20)]
    alive = [await fleet.decider.wants(fleet.sims["east"], f"app-{i}", 5) for i in range(5)]
    results = [await outcome(fleet, decision) for decision in alive]
    # All of east is done while west, asked for first, still waits for its first answers.
    reported = {each.decision for each in fleet.topics.of(Outcome)}
    assert not reported & {decision.id for decision in dead}
    assert {each.result for each in results} == {"applied"}
    ends = [await outcome(fleet, decision) for decision in dead]
    fleet.sims["west"].clear_faults()
    assert {each.result for each in ends} == {"failed"}


async def test_a_killed_reconcilers_write_is_found_applied_and_committed_ones_are_not_read_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after kill -9 between the write and its outcome: a group that has committed nothing reads all again.
    made = app.made
    # The embedded broker lets whoever joins a group that its only member just left wait for most of a session.
    monkeypatch.setattr("reconciler.apply.process.SESSION_TIMEOUT_MS", 4_000)
    first = await made.decider.publish(await app.decided(wants=5))
    await outcome(made, first)

    def reported(decision: Decision) -> list[Outcome]:
        return [each for each in made.topics.of(Outcome) if each.decision == decision.id]

    again = config(made, group="came-back")
    async with running(Reconciler(again), asyncio.Event()):
        await made.topics.until(lambda: len(reported(first)) == 2, "the outcome once more")
    assert [each.result for each in reported(first)] == ["applied", "applied"]
    assert len(asked(app.sim, "update", app.scale)) == 1
    second = await made.decider.publish(await app.decided(wants=6))
    async with running(Reconciler(again), asyncio.Event()):
        await made.topics.until(lambda: len(reported(second)) == 2, "the second outcome, of both groups")
    assert len(reported(first)) == 2


async def test_reconcilers_of_different_clusters_each_write_for_their_own(tmp_path: Path) -> None:
    namespaces = ("shop", "data", "media", "web")
    async with rig(tmp_path, ("east", "west")) as made:
        for sim in made.sims.values():
            for namespace in namespaces:
                sim.apply(deployment("app", namespace=namespace))
                sim.apply(hpa("app", namespace=namespace))
        each = {cluster.name: Reconciler(config(made, clusters=(cluster,))) for cluster in made.clusters}
        async with running(each["east"], asyncio.Event()), running(each["west"], asyncio.Event()):
            decided = [
                await made.decider.wants(sim, "app", 5, namespace=namespace, current_replicas=2)
                for sim in made.sims.values()
                for namespace in namespaces
            ]
            ends = [await outcome(made, decision) for decision in decided]
            assert {end.result for end in ends} == {"applied"}

            def received() -> bool:
                return {tuple(beat.clusters) for beat in made.topics.of(Serving)} == {("east",), ("west",)}

            await made.topics.until(received, "a word of each reconciler")


async def test_a_reconciler_says_which_cluster_it_cannot_reach(tmp_path: Path) -> None:
    async with rig(tmp_path, ("east", "west")) as made:
        made.sims["east"].apply(deployment("app"))
        made.sims["east"].apply(hpa("app"))
        made.sims["east"].add_fault(Fault(action="drop"))
        part = Reconciler(config(made, heartbeat_ms=200))
        async with running(part, asyncio.Event()):
            decision = await made.decider.wants(made.sims["east"], "app", 5, ttl_ms=3_000)
            assert (await outcome(made, decision)).result == "failed"

            def reported() -> Any:
                return next((beat for beat in made.topics.of(Serving) if beat.problems), None)

            beat = await made.topics.until(reported, "a beat with the problem")
            assert (beat.clusters, list(beat.problems)) == (["east", "west"], ["east"])


async def test_two_reconcilers_that_both_think_it_is_theirs_write_each_wish_once(fleet: Rig) -> None:
    # As with one that was paused and came back: both read every decision, the resource version lets one win.
    sim = fleet.sims["east"]
    names = [f"twice-{i}" for i in range(12)]
    for name in names:
        sim.apply(deployment(name))
        sim.apply(hpa(name))
    async with running(Reconciler(config(fleet, group="came-back-too")), asyncio.Event()):
        decisions = [await fleet.decider.wants(sim, name, 5, ttl_ms=60_000) for name in names]
        wanted = {decision.id for decision in decisions}

        def reported() -> list[Outcome]:
            return [each for each in fleet.topics.of(Outcome) if each.decision in wanted]

        # At least: where the group rebalances, one of them reads a decision again.
        await fleet.topics.until(
            lambda: all(sum(each.decision == id_ for each in reported()) >= 2 for id_ in wanted),
            "both tell every outcome",
        )
    assert {each.result for each in reported()} == {"applied"}
    assert len(asked(sim, "update", "/deployments/twice-")) == len(names)


async def test_a_write_whose_partition_moves_while_it_runs_is_not_reported_as_given_up(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web"))
        sim.apply(hpa("web"))
        part = Reconciler(config(made))
        async with running(part, asyncio.Event()):
            # The group may rebalance by itself at its start, and then the write continues for its second reading.
            await outcome(made, await made.decider.wants(sim, "web", 3))
            await _until(lambda: bool(part._member._committed))
            number = sim.add_fault(Fault(path="deployments/web/scale", method="PUT", action="hang"))
            before = len(asked(sim, "get", "deployments/web/scale"))
            decision = await made.decider.wants(sim, "web", 5, ttl_ms=60_000)
            await _until(lambda: len(asked(sim, "get", "deployments/web/scale")) > before)
            # What a rebalance does that gives the partitions back to the same member: this write is not committed.
            partitions = part._consumer.assignment()
            await part._member.on_partitions_revoked(partitions)
            await _until(lambda: not len(part._writers._workers["east"].writes))
            await part._consumer.seek_to_beginning(*partitions)
            sim.clear_faults(number)
            first = await outcome(made, decision)
            assert (first.result, first.error) == ("applied", "")
            await _until(lambda: bool(part._member._committed))
            assert {each.result for each in made.topics.of(Outcome)} == {"applied"}


def decision_record(offset: int, seq: int, name: str) -> ConsumerRecord[bytes, bytes]:
    decision = Decision(
        id=f"0-{offset}-{name}",
        seq=seq,
        prev="",
        cluster="east",
        namespace=NAMESPACE,
        name=name,
        uid="u",
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=0, offset=0, hash=""),
        scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        mode="enforce",
        wants=5,
    )
    named: dict[str, Any] = {"timestamp": 0, "timestamp_type": 0, "key": None, "checksum": None, "headers": ()}
    named |= {"serialized_key_size": -1, "serialized_value_size": -1}
    return ConsumerRecord("d", 0, offset, value=encode(decision), **named)


@pytest.mark.parametrize(
    ("end", "again", "taken_again"),
    [
        pytest.param(9, (3, 1, "api"), True, id="a topic created again, whose numbers begin anew"),
        pytest.param(902, (900, 50, "web"), False, id="records that are read once more"),
    ],
)
async def test_reading_that_goes_back_takes_only_what_is_new(
    end: int, again: tuple[int, int, str], taken_again: bool
) -> None:
    part = Reconciler(ReconcilerConfig(kafka=KafkaSettings(), clusters=()))
    async with asyncio.TaskGroup() as group:
        for task in part._writers.open(ClusterClient(ClusterConfig("east")), group):
            task.cancel()
    for place in ((900, 50, "web"), (901, 50, "repeat")):
        part._take(0, decision_record(*place))
    writes = part._writers._workers["east"].writes
    assert writes.take_back("0-900-web") is not None
    assert len(writes) == 0, "the second is a repeat"
    part.went_back(TopicPartition(DECISIONS, 0), end)
    part._take(0, decision_record(*again))
    assert len(writes) == taken_again


async def _until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_kill_9_between_the_write_and_its_outcome_ends_as_applied(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, group, write_scale = app.made, "killed", app.sim.writes.write_scale

    def write_and_fall_silent(*arguments: Any, **options: Any) -> Any:
        written = write_scale(*arguments, **options)
        app.sim.add_fault(Fault(path=app.scale, action="hang"))
        return written

    # The write happens, its answer and every later one get lost.
    monkeypatch.setattr(app.sim.writes, "write_scale", write_and_fall_silent)
    app.sim.add_fault(Fault(path=app.scale, method="PUT", action="drop", after=True))
    arguments = ["--brokers", made.kafka.bootstrap_servers, "--kubeconfig", str(made.kubeconfig), "--group", group]
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fleethpa", "run", "reconciler", *arguments, stderr=asyncio.subprocess.PIPE
    )
    assert victim.stderr is not None
    async with asyncio.timeout(30):
        while b"reconciler is running" not in await victim.stderr.readline():
            assert victim.returncode is None
    decision = await made.decider.publish(await app.decided(ttl_ms=60_000))
    await made.topics.until(lambda: app.replicas == 5, "the write")
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    app.sim.clear_faults()

    def reported() -> list[Outcome]:
        return [each for each in made.topics.of(Outcome) if each.decision == decision.id]

    await made.topics.until(lambda: len(reported()) == 1, "the outcome of the fixture's reconciler")
    # The group waits for the dead member's session to end.
    async with running(Reconciler(config(made, group=group)), asyncio.Event(), timeout_s=70):
        await made.topics.until(lambda: len(reported()) == 2, "the outcome of the one that came back", 60)
    assert {each.result for each in reported()} == {"applied"}
    assert app.replicas == 5

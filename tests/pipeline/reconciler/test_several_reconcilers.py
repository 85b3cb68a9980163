"""Several clusters, and several reconcilers: that end, are killed, or lose partitions to each other."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from reconciler.apply.process import Reconciler, ReconcilerConfig
from reconciler.clusters.client import ClusterClient, ClusterConfig
from schemas.codec import encode
from schemas.connection import KafkaSettings
from schemas.decisions import Decision, InputPosition
from schemas.entries import Outcome
from schemas.observed import Serving
from schemas.topics import DECISIONS
from tests.kit.clusters import Fault
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, rig, running
from tests.pipeline.reconciler.reconciler_kit import App, asked, config, outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
                # The first report of each is of the time, and names no cluster.
                return {tuple(beat.clusters) for beat in made.topics.of(Serving)} == {(), ("east",), ("west",)}

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
        part._process(0, decision_record(*place))
    writes = part._writers._workers["east"].writes
    assert writes.remove("0-900-web") is not None
    assert len(writes) == 0, "the second is a repeat"
    part.went_back(TopicPartition(DECISIONS, 0), end)
    part._process(0, decision_record(*again))
    assert len(writes) == taken_again


async def _until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
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
    async with asyncio.timeout(PATIENCE_S):
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
    async with running(Reconciler(config(made, group=group)), asyncio.Event()):
        await made.topics.until(lambda: len(reported()) == 2, "the outcome of the one that came back", 60)
    assert {each.result for each in reported()} == {"applied"}
    assert app.replicas == 5

"""The reconciler as a process on Apache Kafka: killed between a write and its outcome, and a while without Kafka."""

import asyncio
from pathlib import Path

import pytest

from schemas import topics
from schemas.codec import decode
from schemas.decisions import Decision
from schemas.entries import Outcome, PublicRecord
from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import MAX_REPLICAS, Rig, World
from tests.kafka.run_reading import Run, count
from tests.kit.clusters import audit_of

WAIT_S = 240.0
AWAY_S = 12.0
"""Longer than a wanted write lives and than a session lasts."""
RESCALED = "SuccessfulRescale"


@pytest.mark.slow
async def test_every_wanted_write_ends_over_a_kill_between_write_and_outcome_and_over_an_outage_of_kafka(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    async with Rig(kafka, tmp_path / "rig", World(clusters=2, namespaces=3, hpas=1)) as rig:
        for name in ("ingest-0", "decider-0", "observer-0"):
            rig.add(name)
        doomed = rig.add("reconciler-0", crash_at="before-outcome*2")
        assert await asyncio.to_thread(doomed.running.wait, WAIT_S) == -9, rig.tails()
        killed = unanswered(await Run.read(rig.settings))
        written = scaled(rig.world)
        doomed.start()
        await answered(rig, killed)  # before the outage, in which the decider would take their writes for failed
        kafka.pause()
        await asyncio.sleep(AWAY_S)  # the length of the outage, not a wait for something
        kafka.resume()
        await outcomes(rig, 6)
        for name in ("observer-0", "reconciler-0", "ingest-0", "decider-0"):
            await rig.stop(name)
    run = await Run.read(rig.settings)
    check_killed(run, killed, written)
    assert run.unended_writes(max(one.time_ms for one in run.recorded()) - 20_000) == []
    assert all(2 <= rig.world.replicas(hpa) <= MAX_REPLICAS for hpa in rig.world.hpas)


def reported(run: Run) -> dict[str, Outcome]:
    """The outcomes, by decision; the first of each counts."""
    found: dict[str, Outcome] = {}
    for records in run.public[topics.OUTCOMES].values():
        for record in records:
            for entry in decode(record.value, PublicRecord).entries:
                if isinstance(entry, Outcome):
                    found.setdefault(entry.decision, entry)
    return found


def unanswered(run: Run) -> set[str]:
    """Decisions that want a write and have no outcome."""
    return {one.decision.id for one in run.recorded() if one.decision.wants is not None} - set(reported(run))


def scaled(world: World) -> set[tuple[str, str]]:
    """Cluster and path of every scale that was written."""
    return {
        (name, entry.path.partition("?")[0])
        for name in {hpa.cluster for hpa in world.hpas}
        for entry in audit_of(world.fleet[name])
        if entry.verb == "update" and entry.path.partition("?")[0].endswith("/scale") and entry.code == 200
    }


def check_killed(run: Run, killed: set[str], written: set[tuple[str, str]]) -> None:
    """A write that was done before the kill ends as applied, and its completion records the scale event."""
    ends = reported(run)
    by_id = {one.decision.id: one.decision for one in run.recorded()}
    done = [by_id[i] for i in killed if (by_id[i].cluster, scale_path(by_id[i])) in written]
    assert done, "the reconciler died between a write and its outcome"
    completions = {one.completes: one for one in by_id.values() if one.completes}
    for decision in done:
        assert ends[decision.id].result == "applied", ends[decision.id]
        assert [event[1] for event in completions[decision.id].events] == [RESCALED]


def scale_path(decision: Decision) -> str:
    """Where the scale of a decision's target is."""
    namespace, name = decision.namespace, decision.name
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"


async def outcomes(rig: Rig, more: int) -> None:
    """Wait for so many more outcomes, as a supervisor of the parts."""
    wanted = await count(rig.settings, topics.OUTCOMES) + more
    async with asyncio.timeout(WAIT_S):
        while await count(rig.settings, topics.OUTCOMES) < wanted:
            rig.heal()
            await asyncio.sleep(0.3)


async def answered(rig: Rig, decisions: set[str]) -> None:
    """Wait until each of these decisions has an outcome, as a supervisor of the parts."""
    async with asyncio.timeout(WAIT_S):
        while decisions - set(reported(await Run.read(rig.settings))):
            rig.heal()
            await asyncio.sleep(0.3)

"""The whole fleet on Apache Kafka: `admin topics init`, `dev --brokers`, and parts that share partitions."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient

from reconciler.apply.process import reconciler_group
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import Rig, World
from tests.kafka.run_reading import Run, first_difference
from tests.kit.decider_process import ROOT

FLEETHPA = (sys.executable, "-m", "fleethpa")


async def until(true: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 300.0) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + timeout_s
    while not await true():
        assert time.monotonic() < deadline, f"not in {timeout_s:.0f} s: {what}"
        await asyncio.sleep(0.3)


async def fleethpa(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run a command, which must end with this code; what it printed."""
    environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(folder), "USER": "anna"}
    command = [*FLEETHPA, *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


async def test_dev_brokers_runs_the_simulated_fleet_and_decides_what_a_replay_does(
    kafka: KafkaBroker, settings: KafkaSettings, tmp_path: Path
) -> None:
    shape = ("--partitions", "4", "--replication-factor", "1", "--brokers", kafka.bootstrap)
    assert "topic/fleethpa.log created" in await fleethpa(tmp_path, "admin", "topics", "init", *shape)
    assert "all topics are as they should be" in await fleethpa(tmp_path, "admin", "topics", "check", *shape)
    with (tmp_path / "dev.out").open("wb") as out:
        command = [*FLEETHPA, "dev", "--brokers", kafka.bootstrap]
        environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(tmp_path)}
        dev = subprocess.Popen(command, env=environ, stdout=out, stderr=out, cwd=tmp_path)
    try:

        async def is_up() -> bool:
            stated = (tmp_path / "dev.out").read_text()
            assert dev.poll() is None, stated
            return "Ctrl-C ends it." in stated

        await until(is_up, "dev is up")
        assert "(Kafka)" in (tmp_path / "dev.out").read_text()
        seen: dict[str, set[int]] = {}

        async def moves() -> bool:
            for item in json.loads(await fleethpa(tmp_path, "get", "hpa", "-A", "-o", "json"))["items"]:
                name = f"{item['cluster']}/{item['metadata']['namespace']}/{item['metadata']['name']}"
                seen.setdefault(name, set()).add(item["status"].get("currentReplicas", 0))
            return any(len(counts - {0}) > 1 for counts in seen.values())

        await until(moves, "replicas move")
        dev.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(dev.wait, 60) == 0, (tmp_path / "dev.out").read_text()
    finally:
        if dev.poll() is None:
            dev.kill()
    run = await Run.read(settings)
    replayed = run.replayed()
    # What was appended while the decider ended is decided by the next one.
    known = {number: values[: len(run.decisions[number])] for number, values in replayed.items()}
    assert first_difference(known, run.decisions) == ""
    assert sum(map(len, known.values())) >= 7


async def test_two_of_each_share_the_partitions_and_the_clusters_follow(kafka: KafkaBroker, tmp_path: Path) -> None:
    world = World(clusters=2, namespaces=3, hpas=1)
    async with Rig(kafka, tmp_path / "rig", world, static=False) as rig:
        for name in ("ingest-0", "ingest-1", "decider-0", "decider-1", "reconciler-0", "reconciler-1", "observer-0"):
            rig.add(name)
        before = {hpa: world.replicas(hpa) for hpa in world.hpas}

        async def all_move() -> bool:
            assert not any(part.ended for part in rig.parts.values()), rig.tails()
            return all(world.replicas(hpa) != count for hpa, count in before.items())

        await until(all_move, "the replicas of every target change", 240)
        for group in (topics.INGEST_GROUP, reconciler_group(world.fleet.clusters), topics.DECIDER_APP_ID):
            assert await _members(rig.settings, group) == 2
        # First those that write what ingest reads: what they say last is to be in the log, too.
        for name in ("observer-0", "reconciler-0", "reconciler-1"):
            await rig.stop(name)

        async def all_read() -> bool:
            return not (await Run.read(rig.settings)).lost_inputs()

        await until(all_read, "ingest has read everything", 60)
        for name in ("ingest-0", "ingest-1", "decider-0", "decider-1"):
            await rig.stop(name)
    run = await Run.read(rig.settings)
    assert run.lost_inputs() == []
    replayed = run.replayed()
    known = {number: values[: len(run.decisions[number])] for number, values in replayed.items()}
    assert first_difference(known, run.decisions) == ""


async def _members(settings: KafkaSettings, group: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    try:
        (answer,) = await admin.describe_consumer_groups([group])
        return len(answer.groups[0][5])
    finally:
        await admin.close()

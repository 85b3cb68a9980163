"""Every part signed in with SCRAM over TLS, with the permissions of `fleethpa topics acls` and no others."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.acls import Component
from schemas import topics
from schemas.connection import KafkaSettings
from tests.decider_process import ROOT
from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import Rig, World
from tests.kafka.granting import grant
from tests.kafka.secured import scram, secured_broker
from tests.kafka.test_pipeline import fleethpa, until

USERS = ("observer", "ingest", "decider", "reconciler", "reader", "operator")
DENIED: dict[str, tuple[Component, str]] = {
    "denied-0": ("ingest", topics.PODS),
    "denied-1": ("ingest", topics.INGEST_GROUP),
    "denied-2": ("reconciler", topics.DECISIONS),
    "denied-3": ("reconciler", topics.SETTINGS),
    "denied-4": ("reconciler", topics.RECONCILER_GROUPS),
    "denied-5": ("observer", topics.SAMPLES),
    "denied-6": ("observer", topics.SETTINGS),
}
"""User → the component that it runs, and what it may not use."""


@dataclass
class Guarded:
    """A broker with security on, and a `client.properties` per user."""

    broker: KafkaBroker
    admin: KafkaSettings
    properties: dict[str, Path]


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    users = (*USERS, *DENIED)
    async with secured_broker(tmp_path / "kafka", users) as found:
        properties = {name: found.properties(tmp_path / f"{name}.properties", *scram(name)) for name in users}
        yield Guarded(found.broker, found.admin, properties)


async def test_every_part_works_with_its_least_permissions(guarded: Guarded, tmp_path: Path) -> None:
    for name in USERS:
        await grant(guarded.admin, name, f"User:{name}")  # type: ignore[arg-type]
    world = World(clusters=1, namespaces=2, hpas=1)
    # Static members stay in their group until their session ends, and the reset below asks for an empty group.
    secured = {"settings": guarded.admin, "properties": guarded.properties}
    rig = Rig(guarded.broker, tmp_path / "rig", world, static=False, **secured)  # type: ignore[arg-type]
    async with rig:
        rig.add_all()
        before = {hpa: world.replicas(hpa) for hpa in world.hpas}

        async def all_move() -> bool:
            assert not any(part.ended for part in rig.parts.values()), rig.tails()
            return all(world.replicas(hpa) != count for hpa, count in before.items())

        await until(all_move, "the replicas of every target change", 240)
        reach = ("--brokers", guarded.broker.bootstrap, "--kafka-config")
        reader, operator = ((*reach, str(guarded.properties[name])) for name in ("reader", "operator"))
        assert "n0/app0" in (await fleethpa(tmp_path, "get", "hpa", "-A", *reader)).replace("  ", "").replace(" ", "/")
        await fleethpa(tmp_path, "archive", "--to", str(tmp_path / "archive"), "--once", *reader)
        await fleethpa(tmp_path, "pause", "c0/n0/app0", "--reason", "INC-1", *operator)
        denied = await fleethpa(tmp_path, "pause", "c0/n0/app0", *reader, code=3)
        assert "Error:" in denied
        assert "this user may not see the topic" in denied
        for name in ("observer-0", "reconciler-0", "ingest-0", "decider-0"):
            await rig.stop(name)
        reset = ("ingest", "reset", topics.PODS, "1", "--yes", "--reason", "made again")
        assert "its recorded offsets are dropped; ingest continues from" in await fleethpa(tmp_path, *reset, *operator)


async def test_a_part_that_is_denied_something_says_so_and_ends(guarded: Guarded, tmp_path: Path) -> None:
    for user, (kind, withheld) in DENIED.items():
        await grant(guarded.admin, kind, f"User:{user}", withheld=withheld)
    await grant(guarded.admin, "operator", "User:operator")
    world = World(clusters=1, namespaces=1, hpas=1)
    rig = Rig(guarded.broker, tmp_path / "rig", world, settings=guarded.admin, properties=guarded.properties)
    async with rig:
        parts = {user: rig.add(f"{kind}-{user}", signed_in_as=user) for user, (kind, _) in DENIED.items()}
        deadline = time.monotonic() + 150
        for user, (kind, withheld) in DENIED.items():
            part = parts[user]
            while not part.ended:
                assert time.monotonic() < deadline, f"{kind} without {withheld} hangs:\n{part.tail()}"
                await asyncio.sleep(0.2)
            said = part.tail()
            assert part.running.returncode == 3, said
            assert "Error:" in said, said
            assert "denies" in said, said
            assert "Next:" in said, said


async def test_a_wrong_password_is_an_error_in_words(guarded: Guarded, tmp_path: Path) -> None:
    text = guarded.properties["reader"].read_text().replace("reader-secret", "wrong")
    (tmp_path / "wrong.properties").write_text(text)
    reach = ("--brokers", guarded.broker.bootstrap, "--kafka-config", str(tmp_path / "wrong.properties"))
    assert "cannot talk to Kafka" in await fleethpa(tmp_path, "get", "hpa", "-A", *reach, code=3)
    command = [sys.executable, "-m", "fleethpa", "run", "ingest", *reach]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=90, cwd=ROOT)
    assert done.returncode == 3, done.stderr
    assert "check the address, TLS and credentials" in done.stderr

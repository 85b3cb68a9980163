"""Parts signed in with SCRAM over TLS that lack a permission; `test_hostile_fleet.py` has those that lack none."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.topicneeds import Component
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import Rig, World
from tests.kafka.granting import grant
from tests.kafka.secured import scram, secured_broker
from tests.kafka.test_pipeline import fleethpa
from tests.kit.decider_process import ROOT
from tests.patience import PATIENCE_S

USERS = ("reader", "operator")
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


async def test_a_part_that_is_denied_something_says_so_and_ends(guarded: Guarded, tmp_path: Path) -> None:
    for user, (kind, withheld) in DENIED.items():
        await grant(guarded.admin, kind, f"User:{user}", withheld=withheld)
    await grant(guarded.admin, "operator", "User:operator")
    world = World(clusters=1, namespaces=1, hpas=1)
    rig = Rig(guarded.broker, tmp_path / "rig", world, settings=guarded.admin, properties=guarded.properties)
    async with rig:
        parts = {user: rig.add(f"{kind}-{user}", signed_in_as=user) for user, (kind, _) in DENIED.items()}
        deadline = time.monotonic() + PATIENCE_S
        for user, (kind, withheld) in DENIED.items():
            part = parts[user]
            while not part.ended:
                assert time.monotonic() < deadline, f"{kind} without {withheld} hangs:\n{part.tail()}"
                await asyncio.sleep(0.2)
            stated = part.tail()
            assert part.running.returncode == 3, stated
            assert "Error:" in stated, stated
            assert "denies" in stated, stated
            assert "Next:" in stated, stated


async def test_a_wrong_password_is_an_error_in_words(guarded: Guarded, tmp_path: Path) -> None:
    text = guarded.properties["reader"].read_text().replace("reader-secret", "wrong")
    (tmp_path / "wrong.properties").write_text(text)
    reach = ("--brokers", guarded.broker.bootstrap, "--kafka-config", str(tmp_path / "wrong.properties"))
    assert "cannot talk to Kafka" in await fleethpa(tmp_path, "get", "hpa", "-A", *reach, code=3)
    command = [sys.executable, "-m", "fleethpa", "run", "ingest", *reach]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT
    )
    assert done.returncode == 3, done.stderr
    assert "check the address, TLS and credentials" in done.stderr


async def test_a_reader_may_compare_topics_and_is_denied_writes_with_the_next_step(
    guarded: Guarded, tmp_path: Path
) -> None:
    await grant(guarded.admin, "reader", "User:reader")
    reach = ("--brokers", guarded.broker.bootstrap, "--kafka-config", str(guarded.properties["reader"]))
    assert "as fleethpa needs them" in await fleethpa(tmp_path, "doctor", "--only", "topics", *reach)
    denied = await fleethpa(tmp_path, "pause", "--all", "--reason", "INC-1", "--yes", *reach, code=3)
    assert "It has no permission to write to any topic." in denied
    assert "fleethpa admin topics acls operator" in denied
